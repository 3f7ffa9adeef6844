"""SCRAM users as the cluster's metadata has them, for whoever checks their proofs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.security.credentials import LONGEST_SALT
from moldau.cluster.state.access import Access, ScramCredential

Shapes = dict[str, list[tuple[int, int]]]


class ClusterCredentials:
    """The `Credentials` that the cluster agrees on. Event loop only.

    `version` is another whenever the cluster's metadata has changed.
    """

    def __init__(self, access: Access, version: Callable[[], int]) -> None:
        self._users = access.scram
        self._version = version
        self._shapes: tuple[int, Shapes] = (-1, {})

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for SCRAM-SHA-256 or SCRAM-SHA-512, None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def shapes(self, mechanism: str) -> Sequence[tuple[int, int]]:
        """Return each number of iterations and size of a salt that any user has."""
        version = self._version()
        if self._shapes[0] != version:
            found: dict[str, set[tuple[int, int]]] = {}
            for credentials in self._users.values():
                for name, each in credentials.items():
                    size = min(len(each.salt), LONGEST_SALT)
                    found.setdefault(name, set()).add((each.iterations, size))
            self._shapes = version, {name: sorted(each) for name, each in found.items()}
        return self._shapes[1].get(mechanism, ())
