from __future__ import annotations

import pytest

from moldau.cluster.decisions.configs import Edit, Operation, edited
from moldau.cluster.errors import ClusterError
from moldau.log.config import LogConfig
from moldau.settings import definitions
from moldau.wire.errors import Error

KNOWN = definitions(LogConfig)


def edit(current: dict[str, str], *edits: Edit) -> dict[str, str]:
    return edited(current, edits, KNOWN, lambda name: "delete")


def test_a_setting_is_set_and_removed() -> None:
    assert edit({"a": "1"}, Edit("a", Operation.SET, "2")) == {"a": "2"}
    assert edit({"a": "1"}, Edit("a", Operation.DELETE, None)) == {}
    assert edit({}, Edit("a", Operation.DELETE, None)) == {}


def test_the_current_settings_are_not_touched() -> None:
    current = {"a": "1"}
    edit(current, Edit("a", Operation.SET, "2"))
    assert current == {"a": "1"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "outcome"),
    [
        ({}, Operation.APPEND, "compact", "delete,compact"),
        ({}, Operation.APPEND, "delete", "delete"),
        ({"cleanup.policy": "compact"}, Operation.APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, Operation.SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, Operation.SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact, delete"}, Operation.SUBTRACT, "compact,delete", ""),
    ],
)
def test_lists_grow_and_shrink_from_their_current_or_default_value(
    current: dict[str, str], operation: Operation, value: str, outcome: str
) -> None:
    assert edit(current, Edit("cleanup.policy", operation, value)) == {"cleanup.policy": outcome}


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such.setting"])
def test_only_known_lists_can_be_appended_to(operation: Operation, name: str) -> None:
    with pytest.raises(ClusterError) as raised:
        edit({}, Edit(name, operation, "1"))
    assert raised.value.error is Error.INVALID_CONFIG
