"""Confluent's asynchronous client and serializers, for tests that wait for each answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient


class AwaitedClient:
    """The asynchronous client; each call returns what its coroutine does."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.runner = asyncio.Runner()
        self.inner = AsyncSchemaRegistryClient(conf)

    def __getattr__(self, name: str) -> Any:
        return awaited(self.runner, getattr(self.inner, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.runner.run(self.inner.aclose())
        self.runner.close()

    def make(self, kind: Any, *arguments: Any, **more: Any) -> Callable[..., Any]:
        """Return a serializer or deserializer, made with the client where it takes one."""
        own = [self.inner if each is self else each for each in arguments]
        others = {name: self.inner if each is self else each for name, each in more.items()}

        async def made() -> Any:
            return await kind(*own, **others)

        return awaited(self.runner, self.runner.run(made()))


def awaited(runner: asyncio.Runner, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for what the call returns."""

    def wait(*arguments: Any, **more: Any) -> Any:
        async def answer() -> Any:
            found = call(*arguments, **more)
            return await found if inspect.isawaitable(found) else found

        return runner.run(answer())

    return wait
