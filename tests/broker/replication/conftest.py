from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Ensemble
from tests.broker.replication.brokers import Brokers

WITHIN_S = 200

Story = Callable[[Brokers], Coroutine[Any, Any, None]]
Tell = Callable[..., None]


@pytest.fixture
def tell(ensemble: Ensemble, tmp_path: Path) -> Tell:
    """Runs a story on so many brokers of a new cluster."""

    def run(story: Story, brokers: int = 2, **settings: str) -> None:
        async def play() -> None:
            connect = f"{ensemble.hosts}/test-{uuid.uuid4().hex[:8]}"
            async with Brokers(connect, tmp_path, brokers, **settings) as cluster:
                await story(cluster)

        asyncio.run(asyncio.wait_for(play(), WITHIN_S))

    return run
