"""The buffer of a connection: what it moves, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.net.input import BUSY, SMALL, Input
from moldau.broker.net.request_memory import RequestMemory


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each new buffer took over from the one before."""
    sizes: list[int] = []
    resize: Callable[[Input, int], bool] = Input._resize

    def note(self: Input, capacity: int) -> bool:
        sizes.append(self.filled)
        return resize(self, capacity)

    monkeypatch.setattr(Input, "_resize", note)
    return sizes


class Nobody(RequestMemory):
    """Memory without a loop: large buffers go at once."""

    def dispose(self, mapping: Any, position: int = 0) -> None:
        return


def receive(received: Input, size: int, at_once: int) -> int:
    """Has a frame of `size` bytes arrive; the most bytes that one receive took."""
    most = 0
    while received.filled < size:
        count = min(len(received.room()), at_once, size - received.filled)
        most = max(most, count)
        received.filled += count
        assert received.take_off(0, size)
    return most


@pytest.mark.parametrize("at_once", [1000, 200_000, 8 << 20])
def test_a_large_request_is_received_without_copying_what_is_there(
    moved: list[int], at_once: int
) -> None:
    received = Input(Nobody(lambda: 1 << 30, set()))
    for _ in range(2):
        assert receive(received, 100 << 20, at_once) <= BUSY
        received.take_off(100 << 20, 0)
    assert sum(moved) <= BUSY
    received.shrink()
    assert received.extra == 0


def test_a_buffer_that_held_one_large_request_is_not_copied_for_a_larger_one(
    moved: list[int],
) -> None:
    received = Input(Nobody(lambda: 1 << 30, set()))
    for size in (10 << 20, 50 << 20, 3 << 20, 90 << 20):
        receive(received, size, 1 << 20)
        received.take_off(size, 0)
    assert max(moved) <= BUSY


def test_large_requests_leave_room_for_others() -> None:
    memory = RequestMemory(lambda: 64 << 20, set())
    assert memory.take(40 << 20, 0)
    assert not memory.take(20 << 20, 0)
    small = 0
    while memory.take(BUSY - SMALL, 0):
        small += 1
    assert small >= 8
    assert memory.taken <= 64 << 20


def test_one_large_request_fits_however_little_memory_there_is() -> None:
    memory = RequestMemory(lambda: 1 << 20, set())
    assert memory.take(100 << 20, 0)
    assert not memory.take(3 << 20, 0)
    assert memory.take(100_000, 0)
    assert memory.take(0, 100 << 20)
    assert memory.take(3 << 20, 0)
