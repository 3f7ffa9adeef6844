"""The cache of Metadata: encoded answers, for as long as nothing changes."""

from __future__ import annotations

from moldau.broker.security.principal import Principal

# Version, the local address that it came in by, body, and who asks if that makes a difference.
Question = tuple[int, str, int, bytes, tuple[Principal, str] | None]

_MOST_CACHED_BYTES = 16 << 20
_ENTRY_BYTES = 512


class MetadataCache:
    """Encoded answers by request, good for as long as the cluster's state stays the same."""

    def __init__(self) -> None:
        self._version = -1
        self._answers: dict[Question, bytes] = {}
        self._bytes = 0

    def get(self, version: int, key: Question) -> bytes | None:
        if version != self._version:
            self._version = version
            self.clear()
        return self._answers.get(key)

    def clear(self) -> None:
        """Forget all answers, since something else changed than the state."""
        self._answers.clear()
        self._bytes = 0

    def put(self, version: int, key: Question, answer: bytes) -> None:
        if version == self._version:
            self._bytes += _ENTRY_BYTES + len(key[3]) + len(answer)
            if self._bytes <= _MOST_CACHED_BYTES:
                self._answers[key] = answer
