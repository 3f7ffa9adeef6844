"""The stream reader's decisions, taken in this process against a real broker."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from moldau.peer.errors import UnknownTopic
from moldau.spark.errors import DataLoss, OptionError
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.plan import Subscribed
from moldau.spark.source.progress import is_topic
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.stream import StreamReader
from moldau.testing import Broker
from tests.spark.topics import (
    add_partitions,
    delete_topic,
    fresh_topic,
    numbered,
    produce,
)

EVERYTHING = ReadAllAvailable()


def reader(broker: Broker, topic: str, **more: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    if not {"subscribePattern", "assign"} & more.keys():
        given["subscribe"] = topic
    return StreamReader(SourceOptions.parse(given | more))


def planned(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    found = []
    for piece in stream.partitions(start, end):
        assert isinstance(piece, OffsetRange)
        found.append((piece.partition, piece.start, piece.end))
    return sorted(found)


def topics(offset: dict[str, Any]) -> set[str]:
    return {name for name in offset if is_topic(name)}


def test_a_stream_starts_where_it_is_told_and_ends_where_the_log_does(
    moldau_session_broker: Broker,
) -> None:
    topic = fresh_topic(moldau_session_broker, 2)
    produce(moldau_session_broker, topic, numbered(0, 10))
    assert reader(moldau_session_broker, topic).initialOffset()[topic] == {"0": 0, "1": 0}
    stream = reader(moldau_session_broker, topic, startingOffsets="latest")
    start = stream.initialOffset()
    assert start[topic] == {"0": 10, "1": 0}
    assert stream.latestOffset(start, EVERYTHING) == start
    produce(moldau_session_broker, topic, numbered(10, 5))
    end = stream.latestOffset(start, EVERYTHING)
    assert end[topic] == {"0": 15, "1": 0}
    assert planned(stream, start, end) == [(0, 10, 15)]
    assert planned(stream, end, end) == []
    assert stream.reportLatestOffset() == end
    stream.stop()


def test_a_first_batch_from_the_end_is_empty_so_that_its_end_says_where_it_began(
    moldau_session_broker: Broker,
) -> None:
    topic = fresh_topic(moldau_session_broker, 2)
    produce(moldau_session_broker, topic, numbered(0, 10), first_ms=1_000)
    beginnings = (
        {"startingOffsets": "latest"},
        {"startingOffsets": f'{{"{topic}": {{"0": -1, "1": 0}}}}'},
        {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"},
    )
    streams = [reader(moldau_session_broker, topic, **beginning) for beginning in beginnings]
    starts = [stream.initialOffset() for stream in streams]
    produce(moldau_session_broker, topic, numbered(10, 5))
    produce(moldau_session_broker, topic, numbered(0, 3), partition=1)
    ends = [
        stream.latestOffset(start, EVERYTHING)
        for stream, start in zip(streams, starts, strict=True)
    ]
    assert [end[topic] for end in ends] == [
        {"0": 10, "1": 0},
        {"0": 10, "1": 3},
        {"0": 10, "1": 0},
    ]
    # Spark asks a reader that comes after a crash for its start again: nothing is left out.
    for beginning, end in zip(beginnings, ends, strict=True):
        again = reader(moldau_session_broker, topic, **beginning)
        assert planned(again, again.initialOffset(), end) == planned(again, starts[0], end)
        assert again.latestOffset(end, EVERYTHING)[topic] == {"0": 15, "1": 3}


def test_offsets_may_be_given_by_partition_and_by_time(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10), first_ms=1_000)

    def start(**more: str) -> Any:
        return reader(moldau_session_broker, topic, **more).initialOffset()[topic]["0"]

    assert start(startingOffsets=f'{{"{topic}": {{"0": 4}}}}') == 4
    assert start(startingOffsets=f'{{"{topic}": {{"0": -1}}}}') == 10
    assert start(startingTimestamp="1003") == 3
    assert start(startingOffsetsByTimestamp=f'{{"{topic}": {{"0": 1007}}}}') == 7
    with pytest.raises(OptionError, match="no record at or after timestamp 5000"):
        start(startingTimestamp="5000")
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert start(startingTimestamp="5000", **lenient) == 10
    with pytest.raises(OptionError, match=f"missing: {topic}-0; not read: {topic}-5"):
        start(startingOffsets=f'{{"{topic}": {{"5": 4}}}}')


def test_a_limit_holds_a_batch_back(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10))
    stream = reader(moldau_session_broker, topic, maxOffsetsPerTrigger="4")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    offset, seen = stream.initialOffset(), []
    while (end := stream.latestOffset(offset, limit)) != offset:
        seen.append(end[topic]["0"])
        offset = end
    assert seen == [4, 8, 10]
    assert stream.latestOffset(stream.initialOffset(), EVERYTHING)[topic]["0"] == 10


def test_a_batch_waits_for_enough_records_but_not_for_ever(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    waiting = {"minOffsetsPerTrigger": "5"}
    stream = reader(moldau_session_broker, topic, **waiting)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = stream.initialOffset()
    # The first batch is due at once, as in Spark's source; from then on there is waiting.
    stream.latestOffset(start, limit)
    produce(moldau_session_broker, topic, numbered(0, 4))
    assert stream.latestOffset(start, limit) == start
    produce(moldau_session_broker, topic, numbered(4, 1))
    assert stream.latestOffset(start, limit)[topic]["0"] == 5
    hasty = reader(moldau_session_broker, topic, maxTriggerDelay="0s", **waiting)
    assert hasty.latestOffset(start, limit)[topic]["0"] == 5


def test_available_now_stops_at_what_was_there(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10))
    stream = reader(moldau_session_broker, topic, minOffsetsPerTrigger="500")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    produce(moldau_session_broker, topic, numbered(10, 10))
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end[topic] == {"0": 10}
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_new_partitions_are_read_from_their_start(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    stream = reader(moldau_session_broker, topic, startingOffsets="latest")
    start = stream.initialOffset()
    add_partitions(moldau_session_broker, topic, 3)
    produce(moldau_session_broker, topic, numbered(0, 5), partition=2)
    end = stream.latestOffset(start, EVERYTHING)
    assert end[topic] == {"0": 0, "1": 0, "2": 5}
    assert planned(stream, start, end) == [(2, 0, 5)]


def test_new_topics_that_match_are_picked_up(moldau_session_broker: Broker) -> None:
    first = fresh_topic(moldau_session_broker)
    pattern = f"{first}(-more)?"
    stream = reader(moldau_session_broker, first, subscribePattern=pattern)
    start = stream.initialOffset()
    assert topics(start) == {first}
    moldau_session_broker.create_topic(f"{first}-more")
    produce(moldau_session_broker, f"{first}-more", numbered(0, 2))
    end = stream.latestOffset(start, EVERYTHING)
    assert end[f"{first}-more"] == {"0": 2}
    assert [(piece.topic, piece.end) for piece in stream.partitions(start, end)] == [  # type: ignore[attr-defined]
        (f"{first}-more", 2)
    ]


def test_a_pattern_is_searched_for_in_names_as_sparks_own_source_does(
    moldau_session_broker: Broker,
) -> None:
    first = fresh_topic(moldau_session_broker)
    moldau_session_broker.create_topic(f"old-{first}.eu")
    stream = reader(moldau_session_broker, first, subscribePattern=rf"{first}\p{{Punct}}")
    assert topics(stream.initialOffset()) == {f"old-{first}.eu"}
    stream = reader(moldau_session_broker, first, subscribePattern=rf"{first}\b")
    assert topics(stream.initialOffset()) == {first, f"old-{first}.eu"}


def test_a_topic_that_was_created_again_is_a_loss(moldau_session_broker: Broker) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10))
    stream = reader(moldau_session_broker, topic)
    start = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    delete_topic(moldau_session_broker, topic)
    moldau_session_broker.create_topic(topic)
    produce(moldau_session_broker, topic, numbered(0, 12))
    end = stream.latestOffset(start, EVERYTHING)
    with pytest.raises(DataLoss, match="deleted and created again"):
        stream.partitions(start, end)
    careless = reader(moldau_session_broker, topic, failOnDataLoss="false")
    assert planned(careless, start, end) == [(0, 0, 12)]


def test_partitions_that_came_after_a_first_batch_was_planned_are_left_to_the_next(
    moldau_session_broker: Broker,
) -> None:
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 5))
    stream = reader(moldau_session_broker, topic)
    end = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    add_partitions(moldau_session_broker, topic, 2)
    produce(moldau_session_broker, topic, numbered(0, 3), partition=1)
    again = reader(moldau_session_broker, topic)
    assert planned(again, again.initialOffset(), end) == [(0, 0, 5)]
    assert planned(again, end, again.latestOffset(end, EVERYTHING)) == [(1, 0, 3)]


def test_partitions_that_are_gone_are_a_loss_before_a_batch_is_planned_without_them(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.source.stream.CATCH_UP_WITHIN_S", 0.1)
    topic = fresh_topic(moldau_session_broker)
    start = {topic: {"0": 0, "1": 7}}
    with pytest.raises(DataLoss, match=f"{topic}-1 is gone"):
        reader(moldau_session_broker, topic).latestOffset(start, EVERYTHING)
    # As a batch was planned that an older version left in the checkpoint.
    with pytest.raises(DataLoss, match=f"{topic}-1 is gone"):
        reader(moldau_session_broker, topic).partitions(start, {topic: {"0": 0}})


def subscribed(topic: str, how: str) -> dict[str, str]:
    return {
        "subscribe": {"subscribe": topic},
        "subscribePattern": {"subscribePattern": f"^{topic}$"},
        "assign": {"assign": f'{{"{topic}": [0]}}'},
    }[how]


@pytest.mark.parametrize("how", ["subscribe", "subscribePattern", "assign"])
def test_a_deleted_topic_stops_a_stream_only_where_losses_do(
    moldau_session_broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    monkeypatch.setattr("moldau.spark.source.stream.CATCH_UP_WITHIN_S", 0.1)
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    produce(broker, topic, numbered(0, 10))
    careless = {"failOnDataLoss": "false", "commitGroup": "careless"} | subscribed(topic, how)
    stream = reader(broker, topic, **careless)
    start = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    delete_topic(broker, topic)
    for restarted in (stream, reader(broker, topic, **careless)):
        # While it is gone there is nothing new, and that is said once.
        caplog.clear()
        assert restarted.latestOffset(start, EVERYTHING) == start
        assert restarted.latestOffset(start, EVERYTHING) == start
        assert caplog.text.count(f"{topic}-0 is gone; records may have been deleted unread") == 1
        assert planned(restarted, start, start) == []
    bounded = reader(broker, topic, **careless)
    bounded.prepareForTriggerAvailableNow()
    assert bounded.latestOffset(start, EVERYTHING) == start
    # Losses that are fatal are so before a batch is planned: the checkpoint stays as it is.
    strict = reader(broker, topic, **subscribed(topic, how))
    with pytest.raises(DataLoss, match=rf"{topic}-0 is gone.*failOnDataLoss to false"):
        strict.latestOffset(start, EVERYTHING)
    broker.create_topic(topic)
    produce(broker, topic, numbered(100, 4))
    end = stream.latestOffset(start, EVERYTHING)
    assert end[topic] == {"0": 4}
    assert planned(stream, start, end) == [(0, 0, 4)]
    assert "deleted and created again" in caplog.text
    with pytest.raises(DataLoss, match="deleted and created again"):
        strict.partitions(start, strict.latestOffset(start, EVERYTHING))


def test_a_topic_that_a_broker_did_not_know_for_a_moment_is_not_read_again(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.source.stream.CATCH_UP_WITHIN_S", 0.1)
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10))
    stream = reader(moldau_session_broker, topic, failOnDataLoss="false")
    start = stream.latestOffset(stream.initialOffset(), EVERYTHING)
    with monkeypatch.context() as forgetful:
        forgetful.setattr("moldau.spark.source.stream.look_up", lambda *_, **__: Subscribed((), {}))
        unseen = stream.latestOffset(start, EVERYTHING)
        assert planned(stream, start, unseen) == []
    produce(moldau_session_broker, topic, numbered(10, 5))
    assert planned(stream, unseen, stream.latestOffset(unseen, EVERYTHING)) == [(0, 10, 15)]


def test_a_topic_that_never_was_there_is_not_taken_for_a_deleted_one(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.source.stream.CATCH_UP_WITHIN_S", 0.1)
    topic = fresh_topic(moldau_session_broker)
    both = {"subscribe": f"{topic},misspelt", "failOnDataLoss": "false"}
    with pytest.raises(UnknownTopic, match="'misspelt' does not exist"):
        reader(moldau_session_broker, topic, **both).initialOffset()
    start = reader(moldau_session_broker, topic).initialOffset()
    for trigger in ("each", "available now"):
        stream = reader(moldau_session_broker, topic, **both)
        if trigger == "available now":
            stream.prepareForTriggerAvailableNow()
        with pytest.raises(UnknownTopic, match="'misspelt' does not exist"):
            stream.latestOffset(start, EVERYTHING)


def test_a_topic_that_is_deleted_before_it_is_first_read_is_passed_over_or_a_loss(
    moldau_session_broker: Broker,
) -> None:
    first = fresh_topic(moldau_session_broker)
    pattern = {"subscribePattern": f"^{first}(-more)?$", "kafka.default.api.timeout.ms": "300"}
    stream = reader(moldau_session_broker, first, failOnDataLoss="false", **pattern)
    start = stream.initialOffset()
    moldau_session_broker.create_topic(f"{first}-more")
    produce(moldau_session_broker, f"{first}-more", numbered(0, 2))
    end = stream.latestOffset(start, EVERYTHING)
    delete_topic(moldau_session_broker, f"{first}-more")
    assert planned(stream, start, end) == []
    with pytest.raises(DataLoss, match=f"{first}-more-0 is gone"):
        reader(moldau_session_broker, first, **pattern).partitions(start, end)


def test_a_log_that_ends_before_what_was_read_is_a_loss(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.source.stream.CATCH_UP_WITHIN_S", 0.1)
    topic = fresh_topic(moldau_session_broker)
    produce(moldau_session_broker, topic, numbered(0, 10))
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 10 to 19 "):
        reader(moldau_session_broker, topic).latestOffset({topic: {"0": 20}}, EVERYTHING)
    careless = reader(moldau_session_broker, topic, failOnDataLoss="false")
    assert careless.latestOffset({topic: {"0": 20}}, EVERYTHING)[topic] == {"0": 20}


def test_a_group_that_cannot_be_committed_to_does_not_stop_the_stream(
    moldau_session_broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from moldau.peer.cluster import Cluster
    from moldau.peer.errors import Refused

    def refuse(*_: object, **__: object) -> None:
        raise Refused(30, "commit")

    monkeypatch.setattr(Cluster, "commit_offsets", refuse)
    topic = fresh_topic(moldau_session_broker)
    stream = reader(moldau_session_broker, topic, commitGroup="lag")
    start = stream.initialOffset()
    stream.latestOffset(start, EVERYTHING)
    stream.latestOffset(start, EVERYTHING)
    assert caplog.text.count("could not commit progress to group 'lag'") == 1
