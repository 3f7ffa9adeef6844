"""librdkafka through ctypes: the few calls a load generator needs, all in batches.

The shared library is the one inside the confluent-kafka wheel. Its Python binding creates objects
per message, which stops at a few hundred thousand messages a second; the calls below cross into C
once per thousands of messages.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from moldau.bench.errors import BenchFailed, Unavailable

PRODUCER, CONSUMER = 0, 1
MSG_F_COPY, MSG_F_BLOCK = 0x2, 0x4
_ERROR_SIZE = 512


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = [
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]

    err: int
    partition: int
    payload: int
    size: int
    offset: int


def library_path() -> str:
    """Return where the bundled library lies: beside the package on Linux, inside it on macOS."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
            for found in sorted(folder.glob("librdkafka*")):
                return str(found)
    system = ctypes.util.find_library("rdkafka")
    if system is None:
        raise Unavailable("no librdkafka: the confluent-kafka wheel of this platform has none")
    return system


@cache
def library() -> Any:
    """Return the loaded library, with the signatures of what is used here."""
    lib = ctypes.CDLL(library_path())
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    partition, offset, size = ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "conf_new": (pointer, []),
        "conf_set": (number, [pointer, text, text, text, size]),
        "new": (pointer, [number, pointer, text, size]),
        "topic_new": (pointer, [pointer, text, pointer]),
        "produce": (number, [pointer, partition, number, text, size, pointer, size, pointer]),
        "produce_batch": (number, [pointer, partition, number, pointer, number]),
        "flush": (number, [pointer, number]),
        "queue_new": (pointer, [pointer]),
        "consume_start_queue": (number, [pointer, partition, offset, pointer]),
        "consume_queue": (ctypes.POINTER(Message), [pointer, number]),
        "consume_callback_queue": (number, [pointer, number, pointer, pointer]),
        "message_destroy": (None, [ctypes.POINTER(Message)]),
        "version_str": (text, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


def version() -> str:
    name: bytes = library().rd_kafka_version_str()
    return name.decode()


def idle_callback() -> ctypes.c_void_p:
    """Return a C function that does nothing to its argument, for a callback that need not reach
    Python.

    `labs` takes a long and returns it: as a callback it costs a nanosecond, and the caller still
    learns how many messages went by.
    """
    return ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)


class Client:
    """A librdkafka handle. Never destroyed: a load process ends with its only task."""

    def __init__(self, kind: int, settings: Mapping[str, object]) -> None:
        self.lib = library()
        error = ctypes.create_string_buffer(_ERROR_SIZE)
        conf = self.lib.rd_kafka_conf_new()
        for key, value in settings.items():
            code = self.lib.rd_kafka_conf_set(
                conf, key.encode(), str(value).encode(), error, _ERROR_SIZE
            )
            if code != 0:
                raise BenchFailed(f"librdkafka refuses {key}={value}: {error.value.decode()}")
        self.handle = self.lib.rd_kafka_new(kind, conf, error, _ERROR_SIZE)
        if not self.handle:
            raise BenchFailed(f"librdkafka does not start: {error.value.decode()}")

    def topic(self, name: str) -> int:
        handle: int = self.lib.rd_kafka_topic_new(self.handle, name.encode(), None)
        return handle

    def flush(self, timeout_s: float) -> None:
        if self.lib.rd_kafka_flush(self.handle, int(timeout_s * 1000)) != 0:
            raise BenchFailed(f"messages still undelivered after {timeout_s} s")

    def consume_from(self, topic: str, partitions: range, offset: int) -> int:
        """Return a queue that receives every message of `partitions` from `offset` on; no group."""
        queue: int = self.lib.rd_kafka_queue_new(self.handle)
        handle = self.topic(topic)
        for partition in partitions:
            if self.lib.rd_kafka_consume_start_queue(handle, partition, offset, queue) != 0:
                raise BenchFailed(f"cannot consume {topic} [{partition}] from {offset}")
        return queue
