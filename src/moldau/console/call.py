"""Calls: one request of the API, as the code that answers it sees it. In a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from starlette.requests import Request

from moldau.console.errors import ApiError
from moldau.console.sampling.pipelines import PipelineInfo
from moldau.console.sampling.state import ClusterState
from moldau.console.visitor import Visitor
from moldau.peer.cluster import Cluster
from moldau.schemas.client import RegistryClient
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from moldau.console.console import Console


class Call:
    """One call: who asks, the names in its path, and the cluster as that person may see it."""

    def __init__(
        self, console: Console, visitor: Visitor, path: Mapping[str, str], request: Request
    ) -> None:
        self.console = console
        self.visitor = visitor
        self.path = path
        self.request = request
        # What the answer sets, ready for its headers.
        self.cookies: list[str] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._open.__exit__(*problem)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, asked as the visitor."""
        visitor = self.visitor
        return self._open.enter_context(
            self.console.pool.borrowed(visitor.security, visitor.address)
        )

    def ask(self, api: Api, values: dict[str, Any]) -> Any:
        """Return what some broker answers to a request, asked as the visitor."""
        cluster = self.cluster
        return cluster.insist(lambda: cluster.some_broker().ask(api, values))

    def pipelines(self) -> list[PipelineInfo]:
        """Return what pipelines say of themselves, as far as the visitor may read it."""
        return self.console.statuses_of(self.visitor).read(self.cluster)

    def quarantines(self, state: ClusterState) -> set[str]:
        """Return the topics for what failed the check against schemas, as the visitor may see."""
        return self.console.quarantines_of(self.visitor).of(self.cluster, state)

    @cached_property
    def registry(self) -> RegistryClient:
        """The registry, asked as the visitor; ApiError if there is none."""
        found = self.console.registry_of(self.visitor)
        if found is None:
            raise ApiError(
                404, "no_registry", "this console has no schema registry",
                "start it with --registry URL",
            )  # fmt: skip
        return found

    @property
    def is_own(self) -> bool:
        """Whether the visitor sees what the console itself sees."""
        settings = self.console.settings
        # Rules may be about the visitor's address.
        return self.visitor.security == settings.security and settings.vouch is None

    def note(self, action: str, **details: Any) -> None:
        """Record a change that was made, and by whom."""
        self.console.audit.note(self.visitor, action, details)
