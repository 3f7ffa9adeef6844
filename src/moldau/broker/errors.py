"""Error codes for clients: the one place that maps what goes wrong in the parts below."""

from __future__ import annotations

from moldau.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTimestamp,
    InvalidTransactionState,
    LogError,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
)
from moldau.records.batch import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    NotChecked,
)
from moldau.wire.errors import Error

_CODES: dict[type[Exception], Error] = {
    CorruptBatch: Error.CORRUPT_MESSAGE,
    InvalidRecord: Error.INVALID_RECORD,
    BatchTooLarge: Error.MESSAGE_TOO_LARGE,
    # Every client sends again after it, without looking for another leader first.
    NotChecked: Error.NOT_ENOUGH_REPLICAS,
    StorageError: Error.KAFKA_STORAGE_ERROR,
    OffsetOutOfRange: Error.OFFSET_OUT_OF_RANGE,
    InvalidTimestamp: Error.INVALID_TIMESTAMP,
    InvalidProducerEpoch: Error.INVALID_PRODUCER_EPOCH,
    OutOfOrderSequence: Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidTransactionState: Error.INVALID_TXN_STATE,
    CoordinatorFenced: Error.TRANSACTION_COORDINATOR_FENCED,
}


def code_and_message(error: BatchError | LogError) -> tuple[Error, str]:
    """Return the code for programs and the sentence for people."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind], str(error)
    return Error.UNKNOWN_SERVER_ERROR, str(error)
