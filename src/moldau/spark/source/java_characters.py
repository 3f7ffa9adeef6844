"""The characters of topics' names, and Java's ways to name some of them at once."""

from __future__ import annotations

import string
import unicodedata

LETTERS = frozenset(string.ascii_letters)
DIGITS = frozenset(string.digits)
MARKS = frozenset("._-")
ALPHABET = LETTERS | DIGITS | MARKS
_NONE: frozenset[str] = frozenset()
_LOWER = frozenset(string.ascii_lowercase)
_UPPER = frozenset(string.ascii_uppercase)
_WORD = LETTERS | DIGITS | {"_"}
_HEX = frozenset(string.hexdigits)

# What stands after a backslash for a set; white space is in no name.
CLASSES: dict[str, frozenset[str]] = {
    "d": DIGITS,
    "D": ALPHABET - DIGITS,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    **dict.fromkeys("shv", _NONE),
    **dict.fromkeys("SHV", ALPHABET),
}
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}

_POSIX: dict[str, frozenset[str]] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ALPHABET,
    "Alpha": LETTERS,
    "Digit": DIGITS,
    "Alnum": LETTERS | DIGITS,
    "Punct": MARKS,
    "Graph": ALPHABET,
    "Print": ALPHABET,
    "Blank": _NONE,
    "Cntrl": _NONE,
    "XDigit": _HEX,
    "Space": _NONE,
    "all": ALPHABET,
    "L1": ALPHABET,
    "LD": LETTERS | DIGITS,
    "LC": LETTERS,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaAlphabetic": LETTERS,
    "javaLetter": LETTERS,
    "javaDigit": DIGITS,
    "javaLetterOrDigit": LETTERS | DIGITS,
    "javaWhitespace": _NONE,
}
# Unicode's yes-or-no properties, after `Is`; their case does not count.
_BINARY: dict[str, frozenset[str]] = {
    "alphabetic": LETTERS,
    "letter": LETTERS,
    "lowercase": _LOWER,
    "uppercase": _UPPER,
    "digit": DIGITS,
    "alnum": LETTERS | DIGITS,
    "punctuation": MARKS,
    "word": _WORD,
    "hex_digit": _HEX,
    "assigned": ALPHABET,
    "graph": ALPHABET,
    "print": ALPHABET,
    "white_space": _NONE,
    "control": _NONE,
    "blank": _NONE,
}
_CATEGORIES = (
    " Cn Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Zs Zl Zp Cc Cf Co Cs Pd Ps Pe Pc Po Sm Sc Sk So Pi Pf"
    " L M N Z C P S "
)
_SCRIPTS = {"latin": LETTERS, "latn": LETTERS, "common": DIGITS | MARKS, "zyyy": DIGITS | MARKS}
_BLOCKS = {"basiclatin": ALPHABET, "basic_latin": ALPHABET, "basic latin": ALPHABET}
_CASES = (_LOWER, _UPPER)


def in_alphabet(char: str) -> frozenset[str]:
    return ALPHABET & {char}


def either_case(found: frozenset[str]) -> frozenset[str]:
    """Return the set without regard to case."""
    return found | {char.swapcase() for char in found if char in LETTERS}


def property_named(name: str, ignores_case: bool) -> frozenset[str] | None:
    """Return the characters that have a property, as in `\\p{name}`; None if it is not
    known here."""
    found = _property(name)
    return LETTERS if ignores_case and found in _CASES else found


def _property(name: str) -> frozenset[str] | None:
    key, is_pair, value = name.partition("=")
    if is_pair:
        kind = {"sc": "script", "blk": "block", "gc": "general_category"}.get(key.lower(), key)
        if kind.lower() == "general_category":
            return _category(value)
        tables = {"script": _SCRIPTS, "block": _BLOCKS}
        return tables.get(kind.lower(), {}).get(value.lower())
    if name.startswith("In"):
        return _BLOCKS.get(name[2:].lower())
    if name.startswith("Is"):
        rest = name[2:]
        for found in (_BINARY.get(rest.lower()), _category(rest), _SCRIPTS.get(rest.lower())):
            if found is not None:
                return found
        return _POSIX.get(rest)
    return _POSIX.get(name, _category(name))


def _category(name: str) -> frozenset[str] | None:
    if name in ("LC", "LD", "L1", "all"):
        return _POSIX[name]
    if f" {name} " not in _CATEGORIES:
        return None
    return frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))
