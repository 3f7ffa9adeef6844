"""Mutations: the product with one of its safeguards taken out, to see whether anybody notices.

A mutation replaces a few words in a module's source. The functions that become others by that get
their new code in place, so that everybody who holds them runs it, and get their own back after.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

from tests.simulation.directed.scripts import SCRIPTS, directed
from tests.simulation.scenario.scenario import Scenario, scenario, themed

# The theme of whole seeds, as `make simulate` plays them.
ANYTHING = "anything"


@dataclass(frozen=True)
class Mutation:
    """`old` occurs once in the module, and is replaced by `new`. `seed` is one that fails then, in
    a scenario with this `theme`, or of the script with that name, or without a theme.

    Where one safeguard stands behind another, both are taken out: `also` has (module, old, new).
    """

    name: str
    module: str
    old: str
    new: str
    theme: str = "leaders"
    seed: int = 0
    also: tuple[tuple[str, str, str], ...] = ()

    def scenario(self, seed: int) -> Scenario:
        if self.theme == ANYTHING:
            return scenario(seed)
        return directed(seed, self.theme) if self.theme in SCRIPTS else themed(seed, self.theme)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The product is mutated meanwhile."""
        edits: dict[str, list[tuple[str, str]]] = {}
        for module, old, new in ((self.module, self.old, self.new), *self.also):
            edits.setdefault(module, []).append((old, new))
        saved: list[tuple[FunctionType, CodeType]] = []
        try:
            for module, replaced in edits.items():
                self._apply(importlib.import_module(module), replaced, saved)
            yield
        finally:
            for function, code in saved:
                function.__code__ = code

    def _apply(
        self,
        module: ModuleType,
        edits: list[tuple[str, str]],
        saved: list[tuple[FunctionType, CodeType]],
    ) -> None:
        source = mutated = inspect.getsource(module)
        for old, new in edits:
            if source.count(old) != 1:
                raise LookupError(f"{self.name}: {module.__name__} has {old!r} not once")
            mutated = mutated.replace(old, new)
        path, changed = module.__file__ or "", len(saved)
        before = _codes(compile(source, path, "exec"))
        for name, code in _codes(compile(mutated, path, "exec")).items():
            if name in before and not _same(before[name], code):
                for function in _functions(module, name):
                    saved.append((function, function.__code__))
                    function.__code__ = code
        if len(saved) == changed:
            raise LookupError(f"{self.name}: no function of {module.__name__} was changed")


def _codes(code: CodeType) -> dict[str, CodeType]:
    """The functions of a module and of its classes, by their qualified names."""
    found: dict[str, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            if "<locals>" not in constant.co_qualname:
                found.update(_codes(constant))
    return {name: each for name, each in found.items() if "<" not in name}


def _same(one: CodeType, other: CodeType) -> bool:
    return (
        one.co_code == other.co_code
        and all(
            _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else a == b
            for a, b in zip(one.co_consts, other.co_consts, strict=False)
        )
        and one.co_names == other.co_names
        and len(one.co_consts) == len(other.co_consts)
    )


def _functions(module: ModuleType, name: str) -> Iterator[FunctionType]:
    """The function of that qualified name, if it is one."""
    found: object = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if isinstance(found, property):
        yield from (each for each in (found.fget, found.fset) if isinstance(each, FunctionType))
        return
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found) if callable(found) else found
    if isinstance(found, FunctionType):
        yield found
