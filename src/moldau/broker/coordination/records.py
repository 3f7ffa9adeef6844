"""Records of internal topics: keys and values over plain bytes, as Kafka writes them."""

from __future__ import annotations

from struct import Struct

from moldau.wire.primitives import INT16, INT32

# Key and value; no value is a tombstone.
KeyValue = tuple[bytes, bytes | None]


class InvalidRecord(ValueError):
    """Bytes that are no record of their topic."""


class Fields:
    """Reads one field after the other; InvalidRecord where the bytes end too early.

    Lengths are plain until `version` has read a version that is flexible: then they are compact,
    and there are tagged fields. What is inside a tagged field is compact from the start.
    """

    __slots__ = ("_compact", "_data", "_position")

    def __init__(self, data: bytes, *, compact: bool = False) -> None:
        self._data = data
        self._position = 0
        self._compact = compact

    def version(self, last: int, first_flexible: int) -> int:
        """Read the version that a value begins with."""
        version = self.fixed(INT16)
        if not 0 <= version <= last:
            raise InvalidRecord(f"a value of version {version}")
        self._compact = version >= first_flexible
        return version

    def fixed(self, kind: Struct) -> int:
        position = self._advance(kind.size)
        value: int = kind.unpack_from(self._data, position)[0]
        return value

    def count(self) -> int:
        count = self.nullable_count()
        if count is None:
            raise InvalidRecord("an array that must not be null is null")
        return count

    def nullable_count(self) -> int | None:
        count = self._uvarint() - 1 if self._compact else self.fixed(INT32)
        # Every element takes a byte at least, so a lying count is caught before anything is built.
        if count < -1 or count > len(self._data) - self._position:
            raise InvalidRecord(f"{count} elements do not fit")
        return None if count == -1 else count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise InvalidRecord("a string that must not be null is null")
        return text

    def nullable_text(self) -> str | None:
        size = self._uvarint() - 1 if self._compact else self.fixed(INT16)
        if size == -1:
            return None
        position = self._advance(size)
        try:
            return self._data[position : position + size].decode()
        except UnicodeDecodeError:
            raise InvalidRecord("a string is not UTF-8") from None

    def blob(self) -> bytes:
        size = self._uvarint() - 1 if self._compact else self.fixed(INT32)
        position = self._advance(size)
        return self._data[position : position + size]

    def raw(self, size: int) -> bytes:
        """Read so many bytes."""
        position = self._advance(size)
        return self._data[position : position + size]

    def skip_tags(self) -> None:
        self.tags()

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields, by their numbers; none in a version that is not flexible."""
        found: dict[int, bytes] = {}
        if self._compact:
            for _ in range(self._uvarint()):
                tag, size = self._uvarint(), self._uvarint()
                position = self._advance(size)
                found[tag] = self._data[position : position + size]
        return found

    def _uvarint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._data[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidRecord("a varint is longer than five bytes")

    def _advance(self, size: int) -> int:
        position = self._position
        if size < 0 or size > len(self._data) - position:
            raise InvalidRecord(f"a field of {size} bytes does not fit")
        self._position = position + size
        return position
