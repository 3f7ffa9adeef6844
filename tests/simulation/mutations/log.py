"""Mutations of the log and its files: fsyncs, recovery, truncation, producers' numbers, offsets."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

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
