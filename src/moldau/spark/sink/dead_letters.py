"""Dead letters: records that do not parse, set aside in a topic.

A dead letter is the record as it was: key, value and headers. Further headers say where it comes
from and what is wrong with it. Tasks write them while they read, and end only when the brokers have
acknowledged them: they are there before their batch counts as done. They are written in a
transaction, and the commit log knows the offsets whose letters are written, so that a task that
Spark runs again does not write them twice. Without transactions it does; origin topic, partition
and offset tell such copies.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from moldau.client.pipelines.letters import (
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    ORIGIN_TOPIC_ID,
    REASON,
    SOURCE,
)
from moldau.spark.formats.errors import BadRecord
from moldau.spark.formats.spec import BadRecords
from moldau.spark.sink.staged_letters import Letter, Reading, StagedLetters, open_letters

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.security.client import ClientSecurity
    from moldau.spark.formats.arrow_columns import Reasons
    from moldau.spark.sink.outlet import Outlet

# A reason may quote the record; as a header it need not be a second copy of it.
LONGEST_REASON = 1000

_outlets: dict[tuple[int, str], Outlet] = {}


class DeadLetters:
    """The way out for the bad records of one task.

    Closed before it is flushed, it takes back what it can.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: BadRecords,
        source: str,
        reading: Reading,
        security: ClientSecurity | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._settings = settings
        self._source = source
        self._reading = reading
        self._out: StagedLetters | Outlet | None = None

    def send(self, records: pa.RecordBatch, bad: Reasons, topic: str, partition: int) -> None:
        """Send the bad ones among these records; BadRecord if there is no topic for them."""
        offsets = records.column("offset")
        if self._settings.topic is None:
            first = min(bad)
            raise BadRecord(topic, partition, offsets[first].as_py(), bad[first])
        if not self._settings.sends:
            return
        wanted = self._settings.topic
        out = self._opened(wanted)
        keys, values = records.column("key"), records.column("value")
        headers = records.column("headers")
        letters = []
        for row, reason in sorted(bad.items()):
            own = [(item["key"], item["value"]) for item in headers[row].as_py() or ()]
            offset = offsets[row].as_py()
            added = self._headers(topic, partition, offset, reason)
            letters.append(Letter(offset, keys[row].as_py(), values[row].as_py(), [*own, *added]))
        if isinstance(out, StagedLetters):
            out.send(wanted, letters)
            return
        for letter in letters:
            out.send(wanted, letter.key, letter.value, -1, letter.headers)
        out.poll()

    def flush(self) -> None:
        """Return when everything that was sent has arrived, and can be read."""
        if self._out is None:
            return
        self._out.flush()
        if not isinstance(self._out, StagedLetters):
            # Not reached after a failure: the next task gets a producer that knows nothing of it.
            _outlets[os.getpid(), self._bootstrap] = self._out
        self._out = None

    def close(self) -> None:
        """End without having flushed."""
        if isinstance(self._out, StagedLetters):
            self._out.discard()
        self._out = None

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
        topic_id = self._reading.partition.topic_id
        if topic_id is not None:
            texts[ORIGIN_TOPIC_ID] = str(topic_id)
        # A reason that quotes half a character of the record is still a reason.
        return [(name, text.encode(errors="backslashreplace")) for name, text in texts.items()]

    def _opened(self, topic: str) -> StagedLetters | Outlet:
        if self._out is None:
            self._out = open_letters(self._bootstrap, self._security, self._reading)
        if self._out is None:
            kept = _outlets.pop((os.getpid(), self._bootstrap), None)
            self._out = kept or _new_outlet(self._bootstrap, self._security)
            self._out.check(topic)
        return self._out


def _new_outlet(bootstrap: str, security: ClientSecurity | None) -> Outlet:
    from moldau.client.connection import secured
    from moldau.spark.sink.outlet import Outlet

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "moldau-dead-letters",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
    }
    if security is not None:
        settings |= security.properties()
    return Outlet(secured(settings))
