"""Mutations of the log and its files: fsyncs, recovery, truncation, producers' numbers, offsets."""

from __future__ import annotations

from tests.simulation.mutations.mutation import ANYTHING, Mutation

_FLUSH = "moldau.log.flushes.flush"
_DISK = "moldau.log.files.disk"
_STATES = "moldau.log.producers.states"
_RECOVERY = "moldau.log.recovery"

LOG = (
    Mutation(
        "a flush does not force batches to disk",
        _FLUSH,
        "                os.fsync(file.fd)\n",
        "                pass\n",
        "power",
    ),
    Mutation(
        "small files are not forced to disk before they appear",
        _DISK,
        "        if sync:\n            os.fsync(fd)",
        "        if False:\n            os.fsync(fd)",
        "power",
    ),
    Mutation(
        "folders are never forced to disk",
        _DISK,
        "    try:\n        os.fsync(fd)\n    finally:\n        os.close(fd)\n\n\ndef can",
        "    try:\n        pass\n    finally:\n        os.close(fd)\n\n\ndef can",
        "power",
        2,
    ),
    Mutation(
        "an unclean start believes what lies after the recovery point",
        _RECOVERY,
        "error, position = caught, caught.position",
        "error, position = None, caught.position",
        "disks",
    ),
    Mutation(
        "the numbers of idempotent producers are not looked at",
        _STATES,
        "            if base_sequence != expected:",
        "            if False:",
        "leaders",
    ),
    Mutation(
        "a high watermark may go back",
        "moldau.log.log",
        "if offset > self.high_watermark",
        "if offset != self.high_watermark",
        "leaders",
    ),
    Mutation(
        "a write that the disk refused is remembered of its producer",
        _STATES,
        "        if not self.unsettled:\n            return\n        for",
        "        if True:\n            return\n        for",
        "disks",
    ),
    Mutation(
        "wrong bits in an index of aborted transactions are believed",
        _RECOVERY,
        "worse = check_aborted(segments, end, thoroughly=not is_clean)",
        "worse = None",
        ANYTHING,
        795,
    ),
    Mutation(
        "compaction goes beyond what is committed and forced to disk",
        "moldau.log.compaction.candidates",
        "stable = min(log.last_stable, log.high_watermark, log.flushed)",
        "stable = log.log_end",
        "compaction",
        9,
    ),
    Mutation(
        "tombstones are compacted away at once",
        "moldau.log.compaction.compactor",
        "keeps_tombstones = horizon is None or self._job.now_ms < horizon",
        "keeps_tombstones = False",
        "compaction",
    ),
    Mutation(
        "compacted files are not forced to disk before they replace others",
        "moldau.log.compaction.compactor",
        "        os.fsync(new.open().fd)\n",
        "        pass\n",
        "compaction",
        32,
    ),
    Mutation(
        "a log of a deleted topic is taken for that of a topic with the same name",
        "moldau.broker.partitions.replicas",
        "        if log is not None and log.topic_id not in (None, topic.id):\n",
        "        if False:\n",
        ANYTHING,
        4,
    ),
    Mutation(
        "a log that has lost its topic's id is taken for that of the topic with its name",
        "moldau.log.store.store",
        "        return is_empty or self.life.last.held(topic_id, partition)\n",
        "        return True\n",
        ANYTHING,
        874,
        (
            (
                # Or it would lose the id less often.
                _RECOVERY,
                "        if not is_clean or not end:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutation(
        "a repeated batch is written again",
        _STATES,
        "                        return batch\n",
        "                        return None\n",
        "late",
    ),
    Mutation(
        "offsets are committed before the in-sync replicas have them",
        "moldau.broker.coordination.journal",
        "return not self._pending and log.high_watermark >= log.log_end",
        "return True",
        "groups",
        7,
    ),
)
