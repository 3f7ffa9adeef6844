"""Properties: the small text files that say whom a folder belongs to."""

from __future__ import annotations

import base64
import binascii
import os
import uuid
from collections.abc import Mapping

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.files.disk import read_small, replace_file, sync_folder

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"


def read_properties(path: str) -> dict[str, str]:
    """Return the `key=value` lines of a properties file; empty if there is no such file."""
    content = read_small(path)
    if content is None:
        return {}
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptFile(path, "not text") from None
    values = {}
    for line in lines:
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise CorruptFile(path, f"malformed line {line!r}")
        values[key.strip()] = value.strip()
    return values


def write_properties(path: str, values: Mapping[str, str]) -> None:
    """Replace a properties file durably."""
    content = "#\n" + "".join(f"{key}={value}\n" for key, value in values.items())
    try:
        replace_file(path, content.encode(), sync=True)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise StorageError.of(path, error) from error


def read_topic_id(path: str) -> uuid.UUID | None:
    """Return the topic id in a `partition.metadata` file; None if there is none that can be read.

    The file is not forced to disk before the log's first flush, so a power failure may leave it
    empty.
    """
    content = read_small(path)
    lines = (content or b"").decode(errors="replace").splitlines()
    if len(lines) < 2 or not lines[0].startswith("version:"):
        return None
    key, _, text = lines[1].partition(":")
    try:
        raw = base64.b64decode(text.strip() + "==", altchars=b"-_", validate=True)
        return uuid.UUID(bytes=raw) if key == "topic_id" and any(raw) else None
    except (ValueError, binascii.Error):
        return None


def encode_topic_id(topic_id: uuid.UUID) -> bytes:
    """Return the content of a `partition.metadata` file."""
    text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}".encode()
