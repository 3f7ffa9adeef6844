"""The worker of a search: one process, one request, and then its end."""

from __future__ import annotations

import os
import resource
import time
from typing import Any, BinaryIO

import pyarrow as pa

from moldau.arrow.columns import arrow_schema
from moldau.arrow.decode import Decoder, scan
from moldau.console.search.columns import DECODED, FilterColumns, to_ms
from moldau.console.search.filter import BadFilter, connect, parse
from moldau.console.search.priority import give_way
from moldau.console.search.reading import RangeReader, in_turn
from moldau.console.search.request import (
    Done,
    Failed,
    Found,
    FoundRecord,
    Progress,
    SearchRequest,
    read_frame,
    write_frame,
)
from moldau.console.values.masks import Mask, Masks
from moldau.console.values.registered import RegisteredValues
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.records.batch import BatchError
from moldau.records.record import Record, build_batch
from moldau.schemas.client import RegistryClient
from moldau.security.client import ClientSecurity

_MOST_MEMORY = 6 << 30
# A broker sends as much at once as there is room for, and serves nobody else meanwhile. One that is
# further away has to fill the network, and never waits for that.
_RECEIVE_BYTES = 64 << 10
_TELL_EVERY_S = 0.25
# Whoever looks on reads no faster, and each time the console and a browser want a processor, too.
_SHOW_EVERY_S = 0.1
_SHOW_BYTES = 1 << 20


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    give_way()
    # Libraries print to standard output; the answers go where they cannot.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warm_up()
    with open(0, "rb", closefd=False) as source:
        request = read_frame(source, SearchRequest)
    if request is None:
        return
    try:
        Search(request, out).run()
    except BadFilter as problem:
        write_frame(out, Failed(str(problem), True))
    except (PeerError, BatchError) as problem:
        write_frame(out, Failed(str(problem)))
    except MemoryError:
        write_frame(out, Failed("the search needs more memory than it may use"))


def warm_up() -> None:
    """Do once, with a record of our own, what the first records of a search would wait for.

    The process may have been started before anybody searches. Kernels are loaded, or compiled
    where no process has done that before, and DuckDB makes its functions for JSON.
    """
    batch = bytearray(build_batch([Record(0, 0, b"key", b'{"n": 1}', [("name", b"")])]))
    with connect() as database:
        wanted = parse(database, "value.n = 1 AND key = 'key'")
        columns = FilterColumns(wanted, "", Masks(()), None)
        for decoded in Decoder(DECODED, "", 0).decode(scan(memoryview(batch), True), 0, 1):
            database.register("batch", columns.table(decoded))
            database.execute(wanted.query).fetchall()


class Search:
    """One search, from its request to its last answer."""

    def __init__(self, request: SearchRequest, out: BinaryIO) -> None:
        self._request = request
        self._out = out
        self._database = connect()
        wanted = parse(self._database, request.filter) if request.filter else None
        registered = None
        self._security = ClientSecurity.parse(request.security) if request.security else None
        if request.registry and wanted is not None and wanted.reads_value:
            registered = RegisteredValues(self._registry())
        masks = Masks(map(Mask.parse, request.masks))
        self._query = None if wanted is None else wanted.query
        self._columns = (
            None if wanted is None else FilterColumns(wanted, request.topic, masks, registered)
        )
        self._scanned = self._found = self._found_bytes = 0
        # What was found and is yet to be shown.
        self._kept: list[FoundRecord] = []
        self._kept_bytes = 0
        self._began = time.monotonic()
        self._told = self._shown = 0.0
        self._total = sum(each.end - each.start for each in request.ranges)
        self._positions = {each.partition: each.start for each in request.ranges}
        # Names and types that do not fit show at once, even if there is nothing to look at.
        self._passing(pa.RecordBatch.from_pylist([], arrow_schema(DECODED)))

    def _registry(self) -> RegistryClient:
        request = self._request
        if request.registry_own is not None:
            return RegistryClient.of(request.registry_own, user=request.registry_user)
        return RegistryClient(
            request.registry,
            user=request.registry_user,
            tls=None if self._security is None else self._security.context(),
            origin=(lambda: request.origin) if request.origin else None,
        )

    def run(self) -> None:
        request = self._request
        settings = PeerSettings(
            client_id="moldau-search",
            local_receive_bytes=_RECEIVE_BYTES,
            security=self._security,
            origin=(lambda: request.origin) if request.origin else None,
        )
        with Cluster(parse_bootstrap(request.bootstrap), settings) as cluster:
            readers = [
                RangeReader(cluster, request.topic, each, request.follows)
                for each in request.ranges
                if request.follows or each.start < each.end
            ]
            try:
                reason = self._go_through(readers)
            finally:
                self._show()
        self._tell(readers, is_last=True)
        write_frame(self._out, Done(reason, self._positions))

    def _go_through(self, readers: list[RangeReader]) -> str:
        request = self._request
        for reader, batch in in_turn(readers):
            if batch is None:
                self._positions[reader.partition] = reader.position
            elif self._look_at(reader.partition, batch):
                return "limit"
            if time.monotonic() - self._began > request.within_s:
                return "time"
            self._tell(readers)
        self._positions |= {each.partition: each.position for each in readers}
        return "end"

    def _look_at(self, partition: int, batch: pa.RecordBatch) -> bool:
        """Send on what passes the filter; returns whether that was enough."""
        rows = self._passing(batch)
        left = self._request.limit - self._found
        is_enough = len(rows) >= left
        rows = rows[:left]
        if rows:
            last = -1
            for each in _records(batch.take(pa.array(rows, pa.int64()))):
                size = len(each.value or b"") + len(each.key or b"") + 100
                self._found_bytes += size
                if self._found_bytes > self._request.most_bytes and self._found:
                    is_enough = True
                    break
                self._found += 1
                self._kept.append(each)
                self._kept_bytes += size
                last = each.offset
            if is_enough and last >= 0:
                self._positions[partition] = last + 1
        self._scanned += batch.num_rows
        if not is_enough:
            self._positions[partition] = batch.column("offset")[-1].as_py() + 1
        return is_enough

    def _passing(self, batch: pa.RecordBatch) -> list[int]:
        """Return the rows that pass the filter."""
        if self._columns is None or self._query is None:
            return list(range(batch.num_rows))
        import duckdb

        self._database.register("batch", self._columns.table(batch))
        try:
            found: list[tuple[Any, ...]] = self._database.execute(self._query).fetchall()
        except duckdb.Error as problem:
            raise BadFilter(str(problem).partition("\n")[0]) from None
        return sorted(int(row) for (row,) in found)

    def _show(self) -> None:
        if self._kept:
            write_frame(self._out, Found(self._kept))
            self._kept, self._kept_bytes = [], 0
            self._shown = time.monotonic()

    def _tell(self, readers: list[RangeReader], is_last: bool = False) -> None:
        now = time.monotonic()
        # Where the search follows, it may be long until something comes again.
        if (
            self._request.follows
            or now - self._shown >= _SHOW_EVERY_S
            or self._kept_bytes >= _SHOW_BYTES
        ):
            self._show()
        if now - self._told < _TELL_EVERY_S and not is_last:
            return
        self._told = now
        write_frame(
            self._out,
            Progress(
                self._scanned,
                self._total,
                sum(each.bytes for each in readers),
                self._found,
                round((now - self._began) * 1000),
                self._positions,
                0 if self._columns is None else self._columns.unreadable,
            ),
        )


def _records(batch: pa.RecordBatch) -> list[FoundRecord]:
    return [
        FoundRecord(
            row["partition"],
            row["offset"],
            to_ms(row["timestamp"]),
            row["timestampType"] == 1,
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"] or ()],
        )
        for row in batch.to_pylist()
    ]
