"""The last life of a broker, from its data folder: how it ended, and where its logs ended."""

from __future__ import annotations

import json
import os
from uuid import UUID

import msgspec

from moldau.log.files.disk import read_small, replace_file, sync_folder
from moldau.log.store.ends import FILE_NAME, KnownEnds, boot_id, read_ends
from moldau.topic_partition import TopicPartition

CLEAN_MARKER = ".kafka_cleanshutdown"


class LastLife(msgspec.Struct):
    """`marker` is that of a clean stop, if it was one. The ends of the logs, their recovery points
    and their high watermarks are what was written down of them."""

    marker: bytes | None = None
    ends: KnownEnds | None = None
    recovery_points: dict[TopicPartition, int] = msgspec.field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = msgspec.field(default_factory=dict)

    def lost_nothing(self, registration: int) -> bool:
        """Return whether all that it had written is there, but for what others did to the folder.

        So it is after a clean stop, and after the end of the process alone, if no later life of the
        broker was registered in between: it would have had another folder, or this is a copy. Why
        either of two numbers will do, see `ends`.
        """
        ends = self.ends
        if ends is None:
            # It kept no record, as brokers did not once.
            return self.marker is not None
        if registration not in ends.registrations:
            return False
        return self.marker is not None or ends.boot_id == boot_id() != ""

    def end_of(self, topic: str, topic_id: UUID, partition: int) -> int:
        """Return where a log ended that lost nothing; 0 for one that was not there."""
        if self.ends is not None:
            return self.ends.end_of(topic_id, partition)
        return self.recovery_points.get((topic, partition), 0)

    def held(self, topic_id: UUID, partition: int) -> bool:
        """Return whether it certainly had the log of this partition, and left it where it is.

        A power failure may bring back the folder of a deleted topic under the name of a new one.
        """
        ends = self.ends
        if ends is None:
            return self.marker is not None
        is_as_left = self.marker is not None or ends.boot_id == boot_id() != ""
        return is_as_left and (topic_id, partition) in ends.entries

    def left_clean(self, topic_id: UUID | None, partition: int, size: int) -> bool:
        """Return whether a log of this size is as a clean stop left it, and need not be looked
        through."""
        if self.marker is None:
            return False
        if self.ends is None or topic_id is None:
            return True
        return self.ends.is_size(topic_id, partition, size)


def last_life(
    folder: str,
    marker: bytes | None,
    recovery_points: dict[TopicPartition, int] | None,
    high_watermarks: dict[TopicPartition, int],
) -> LastLife:
    """Return the last life by what lies in the folder, after `take_marker`."""
    ends = read_ends(f"{folder}/{FILE_NAME}")
    if ends is not None and marker is not None and ends.stopped != _epoch_in(marker):
        # The marker is that of a later life, whose version kept no such record.
        ends = None
    return LastLife(marker, ends, recovery_points or {}, high_watermarks)


def new_marker(epoch: int) -> bytes:
    """Return the marker of a clean stop, as Kafka writes it, with the epoch of the registration."""
    return json.dumps({"version": 0, "brokerEpoch": epoch}).encode()


def _epoch_in(marker: bytes) -> object:
    try:
        return json.loads(marker)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None


def take_marker(folder: str) -> bytes | None:
    """Return the marker of a clean stop, which goes for good before anything can change."""
    path = f"{folder}/{CLEAN_MARKER}"
    marker = read_small(path)
    if marker is not None:
        os.unlink(path)
        sync_folder(folder)
    return marker


def leave_marker(folder: str, marker: bytes) -> None:
    replace_file(f"{folder}/{CLEAN_MARKER}", marker, sync=True)
    sync_folder(folder)
