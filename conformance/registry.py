"""The cases: functions that ask a broker things, each for one API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from conformance.session import Session
from moldau.wire.apis import VERSIONS, Api

Script = Callable[[Session, int], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A script that runs in every version from `first` to `last` that both brokers offer, or in
    the newest of them only, or in the oldest and the newest (`ends`); once at all where it is not
    about one API.

    Those that are `locked` run on brokers that judge rights and offer Kafka's unstable versions.
    """

    group: str
    api: Api | None
    name: str
    script: Script
    first: int = 0
    last: int = 1 << 15
    newest: bool = False
    ends: bool = False
    locked: bool = False

    def versions(self, offered: Mapping[int, tuple[int, int]]) -> list[int]:
        """The versions to run in, where these are offered by both."""
        if self.api is None:
            return [-1]
        if self.api not in offered:
            return []
        first, last = offered[self.api]
        known = VERSIONS[self.api]
        found = range(max(first, known.first, self.first), min(last, known.last, self.last) + 1)
        if self.ends:
            return sorted({*found[:1], *found[-1:]})
        return list(found)[-1:] if self.newest else list(found)

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")


CASES: list[Case] = []


def group_of(api: Api) -> str:
    """Kafka's own spelling of an API's name."""
    return api.name.replace("_", " ").title().replace(" ", "")


def case(
    api: Api, *, first: int = 0, last: int = 1 << 15, newest: bool = False
) -> Callable[[Script], Script]:
    """Registers a script for every version of an API between `first` and `last`, or the newest."""

    def register(script: Script) -> Script:
        CASES.append(Case(group_of(api), api, script.__name__, script, first, last, newest))
        return script

    return register


def scenario(group: str) -> Callable[[Callable[[Session], None]], Callable[[Session], None]]:
    """Registers a script that is no request of one API, run once."""

    def register(script: Callable[[Session], None]) -> Callable[[Session], None]:
        name = script.__name__
        CASES.append(Case(group, None, name, lambda session, version: script(session)))
        return script

    return register


def chosen(only: list[str]) -> Iterator[Case]:
    """The cases whose group or name contains one of the words; all without words."""
    for each in CASES:
        text = f"{each.group} {each.label}".lower()
        if not only or any(word.lower() in text for word in only):
            yield each
