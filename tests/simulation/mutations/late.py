"""Mutations of what holds off messages that come late, with the scripts that bring them."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_MACHINE = "moldau.broker.coordination.transactions.machine"
_HELD = "moldau.broker.coordination.transactions.held"
_GROUPS_HELD = "moldau.broker.coordination.groups.held"
_STATES = "moldau.log.producers.states"
_INIT = "moldau.broker.api.transactions.init_producer_id"
_CONNECTION = "moldau.broker.net.connection"
_FOLLOWED = "moldau.broker.replication.follower.followed"
_CUT_IS_UNFORCED = "        if has_unforced_cut(log):\n            return True\n"
_REFUSED_WRITES = "moldau.broker.partitions.refused_writes"
_SHARE_COORDINATOR = "moldau.broker.coordination.share.coordinator"

LATE_TRANSACTIONS = (
    Mutation(
        "nobody asks whether a write belongs to an open transaction (KIP-890)",
        "moldau.broker.partitions.verification",
        "    if not begun.guards or request.transactional_id is None or verifier is None:\n",
        "    if True:\n",
        "late write",
    ),
    Mutation(
        "a transaction begins by an answer from before its end",
        "moldau.log.producers.verifications",
        "        if guard is None or self.get(producer_id) is not guard:\n",
        "        if False:\n",
        "late answer",
    ),
    Mutation(
        "a late marker ends the next transaction (KIP-1228)",
        _STATES,
        "            is_late = producer.transaction_start != NO_OFFSET and epoch != MAX_EPOCH\n",
        "            is_late = False\n",
        "late marker",
    ),
    Mutation(
        "a marker of an earlier epoch is written",
        _STATES,
        "        is_late = epoch < producer.epoch\n",
        "        is_late = False\n",
        "outdated marker",
    ),
    Mutation(
        "a write is taken into a transaction whether its partition belongs to it or not",
        _MACHINE,
        "    if found.next == NOBODY and partition in found.partitions:\n",
        "    if found.next == NOBODY:\n",
        "late write",
    ),
    Mutation(
        "what is known of an open transaction outlives its marker",
        _STATES,
        "        self.verifications.pop(producer_id, None)\n"
        "        self._producers[producer_id] = Producer(",
        "        self._producers[producer_id] = Producer(",
        "late answer",
    ),
    Mutation(
        "a write is taken into a transaction that is decided",
        _MACHINE,
        "    if found.state in DECIDED:\n"
        "        return Error.CONCURRENT_TRANSACTIONS\n    if found.next",
        "    if found.next",
        "half marked",
    ),
    Mutation(
        "nobody asks whether offsets belong to an open transaction (KIP-890)",
        "moldau.broker.api.transactions.txn_offset_commit",
        "        if error:\n            return _in",
        "        if False:\n            return _in",
        "late offset",
    ),
    Mutation(
        "offsets are told while a transaction has later ones (KIP-447)",
        "moldau.broker.coordination.groups.offsets",
        "return key in self._unstable or (bool(self._staged) and self.is_staged(key))",
        "return key in self._unstable",
        "open offset",
    ),
    Mutation(
        "a producer that was fenced aborts the transaction of the one that fenced it",
        _MACHINE,
        "    if request.expected not in (None, found.owner):\n",
        "    if False:\n",
        "old rival",
    ),
    Mutation(
        "a marker counts before the in-sync replicas have it",
        "moldau.broker.partitions.marker_writes",
        "    if partition.log.high_watermark >= needed:\n",
        "    if True:\n",
        "lost marker",
    ),
    Mutation(
        "a restarted leader takes for decided what a marker above the high watermark says",
        "moldau.log.recovery",
        "        producers = hold_undecided(producers,",
        "        hold_undecided(producers,",
        "restarted leader",
    ),
    Mutation(
        "a former coordinator's marker is written",
        _STATES,
        "        if marker.coordinator_epoch < producer.coordinator_epoch:\n",
        "        if False:\n",
        "old coordinator",
    ),
    Mutation(
        "transactions never time out",
        _MACHINE,
        "        and found.started_ms + found.timeout_ms < now_ms\n",
        "        and False\n",
        "silent producer",
    ),
    Mutation(
        "a new coordinator does not carry out what was decided",
        _HELD,
        "            if held.value is not None and held.value.state in DECIDED:\n",
        "            if False:\n",
        "interrupted markers",
    ),
    Mutation(
        "a new coordinator of a group does not know of offsets in open transactions",
        _GROUPS_HELD,
        "            held.offsets.stage(producer_id, {(what.topic, what.partition): committed})\n",
        "            pass\n",
        "moved offsets",
    ),
    Mutation(
        "a prepared transaction times out (KIP-939)",
        _INIT,
        "    if is_two_phase:\n        timeout_ms = NO_TIMEOUT_MS\n    elif not",
        "    if not",
        "prepared",
    ),
    Mutation(
        "a prepared transaction is aborted by whoever comes for it",
        _MACHINE,
        "    if request.keeps:\n",
        "    if False:\n",
        "prepared",
    ),
    Mutation(
        "whoever a prepared transaction was taken from can still end it",
        _MACHINE,
        "        heir = Identity(owner.producer_id, owner.epoch + 2)\n",
        "        heir = owner\n",
        "prepared",
    ),
    Mutation(
        "partitions are not told that a prepared transaction was taken over",
        "moldau.broker.coordination.transactions.coordinator",
        "        if not error and decision.fence != NOBODY:\n",
        "        if False:\n",
        "prepared",
    ),
    Mutation(
        "whoever takes a prepared transaction over can write to it",
        _MACHINE,
        "    if found.next != NOBODY:\n        return _NOT_NOW\n",
        "",
        "prepared",
    ),
    Mutation(
        "a producer goes on whose transactional id has another producer id by now (KIP-360)",
        _MACHINE,
        "    return expected.producer_id in (found.producer.producer_id, found.owner.producer_id)"
        " or (\n",
        "    return True or (\n",
        "expired id",
    ),
    Mutation(
        "a transactional id is forgotten while it has a transaction open",
        _MACHINE,
        "    return found.state in _AT_REST and found.updated_ms",
        "    return found.updated_ms",
        "prepared for long",
    ),
)

LATE_REPLICATION = (
    Mutation(
        "the end of a log is told to clients that know of a later leader (KIP-320)",
        "moldau.broker.api.records.list_offsets",
        '    fence = partition.check_epoch(getattr(wanted, "current_leader_epoch", -1))\n',
        "    fence = Error.NONE\n",
        "stale leader",
    ),
    Mutation(
        "clients that know of a later leader can read (KIP-320)",
        "moldau.broker.api.records.fetch",
        "    if wanted.current_leader_epoch >= 0:\n",
        "    if False:\n",
        "stale leader",
    ),
    Mutation(
        "a new leader says where its log ends before it knows (KIP-207)",
        "moldau.broker.api.records.list_offsets",
        "    if partition.log.high_watermark < partition.epoch_start:\n        raise",
        "    if False:\n        raise",
        "lagging watermark",
    ),
    Mutation(
        "a broker answers as a leader when its lease is over",
        _CONNECTION,
        "        if lease is not None and now() >= lease.ends_at:\n"
        "            lease.expire()\n"
        "        received",
        "        received",
        "thawed leader",
        1,
        also=(
            (
                _CONNECTION,
                "            self.commit()\n"
                "        if lease is not None and now() >= lease.ends_at:\n",
                "            self.commit()\n        if False:\n",
            ),
            (
                _CONNECTION,
                "        lease = self._lease\n"
                "        if lease is not None and now() >= lease.ends_at:\n"
                "            self._drop",
                "        lease = self._lease\n        if False:\n            self._drop",
            ),
        ),
    ),
    Mutation(
        "a replica joins before it has reached the beginning of the leader's epoch",
        "moldau.broker.partitions.in_sync",
        "        return log_end >= high_watermark and log_end >= self.epoch_start\n",
        "        return log_end >= high_watermark\n",
        "early joiner",
        1,
    ),
    Mutation(
        "a follower does not look where an epoch ended in its own log (KIP-279)",
        "moldau.broker.replication.divergence",
        "        return min(own_end, leader_end, log_end)\n",
        "        return min(leader_end, log_end)\n",
        "longer epoch",
    ),
    Mutation(
        "a follower keeps what follows an epoch that its leader does not name (KIP-279)",
        "moldau.broker.replication.divergence",
        "        return min(own_end, log_end)\n",
        "        return min(leader_end, log_end)\n",
        "unheard epoch",
    ),
    Mutation(
        "a cut log remembers the epochs of what was cut",
        "moldau.log.truncation",
        "    log.clean_end = min(log.clean_end, log_end)\n    log.epochs.truncate_end(log_end)\n",
        "    log.clean_end = min(log.clean_end, log_end)\n",
        "longer epoch",
        also=(
            (
                "moldau.log.truncation",
                "        log.epochs.truncate_end(log.log_end)\n        return\n",
                "        return\n",
            ),
            (
                "moldau.broker.partitions.partition",
                "            self.log.epochs.truncate_end(self.log.log_end)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutation(
        "a follower copies on before the disk has forgotten what it cut off",
        _FOLLOWED,
        _CUT_IS_UNFORCED,
        "        if False:\n            return True\n",
        "mixed pages",
        1,
    ),
    Mutation(
        "a flush leaves out a file that was cut before another one was begun",
        "moldau.log.truncation",
        "        log.flushed = min(log.flushed, max(segment.base, log.log_start))\n",
        "",
        "returned tail",
        1,
        # Or the cut is forced to disk before anything follows it.
        also=((_FOLLOWED, _CUT_IS_UNFORCED, "        if False:\n            return True\n"),),
    ),
    Mutation(
        "the name of a log's first file is not forced to disk before the second is begun",
        "moldau.log.segments.segments",
        "        if base != self._durable_base:\n",
        "        if False:\n",
        "lost name",
        also=(
            # Or a log whose names were never forced is put aside whole.
            (
                "moldau.log.store.store",
                "        return is_empty or self.life.last.held(topic_id, partition)\n",
                "        return True\n",
            ),
        ),
    ),
    Mutation(
        "a producer is told for ever to try again what waits for a number that was lost",
        _REFUSED_WRITES,
        "self.blocked += self.include(sequence) or self.reason in _PASSING",
        "self.blocked += self.include(sequence)",
        "lost acknowledgement",
    ),
    Mutation(
        "a batch that has to wait for a lost one is taken for the first that was refused",
        _REFUSED_WRITES,
        "            and _is_after(sequence,"
        " known.expected(partition.log.producers.get(producer_id)))\n",
        "            and False\n",
        "lost acknowledgement",
    ),
    Mutation(
        "whoever comes into sync may be in another life by then (KIP-903)",
        "moldau.cluster.zookeeper.commits",
        "        return [Check(self._paths.folder(broker), registrations[broker]) for broker in"
        " joining]\n",
        "        return []\n",
        "lost tail",
    ),
    Mutation(
        "what is known of a follower's former life counts (KIP-903)",
        "moldau.broker.replication.leader.isr_changes",
        "        return in_sync.followers[replica].epoch == registered.epoch\n",
        "        return True\n",
        "reborn",
    ),
    Mutation(
        "a member commits by a generation that is over",
        "moldau.broker.coordination.groups.classic.group",
        "        if not error and generation != generations.number:\n",
        "        if False:\n",
        "late commit",
    ),
    Mutation(
        "a member goes on by an epoch that is over (KIP-848)",
        "moldau.broker.coordination.groups.consumer.checks",
        "    if epoch < current.epoch and not is_behind:\n",
        "    if False:\n",
        "late heartbeat",
    ),
)

LATE_SHARING = (
    Mutation(
        "what was said in a share session that is over counts in the next",
        "moldau.broker.sharing.sessions",
        "        if epoch != session.epoch:\n",
        "        if False:\n",
        "late word",
    ),
    Mutation(
        "a member has a say in records that another has",
        "moldau.broker.sharing.share_partition",
        "                if run.state is ACQUIRED and run.member != member:\n",
        "                if False:\n",
        "lost lock",
    ),
    Mutation(
        "a former leader's word about shared records counts",
        _SHARE_COORDINATOR,
        "        if UNKNOWN < update.leader_epoch < state.leader_epoch:\n",
        "        if False:\n",
        "old share leader",
    ),
    Mutation(
        "a new leader of shared records does not fence the former one",
        _SHARE_COORDINATOR,
        "if leader_epoch > state.leader_epoch or log.high_watermark < log.log_end:",
        "if log.high_watermark < log.log_end:",
        "old share leader",
    ),
    Mutation(
        "a share group's state that has begun can be begun once more",
        _SHARE_COORDINATOR,
        "        if before is not None and start < 0 and state_epoch == before.state_epoch:\n",
        "        if False:\n",
        "slept leader",
    ),
    Mutation(
        "what was written before a share group's offsets were set anew counts",
        _SHARE_COORDINATOR,
        "        if UNKNOWN < state_epoch < state.state_epoch:\n",
        "        if False:\n",
        "reset offsets",
    ),
)
