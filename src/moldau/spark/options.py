"""Options as Spark hands them over: names without case, values as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from moldau.spark.errors import OptionError, log

BOOTSTRAP = "kafka.bootstrap.servers"

_DURATION = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")
_MILLISECONDS = {"us": 0.001, "ms": 1, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6, "d": 8.64e7}

_warned: set[str] = set()


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'that'?`, or nothing when no known name is near."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, 1, 0.6)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def warn_once(message: str) -> None:
    """Log a warning, unless this process has done so: options are read many times."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


class Options:
    """The options of one query. Unless `strict`, unknown ones are passed over with a warning, as
    Spark's own source does, which says nothing.

    `refused` has reasons for names that Spark's Kafka source knows and this one does not take; a
    name there that ends with a dot stands for all that begin with it.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        known: Iterable[str],
        refused: Mapping[str, str],
        *,
        strict: bool = True,
    ) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        reasons = {name.lower(): (name, reason) for name, reason in refused.items()}
        for name in self._values:
            if name in reasons:
                proper, reason = reasons[name]
                raise OptionError(f"the option {proper!r} is not supported: {reason}")
            if name not in names:
                for start, (_, reason) in reasons.items():
                    if start.endswith(".") and name.startswith(start):
                        raise OptionError(f"the option {name!r} is not supported: {reason}")
                hint = nearest(name, names.values())
                if strict:
                    raise OptionError(f"there is no option {name!r}{hint}")
                warn_once(f"there is no option {name!r}, so it has no effect{hint}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default).strip()

    def required(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise OptionError(f"the option {name!r} is missing")
        return value

    def number(self, name: str, default: int | None = None, least: int = 0) -> int | None:
        if name not in self:
            return default
        text = self.text(name)
        try:
            value = int(text)
        except ValueError:
            raise OptionError(f"{name} is {text!r}, which is not a whole number") from None
        if value < least:
            raise OptionError(f"{name} is {value}, but must be {least} or more")
        return value

    def seconds(self, name: str, default_s: float) -> float:
        """Return a setting in milliseconds."""
        milliseconds = self.number(name)
        return default_s if milliseconds is None else milliseconds / 1000

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name} is {text!r}, but must be true or false")
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name, default)
        if text.lower() not in choices:
            raise OptionError(f"{name} is {text!r}, but must be one of {', '.join(choices)}")
        return text.lower()

    def duration_s(self, name: str, default: str) -> float:
        """Return a duration as Spark writes it: 15m, 30s, 200ms."""
        text = self.text(name, default)
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise OptionError(f"{name} is {text!r}, which is not a duration like 15m")
        return int(found[1]) * _MILLISECONDS[found[2] or "ms"] / 1000

    def under(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin so, without that beginning."""
        return {
            name[len(prefix) :]: value
            for name, value in self._values.items()
            if name.startswith(prefix)
        }
