"""The metadata of a broker on its own, in its data folder."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from moldau.cluster.journal import (
    HEADING,
    DamagedJournal,
    Journal,
    encode_changes,
    encode_line,
    read_journal,
)
from moldau.cluster.state.access import AccessChange
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerJoined,
    BrokerLeft,
    ClusterCreated,
    ControllerElected,
    ProducerIdsAllocated,
)
from moldau.cluster.state.state import ClusterState, ImpossibleChange
from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.store import FenceListener, Listener, RegistrationListener, StoreError

FILE_NAME = "cluster-metadata.jsonl"
COMPACT_ABOVE_BYTES = 256 << 10


logger = logging.getLogger(__name__)


class _Commit(NamedTuple):
    """Changes on their way to the disk, and who waits for them."""

    changes: Sequence[AnyChange]
    encoded: bytes
    done: asyncio.Future[None]


class EmbeddedStore:
    """A MetadataStore in one append-only file (see `journal`). Event loop only.

    Changes are written and fsynced on a thread of the store's own. Those that arrive while a write
    is under way share the next one, so many small commits cost few fsyncs. A crash leaves at most a
    torn last line, of which nobody was told; the next `open` cuts it. Whoever opens the store
    holds the data folder's lock.

    A write that fails is taken back, and its commits fail. If even that fails, or an fsync does,
    nobody knows what the disk holds and every later commit is refused.
    """

    def __init__(self, folder: Path | str, broker: BrokerInfo) -> None:
        self.path = Path(folder) / FILE_NAME
        self._state = ClusterState()
        self._broker = broker
        self._listeners: list[Listener] = []
        self._fd = -1
        self._length = 0
        self._next_sequence = 0
        self._next_producer_id = 0
        self._waiting: list[_Commit] = []
        self._writer: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._is_open = False
        self._broken: str | None = None

    @property
    def state(self) -> ClusterState:
        return self._state

    @property
    def lease(self) -> None:
        """There is nobody else who could lead."""
        return None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        """Load the file, or begin one. Blocks the loop: nothing is served yet."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                self._begin()
            else:
                self._load(data)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"cannot open {self.path}: {error.strerror}") from error
        self._next_producer_id = self._state.next_producer_id
        self._is_open = True
        self._publish([BrokerJoined(self._broker), ControllerElected(self._broker.id)])

    async def close(self) -> None:
        self._is_open = False
        if self._writer is not None:
            await self._writer
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def arrive(self, folder_id: str) -> None:
        """Nobody else decides anything."""

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        """Say where this broker is reached, once that is known. Not kept on disk."""
        self._broker = broker
        self._publish([BrokerJoined(broker)])
        return broker

    async def expel(self, broker: BrokerInfo) -> None:
        if self._state.brokers.get(broker.id) == broker:
            self._publish([BrokerLeft(broker.id)])

    async def depose(self) -> None:
        """There is only this broker, and it is not dead."""

    def on_fence(self, listener: FenceListener) -> None:
        """Never called: the state is in this process."""

    def on_new_session(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        """Never awaited: there is no session."""

    def on_registration(self, listener: RegistrationListener) -> None:
        """Never called: there is nobody to be registered with."""

    def on_registering(self, listener: Callable[[int], None]) -> None:
        """Never called, either."""

    @property
    def registration(self) -> int:
        return -1

    def folder_id_of(self, broker: int) -> str | None:
        """None: the state goes with the folder, so a lost disk leaves nothing to compare with."""
        return None

    async def commit(self, changes: Sequence[AnyChange], *, as_controller: bool = True) -> None:
        if not self._is_open:
            raise StoreError("the metadata store is closed")
        if not changes:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Commit(changes, encode_changes(changes), done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting(), name="metadata-writer")
        # A caller that goes away does not take back what is being written.
        await asyncio.shield(done)

    async def allocate_producer_ids(self, count: int) -> range:
        first = self._next_producer_id
        self._next_producer_id = first + count
        await self.commit([ProducerIdsAllocated(first + count)])
        return range(first, first + count)

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                commits, self._waiting = self._waiting, []
                await self._write(commits)
        finally:
            self._writer = None

    async def _write(self, commits: list[_Commit]) -> None:
        first = self._next_sequence
        try:
            data = b"".join(
                encode_line(first + place, first, commit.encoded)
                for place, commit in enumerate(commits)
            )
            after = first + len(commits)
            is_about_access = any(
                isinstance(change, AccessChange) for commit in commits for change in commit.changes
            )
            seal = encode_line(after, after, encode_changes([])) if is_about_access else b""
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "moldau-metadata")
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._append, data, seal)
        except Exception as error:
            logger.error("%d metadata changes could not be written: %s", len(commits), error)
            failure = error if isinstance(error, StoreError) else StoreError(str(error))
            for commit in commits:
                commit.done.set_exception(failure)
            return
        self._next_sequence = after + bool(seal)
        for commit in commits:
            try:
                self._publish(commit.changes)
            except ImpossibleChange as error:
                logger.error("a metadata change contradicts the state: %s", error)
                commit.done.set_exception(StoreError(str(error)))
            else:
                commit.done.set_result(None)

    def _append(self, data: bytes, seal: bytes) -> None:
        """Run on the store's thread, one at a time."""
        if self._broken is not None:
            raise StoreError(self._broken)
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self._take_back(error)
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            os.fsync(self._fd)
        except OSError as error:
            # The kernel may have dropped the pages: what the file holds is unknown for good.
            self._break(f"the disk failed to store {self.path} ({error.strerror})")
            raise StoreError(f"cannot flush {self.path}: {error.strerror}") from error
        self._length += len(data)
        try:
            _write_all(self._fd, seal)
        except OSError as error:
            # The changes stand; only the next ones may not go behind half a seal.
            self._break(f"{self.path} ends in an incomplete change ({error.strerror})")
        else:
            self._length += len(seal)

    def _take_back(self, cause: OSError) -> None:
        try:
            os.ftruncate(self._fd, self._length)
        except OSError:
            self._break(f"{self.path} ends in an incomplete change ({cause.strerror})")

    def _break(self, what: str) -> None:
        self._broken = f"{what}; repair the disk and restart the broker"

    def _publish(self, changes: Sequence[AnyChange]) -> None:
        for change in changes:
            self._state.apply(change)
        for listener in self._listeners:
            try:
                listener(changes)
            except Exception:
                # The changes are durable whatever a listener makes of them.
                kinds = ", ".join(sorted({type(change).__name__ for change in changes}))
                logger.exception("a listener failed on %s", kinds)

    def _begin(self) -> None:
        created = ClusterCreated(new_cluster_id(), self._broker.id)
        self._state.apply(created)
        self._replace_file([created])

    def _load(self, data: bytes) -> None:
        try:
            journal = read_journal(data)
            self._replay(journal)
        except (DamagedJournal, ValueError) as error:
            raise StoreError(
                f"{self.path} is damaged: {error}. Restore it from a backup; without it, this "
                "broker does not know the topics in this folder"
            ) from error
        self._length = journal.length
        self._next_sequence = journal.next_sequence
        if len(data) > journal.length:
            logger.warning(
                "removed %d bytes from the end of %s: a change that was never acknowledged",
                len(data) - journal.length,
                self.path,
            )
            with open(self.path, "r+b") as file:
                file.truncate(journal.length)
                os.fsync(file.fileno())
        if journal.length > COMPACT_ABOVE_BYTES:
            self._compact()

    def _replay(self, journal: Journal) -> None:
        for changes in journal.batches:
            for change in changes:
                if isinstance(change, ClusterCreated) and change.broker != self._broker.id:
                    raise StoreError(
                        f"{self.path.parent} belongs to broker {change.broker}; start this broker "
                        f"with --id {change.broker}, or give it its own --data-dir"
                    )
                self._state.apply(change)

    def _compact(self) -> None:
        changes = [ClusterCreated(self._state.cluster_id, self._broker.id), *self._state.changes()]
        if len(encode_changes(changes)) < self._length // 2:
            self._replace_file(changes)

    def _replace_file(self, changes: Sequence[AnyChange]) -> None:
        sequence = self._next_sequence
        data = HEADING + encode_line(sequence, sequence, encode_changes(changes))
        fresh = self.path.with_suffix(".tmp")
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._length = len(data)
        self._next_sequence = sequence + 1


def new_cluster_id() -> str:
    """Return a cluster id as Kafka writes them: 22 characters of base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # Command lines would take a leading dash for an option.
        if not text.startswith("-"):
            return text


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
