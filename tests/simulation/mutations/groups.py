"""Mutations of consumer groups of KIP-848 and of share groups."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_MACHINE = "moldau.broker.coordination.groups.consumer.machine"
_CHECKS = "moldau.broker.coordination.groups.consumer.checks"
_GROUP = "moldau.broker.coordination.groups.consumer.group"
_JOURNAL = "moldau.broker.coordination.journal"
_SHARE = "moldau.broker.sharing.share_partition"
_SHARED = "moldau.broker.sharing.shared_partition"

SUBSCRIBERS = (
    Mutation(
        "a partition is given away before its owner has released it",
        _MACHINE,
        "                if partition in owners:\n                    must_wait = True",
        "                if False:\n                    must_wait = True",
        "subscribers",
    ),
    Mutation(
        "what a member is to give up counts as given up",
        _MACHINE,
        "        if revoking and _holds(revoking, owned):\n",
        "        if False:\n",
        "subscribers",
    ),
    Mutation(
        "a commit is taken in an epoch that is over (KIP-1251)",
        _CHECKS,
        "        if since is None or generation < since:\n            return stale",
        "        if False:\n            return stale",
        "subscribers",
    ),
    Mutation(
        "a commit is taken from whoever is no member",
        _CHECKS,
        "    if member is None:\n        return Error.UNKNOWN_MEMBER_ID\n    is_classic",
        "    if member is None:\n        return Error.NONE\n    is_classic",
        "subscribers",
        9,
    ),
    Mutation(
        "heartbeats do not keep a session",
        _GROUP,
        "        self.timers.set(id, Wait.SESSION, now + limits.session_timeout_ms)\n        after",
        "        self.timers.set_if_absent(id, Wait.SESSION, now + limits.session_timeout_ms)\n"
        "        after",
        "subscribers",
    ),
    Mutation(
        "silent members are never removed",
        _GROUP,
        "        return self.remove(gone, now) if gone else []",
        "        return []",
        "subscribers",
    ),
    Mutation(
        "members are told what the in-sync replicas may not have",
        _JOURNAL,
        "return not self._pending and log.high_watermark >= log.log_end",
        "return True",
        "subscribers",
        4,
    ),
    Mutation(
        "a new coordinator forgets who has what",
        _GROUP,
        "        if found is not None:\n            self.state.put(*found)",
        "        if found is not None and found[0] is not Part.CURRENT:\n"
        "            self.state.put(*found)",
        "subscribers",
        13,
    ),
)

SHARING = (
    Mutation(
        "locks run out as soon as anybody looks",
        _SHARE,
        "due = [run for run in self._runs if run.locked_until <= now and run.change is None]",
        "due = [run for run in self._runs if run.change is None]",
        "sharing",
    ),
    Mutation(
        "a member has a say in records that it does not have",
        _SHARE,
        "if run.state is not ACQUIRED or run.change is not None or run.locked_until <= now:",
        "if False:",
        "sharing",
        10,
    ),
    Mutation(
        "locks never run out",
        _SHARE,
        "        if now < self.due_at:\n            return None\n",
        "        self.due_at = NEVER\n        if True:\n            return None\n",
        "sharing",
        5,
    ),
    Mutation(
        "an acknowledgement is confirmed before it is written",
        _SHARED,
        "            change.member, change.said = member, ranges\n",
        "            change.member, change.said = member, ranges\n"
        "            change.settle(Error.NONE)\n",
        "sharing",
    ),
    Mutation(
        "records are delivered for ever",
        _SHARE,
        "        if run.deliveries < self.limits.deliveries:\n",
        "        if True:\n",
        "sharing",
    ),
    Mutation(
        "dead letters are dropped",
        _SHARED,
        "            if change.dead and self._config.errors_deadletterqueue_topic_name:\n",
        "            if False:\n",
        "sharing",
    ),
    Mutation(
        "a record is finished whether its dead letter is safe or not",
        _SHARED,
        "        if is_safe:\n",
        "        if True:\n",
        "sharing",
    ),
    Mutation(
        "a new leader begins without what is written of the records",
        _SHARED,
        "        self.machine = SharePartition(start, found.batches, self._limits)\n",
        "        self.machine = SharePartition(start, (), self._limits)\n",
        "sharing",
    ),
)
