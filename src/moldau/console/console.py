"""A console: the parts of one, from its start to its end."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from moldau.console.access.oidc import Oidc
from moldau.console.access.sessions import Sessions
from moldau.console.audit import Audit
from moldau.console.audit_topic import AuditTopic
from moldau.console.letters import Quarantines
from moldau.console.pool import ClusterPool, Key
from moldau.console.sampling.pipelines import PipelineStatuses
from moldau.console.sampling.watch import Watch
from moldau.console.search.process import Search, Searches
from moldau.console.search.request import SearchRequest
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Masks
from moldau.console.values.registered import RegisteredValues
from moldau.console.visitor import Visitor
from moldau.schemas.client import RegistryClient

# Calls that are answered at the same time.
_THREADS = 8
_REGISTRY_WITHIN_S = 10.0
_LOOP_WITHIN_S = 60.0
# Those who ask the registry, and from where, for whom schemas are kept.
_MOST_REGISTRIES = 200
# How often sessions are looked through, if nobody comes.
_SWEEP_EVERY_S = 60.0
# Visitors for whom the statuses of pipelines, and quarantines, are kept: those of late.
_MOST_VISITORS = 50

T = TypeVar("T")


class Console:
    """What the endpoints share. Started in the event loop, or in a thread
    that says which one is meant."""

    def __init__(
        self, settings: ConsoleSettings, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.masks = Masks(settings.masks)
        self.pool = ClusterPool(settings)
        self.sessions = Sessions(self._signed_out)
        self.audit = Audit(AuditTopic(settings, self.pool).publish)
        self.watch = Watch(settings, self.pool)
        self.searches = Searches()
        self.oidc = None if settings.oidc is None else Oidc(settings, settings.oidc)
        self._loop = loop or asyncio.get_running_loop()
        self.threads = ThreadPoolExecutor(_THREADS, "moldau-console")
        self._lock = threading.Lock()
        self._registries: dict[tuple[str | None, str], tuple[RegistryClient, RegisteredValues]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._statuses: OrderedDict[Key, PipelineStatuses] = OrderedDict()
        self._quarantines: OrderedDict[Key, Quarantines] = OrderedDict()

    def start(self) -> None:
        self.watch.start()
        self._sweep_sessions()

    def _sweep_sessions(self) -> None:
        self.sessions.drop_old()
        self._sweep = self._loop.call_later(_SWEEP_EVERY_S, self._sweep_sessions)

    def _signed_out(self, visitor: Visitor) -> None:
        """Keep nothing open, and no token, of somebody who has left."""
        self.pool.forget(visitor.security)
        if self.oidc is not None:
            self.oidc.forget(visitor.security)

    async def stop(self) -> None:
        """End what runs; calls under way are not waited for."""
        if self._sweep is not None:
            self._sweep.cancel()
        self.watch.stop()
        self.audit.close()
        await self.searches.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()
        if self.oidc is not None:
            self.oidc.close()

    def in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the event loop, and wait for it in a thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LOOP_WITHIN_S)

    async def begin_search(self, visitor: Visitor, request: SearchRequest) -> Search:
        return self.searches.begin(visitor, request)

    def statuses_of(self, visitor: Visitor) -> PipelineStatuses:
        """Return what a visitor has read of the statuses of pipelines, to go on from there."""
        return self._kept(self._statuses, visitor, PipelineStatuses)

    def quarantines_of(self, visitor: Visitor) -> Quarantines:
        """Return what a visitor has heard of quarantines."""
        return self._kept(self._quarantines, visitor, Quarantines)

    def _kept(self, kept: OrderedDict[Key, T], visitor: Visitor, new: Callable[[], T]) -> T:
        # Rights may depend on the address: nobody is shown what was read from another one.
        key = visitor.security, visitor.address
        with self._lock:
            found = kept.pop(key, None) or new()
            kept[key] = found
            while len(kept) > _MOST_VISITORS:
                kept.popitem(last=False)
            return found

    def registry_of(self, visitor: Visitor) -> RegistryClient | None:
        """Return the registry as a visitor may use it; None if there is none."""
        found = self._registry(visitor)
        return None if found is None else found[0]

    def values_of(self, visitor: Visitor) -> RegisteredValues | None:
        """Return what reads values by the registry, as the visitor may."""
        found = self._registry(visitor)
        return None if found is None else found[1]

    def _registry(self, visitor: Visitor) -> tuple[RegistryClient, RegisteredValues] | None:
        if not self.settings.registry:
            return None
        security = visitor.security
        user = self.settings.registry_user(security)
        vouch = self.settings.vouch
        key = user, "" if vouch is None else visitor.address
        with self._lock:
            found = self._registries.get(key)
            if found is None:
                while len(self._registries) >= _MOST_REGISTRIES:
                    del self._registries[next(iter(self._registries))]
                own = self.settings.registry_own
                if own is not None:
                    client = RegistryClient.of(own, user=user, timeout_s=_REGISTRY_WITHIN_S)
                else:
                    client = RegistryClient(
                        self.settings.registry,
                        user=user,
                        tls=None if security is None else security.context(),
                        timeout_s=_REGISTRY_WITHIN_S,
                        origin=None if vouch is None else partial(vouch, visitor.address),
                    )
                found = self._registries[key] = client, RegisteredValues(client)
            return found
