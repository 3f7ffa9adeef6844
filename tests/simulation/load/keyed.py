"""Keyed writers and readers of a compacted topic: the last value of a key is never lost."""

from __future__ import annotations

from typing import Any

from moldau.records.batch import batches
from moldau.records.record import Record, build_batch, records_of
from moldau.wire.fetch.response import FetchedPartition
from tests.simulation.checks.history import History, Violation, Written
from tests.simulation.core.world import World
from tests.simulation.load.consumer import Consumer
from tests.simulation.load.producer import Idempotent
from tests.simulation.load.talker import Leader

_KEYS = 5
_DELETED_SHARE = 0.1


class Keyed(Idempotent):
    """Writes values of a few keys, and deletes some; all that it knows is in `written`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # By key, all values that were ever sent, in order; None deletes it.
        self.written: dict[bytes, list[bytes | None]] = {}
        self._place_of: dict[int, tuple[bytes, int]] = {}

    def _next_writes(self, leader: Leader, count: int) -> list[Written]:
        writes = super()._next_writes(leader, count)
        for write in writes:
            key = f"{self.name}:{write.number % _KEYS}".encode()
            values = self.written.setdefault(key, [])
            is_deleted = self.dice.random() < _DELETED_SHARE
            values.append(None if is_deleted else write.value)
            self._place_of[write.number] = (key, len(values) - 1)
        return writes

    def _encode(self, writes: list[Written], **more: Any) -> bytes:
        stamp = int(1_767_225_600_000 + self.loop.now_s * 1000)
        records = []
        for delta, write in enumerate(writes):
            key, place = self._place_of[write.number]
            records.append(Record(delta, stamp, key, self.written[key][place]))
        return bytes(build_batch(records, **more))

    def acknowledged(self) -> tuple[dict[bytes, int], int]:
        """The last value of each key that was acknowledged, and the last offset of all."""
        places: dict[bytes, int] = {}
        last = -1
        for write in self._mine:
            if write.acknowledged_s is not None:
                key, place = self._place_of[write.number]
                places[key] = max(place, places.get(key, -1))
                last = max(last, write.offset)
        return places, last

    @property
    def _mine(self) -> list[Written]:
        return [write for write in self._history.writes if write.producer == self.name]

    def check(self, reader: str, found: dict[bytes, bytes | None], least: dict[bytes, int]) -> None:
        """What somebody found who read from the beginning is as new as it has to be."""
        for key, place in least.items():
            values = self.written[key]
            value = found.get(key)
            if value not in values[place:] and not (value is None and None in values[place:]):
                raise Violation(
                    f"{reader} found {value!r} for {key!r} in the compacted topic, where "
                    f"{values[place]!r} was acknowledged"
                )


class KeyedReader(Consumer):
    """Reads a compacted topic from its beginning, again and again."""

    def __init__(
        self, world: World, history: History, name: str, writer: Keyed, topic: str, every_s: float
    ) -> None:
        super().__init__(world, history, name, topic, 0, every_s)
        self._writer = writer
        self._found: dict[bytes, bytes | None] = {}
        self.rounds = 0

    async def run(self) -> None:
        while not self.is_stopping:
            await self.read_through()
            await self.pause(5 * self._every_s)

    async def read_through(self) -> None:
        """Read everything that is acknowledged by now, and see whether it is there."""
        least, last = self._writer.acknowledged()
        self.position, self._found = 0, {}
        while self.position <= last and not self.is_stopping:
            await self.read_some()
            await self.pause(0.05)
        if self.position > last:
            self._writer.check(self.name, self._found, least)
            self._history.count("compacted topic read")
            self.rounds += 1

    def _take(self, leader: Leader, found: FetchedPartition) -> None:
        self.end = found.high_watermark
        data = bytes(found.records) if found.records is not None else b""
        for position, header in batches(data):
            if header.last_offset >= found.high_watermark:
                raise Violation(f"{self.name} read beyond {found.high_watermark}")
            for record in records_of(data, position):
                if record.offset >= self.position and record.key is not None:
                    self._found[record.key] = record.value
            self.position = max(self.position, header.last_offset + 1)
