"""Dead letters: records that do not parse, set aside in a topic.

A dead letter is the record as it was: key, value and headers. Further headers say where it comes
from and what is wrong with it. Tasks write them while they read, and end only when the brokers have
acknowledged them: they are there before their batch counts as done. A task that Spark runs twice
writes them twice; origin topic, partition and offset tell such copies.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from moldau.spark.formats.errors import BadRecord
from moldau.spark.formats.spec import BadRecords

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.formats.arrow_columns import Reasons
    from moldau.spark.sink.sink import Outlet

ORIGIN_TOPIC = "moldau.origin.topic"
ORIGIN_PARTITION = "moldau.origin.partition"
ORIGIN_OFFSET = "moldau.origin.offset"
REASON = "moldau.reason"
SOURCE = "moldau.source"

# A reason may quote the record; as a header it need not be a second copy of it.
LONGEST_REASON = 1000

_outlets: dict[tuple[int, str], Outlet] = {}


class DeadLetters:
    """The way out for the bad records of one task."""

    def __init__(self, bootstrap: str, settings: BadRecords, source: str) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._source = source
        self._outlet: Outlet | None = None

    def send(self, records: pa.RecordBatch, bad: Reasons, topic: str, partition: int) -> None:
        """Send the bad ones among these records; BadRecord if there is no topic for them."""
        offsets = records.column("offset")
        if self._settings.topic is None:
            first = min(bad)
            raise BadRecord(topic, partition, offsets[first].as_py(), bad[first])
        if not self._settings.sends:
            return
        outlet = self._opened(self._settings.topic)
        keys, values = records.column("key"), records.column("value")
        headers = records.column("headers")
        for row, reason in sorted(bad.items()):
            own = [(item["key"], item["value"]) for item in headers[row].as_py() or ()]
            outlet.send(
                self._settings.topic,
                keys[row].as_py(),
                values[row].as_py(),
                -1,
                [*own, *self._headers(topic, partition, offsets[row].as_py(), reason)],
            )
        outlet.poll()

    def flush(self) -> None:
        """Return when everything that was sent has arrived."""
        if self._outlet is not None:
            self._outlet.flush()
            # Not reached after a failure: the next task gets a producer that knows nothing of it.
            _outlets[os.getpid(), self._bootstrap] = self._outlet
            self._outlet = None

    def _headers(
        self, topic: str, partition: int, offset: int, reason: str
    ) -> list[tuple[str, bytes]]:
        texts = {
            ORIGIN_TOPIC: topic,
            ORIGIN_PARTITION: str(partition),
            ORIGIN_OFFSET: str(offset),
            REASON: reason[:LONGEST_REASON],
            SOURCE: self._source,
        }
        # A reason that quotes half a character of the record is still a reason.
        return [(name, text.encode(errors="backslashreplace")) for name, text in texts.items()]

    def _opened(self, topic: str) -> Outlet:
        if self._outlet is None:
            kept = _outlets.pop((os.getpid(), self._bootstrap), None)
            self._outlet = kept or _new_outlet(self._bootstrap)
            self._outlet.check(topic)
        return self._outlet


def _new_outlet(bootstrap: str) -> Outlet:
    from moldau.spark.sink.sink import Outlet

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "moldau-dead-letters",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
    }
    return Outlet(settings)
