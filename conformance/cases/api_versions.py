"""ApiVersions, and which APIs each broker offers."""

from __future__ import annotations

from conformance.registry import case, scenario
from conformance.session import Session
from moldau.wire.apis import Api


@case(Api.API_VERSIONS)
def who_asks(s: Session, version: int) -> None:
    # The ranges are compared below, once.
    for what, name, number in (
        ("plain", "conformance", "1.0"),
        ("empty name", "", ""),
        ("a name with spaces", "two words", "1.0"),
        ("dots and dashes", "a-b.c", "1-2.3"),
        ("a dash first", "-a", "1"),
    ):
        answer = s.quietly(
            Api.API_VERSIONS, version, client_software_name=name, client_software_version=number
        )
        shown = {
            "error_code": answer.error_code.name,
            "keys": [int(k.api_key) for k in answer.api_keys],
        }
        shown["keys"] = shown["keys"] == sorted(shown["keys"])
        s.note(what, shown, Api.API_VERSIONS)


@scenario("Versions")
def ranges(s: Session) -> None:
    s.note(
        "ranges", {f"key {key}": f"{a}-{b}" for key, (a, b) in sorted(s.broker.versions.items())}
    )


@scenario("Versions")
def features(s: Session) -> None:
    answer = s.quietly(Api.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
    s.note("supported", sorted(each.name for each in answer.supported_features))
    s.note("finalized", sorted(each.name for each in answer.finalized_features))
    s.note("epoch known", answer.finalized_features_epoch >= 0)
