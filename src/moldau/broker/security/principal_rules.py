"""Principal mapping rules: how the name in a certificate becomes that of a user.

    RULE:^CN=(.*?),.*$/$1/L,DEFAULT

Kafka's rules (KIP-371): the first whose pattern matches the whole name replaces it, and may turn it
into lower or upper case; DEFAULT takes the whole name. Patterns are those of Python, which read
nearly all of Java's alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\\(.)|\$(\d)")


class InvalidRules(ValueError):
    """Rules that cannot be read."""


class NoRuleMatches(ValueError):
    """A name that no rule makes a user of."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a pattern it takes names as they are."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the user; None if the rule is not for this name."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        def put_in(found: re.Match[str]) -> str:
            escaped, group = found.groups()
            return str(escaped) if group is None else match[int(group)] or ""

        user = _GROUP.sub(put_in, self.replacement)
        if self.case:
            user = user.lower() if self.case == "L" else user.upper()
        return user


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of `ssl.principal.mapping.rules`; InvalidRules if they are none."""
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise InvalidRules(f"cannot parse a rule at {text[position:]!r}")
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(Rule())
        else:
            rules.append(_rule(pattern, replacement, case))
        position = found.end()
    return tuple(rules) or (Rule(),)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as reason:
        raise InvalidRules(f"{pattern!r} is not a pattern: {reason}") from None
    groups = [int(group) for _, group in _GROUP.findall(replacement) if group]
    if groups and max(groups) > compiled.groups:
        raise InvalidRules(f"{pattern!r} has no group {max(groups)}")
    return Rule(compiled, replacement, case)


def user_of(rules: tuple[Rule, ...], name: str) -> str:
    """Return the user whom a certificate's name stands for; NoRuleMatches if there is none."""
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return user
    raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches {name!r}")
