"""Transactions in a log against a plain list, in any order of events."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.log import Log
from moldau.log.retention import delete_records_before
from moldau.log.store.store import LogStore
from moldau.log.truncation import truncate_to
from moldau.records.record import records_of
from tests.log.making import batch_of, make_log, open_store, put
from tests.log.transactions.transacting import Transactional, see_all, values
from tests.log.transactions.transactional import SMALL, copy_folder, flush, nothing, snapshots_gone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    opened = open_store(tmp_path / "data", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def log(store: LogStore) -> Log:
    return make_log(store)


# All of it together


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_whatever_happens_readers_see_what_was_committed(tmp_path: Path, seed: int) -> None:
    """Random transactions, rolls, flushes, crashes, truncations and deletions, beside a list of
    what each offset is worth."""
    choose = random.Random(seed)
    store = open_store(tmp_path / "0", SMALL)
    log = make_log(store)
    # Offset to (producer, value), and producer to the spans of its transactions: first, marker.
    written: dict[int, tuple[int, bytes]] = {}
    outcomes: dict[int, tuple[int, bool]] = {}
    life = 0

    def producers() -> list[Transactional]:
        made = []
        for number in range(4):
            producer = Transactional(log, number, bumps_epoch=number % 2 == 1)
            known = log.producers.get(number)
            if known is not None:
                producer.epoch = known.epoch
                if known.batches:
                    producer.sequence = known.batches[-1].last_sequence + 1
            made.append(producer)
        return made

    def forget(end: int) -> None:
        for table in (written, outcomes):
            for offset in [each for each in table if each >= end]:
                del table[offset]

    def expected() -> list[bytes]:
        found = []
        for offset in sorted(written):
            number, value = written[offset]
            ends = [at for at, (by, _) in outcomes.items() if by == number and at > offset]
            is_kept = number < 0 or (bool(ends) and outcomes[min(ends)][1])
            if offset >= log.log_start and offset < log.last_stable and is_kept:
                found.append(value)
        return found

    def stable(start: int) -> int:
        """Where the first transaction begins that is open, of those with records from there on."""
        opened = [
            offset
            for offset, (number, _) in written.items()
            if number >= 0
            and offset >= start
            and not any(by == number and at > offset for at, (by, _) in outcomes.items())
        ]
        return max(min(opened, default=log.log_end), log.log_start)

    for step in range(300):
        producer = choose.choice(producers())
        action = choose.random()
        value = b"%d" % step
        if action < 0.45:
            offset = producer.write(*[(b"k", value + b"x" * choose.randrange(60))])
            written[offset] = (producer.id, committed_value(log, offset))
        elif action < 0.75:
            commits = choose.random() < 0.5
            outcomes[producer.end(commits=commits)] = (producer.id, commits)
        elif action < 0.85:
            (offset,) = put(log, batch_of(size=choose.randrange(80)))
            written[offset] = (-1, committed_value(log, offset))
        elif action < 0.89:
            flush(log)
            store.prepare_checkpoint()()
        elif action < 0.92:
            end = choose.randrange(log.log_start, log.log_end + 1)
            truncate_to(log, end)
            forget(end)
        elif action < 0.94:
            see_all(log)
            delete_records_before(log, choose.randrange(log.log_start, log.log_end + 1))
        elif action < 0.98:
            life += 1
            is_clean = choose.random() < 0.3
            if is_clean:
                store.close()
            copy_folder(tmp_path / str(life - 1), tmp_path / str(life))
            if not is_clean:
                store.close()
                choose.choice([nothing, snapshots_gone])(tmp_path / str(life) / "t-0")
            store = open_store(tmp_path / str(life), SMALL)
            log = store.logs["t", 0]
        see_all(log)
        if step % 10 == 0:
            # A restart may forget a transaction of which nothing is left.
            assert stable(0) <= log.last_stable <= stable(log.log_start)
            assert values(log, max_bytes=choose.choice([1, 200, 10_000])) == expected()
    store.close()


def committed_value(log: Log, offset: int) -> bytes:
    """The value that was just written at an offset."""
    piece = log.read(offset, 1, log.log_end)
    assert piece is not None
    data = os.pread(piece.file.fd, piece.size, piece.position)
    (record,) = records_of(data)
    assert record.value is not None
    return record.value
