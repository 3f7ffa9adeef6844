"""Errors of the storage layer. Each carries what it is about; the wire maps it to a code."""

from __future__ import annotations

import errno
import os


class LogError(Exception):
    """Any refusal by the storage layer that is not about a batch's own bytes."""


# A disk, or what lies on it, is broken. A full one is not.
_BROKEN = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EROFS", "ENXIO", "ENODEV", "EUCLEAN", "EBADMSG")
    if hasattr(errno, name)
)


class StorageError(LogError):
    """The disk refused, or what it holds cannot be trusted; `path` says where."""

    def __init__(self, path: str, reason: str, number: int = errno.EIO) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.errno = number

    @property
    def is_damage(self) -> bool:
        """Whether it is likely to stay, unlike a lack of room or of open files."""
        return self.errno in _BROKEN

    @classmethod
    def of_damage(cls, error: CorruptFile) -> StorageError:
        return cls(error.path, error.reason)

    @classmethod
    def of(cls, path: str, error: OSError) -> StorageError:
        number = error.errno or errno.EIO
        return cls(path, os.strerror(number), number)


class CorruptLog(StorageError):
    """A segment does not hold what was once written there; `position` is where it goes wrong."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, f"corrupt at position {position}: {reason}")
        self.position = position


class CorruptFile(LogError):
    """A small file (index, snapshot, checkpoint) is not what was once written there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class OffsetOutOfRange(LogError):
    """`offset` lies outside the log, which spans [log_start, log_end]."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start}, {log_end}]")
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class UnexpectedOffset(LogError):
    """A replicated batch does not go on where the log ends."""

    def __init__(self, offset: int, log_end: int) -> None:
        super().__init__(
            f"a replicated batch begins at offset {offset}, but the log ends at {log_end}"
        )
        self.offset = offset
        self.log_end = log_end


class UnexpectedEpoch(LogError):
    """A replicated batch is of a later leader epoch than the one that is followed."""

    def __init__(self, epoch: int, term: int) -> None:
        super().__init__(
            f"a replicated batch has leader epoch {epoch}, but came from the leader of epoch "
            f"{term}, which is no longer the leader"
        )
        self.epoch = epoch
        self.term = term


class InvalidTimestamp(LogError):
    """A producer's timestamp outside what the topic allows."""

    def __init__(self, timestamp: int, reason: str) -> None:
        super().__init__(f"timestamp {timestamp} {reason}")
        self.timestamp = timestamp


class InvalidProducerEpoch(LogError):
    """A producer that a newer one with the same id has fenced off."""

    def __init__(self, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"producer {producer_id} has epoch {epoch}, the last one seen is {current_epoch}"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class OutOfOrderSequence(LogError):
    """A producer's batch does not follow its last one."""

    def __init__(self, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        super().__init__(
            f"producer {producer_id} epoch {epoch} sent sequence {sequence}, expected {expected}"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected


class InvalidTransactionState(LogError):
    """A plain write while the producer's transaction is open, or a transactional one while none
    is."""

    def __init__(
        self, producer_id: int, what: str = "has an open transaction but wrote outside it"
    ) -> None:
        super().__init__(f"producer {producer_id} {what}")
        self.producer_id = producer_id


class CoordinatorFenced(LogError):
    """An end marker from a transaction coordinator that a newer one has replaced."""

    def __init__(self, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"coordinator epoch {epoch} for producer {producer_id} is older than {current_epoch}"
        )
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch


class FolderInUse(LogError):
    """Another process has the data folder open."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"{folder} is in use by another broker; give each broker its own --data-dir"
        )
        self.folder = folder
