"""The reasons why a connection is not read from."""

from __future__ import annotations

from moldau.broker.net.reading import AWAITS_MEMORY, AWAITS_TURN, BACKED_UP, Reading


class Pauses:
    """A transport as far as it can be paused; it takes no two pauses, as real ones do."""

    def __init__(self) -> None:
        self.is_paused = False
        self.reading = Reading(self, self._go_on)
        self.went_on = 0
        self.blocks_again = 0

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def _go_on(self) -> None:
        assert self.is_paused, "what was received comes before what has not been"
        self.went_on += 1
        if self.blocks_again:
            self.reading.blocked |= self.blocks_again


def test_it_goes_on_when_the_last_reason_is_gone() -> None:
    transport = Pauses()
    reading = transport.reading
    reading.block(BACKED_UP)
    reading.block(AWAITS_TURN)
    reading.block(AWAITS_TURN)
    reading.unblock(AWAITS_TURN)
    assert (transport.is_paused, transport.went_on) == (True, 0)
    reading.unblock(BACKED_UP)
    assert (transport.is_paused, transport.went_on) == (False, 1)


def test_what_has_been_received_may_be_a_reason_not_to_read_on() -> None:
    transport = Pauses()
    transport.reading.block(BACKED_UP)
    transport.blocks_again = AWAITS_MEMORY
    transport.reading.unblock(BACKED_UP)
    assert transport.is_paused
    transport.blocks_again = 0
    transport.reading.unblock(AWAITS_MEMORY)
    assert not transport.is_paused


def test_what_has_ended_never_goes_on() -> None:
    transport = Pauses()
    reading = transport.reading
    reading.block(AWAITS_TURN)
    reading.end()
    reading.unblock(AWAITS_TURN)
    assert reading.blocked
    assert transport.went_on == 0
    # Nor is a transport paused that may be closed by now.
    transport.is_paused = False
    reading.block(BACKED_UP)
    reading.unblock(BACKED_UP)
    assert not transport.is_paused
