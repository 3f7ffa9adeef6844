"""Changes of in-sync replicas: asks the cluster to agree on them, many partitions at a time."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from moldau.broker.node import Node
from moldau.broker.partitions.in_sync import InSync
from moldau.broker.partitions.partition import Partition
from moldau.cluster.decisions.elections import in_sync_with, knows_elr
from moldau.cluster.state.changes import PartitionsChanged
from moldau.cluster.state.topics import PartitionState
from moldau.cluster.store import Conflict, NotController, StoreError

logger = logging.getLogger("moldau.replication")

# Changes of so long a time are asked for together.
_JOINED_S = 0.02
# How long to wait after losing a race, at most, and after the store gave no answer.
_CONFLICT_S = 0.05
_NO_ANSWER_S = 0.25
_FAILED_S = 1.0
# How many partitions are looked at before the loop serves others again.
_AT_A_TIME = 500


class IsrChanges:
    """The partitions whose in-sync set may have to change, and one commit at a time. Event loop.

    What to ask for is decided only when it is asked, on the state as it is then. When the store
    gives no answer, the same is asked again until it does: meanwhile all who may be in the set
    count (see `InSync`).
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[Partition, None] = {}
        # How often a set became smaller or larger, and how often the cluster did not agree.
        self.shrinks = self.expansions = self.failures = 0
        self._task: asyncio.Task[None] | None = None

    def consider(self, partition: Partition) -> None:
        """Schedule a check of a partition's in-sync set."""
        self._waiting[partition] = None
        if self._task is None:
            self._task = self._node.loop.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(_JOINED_S)
                waiting, self._waiting = self._waiting, {}
                asked: dict[Partition, tuple[InSync, tuple[int, ...]]] = {}
                for count, partition in enumerate(waiting, 1):
                    if count % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
                    proposal = self._propose(partition)
                    if proposal is not None and partition.in_sync is not None:
                        asked[partition] = (partition.in_sync, proposal)
                if asked:
                    await self._ask(asked)
        except Exception:
            logger.exception("changing in-sync replicas failed; trying again later")
        finally:
            self._task = None

    def _propose(self, partition: Partition) -> tuple[int, ...] | None:
        in_sync, log = partition.in_sync, partition.log
        if in_sync is None or not partition.is_leader:
            return None

        return in_sync.propose(
            log.log_end,
            log.high_watermark,
            time.monotonic(),
            partition.lag_s,
            lambda replica: self._is_eligible(in_sync, replica),
        )

    def _is_eligible(self, in_sync: InSync, replica: int) -> bool:
        """Return whether what is known of a follower is of its present life, and that not about to
        end."""
        registered = self._node.state.brokers.get(replica)
        if registered is None or registered.stopping:
            return False
        return in_sync.followers[replica].epoch == registered.epoch

    async def _ask(self, asked: dict[Partition, tuple[InSync, tuple[int, ...]]]) -> None:
        while asked:
            for partition, (in_sync, _) in list(asked.items()):
                if partition.in_sync is not in_sync or in_sync.proposed is None:
                    # Another broker decided in the meantime.
                    del asked[partition]
            changes = self._changes(asked)
            if not changes:
                return
            sizes = {partition: len(partition.isr) for partition in asked}
            try:
                await self._node.store.commit(changes, as_controller=False)
            except (Conflict, NotController) as reason:
                logger.debug("in-sync replicas not changed, asking again: %s", reason)
                self.failures += len(asked)
                self._refused(asked)
                await asyncio.sleep(random.uniform(0, _CONFLICT_S))
                self._waiting.update(dict.fromkeys(asked))
                return
            except StoreError as reason:
                logger.warning(
                    "no answer to a change of in-sync replicas, asking again: %s", reason
                )
                await asyncio.sleep(_NO_ANSWER_S)
            except Exception:
                # We cannot know whether it happened: giving up would leave that open for ever.
                logger.exception("changing in-sync replicas failed; asking again")
                await asyncio.sleep(_FAILED_S)
            else:
                self._tell(asked)
                for partition, (_, isr) in asked.items():
                    self.shrinks += len(isr) < sizes[partition]
                    self.expansions += len(isr) > sizes[partition]
                # The cluster's word has come with the state; this is for one that did not change.
                self._refused(asked)
                return

    def _changes(
        self, asked: dict[Partition, tuple[InSync, tuple[int, ...]]]
    ) -> list[PartitionsChanged]:
        topics: dict[str, dict[int, PartitionState]] = {}
        keeps_elr = knows_elr(self._node.state)
        for partition, (in_sync, isr) in list(asked.items()):
            state = self._node.state.partition(partition.topic, partition.index)
            topic = self._node.state.topics.get(partition.topic)
            if (
                state is None
                or topic is None
                or topic.id != partition.topic_id
                or (state.leader, state.leader_epoch) != (self._node.id, partition.leader_epoch)
                or not all(
                    self._is_eligible(in_sync, replica) for replica in set(isr) - set(state.isr)
                )
            ):
                # This broker no longer leads, or the replica that was to join has left.
                in_sync.refused()
                del asked[partition]
                continue
            minimum = partition.log.config.min_insync_replicas if keeps_elr else 0
            changed = in_sync_with(state, state.leader, isr, minimum)
            topics.setdefault(partition.topic, {})[partition.index] = changed
        return [PartitionsChanged(name, partitions) for name, partitions in topics.items()]

    def _refused(self, asked: dict[Partition, tuple[InSync, tuple[int, ...]]]) -> None:
        for partition, (in_sync, _) in asked.items():
            if in_sync.proposed is not None:
                in_sync.refused()
                if partition.in_sync is in_sync and partition.is_leader:
                    partition.count_followers()

    @staticmethod
    def _tell(asked: dict[Partition, tuple[InSync, tuple[int, ...]]]) -> None:
        for partition, (_, isr) in asked.items():
            level = logging.WARNING if len(isr) < partition.min_isr else logging.INFO
            logger.log(
                level, "%s-%d: in-sync replicas are now %s of %s",
                partition.topic, partition.index, list(isr), list(partition.replicas),
            )  # fmt: skip
