"""Reading in a task, without Spark: gaps, losses, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from moldau.arrow.pieces import pieces
from moldau.peer import cluster
from moldau.peer.errors import ConnectionLost, OffsetOutOfRange
from moldau.peer.fetch_stream import FetchStream
from moldau.records.batch import CorruptBatch
from moldau.records.record import Record, build_batch
from moldau.spark.errors import DataLoss, ReadStalled
from moldau.spark.source import reading
from moldau.spark.source.options import ReadSettings, SourceOptions
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.reading import read_range
from moldau.testing import Broker
from moldau.wire.fetch.response import FetchedPartition
from tests.spark.batches import marked, transactional
from tests.spark.topics import delete_before, delete_topic, fresh_topic, numbered, produce


def settings_for(bootstrap: str, **more: str) -> ReadSettings:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "columns": "offset,value"}
    return SourceOptions.parse(given | more).read


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def no_more(room: memoryview) -> None:
    raise AssertionError(f"{len(room)} bytes more than there are")


class Script:
    """Stands in for the fetcher: what is told for each offset, and what was asked."""

    def __init__(self, answers: dict[int, bytes | Exception], high_watermark: int) -> None:
        self.answers = answers
        self.high_watermark = high_watermark
        self.asked: list[int] = []
        self.aborted: list[tuple[int, int]] = []

    def ask_ahead(self, offset: int) -> None:
        pass

    def fetch(self, offset: int) -> FetchStream:
        self.asked.append(offset)
        answer = self.answers.get(offset, b"")
        if isinstance(answer, Exception):
            raise answer
        end = self.high_watermark
        partition = FetchedPartition(0, 0, end, end, 0, aborted=self.aborted)
        return FetchStream(partition, len(answer), memoryview(answer), no_more, lambda: None)


def read_script(script: Script, start: int, end: int, **more: str) -> list[int]:
    settings = settings_for("host:1", **more)
    wanted = OffsetRange("orders", None, 0, start, end)
    return offsets(reading._read(script, wanted, settings))  # type: ignore[arg-type]


def batch(*found: int, base: int | None = None, span: int | None = None) -> bytes:
    records = [Record(offset, 0, None, b"") for offset in found]
    delta = None if base is None or span is None else span - 1
    return bytes(build_batch(records, base_offset=base, last_offset_delta=delta))


def test_offsets_that_compaction_removed_are_passed_over_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Offsets 3 to 9 are gone as a whole, 11 and 13 from within a batch, 14 and 15 at its end.
    script = Script({0: batch(0, 1, 2), 3: batch(10, 12, base=10, span=6), 16: batch(40)}, 41)
    assert read_script(script, 0, 30) == [0, 1, 2, 10, 12]
    # A broker that other tests share may say something meanwhile.
    assert [each for each in caplog.records if each.name.startswith("moldau.spark")] == []


def test_a_range_may_begin_and_end_inside_a_batch() -> None:
    script = Script({4: batch(2, 3, 4, 5), 6: batch(6, 7, 8, 9)}, 10)
    assert read_script(script, 4, 8) == [4, 5, 6, 7]


def test_a_gap_left_by_retention_is_reported_with_its_range() -> None:
    gap = OffsetOutOfRange("orders", 0, 2, 50, 90)
    script = Script({2: gap, 50: batch(50, 51)}, 90)
    with pytest.raises(DataLoss, match=r"orders-0: offsets 2 to 49 \(48 of them\) are gone"):
        read_script(script, 2, 52)


def test_a_gap_left_by_retention_is_passed_over_if_that_is_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gap = OffsetOutOfRange("orders", 0, 2, 50, 90)
    script = Script({2: gap, 50: batch(50, 51)}, 90)
    assert read_script(script, 2, 52, failOnDataLoss="false") == [50, 51]
    assert "offsets 2 to 49" in caplog.text


def test_a_range_that_retention_took_whole_is_reported_as_far_as_it_was_wanted() -> None:
    script = Script({2: OffsetOutOfRange("orders", 0, 2, 50, 90)}, 90)
    with pytest.raises(DataLoss, match="offsets 2 to 9 "):
        read_script(script, 2, 10)


def test_a_log_that_ends_early_is_a_loss() -> None:
    script = Script({0: batch(0, 1), 2: OffsetOutOfRange("orders", 0, 2, 0, 1)}, 1)
    with pytest.raises(DataLoss, match=r"offsets 2 to 9 .* the log ends at 1"):
        read_script(script, 0, 10)


def test_a_log_that_does_not_grow_back_is_a_loss_after_a_while() -> None:
    script = Script({0: batch(0, 1)}, 2)
    with pytest.raises(DataLoss, match="the log ends at 2"):
        read_script(script, 0, 10, **{"kafkaConsumer.pollTimeoutMs": "1"})


@pytest.mark.parametrize("answer", [b"", batch(0, 1)], ids=["nothing", "old records"])
def test_a_broker_that_gives_nothing_new_is_an_error_after_a_while(answer: bytes) -> None:
    script = Script({0: batch(0, 1), 2: answer}, 100)
    with pytest.raises(ReadStalled, match="no records from offset 2 on"):
        read_script(script, 0, 10, **{"kafkaConsumer.pollTimeoutMs": "1"})


def test_a_first_batch_that_is_cut_short_is_an_error() -> None:
    script = Script({0: batch(0, 1, 2)[:-1]}, 3)
    with pytest.raises(CorruptBatch, match="sent an incomplete batch at offset 0"):
        read_script(script, 0, 3)


class Breaking(Script):
    """The connection breaks after so many bytes of every answer."""

    def __init__(self, answers: dict[int, bytes | Exception], end: int, after: int) -> None:
        super().__init__(answers, end)
        self.after = after
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def fetch(self, offset: int) -> FetchStream:
        whole = super().fetch(offset)
        first = memoryview(bytearray(min(self.after, whole.size)))
        whole.fill(first)

        def lost(room: memoryview) -> None:
            raise ConnectionLost("host:1", "broken")

        return FetchStream(whole.partition, whole.size, first, lost, lambda: None)


def test_what_came_before_a_connection_broke_is_kept_and_the_rest_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "pieces", partial(pieces, target_bytes=1))
    parts = [batch(0, 1), batch(2, 3), batch(4, 5)]
    answers: dict[int, bytes | Exception] = {
        0: b"".join(parts), 2: b"".join(parts[1:]), 4: parts[2]
    }  # fmt: skip
    script = Breaking(answers, 6, after=len(parts[0]) + 20)
    assert read_script(script, 0, 6) == [0, 1, 2, 3, 4, 5]
    assert script.asked == [0, 2, 4]
    assert script.closed == 2


def test_a_connection_that_breaks_again_and_again_is_an_error_in_the_end() -> None:
    script = Breaking({0: batch(0, 1)}, 2, after=20)
    with pytest.raises(ConnectionLost, match="broken"):
        read_script(script, 0, 2, **{"kafka.default.api.timeout.ms": "200"})
    assert 1 < len(script.asked) < 20


def test_the_end_of_an_aborted_transaction_is_noticed_in_a_piece_that_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "pieces", partial(pieces, target_bytes=1))
    log = [
        transactional(0, 7), marked(1, 7, commits=False),
        transactional(2, 7), marked(3, 7, commits=True),
    ]  # fmt: skip
    script = Script({2: b"".join(log)}, 4)
    script.aborted = [(7, 0)]
    assert read_script(script, 2, 4) == [2]


def test_a_range_that_ends_inside_an_answer_leaves_the_connection_for_the_next_task(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "pieces", partial(pieces, target_bytes=1))
    topic = fresh_topic(moldau_broker)
    produce(moldau_broker, topic, numbered(0, 300), per_batch=50)
    settings = settings_for(moldau_broker.bootstrap)
    assert offsets(read_range(OffsetRange(topic, None, 0, 0, 60), settings)) == list(range(60))
    monkeypatch.setattr(cluster, "Connection", None)  # None can be made any more.
    assert offsets(read_range(OffsetRange(topic, None, 0, 60, 300), settings)) == [*range(60, 300)]


def test_a_restart_of_the_broker_in_the_middle_is_survived(moldau_broker: Broker) -> None:
    topic = fresh_topic(moldau_broker)
    produce(moldau_broker, topic, numbered(0, 1000), per_batch=50)
    settings = settings_for(moldau_broker.bootstrap, **{"kafka.max.partition.fetch.bytes": "2000"})
    batches = read_range(OffsetRange(topic, None, 0, 10, 990), settings)
    read = next(batches)["offset"].to_pylist()
    moldau_broker.stop()
    moldau_broker.start()
    assert read + offsets(batches) == list(range(10, 990))


def test_connections_are_kept_for_the_next_task(moldau_broker: Broker) -> None:
    from moldau.spark.runtime.pool import borrowed

    settings = settings_for(moldau_broker.bootstrap)
    with borrowed(settings) as first, borrowed(settings) as second:
        assert first is not second
    with borrowed(settings) as third:
        assert third in (first, second)


def test_a_reader_that_is_given_up_leaves_no_half_read_connection(moldau_broker: Broker) -> None:
    topic = fresh_topic(moldau_broker)
    produce(moldau_broker, topic, numbered(0, 300), per_batch=50)
    settings = settings_for(moldau_broker.bootstrap, **{"kafka.max.partition.fetch.bytes": "1000"})
    wanted = OffsetRange(topic, None, 0, 0, 300)
    abandoned = read_range(wanted, settings)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert offsets(read_range(wanted, settings)) == list(range(300))


def test_deleted_records_and_recreated_topics_are_noticed_in_the_task(
    moldau_broker: Broker,
) -> None:
    from moldau.spark.runtime.pool import borrowed
    from moldau.spark.source.options import Subscription
    from moldau.spark.source.plan import look_up

    topic = fresh_topic(moldau_broker)
    produce(moldau_broker, topic, numbered(0, 100))
    settings = settings_for(moldau_broker.bootstrap)
    with borrowed(settings) as cluster:
        topic_id = look_up(cluster, Subscription(topics=(topic,))).ids[topic]
    delete_before(moldau_broker, topic, 30)
    with pytest.raises(DataLoss, match="offsets 0 to 29"):
        offsets(read_range(OffsetRange(topic, topic_id, 0, 0, 100), settings))
    delete_topic(moldau_broker, topic)
    moldau_broker.create_topic(topic)
    produce(moldau_broker, topic, numbered(0, 100))
    with pytest.raises(DataLoss, match="deleted and created again"):
        offsets(read_range(OffsetRange(topic, topic_id, 0, 40, 100), settings))
