"""The folders of logs: their names, in and out of service."""

from __future__ import annotations

import logging
import os
import re
import uuid

from moldau.log.files.trash import Trash
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.log")

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
DAMAGED_SUFFIX = "-damaged"
_LOG_FOLDER = re.compile(r"(.+)-(\d{1,10})")
_MAX_NAME = 255
_UNIQUE = 32


def find_logs(folder: str, trash: Trash) -> list[tuple[str, TopicPartition]]:
    """Return the logs in a data folder, in order; what was being deleted goes to the trash."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                trash.add(entry.path)
                continue
            match = _LOG_FOLDER.fullmatch(entry.name)
            if match is None:
                logger.info("%s is not a log's folder", entry.path)
                continue
            found.append((entry.name, (match[1], int(match[2]))))
    found.sort(key=lambda item: item[1])
    return found


def path_away(folder: str, unique: uuid.UUID, ending: str) -> str:
    """Return a path for a log's folder that is taken out of service, unlike any other."""
    parent, name = os.path.split(folder)
    suffix = f".{unique.hex}{ending}"
    return f"{parent}/{name[: _MAX_NAME - len(suffix)]}{suffix}"


def earlier_away(away: str) -> list[str]:
    """Return the paths of the same log's folders that were taken out of service before in the same
    way."""
    parent, name = os.path.split(away)
    ending = name[name.rindex("-") :]
    start = name[: -_UNIQUE - len(ending)]
    return [
        f"{parent}/{each}"
        for each in os.listdir(parent)
        if each.startswith(start) and each.endswith(ending) and each != name
    ]
