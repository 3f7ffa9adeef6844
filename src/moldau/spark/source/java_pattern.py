"""Java's regular expressions, as far as they tell topics apart, in Python's syntax.

`subscribePattern` is Java's syntax, since Spark's own Kafka source hands it to Java. Python's `re`
reads some of it otherwise and lacks the rest. A topic's name is made of 65 characters only, so
whatever stands for a character becomes the set of those it can be: Java's unions, intersections,
properties and flags need no counterpart. What has none is refused, with its position.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple, NoReturn

from moldau.spark.source.java_characters import (
    ALPHABET,
    CLASSES,
    CONTROLS,
    either_case,
    in_alphabet,
    property_named,
)

# These flags have no effect on topic names: they concern line ends, and characters beyond ASCII.
_FLAGS = frozenset("idmsuxU")
_REPEATED = re.compile(r"(\d{1,9})(,(\d{0,9}))?\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*\Z")
# Anchors; of `\Z`, a line end before it cannot be in a name.
_ANCHORS = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "z": r"\Z", "Z": r"\Z"}
_LOOKS = ("=", "!", ">", "<=", "<!")
_NEVER = "(?!)"


class PatternError(ValueError):
    """A pattern that Java would not take, or that Python has no equivalent for."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(f"{reason}, at position {position} of {text!r}")
        self.position = position


@cache
def java_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern to `search` topics' names with, as Java's `find` does."""
    try:
        return re.compile(_Parser(text).parse(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as problem:
        raise PatternError(text, 0, f"Python has no equivalent ({problem})") from None


class _Token(NamedTuple):
    char: str
    position: int
    # Between \Q and \E: it stands for itself.
    is_quoted: bool


class _Parser:
    """One pattern, read once from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}

    def parse(self) -> str:
        found = self._alternatives()
        if self._at < len(self._tokens):
            self._refuse("this ')' closes no group")
        return found

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        parts: list[str] = []
        while True:
            self._skip_comments()
            if self._at == len(self._tokens) or self._sees("|") or self._sees(")"):
                return "".join(parts)
            start = self._at
            atom = self._atom()
            self._skip_comments()
            repeated = self._quantifier()
            if repeated and (not atom or atom in ("^", "$", *_ANCHORS.values())):
                self._refuse("there is nothing to repeat", start)
            parts.append(f"{atom}{repeated}")

    def _atom(self) -> str:
        token = self._next("")
        if token.is_quoted:
            return self._literal(token.char)
        if token.char == "(":
            return self._group()
        if token.char == "[":
            return _one_of(self._class())
        if token.char == "\\":
            return self._escape()
        if token.char in "^$.":
            return token.char
        if token.char in "*+?{":
            self._refuse(f"{token.char!r} repeats nothing", self._at - 1)
        return self._literal(token.char)

    def _quantifier(self) -> str:
        start = self._at
        if self._take("{"):
            content = self._until("}")
            found = _REPEATED.match(content)
            if found is None or (found[3] and int(found[3]) < int(found[1])):
                self._refuse("not a repetition like {2}, {2,} or {2,5}", start)
            text = f"{{{content}}}"
        else:
            text = next((sign for sign in "*+?" if self._take(sign)), "")
        if text:
            self._skip_comments()
            text += next((sign for sign in "?+" if self._take(sign)), "")
        return text

    def _group(self) -> str:
        start = self._at - 1
        before = self._flags
        opening = "("
        number = 0
        if not self._take("?"):
            self._groups = number = self._groups + 1
        elif (look := next((each for each in _LOOKS if self._take(each)), "")) or self._take(":"):
            opening = f"(?{look or ':'}"
        elif self._take("<"):
            self._groups = number = self._groups + 1
            name = self._until(">")
            if _NAME.match(name) is None or name in self._names:
                self._refuse(f"{name!r} cannot be the name of a group", start)
            self._names[name] = number
        elif not self._set_flags(start):
            # They hold up to the end of the group around.
            return ""
        else:
            opening = "(?:"
        content = self._alternatives()
        if not self._take(")"):
            self._refuse("this group is not closed", start)
        self._flags = before
        self._closed.add(number)
        found = f"{opening}{content})"
        if opening in ("(?<=", "(?<!"):
            self._require_fixed_width(found, start)
        return found

    def _require_fixed_width(self, found: str, start: int) -> None:
        try:
            re.compile(found)
        except re.error:
            self._refuse("Python supports lookbehind only for a fixed number of characters", start)

    def _set_flags(self, start: int) -> bool:
        """Read `idm-sux` with the ':' or ')' after it; True for ':', which begins a group."""
        is_off = False
        while True:
            char = self._next("this group is not closed", start).char
            if char in ":)":
                return char == ":"
            if char == "-" and not is_off:
                is_off = True
            elif char not in _FLAGS:
                self._refuse(f"Java has no group that begins with '(?' and {char!r}", start)
            else:
                self._flags = self._flags - {char} if is_off else self._flags | {char}

    def _escape(self) -> str:
        start = self._at - 1
        char = self._next("nothing follows the backslash", start).char
        if char in _ANCHORS:
            if char == "b" and self._sees("{"):
                self._refuse(r"Python has no \b{...}", start)
            return _ANCHORS[char]
        if char in "123456789":
            return self._back_reference(int(char), start)
        if char == "k":
            name = self._until(">") if self._take("<") else ""
            if name not in self._names:
                self._refuse(f"there is no group {name!r} before this", start)
            return self._reference(self._names[name], start)
        if char == "R":
            return _NEVER
        if char == "X":
            return "."
        self._at -= 1
        found = self._escaped(start)
        return self._literal(found) if isinstance(found, str) else _one_of(found)

    def _back_reference(self, number: int, start: int) -> str:
        # As many digits as there are groups so far.
        while (
            (char := self._peek()) and char.isdecimal() and number * 10 + int(char) <= self._groups
        ):
            number = number * 10 + int(self._next("").char)
        return self._reference(number, start)

    def _reference(self, number: int, start: int) -> str:
        if number not in self._closed:
            self._refuse(f"group {number} does not end before this", start)
        return f"(?i:\\{number})" if "i" in self._flags else f"(?:\\{number})"

    def _escaped(self, start: int) -> str | frozenset[str]:
        r"""Parse what follows a backslash: one character, or a set of them like \d."""
        char = self._next("nothing follows the backslash", start).char
        if char in CLASSES:
            return CLASSES[char]
        if char in CONTROLS:
            return CONTROLS[char]
        if char in "pP":
            name = self._until("}") if self._take("{") else self._next("no property", start).char
            found = property_named(name, "i" in self._flags)
            if found is None:
                self._refuse(f"the property {name!r} is not known", start)
            return found if char == "p" else ALPHABET - found
        if char == "0":
            return self._number("01234567", 3, 8, start)
        if char == "u":
            return self._number("0123456789abcdefABCDEF", 4, 16, start, exactly=True)
        if char == "x" and not self._take("{"):
            return self._number("0123456789abcdefABCDEF", 2, 16, start, exactly=True)
        if char == "x":
            return self._character(self._until("}"), 16, start)
        if char == "c":
            return chr(ord(self._next("no control character", start).char) ^ 64)
        if char == "N" and self._take("{"):
            try:
                return unicodedata.lookup(self._until("}"))
            except KeyError:
                self._refuse("there is no character of this name", start)
        if char.isascii() and char.isalpha():
            self._refuse(rf"Java has no \{char}, or it has no equivalent", start)
        return char

    def _number(self, digits: str, most: int, base: int, start: int, exactly: bool = False) -> str:
        found = ""
        while len(found) < most and (char := self._peek()) and char in digits:
            if base == 8 and len(found) == 2 and found[0] > "3":
                break
            found += self._next("").char
        return self._character(found if not exactly or len(found) == most else "", base, start)

    def _character(self, digits: str, base: int, start: int) -> str:
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            self._refuse("not a character number", start)

    def _class(self) -> frozenset[str]:
        """Return a class in brackets; the opening one is read."""
        start = self._at - 1
        is_negated = self._take("^")
        found = self._union(start)
        while self._take("&&"):
            found &= self._union(start)
        self._next("this class is not closed", start)
        return ALPHABET - found if is_negated else found

    def _union(self, start: int) -> frozenset[str]:
        """Parse a class up to its end, or up to `&&`."""
        found: frozenset[str] = frozenset()
        is_empty = True
        while True:
            self._skip_comments()
            if self._sees("&&") or (self._sees("]") and not is_empty):
                if is_empty:
                    self._refuse("'&&' has nothing next to it")
                return found
            is_empty = False
            token = self._next("this class is not closed", start)
            if token.char == "[" and not token.is_quoted:
                found |= self._class()
            else:
                found |= self._member(token)

    def _member(self, token: _Token) -> frozenset[str]:
        """Return one character of a class, a range of them, or a set like \\d."""
        start = self._at - 1
        first = self._member_start(token, start)
        if not isinstance(first, str):
            return first
        following = self._tokens[self._at + 1 : self._at + 2]
        if not self._sees("-") or not following or self._is_bracket(following[0]):
            return self._set(in_alphabet(first))
        self._take("-")
        last = self._member_start(self._next("this class is not closed", start), start)
        if not isinstance(last, str) or last < first:
            self._refuse("not a range of characters", start)
        return self._set(frozenset(char for char in ALPHABET if first <= char <= last))

    def _member_start(self, token: _Token, start: int) -> str | frozenset[str]:
        return self._escaped(start) if token.char == "\\" and not token.is_quoted else token.char

    def _is_bracket(self, token: _Token) -> bool:
        return token.char in "[]" and not token.is_quoted

    def _set(self, found: frozenset[str]) -> frozenset[str]:
        return either_case(found) if "i" in self._flags else found

    def _literal(self, char: str) -> str:
        return _one_of(self._set(in_alphabet(char)))

    def _peek(self) -> str:
        if self._at < len(self._tokens) and not self._tokens[self._at].is_quoted:
            return self._tokens[self._at].char
        return ""

    def _sees(self, text: str) -> bool:
        ahead = self._tokens[self._at : self._at + len(text)]
        return [token.char for token in ahead if not token.is_quoted] == list(text)

    def _take(self, text: str) -> bool:
        is_there = self._sees(text)
        self._at += len(text) if is_there else 0
        return is_there

    def _next(self, reason: str, start: int | None = None) -> _Token:
        if self._at == len(self._tokens):
            self._refuse(reason, start)
        self._at += 1
        return self._tokens[self._at - 1]

    def _until(self, end: str) -> str:
        start, found = self._at, ""
        while not self._take(end):
            found += self._next(f"{end!r} is missing", start).char
        return found

    def _skip_comments(self) -> None:
        """With the flag x, white space and what follows a # mean nothing."""
        while "x" in self._flags and (char := self._peek()):
            if char == "#":
                while self._peek() and self._peek() not in "\r\n":
                    self._at += 1
            elif char not in " \t\n\x0b\f\r":
                return
            else:
                self._at += 1

    def _refuse(self, reason: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        position = self._tokens[at].position if at < len(self._tokens) else len(self._text)
        raise PatternError(self._text, position, reason)


def _tokens(text: str) -> list[_Token]:
    r"""Return the characters, with those between \Q and \E marked."""
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if text.startswith(r"\Q", at):
            end = text.find(r"\E", at + 2)
            end = len(text) if end < 0 else end
            found += [_Token(text[each], each, True) for each in range(at + 2, end)]
            at = end + 2
        else:
            width = 2 if text[at] == "\\" else 1
            for each in range(at, min(at + width, len(text))):
                found.append(_Token(text[each], each, False))
            at += width
    return found


def _one_of(characters: frozenset[str]) -> str:
    if len(characters) == len(ALPHABET):
        return "."
    if not characters:
        return _NEVER
    escaped = "".join(map(re.escape, sorted(characters)))
    return escaped if len(characters) == 1 else f"[{escaped}]"
