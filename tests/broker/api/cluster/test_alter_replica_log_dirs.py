from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


def move(
    asker: Asker, *moves: tuple[str, str, list[int]], version: int | None = None
) -> dict[tuple[str, int], Error]:
    """The outcome for each partition that is to lie in a folder."""
    folders = [
        {"path": path, "topics": [{"name": name, "partitions": indexes}]}
        for path, name, indexes in moves
    ]
    answer = asker.ask(Api.ALTER_REPLICA_LOG_DIRS, version, dirs=folders)
    return {
        (topic.topic_name, each.partition_index): Error(each.error_code)
        for topic in answer.results
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions(Api.ALTER_REPLICA_LOG_DIRS))
def test_where_it_is_a_partition_may_stay(
    moldau_session_broker: Broker, asker: Asker, version: int
) -> None:
    name, here = fresh_name(), str(moldau_session_broker.data_dir)
    asker.create(name, 2)
    outcomes = move(asker, (here, name, [0, 1, 9]), version=version)
    assert outcomes == {
        (name, 0): Error.NONE,
        (name, 1): Error.NONE,
        (name, 9): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("path", ["/somewhere/else", "", "moldau-data"])
def test_there_is_no_other_folder(asker: Asker, path: str) -> None:
    name, unknown = fresh_name(), fresh_name()
    asker.create(name)
    outcomes = move(asker, (path, name, [0]), (path, unknown, [0]))
    assert set(outcomes.values()) == {Error.LOG_DIR_NOT_FOUND}


def test_a_name_that_leaves_no_room_for_a_copy_is_refused_as_kafka_does(
    moldau_session_broker: Broker, asker: Asker
) -> None:
    here = str(moldau_session_broker.data_dir)
    longest, longer = "x" * 213, "x" * 214
    outcomes = move(asker, (here, longest, [0]), ("/elsewhere", longer, [0]))
    assert outcomes[longest, 0] is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes[longer, 0] is Error.INVALID_TOPIC_EXCEPTION


def test_the_last_of_two_folders_counts_and_nothing_is_answered_with_nothing(
    moldau_session_broker: Broker, asker: Asker
) -> None:
    name, here = fresh_name(), str(moldau_session_broker.data_dir)
    asker.create(name)
    assert move(asker, ("/elsewhere", name, [0]), (here, name, [0])) == {(name, 0): Error.NONE}
    assert move(asker, (here, name, [])) == {}
    assert move(asker) == {}
