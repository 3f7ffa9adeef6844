"""The order of answers, and the bytes that are counted for them."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.net import responses
from moldau.broker.net.responses import LongPoll, Response, Responses

# The request of an answer, on which its order does not depend.
NO_REQUEST: Any = None


class Sent:
    """What an output was given."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.put = self.parts.append
        self.put_all = self.parts.extend


class Poll(LongPoll):
    """A long poll that knows its answer when it is asked for it."""

    def complete(self) -> None:
        self.parts = [b"news"]


class Order:
    """The answers of a connection that is not there."""

    def __init__(self) -> None:
        self.sent = Sent()
        self.times_full = 0
        self.responses = Responses(self.sent, self._fill)  # type: ignore[arg-type]

    def _fill(self) -> None:
        self.times_full += 1

    def reserve(self, held: int = 0) -> Response:
        response = Response(NO_REQUEST)
        self.responses.reserve(response, held)
        return response

    def answer(self, frame: bytes) -> None:
        self.responses.answer(Response(NO_REQUEST), frame)


def test_answers_leave_in_the_order_of_their_places() -> None:
    order = Order()
    first, second = order.reserve(10), order.reserve(20)
    order.answer(b"third")
    assert order.responses.held == 35
    second.parts = [b"se", b"cond"]
    order.responses.settle()
    assert order.sent.parts == []
    assert order.responses.any_known
    first.parts = [b"first"]
    order.responses.settle()
    assert order.sent.parts == [b"first", b"se", b"cond", b"third"]
    assert order.responses.held == 0
    assert not order.responses


def test_an_answer_at_once_counts_until_the_output_has_nothing_left() -> None:
    order = Order()
    order.answer(b"12345")
    assert order.sent.parts == [b"12345"]
    assert (order.responses.held, order.responses.unsent) == (5, 5)
    order.responses.count_sent()
    assert (order.responses.held, order.responses.unsent) == (0, 0)


def test_too_many_bytes_are_told_whoever_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_MOST_HELD", 100)
    order = Order()
    first = order.reserve(100)
    assert (order.times_full, order.responses.is_full) == (0, False)
    order.reserve(1)
    assert (order.times_full, order.responses.is_full) == (1, True)
    first.parts = []
    order.responses.settle()
    assert not order.responses.is_full
    # What has been written counts for a quarter.
    order.responses.hold(order.reserve(), 396)
    assert order.times_full == 1
    order.answer(b"x")
    assert order.times_full == 2
    order = Order()
    order.answer(bytes(101))
    assert order.times_full == 1


def test_too_many_answers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_MOST", 3)
    order = Order()
    places = [order.reserve() for _ in range(3)]
    assert (order.times_full, order.responses.are_many) == (1, True)
    places[0].parts = [b"x"]
    order.responses.settle()
    assert not order.responses.are_many


def test_only_long_polls_are_answered_early() -> None:
    order = Order()
    poll = Poll(NO_REQUEST)
    order.responses.reserve(poll)
    other = order.reserve()
    order.responses.release_long_polls()
    order.responses.settle()
    assert order.sent.parts == [b"news"]
    assert other.parts is None
