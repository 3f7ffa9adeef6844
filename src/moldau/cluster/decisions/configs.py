"""Changes to the settings that a topic or a broker has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.cluster.errors import ClusterError
from moldau.settings import Setting, unknown
from moldau.wire.errors import Error


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    """One change to one setting; `value` is None only where the operation needs none."""

    name: str
    operation: Operation
    value: str | None


def edited(
    current: Mapping[str, str],
    edits: Iterable[Edit],
    known: Mapping[str, Setting],
    default: Callable[[str], str],
) -> dict[str, str]:
    """`current` after the edits. Values are not checked here, only whether the edits make sense.

    A list that is not set begins as `default` says when something is appended to it.
    """
    configs = dict(current)
    for name, operation, value in edits:
        if operation is Operation.DELETE:
            configs.pop(name, None)
            continue
        assert value is not None
        if operation is Operation.SET:
            configs[name] = value
            continue
        setting = known.get(name)
        if setting is None:
            raise ClusterError(Error.INVALID_CONFIG, str(unknown(name, known)))
        if setting.kind != "list":
            raise ClusterError(
                Error.INVALID_CONFIG,
                f"Can't {operation.name} to key {name} because its type is not LIST.",
            )
        items = _items(configs.get(name, default(name)))
        given = _items(value)
        if operation is Operation.APPEND:
            items += [item for item in dict.fromkeys(given) if item not in items]
        else:
            items = [item for item in items if item not in given]
        configs[name] = ",".join(items)
    return configs


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
