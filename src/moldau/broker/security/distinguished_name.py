"""Distinguished names: the subject of a certificate as text, as Java writes it (RFC 2253).

Kafka's rules and ACLs name clients by that text, so it has to be the same to the letter: the last
part first, `CN=alice,OU=users,O=Acme`; a part that RFC 2253 has no name for by its number, with its
value in hexadecimal.
"""

from __future__ import annotations

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# The string types of ASN.1, by their tags.
_CODECS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_EXPLICIT_VERSION = 0xA0
# How many parts of the signed certificate come before the subject, without the version.
_BEFORE_SUBJECT = 4


class NotACertificate(ValueError):
    """Bytes that are not a certificate in DER."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; NotACertificate if it is none."""
    try:
        _, whole, _ = _element(certificate, 0)
        _, signed, _ = _element(whole, 0)
        parts = _elements(signed)
        if parts[0][0] == _EXPLICIT_VERSION:
            del parts[0]
        _, subject = parts[_BEFORE_SUBJECT]
        names = [_relative(value) for _, value in _elements(subject)]
    except (IndexError, UnicodeDecodeError) as reason:
        raise NotACertificate(f"{len(certificate)} bytes are not a certificate") from reason
    return ",".join(reversed(names))


def _relative(data: bytes) -> str:
    return "+".join(_attribute(value) for _, value in _elements(data))


def _attribute(data: bytes) -> str:
    _, number, value_at = _element(data, 0)
    tag, value, end = _element(data, value_at)
    name = _NAMES.get(_dotted(number))
    if name is None or tag not in _CODECS:
        return f"{name or _dotted(number)}=#{data[value_at:end].hex()}"
    return f"{name}={_escape(value.decode(_CODECS[tag]))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in text)
    escaped = escaped.replace("\0", "\\00")
    inner = escaped.strip(" ")
    if not inner:
        return "\\ " * len(escaped)
    before = len(escaped) - len(escaped.lstrip(" "))
    after = len(escaped) - len(escaped.rstrip(" "))
    return "\\ " * before + inner + "\\ " * after


def _dotted(number: bytes) -> str:
    first = number[0]
    arcs = [min(first // 40, 2)]
    arcs.append(first - 40 * arcs[0])
    arc = 0
    for byte in number[1:]:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    return ".".join(map(str, arcs))


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    position = 0
    while position < len(data):
        tag, value, position = _element(data, position)
        found.append((tag, value))
    return found


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Return the tag and the value of the element at `position`, and where the next one begins."""
    tag, size = data[position], data[position + 1]
    position += 2
    if size & 0x80:
        count = size & 0x7F
        if not 0 < count <= 4 or position + count > len(data):
            raise IndexError
        size = int.from_bytes(data[position : position + count], "big")
        position += count
    end = position + size
    if end > len(data):
        raise IndexError
    return tag, data[position:end], end
