"""The API is fuzzed by its own OpenAPI document: whatever comes, no call may fail unexpectedly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.consoles import RunningConsole

schemathesis = pytest.importorskip("schemathesis")

# Streams go on for as long as somebody looks; the fuzzer would look for ever.
STREAMS = "/(tail|events)$"


@pytest.mark.slow
def test_no_call_answers_with_an_error_of_its_own(console: RunningConsole) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi.checks import response_schema_conformance

    schema = schemathesis.openapi.from_url(f"{console.url}/api/openapi.json")
    failures = []
    operations = [result.ok() for result in schema.exclude(path_regex=STREAMS).get_all_operations()]
    assert len(operations) > 40
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(
            max_examples=15,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        )
        def check(case: Any) -> None:
            answer = case.call(base_url=console.url, timeout=60)
            if answer.status_code >= 500 and answer.status_code not in (502, 503):
                failures.append(f"{case.method} {case.formatted_path}: {answer.text[:300]}")
            if answer.status_code < 300:
                # Whatever is answered is what the document says.
                case.validate_response(answer, checks=(response_schema_conformance,))

        check()
    assert failures == []
