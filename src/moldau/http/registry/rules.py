"""Rules of a schema, and of the settings of a subject. Clients run them; here they are judged."""

from __future__ import annotations

import re
from typing import Any

from moldau.http.registry.errors import invalid_rules

_LONGEST_NAME = 256
# Letters of any alphabet, as in Java.
_NAME = re.compile(r"[^\W\d][\w-]*")
_MIGRATIONS = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_OTHERS = ("WRITE", "READ", "WRITEREAD")
# The lists of rules, and the modes that theirs may have.
_KINDS = (
    ("migrationRules", _MIGRATIONS),
    ("domainRules", _OTHERS),
    ("encodingRules", _OTHERS),
)
# Only these have two actions, one for each way.
_BOTH_WAYS = ("WRITEREAD", "UPDOWN")


def check_rules(rules: dict[str, Any] | None) -> None:
    """Refuse rules that no client could run."""
    names: set[str] = set()
    for kind, modes in _KINDS:
        found = (rules or {}).get(kind) or ()
        if not isinstance(found, list | tuple):
            raise invalid_rules(f"{kind} must be a list")
        for rule in found:
            if not isinstance(rule, dict):
                raise invalid_rules(f"{kind} has an entry that is not an object")
            _check(rule, names, modes)


def _check(rule: dict[str, Any], names: set[str], modes: tuple[str, ...]) -> None:
    name = rule.get("name")
    if not isinstance(name, str) or not name:
        raise invalid_rules("a rule has no name")
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise invalid_rules(
            f"a rule cannot be called {name[:100]!r}: names have letters, digits, _ and -, begin "
            f"with a letter or _, and have at most {_LONGEST_NAME} characters"
        )
    if name in names:
        raise invalid_rules(f"two rules are called {name!r}")
    names.add(name)
    if not isinstance(rule.get("type"), str):
        raise invalid_rules(f"the rule {name!r} has no type")
    mode = rule.get("mode")
    if mode not in modes:
        raise invalid_rules(f"the mode of the rule {name!r} is {mode!r}, not {', '.join(modes)}")
    for action in ("onSuccess", "onFailure"):
        if mode not in _BOTH_WAYS and "," in str(rule.get(action) or ""):
            raise invalid_rules(f"the rule {name!r} has two actions for one direction ({action})")
