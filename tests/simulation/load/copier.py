"""Copiers: they read a topic, write what they read to another, and commit how far they have got,
all in one transaction.
"""

from __future__ import annotations

from typing import Any

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import History
from tests.simulation.checks.transactions import Attempt, Ledger
from tests.simulation.core.world import World
from tests.simulation.load.consumer import LentReader
from tests.simulation.load.transactional import PARTITIONS, Transactional

_MOST = 6
# The last version of OffsetFetch that names topics.
_BY_NAME = 9


class Copier(Transactional):
    """Copies the first partition of the source. Others with the same transactional id take over
    where it has got to, and fence it by that.
    """

    def __init__(
        self,
        world: World,
        history: History,
        ledger: Ledger,
        name: str,
        id: str,
        source: str,
        topic: str,
        dialect: int,
        every_s: float,
    ) -> None:
        super().__init__(world, history, ledger, name, id, topic, dialect, every_s)
        self._source = source
        self._group = f"readers of {id}"
        self._reader = LentReader(self, history, source, 0, 0)
        self._reader.max_bytes = 1000
        self._position: int | None = None
        # What is committed in the end.
        self.committed: int | None = None

    async def initialize(self) -> None:
        self._position = None
        await super().initialize()

    async def note_committed(self) -> None:
        """Ask how far the copies are committed; the last thing that it does."""
        self.committed = await self.fetch_committed()

    async def _write(self, attempt: Attempt) -> None:
        if self._position is None:
            self._position = await self.fetch_committed()
        start = self._reader.position = self._position
        await self._reader.read_some()
        if self._reader.leader is None:
            return
        end = min(self._reader.position, start + _MOST)
        for offset in range(start, end):
            value = f"copy:{offset}:{self.name}:{attempt.number}".encode()
            attempt.copied = range(start, offset + 1)
            await self.produce(attempt, offset % PARTITIONS, [value])
        if end > start:
            await self.commit_offset(end)

    async def end(self, attempt: Attempt, commits: bool) -> None:
        start, self._position = self._position, None
        await super().end(attempt, commits)
        self._position = attempt.copied.stop if commits and attempt.copied else start

    # -- the group

    async def _ask_group(self, api: Api, **values: Any) -> Any:
        if self.group_coordinator is None:
            self.group_coordinator = await self._find(0, self._group)
            if self.group_coordinator is None:
                return None
        answer = await self._try(self.group_coordinator, api, **values)
        if answer is None:
            self.group_coordinator = None
        return answer

    async def fetch_committed(self) -> int:
        wanted = {"name": self._source, "partition_indexes": [0]}
        group = {
            "group_id": self._group, "member_id": None, "member_epoch": -1, "topics": [wanted],
        }  # fmt: skip
        async for _ in self._tries():
            answer = await self._ask_group(
                Api.OFFSET_FETCH, at_most=_BY_NAME, groups=[group], require_stable=True
            )
            if answer is None:
                continue
            (found,) = answer.groups
            code = Error(found.error_code)
            if code is Error.NONE:
                (partition,) = found.topics[0].partitions
                code = Error(partition.error_code)
                if code is Error.NONE:
                    return max(int(partition.committed_offset), 0)
            self._refused(code, "know what is committed")
        raise AssertionError

    async def commit_offset(self, offset: int) -> None:
        if self._dialect == 1:
            await self._add_offsets()
        part = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        sent_s = self.loop.now_s
        async for _ in self._tries():
            answer = await self._ask_group(
                Api.TXN_OFFSET_COMMIT,
                transactional_id=self._id,
                group_id=self._group,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[{"name": self._source, "partitions": [part]}],
            )
            if answer is None:
                continue
            code = Error(answer.topics[0].partitions[0].error_code)
            if code is Error.NONE:
                break
            self._refused(code, "commit an offset")
        self._ledger.taken(self._id, self.name, self.identity, sent_s, "commit an offset")
        self._history.count(f"transactional offset in TV{self._dialect}")

    async def _add_offsets(self) -> None:
        async for _ in self._tries():
            answer = await self._ask_coordinator(
                Api.ADD_OFFSETS_TO_TXN,
                transactional_id=self._id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                group_id=self._group,
            )
            if answer is not None:
                code = Error(answer.error_code)
                if code is Error.NONE:
                    return
                self._refused(code, "add offsets")
