"""The settings of tasks that stage transactions, from those of Kafka's producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.client.connection import security_properties
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.records.compression import Codec
from moldau.security.client import ClientSecurity, is_security
from moldau.security.references import resolve_property
from moldau.settings import InvalidSetting

# As large as librdkafka makes a batch; what surrounds the records fits beside it.
_BATCH_BYTES = 1_000_000
_LEAST_BYTES = 256
_PARTITIONERS = ("murmur2", "murmur2_random")


@dataclass(frozen=True, slots=True)
class StagingSettings:
    """The settings of a staging task. `timeout_ms` is for brokers without two-phase commit."""

    bootstrap: tuple[tuple[str, int], ...]
    peer: PeerSettings
    codec: Codec = Codec.NONE
    batch_bytes: int = _BATCH_BYTES
    timeout_ms: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StagingSettings:
        """From a producer's settings; InvalidSetting for one that transactions cannot be with.

        Others have no effect here.
        """
        for name in ("acks", "request.required.acks"):
            if given.get(name, "all").strip() not in ("all", "-1"):
                raise InvalidSetting(name, given[name], "must be all")
        if given.get("enable.idempotence", "true").strip().lower() != "true":
            raise InvalidSetting("enable.idempotence", given["enable.idempotence"], "must be true")
        if given.get("partitioner", _PARTITIONERS[0]).strip() not in _PARTITIONERS:
            reason = f"must be {' or '.join(_PARTITIONERS)}"
            raise InvalidSetting("partitioner", given["partitioner"], reason)
        largest = min(
            _number(given, "max.request.size", _BATCH_BYTES),
            _number(given, "message.max.bytes", _BATCH_BYTES),
            max(_number(given, "batch.size", _BATCH_BYTES), 16 << 10),
        )
        own = {
            name: resolve_property(name, text) for name, text in given.items() if is_security(name)
        }
        peer = PeerSettings(
            client_id=given.get("client.id", "moldau-spark"),
            security=ClientSecurity.parse(own or security_properties()),
            request_timeout_s=_number(given, "request.timeout.ms", 30_000) / 1000,
            retry_within_s=_number(given, "delivery.timeout.ms", 120_000) / 1000,
            first_backoff_s=0.005,
        )
        timeout_ms = _number(given, "transaction.timeout.ms", 0) or None
        return cls(
            tuple(parse_bootstrap(given["bootstrap.servers"])),
            peer,
            _codec(given.get("compression.type", "none")),
            max(largest, _LEAST_BYTES),
            timeout_ms,
        )


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except ValueError:
        raise InvalidSetting(name, given[name], "must be a whole number") from None


def _codec(name: str) -> Codec:
    try:
        return Codec[name.strip().upper()]
    except KeyError:
        raise InvalidSetting("compression.type", name, "there is no such codec") from None
