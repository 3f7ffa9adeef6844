from __future__ import annotations

import pytest

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, versions


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_QUORUM))
@pytest.mark.parametrize("topic", ["__cluster_metadata", "another"])
def test_there_is_no_quorum_and_the_answer_says_so(asker: Asker, topic: str, version: int) -> None:
    wanted = [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]
    answer = asker.ask(Api.DESCRIBE_QUORUM, version, topics=wanted)
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert not answer.topics
    if version >= 2:
        assert "there is no KRaft quorum" in answer.error_message
