"""FindCoordinator."""

from __future__ import annotations

from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api


@case(Api.FIND_COORDINATOR)
def who_coordinates(s: Session, version: int) -> None:
    # The first question creates the topic of commits; until then nobody coordinates.
    def there() -> bool:
        answer = s.quietly(Api.FIND_COORDINATOR, 1, key="any", key_type=0)
        return int(answer.error_code) == 0

    s.until(there, "coordinator")
    for what, keys, kind in (
        ("a group", ["group"], 0),
        ("two groups", ["one", "two"], 0),
        ("the same twice", ["one", "one"], 0),
        ("no group", [], 0),
        ("an empty key", [""], 0),
        ("a kind nobody knows", ["group"], 9),
        ("a negative kind", ["group"], -1),
    ):
        key = keys[0] if keys else ""
        s.ask(
            what,
            Api.FIND_COORDINATOR,
            version,
            key=key,
            key_type=kind,
            coordinator_keys=keys,
        )
