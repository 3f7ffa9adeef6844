"""A partition that a share group reads, on its leader: the log, the machine, and time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.share.batches import ACQUIRED, AVAILABLE
from moldau.broker.coordination.share.coordinator import Refused
from moldau.broker.coordination.share.state import UNINITIALIZED, ShareKey, Update
from moldau.broker.partitions.partition import Partition, Waiter
from moldau.broker.settings.group_config import GroupConfig
from moldau.broker.settings.offset_reset import parse_offset_reset
from moldau.broker.sharing.delivery import AcknowledgedRange, Acquired, Change, Limits, Verdict
from moldau.broker.sharing.half_done import HalfDone, words_about
from moldau.broker.sharing.owner import Owner
from moldau.broker.sharing.reading import FoundBatch, aborted_ranges, batches_of, first_offset
from moldau.broker.sharing.share_partition import SharePartition
from moldau.log.files.open_files import Slice
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.share")

# Before something is tried again that no coordinator took.
_PAUSE_S = 0.5
# Why a state cannot be read or written, as those are told who fetch and acknowledge.
_TOLD = {
    Error.NOT_COORDINATOR: Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NETWORK_EXCEPTION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.FENCED_LEADER_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
    Error.FENCED_STATE_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
    Error.INVALID_REQUEST: Error.UNKNOWN_SERVER_ERROR,
}
# After these the state has to be read anew, if this broker still leads.
_FENCED = (
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.GROUP_ID_NOT_FOUND,
    Error.UNKNOWN_SERVER_ERROR,
)


class Taken(NamedTuple):
    """Records for a member, and which of them are its own."""

    records: Slice
    acquired: Sequence[Acquired]


class SharedPartition:
    """One partition as one share group reads it, in one leader epoch. Event loop only.

    `waiters` are told in the order of their arrival that there may be something to acquire; whoever
    got something comes back last, so that all have their turn. `readers` are the members that have
    the partition in their sessions.
    """

    __slots__ = (
        "_half_done", "_owner", "_state_epoch", "armed_at", "error", "key", "leader_epoch",
        "machine", "partition", "readers", "waiters",
    )  # fmt: skip

    def __init__(self, owner: Owner, key: ShareKey, partition: Partition) -> None:
        self._owner = owner
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._state_epoch = 0
        # None until its state is read; then why it ended, if it has.
        self.machine: SharePartition | None = None
        self.error = Error.NONE
        self.readers: set[str] = set()
        self.waiters: dict[Waiter, None] = {}
        self.armed_at = NEVER
        self._half_done = HalfDone()
        owner.spawn(self._begin())

    @property
    def leads(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    @property
    def up_to(self) -> int:
        """The end of what the group may see."""
        log = self.partition.log
        is_committed = self._config.share_isolation_level == "read_committed"
        return log.last_stable if is_committed else log.high_watermark

    @property
    def _config(self) -> GroupConfig:
        return self._owner.config(self.key.group)

    @property
    def _limits(self) -> Limits:
        config = self._config
        return Limits(
            config.share_partition_max_record_locks,
            config.share_delivery_count_limit,
            config.share_record_lock_duration_ms,
        )

    # Beginning and ending

    async def _begin(self) -> None:
        try:
            error = await self._read()
        except Exception:
            logger.exception("sharing %s failed", self.key)
            error = Error.UNKNOWN_SERVER_ERROR
        if error and not self.error:
            self.end(error)
        self.notify()

    async def _read(self) -> Error:
        persister = self._owner.persister
        found = await persister.read(self.key, self.leader_epoch)
        if isinstance(found, Refused) and found.error is Error.INVALID_REQUEST:
            # Nobody has read it for the group so far.
            refused = await persister.initialize(self.key, 0, UNINITIALIZED)
            found = refused or await persister.read(self.key, self.leader_epoch)
        if isinstance(found, Refused):
            return self._told(found)
        self._state_epoch = found.state_epoch
        start = found.start
        if start < 0:
            reset = parse_offset_reset(self._config.share_auto_offset_reset)
            now_ms = self._owner.now_ms()
            found_start = await first_offset(self.partition.log, reset, now_ms)
            start = self.up_to if found_start is None else min(found_start, self.up_to)
            # Otherwise another leader would begin later, and leave out what came meanwhile.
            update = Update(self.leader_epoch, start, 0)
            refused = await persister.write(self.key, self._state_epoch, update)
            if refused is not None:
                return self._told(refused)
        if not self.leads:
            return Error.NOT_LEADER_OR_FOLLOWER
        self.machine = SharePartition(start, found.batches, self._limits)
        self.machine.move_start(self.partition.log.log_start)
        self._pump()
        return Error.NONE

    def _told(self, refused: Refused) -> Error:
        logger.info("the state of %s was refused: %s", self.key, refused)
        return _TOLD.get(refused.error, refused.error)

    def end(self, error: Error) -> None:
        """Give up everything that is not written: somebody else leads, or the group is another."""
        if self.error:
            return
        self.error = error
        if self.machine is not None:
            for change in self.machine.waiting:
                change.settle(Error.NOT_LEADER_OR_FOLLOWER)
        self._owner.forget(self)
        self.partition.unwait(self)
        for waiter in list(self.waiters):
            waiter.notify()

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads it, and all that there is to know of it is written."""
        machine = self.machine
        if self.readers or self.waiters or machine is None:
            return False
        return machine.is_written and not machine.count(ACQUIRED)

    def report(self) -> dict[str, Any]:
        """Tell what is in flight, for people."""
        machine = self.machine
        assert machine is not None
        return {
            "topic": self.partition.topic,
            "partition": self.partition.index,
            "in_flight": machine.count(ACQUIRED),
            "waiting": machine.count(AVAILABLE),
            "redelivered": machine.redelivered,
            "dead": machine.dead,
        }

    # Fetching

    def wait(self, waiter: Waiter) -> None:
        """Tell `waiter` when there may be something to acquire, until `unwait`."""
        self.waiters[waiter] = None
        self.partition.wait(self)

    def unwait(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter, None)
        if not self.waiters:
            self.partition.unwait(self)

    def notify(self) -> None:
        """There may be something to acquire, or the partition changed hands."""
        if self.error:
            return
        if not self.leads:
            self.end(Error.NOT_LEADER_OR_FOLLOWER)
            return
        for waiter in list(self.waiters):
            if not self.has_more:
                return
            waiter.notify()

    @property
    def has_more(self) -> bool:
        """Whether something can be acquired now."""
        machine = self.machine
        if machine is None or not machine.may_acquire:
            return False
        return machine.next_offset < self.up_to

    def peek(self, max_bytes: int, *, is_first: bool) -> Slice | None:
        """Return what would be read now; None if there is nothing to acquire, or no room for it."""
        machine, log = self.machine, self.partition.log
        if machine is None:
            return None
        machine.move_start(log.log_start)
        if not self.has_more:
            return None
        return log.read(machine.next_offset, max_bytes, self.up_to, is_first)

    def take(
        self,
        member: str,
        records: Slice,
        most: int,
        batch_size: int,
        *,
        is_exact: bool,
        may_block: bool,
    ) -> Taken | None:
        """Acquire records of what was read, for a member. Cold if that would have to wait for the
        disk and may not; then nothing is acquired."""
        machine = self.machine
        assert machine is not None
        machine.limits = self._limits
        # Nobody may take all that can be in flight from those who read beside it.
        most = min(most, max(machine.limits.records // max(len(self.readers), 1), 1))
        first = machine.next_offset
        enough = first + most + machine.in_flight
        batches: list[FoundBatch] = []
        for found in batches_of(records, may_block=may_block):
            batches.append(found)
            if found.header.last_offset >= enough:
                break
        acquired = machine.acquire(
            member,
            [(each.header.base_offset, each.header.last_offset) for each in batches],
            most,
            self._owner.now(),
            batch_size=batch_size,
            is_exact=is_exact,
        )
        if acquired and self._config.share_isolation_level == "read_committed":
            acquired = self._without_aborted(machine, batches, acquired)
        self._owner.arm(self, machine.due_at)
        if not acquired:
            self._pump()
            return None
        self._half_done.forget(member)
        last = acquired[-1].last
        size = next((each.end for each in batches if each.header.last_offset >= last), records.size)
        return Taken(records._replace(size=size), acquired)

    def _without_aborted(
        self, machine: SharePartition, batches: Sequence[FoundBatch], acquired: list[Acquired]
    ) -> list[Acquired]:
        for first, last in aborted_ranges(self.partition.log, batches):
            machine.withhold(max(first, acquired[0].first), min(last, acquired[-1].last))
            acquired = [part for each in acquired for part in each.without(first, last)]
            if not acquired:
                break
        return acquired

    # Acknowledging

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange]
    ) -> asyncio.Future[Verdict]:
        """Take in what a member says; done when it is written down, or with the error."""
        answer: asyncio.Future[Verdict] = self._owner.loop.create_future()
        if self.machine is None or self.error:
            answer.set_result(Verdict(self.error or Error.INVALID_RECORD_STATE))
            return answer
        ranges = self._half_done.rest(member, ranges)
        change = self.machine.acknowledge(member, ranges, self._owner.now(), answer)
        if isinstance(change, Verdict):
            answer.set_result(change)
            return answer
        self._owner.arm(self, self.machine.due_at)
        if change.ranges:
            change.member, change.said = member, ranges
            self._carry_out(change)
        else:
            answer.set_result(Verdict())
        return answer

    def leave(self, member: str) -> None:
        """Release all that a member has: its session ended."""
        self.readers.discard(member)
        self._half_done.forget(member)
        if self.machine is not None and not self.error:
            self._carry_out(self.machine.leave(member))

    def expire(self) -> None:
        """Release what is locked no longer."""
        if self.machine is not None and not self.error:
            self._carry_out(self.machine.expire(self._owner.now()))
            self._owner.arm(self, self.machine.due_at)

    def _carry_out(self, change: Change | None) -> None:
        """See to it that a change is written, after the letters of what dies with it."""
        assert self.machine is not None
        if change is not None:
            if change.dead and self._config.errors_deadletterqueue_topic_name:
                if len(change.dead) < len(change.ranges):
                    # A topic that takes no letters is no reason to deliver the others again.
                    self.machine.queue(self.machine.divide(change))
                self._owner.spawn(self._bury(change))
            else:
                self.machine.queue(change)
        self._pump()
        self.notify()

    async def _bury(self, change: Change) -> None:
        is_safe = await self._owner.bury(self, change)
        machine = self.machine
        if machine is None or self.error:
            change.settle(Error.NOT_LEADER_OR_FOLLOWER)
            return
        if is_safe:
            machine.queue(change)
        else:
            machine.take_back(change, self._owner.now() + int(_PAUSE_S * 1000))
            change.settle(Error.COORDINATOR_NOT_AVAILABLE)
            self._owner.arm(self, machine.due_at)
        self._pump()

    def _pump(self) -> None:
        """Write what is to be written, one write after the other."""
        if self.machine is not None and self.machine.needs_write and not self.error:
            start, finished, batches = self.machine.begin_write()
            self._owner.spawn(self._write(Update(self.leader_epoch, start, finished, batches)))

    async def _write(self, update: Update) -> None:
        machine = self.machine
        assert machine is not None
        refused = await self._owner.persister.write(self.key, self._state_epoch, update)
        if self.error:
            return
        told = Error.NONE if refused is None else self._told(refused)
        for change in machine.end_write(succeeded=not told):
            if change.is_rest and change.said and not told:
                words = words_about(change.said, change.ranges)
                self._half_done.note(change.member, words)
            change.settle(told)
        self._owner.arm(self, machine.due_at)
        if told in _FENCED:
            self.end(Error.NOT_LEADER_OR_FOLLOWER)
        elif told:
            self._owner.loop.call_later(_PAUSE_S, self._pump)
        else:
            self._pump()
            self.notify()
            if self.is_idle:
                self._owner.forget(self)
