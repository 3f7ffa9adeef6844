"""The probe that runs on a worker: sent as code, so it uses only the standard library."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# The packages that tasks import, by pip's names.
NEEDED = {
    "confluent_kafka": "confluent-kafka",
    "cramjam": "cramjam",
    "crc32c": "crc32c",
    "fastavro": "fastavro",
    "kio": "kio",
    "msgspec": "msgspec",
    "numba": "numba",
    "pyarrow": "pyarrow",
}
SHIPPED = ("moldau", "pyspark_moldau")


class Answer(NamedTuple):
    """The packages of one worker's Python; `fingerprint` is empty if it lacks this package."""

    host: str
    python: str
    missing: tuple[str, ...]
    fingerprint: str


def answer(_: Iterable[int]) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield an Answer, as a plain tuple: the body of a task."""
    specs = [importlib.util.find_spec(name) for name in SHIPPED]
    folders = [
        next(iter(spec.submodule_search_locations))
        for spec in specs
        if spec is not None and spec.submodule_search_locations
    ]
    missing = tuple(NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None)
    found = fingerprint_of(folders) if len(folders) == len(SHIPPED) else ""
    yield socket.gethostname(), sys.executable, missing, found


def fingerprint_of(folders: Iterable[str]) -> str:
    """By which two installations of packages are known to be the same."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for path in files_of(folder):
            digest.update(os.path.relpath(path, folder).encode())
            with open(path, "rb") as file:
                digest.update(hashlib.blake2b(file.read()).digest())
    return digest.hexdigest()


def files_of(folder: str) -> list[str]:
    """Return the files of a package, without what Python and numba keep beside them."""
    return sorted(
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        if os.path.basename(parent) != "__pycache__"
        for name in names
    )
