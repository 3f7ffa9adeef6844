"""Places in a TOML file: tomllib reads values and forgets their lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

Path = tuple[str, ...]

_KEY_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_KEY_PART}(?:\s*\.\s*{_KEY_PART})*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]\]?\s*(?:#.*)?")
_ENTRY = re.compile(rf"\s*({_KEY})\s*=\s*")
_PARTS = re.compile(_KEY_PART)
# The delimiters of a value that spans several lines.
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\[\]{}\n\"'\#]+",
    re.DOTALL,
)


class Places:
    """The lines, counted from 1, of a file's tables and keys."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._value_starts: dict[Path, int] = {}
        self._text = text
        self._scan()

    def line(self, path: Sequence[str]) -> int:
        """Return where this key or table stands, or else the nearest thing around it."""
        for length in range(len(path), 0, -1):
            found = self._lines.get(tuple(path[:length]))
            if found is not None:
                return found
        return 1

    def line_in(self, path: Sequence[str], position: int) -> int:
        """Return the line of a character of a string value, counted from 0 in the value."""
        start = self._value_starts.get(tuple(path))
        if start is None:
            return self.line(path)
        written = self._text[start:]
        is_long = written.startswith(('"""', "'''"))
        if not is_long:
            return self.line(path)
        skipped = 1 if written[3:4] == "\n" or written[3:5] == "\r\n" else 0
        value = tomllib.loads("x = " + self._token(start))["x"]
        return self.line(path) + skipped + str(value)[:position].count("\n")

    def _token(self, start: int) -> str:
        found = _TOKEN.match(self._text, start)
        assert found is not None
        return found[0]

    def _scan(self) -> None:
        table: Path = ()
        position = 0
        while position < len(self._text):
            end = self._text.find("\n", position)
            end = len(self._text) if end < 0 else end
            line = self._text[position:end].rstrip("\r")
            heading = _TABLE.fullmatch(line)
            entry = _ENTRY.match(line)
            if heading is not None:
                table = _split(heading[1])
                self._note(table, position)
            elif entry is not None:
                path = (*table, *_split(entry[1]))
                self._note(path, position)
                start = position + entry.end()
                self._value_starts.setdefault(path, start)
                end = self._end_of_value(start)
            position = end + 1

    def _note(self, path: Path, position: int) -> None:
        line = self._text.count("\n", 0, position) + 1
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], line)

    def _end_of_value(self, start: int) -> int:
        """Return where the line ends on which the value ends."""
        depth, position = 0, start
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if found is None:
                return len(self._text)
            token = found[0]
            if token == "\n" and depth <= 0:
                return position
            depth += (token in ("[", "{")) - (token in ("]", "}"))
            position = found.end()
        return len(self._text)


def _split(key: str) -> Path:
    parts = []
    for part in _PARTS.findall(key):
        parts.append(tomllib.loads(f"x = {part}")["x"] if part[0] in "\"'" else part)
    return tuple(parts)
