"""Settings, each defined once.

A part declares its settings as a `Settings` struct whose fields come from `setting(...)`. The field
is the typed value that code reads; the `Setting` behind it is the name, type, range and text that
the command line, the config APIs and the documentation show. Names are Kafka's wherever Kafka has
the setting; the attribute is that name with underscores.

A broker has more than 200 settings: dataclasses would compile methods for them at each start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, dataclass_transform

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class InvalidSetting(ValueError):
    """A setting that does not exist, or a value that it cannot take."""

    def __init__(self, key: str, value: str | None, reason: str) -> None:
        shown = key if value is None else f"{key}={value}"
        super().__init__(f"{shown}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


class Setting(msgspec.Struct, frozen=True):
    """The definition of one setting.

    `synonyms` are broker-level names that supply a topic setting's default, each with the factor
    that turns its unit into this setting's; the first one that is set wins. `dynamic` settings can
    be changed while the broker runs. The value of a `secret` one is shown to nobody.
    """

    name: str
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, int], ...] = ()
    dynamic: bool = False
    secret: bool = False

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def kind(self) -> str:
        """Kafka's name of the type: boolean, int, long, double, string, list or password."""
        if self.secret:
            return "password"
        if isinstance(self.default, bool):
            return "boolean"
        if isinstance(self.default, int):
            is_int = self.maximum is not None and self.maximum <= INT_MAX
            return "int" if is_int else "long"
        if isinstance(self.default, float):
            return "double"
        if isinstance(self.default, tuple):
            return "list"
        return "string"

    def parse(self, text: str) -> Any:
        """Return the typed value of `text`; InvalidSetting if it is not one."""
        if self.secret:
            return text
        text = text.strip()
        try:
            value = self._convert(text)
        except ValueError:
            reason = f"expected a value of type {self.kind}"
            raise InvalidSetting(self.name, text, reason) from None
        self._check(value, text)
        return value

    def _convert(self, text: str) -> Any:
        # Python would take 1_000 and nan for numbers; no other reader of these settings does.
        if "_" in text and self.kind in ("int", "long", "double"):
            raise ValueError
        match self.kind:
            case "boolean":
                return ("false", "true").index(text.lower()) == 1
            case "int" | "long":
                return int(text)
            case "double":
                value = float(text)
                if not math.isfinite(value):
                    raise ValueError
                return value
            case "list":
                return tuple(item.strip() for item in text.split(",") if item.strip())
            case _:
                return text

    def _check(self, value: Any, text: str) -> None:
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    allowed = ", ".join(self.choices)
                    raise InvalidSetting(self.name, text, f"must be one of: {allowed}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            minimum, maximum = self.minimum, self.maximum
            if self.kind != "double":
                minimum = -LONG_MAX - 1 if minimum is None else minimum
                maximum = LONG_MAX if maximum is None else maximum
            if minimum is not None and value < minimum:
                raise InvalidSetting(self.name, text, f"must be at least {minimum}")
            if maximum is not None and value > maximum:
                raise InvalidSetting(self.name, text, f"must be at most {maximum}")

    def format(self, value: Any) -> str:
        """Return the value as Kafka writes it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """Return a finite number as Java writes it: 0.5, 1.0E15."""
    from decimal import Decimal

    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *others = map(str, digits)
    power = int(exponent) + len(others)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{power}"


_definitions: dict[type, dict[str, Setting]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Declared(msgspec.StructMeta):
    """Makes a struct of a class with settings, with their defaults, and keeps the definitions."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _Declared:
        own = {key: value for key, value in namespace.items() if isinstance(value, Setting)}
        namespace |= {attribute: each.default for attribute, each in own.items()}
        made = super().__new__(cls, name, bases, namespace, **options)
        known: dict[str, Setting] = {}
        for base in bases:
            known |= _definitions.get(base, {})
        _definitions[made] = known | {each.name: each for each in own.values()}
        return made


class Settings(msgspec.Struct, metaclass=_Declared, frozen=True):
    """What the settings of a part have in common. Nobody gets to see secrets by printing them."""

    def __repr__(self) -> str:
        shown = [each.attribute for each in definitions(type(self)).values() if not each.secret]
        values = ", ".join(f"{attribute}={getattr(self, attribute)!r}" for attribute in shown)
        return f"{type(self).__name__}({values})"


def setting(
    name: str,
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    synonyms: tuple[str | tuple[str, int], ...] = (),
    dynamic: bool = False,
    secret: bool = False,
) -> Any:
    """Return a field of a `Settings` struct, by its `Setting`."""
    paired = tuple((s, 1) if isinstance(s, str) else s for s in synonyms)
    return Setting(name, default, doc, minimum, maximum, choices, paired, dynamic, secret)


def definitions(cls: type[Settings]) -> dict[str, Setting]:
    """Return the settings of a class, by name, in the order they were written."""
    return _definitions[cls]


S = TypeVar("S", bound=Settings)


def replace(settings: S, values: Mapping[str, str]) -> S:
    """`settings` with the given names set to the parsed texts; InvalidSetting for a bad one."""
    known = definitions(type(settings))
    parsed = {}
    for key, text in values.items():
        if key not in known:
            raise unknown(key, known)
        parsed[known[key].attribute] = known[key].parse(text)
    return msgspec.structs.replace(settings, **parsed) if parsed else settings


def unknown(key: str, known: Iterable[str]) -> InvalidSetting:
    """Return the error for a name that does not exist, with the nearest one that does."""
    import difflib

    near = difflib.get_close_matches(key, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InvalidSetting(key, None, f"there is no such setting{hint}")


def parse_properties(text: str) -> dict[str, str]:
    """Return the settings of KEY=VALUE lines, as in Kafka's files; ValueError names a bad line.

    A line that ends in a backslash goes on in the next one.
    """
    found = {}
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not pending and (not content or content[0] in "#!"):
            continue
        first = number if not pending else first
        if content.endswith("\\"):
            pending += content[:-1]
            continue
        content, pending = pending + content, ""
        key, equals, value = content.partition("=")
        if not equals or not key.strip():
            # What stands there may be a secret.
            raise ValueError(f"line {first}: expected KEY=VALUE")
        found[key.strip()] = value.strip()
    if pending:
        raise ValueError(f"line {first}: the last line ends in a backslash")
    return found
