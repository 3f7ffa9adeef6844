"""The TLS context of a listener, made anew when its files change."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from moldau.broker.settings.security import SecuritySettings
from moldau.security.key_material import TlsError
from moldau.security.tls import server_context, stamps

logger = logging.getLogger("moldau.broker")


class TlsContexts:
    """The context for new connections. Event loop only.

    Connections that are open keep the one that they began with. Files that cannot be used, as when
    only one of two has been replaced yet, change nothing and are tried again.
    """

    def __init__(self, listener: str, settings: SecuritySettings) -> None:
        self._listener = listener
        self._settings = settings
        self._stamps = stamps(settings)
        self._complaint = ""
        self._renewed = asyncio.Event()
        self.current = server_context(settings, settings.ssl_client_auth)

    async def watch(self) -> None:
        """Look at the files again and again, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                interval_s = self._settings.ssl_reload_interval_ms / 1000
                await asyncio.wait_for(self._renewed.wait(), interval_s)
            await self.refresh()

    def configure(self, settings: SecuritySettings) -> None:
        """Take in settings that were changed while the broker runs; `refresh` acts on them."""
        if settings != self._settings:
            self._settings = settings
            # The same files may mean something else now.
            self._stamps = ()
            self._renewed.set()

    async def refresh(self) -> None:
        """Make a new context if a file or a setting has changed."""
        is_renewed = self._renewed.is_set()
        self._renewed.clear()
        # On a thread: the files may lie on a slow disk.
        settings = self._settings
        found = await asyncio.to_thread(stamps, settings)
        if found == self._stamps and not is_renewed:
            return
        try:
            context = await asyncio.to_thread(server_context, settings, settings.ssl_client_auth)
        except TlsError as problem:
            if str(problem) != self._complaint:
                self._complaint = str(problem)
                logger.error("listener %s keeps its old certificates: %s", self._listener, problem)
            return
        self._complaint = ""
        self._stamps = found
        self.current = context
        logger.info("listener %s has new certificates", self._listener)
