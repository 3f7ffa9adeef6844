"""The audit topic: what brokers wrote there, and what this console adds to it."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

import msgspec

from moldau.console.audit import AuditRecord
from moldau.console.broker_settings import broker_settings
from moldau.console.browse import Browser, Start, topic_bounds
from moldau.console.pool import ClusterPool
from moldau.console.producing import produce
from moldau.console.sampling.state import read_topic
from moldau.console.settings import ConsoleSettings
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.records.record import Record

logger = logging.getLogger("moldau.console.audit")

# How long the name of the topic is believed.
_KNOWN_S = 60.0


class AuditTopic:
    """Writes the records of a console to the brokers' audit topic, if they have one. Any thread.

    It is written under the console's own name: who changes something need not be able to write.
    """

    def __init__(self, settings: ConsoleSettings, pool: ClusterPool) -> None:
        self._settings = settings
        self._pool = pool
        self._topic = ""
        self._until = 0.0

    def publish(self, record: AuditRecord) -> None:
        """Write one record; a failure is logged, as the record itself has been."""
        if not self._settings.has_login:
            return
        try:
            with self._pool.borrowed(self._settings.security) as cluster:
                topic = self._name(cluster)
                if topic:
                    body = msgspec.json.encode(record)
                    produce(cluster, topic, 0, [Record(0, record.at_ms, None, body)])
        except PeerError as problem:
            logger.warning("not written to the audit topic: %s", problem)

    def _name(self, cluster: Cluster) -> str:
        if not self._topic or time.monotonic() > self._until:
            # Brokers create it when they first write there.
            self._topic = _configured(cluster)
            self._until = time.monotonic() + _KNOWN_S
        return self._topic


def _configured(cluster: Cluster) -> str:
    name = (broker_settings(cluster, ["audit.topic"]).get("audit.topic") or "").strip()
    if name:
        with suppress(Refused):
            read_topic(cluster, name)
            return name
    return ""


def broker_records(cluster: Cluster, topic: str, limit: int) -> list[AuditRecord]:
    """Return the last records of an audit topic, the newest first; Refused if we may not."""
    try:
        state, _ = read_topic(cluster, topic)
    except Refused as refused:
        if refused.is_unknown:
            return []
        raise
    known = topic_bounds(cluster, state, topic, None)
    ends = {index: end for index, (_, end) in known.items()}
    page = Browser(cluster, topic, known).page(Start(ends, backwards=True), limit)
    found = [_record(record) for _, record, _ in reversed(page.found)]
    return [each for each in found if each is not None]


def _record(record: Record) -> AuditRecord | None:
    try:
        content: Any = msgspec.json.decode(bytes(record.value or b""))
    except msgspec.DecodeError:
        return None
    if not isinstance(content, dict):
        return None
    if content.get("source") == "console":
        with suppress(msgspec.ValidationError):
            return msgspec.convert(content, AuditRecord)
    names = ", ".join(map(str, content.get("names", ())))
    # Of logins that failed, it is known who was tried.
    tried = ", ".join(map(str, content.get("users", ())))
    action = f"{content.get('decision', '?')}: {content.get('operation', '?')} on {names}"
    return AuditRecord(
        record.timestamp,
        str(content.get("principal") or tried or "others").removeprefix("User:"),
        str(content.get("host", "")),
        action,
        content,
        "broker",
    )
