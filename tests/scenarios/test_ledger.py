"""The checker itself: it must notice every broken promise, or the scenarios prove nothing."""

from __future__ import annotations

import pytest

from tests.scenarios.ledger import (
    Label,
    Ledger,
    TopicPartition,
    Wrong,
    check_order,
    label_of,
    payload,
)

PLACE = TopicPartition("orders", 0)


def label(number: int, producer: int = 0) -> Label:
    return Label(producer, number)


def ledger_of(*acknowledged: int) -> Ledger:
    ledger = Ledger()
    for number in acknowledged:
        ledger.on_acknowledged(PLACE, label(number), number)
    return ledger


def found(*numbers: int) -> dict[int, Label]:
    return {offset: label(number) for offset, number in enumerate(numbers)}


def test_a_payload_says_what_it_is() -> None:
    assert label_of(payload(label(7, producer=3))) == label(7, producer=3)
    with pytest.raises(Wrong, match="have changed"):
        label_of(payload(label(7))[:-1] + b"?")
    with pytest.raises(Wrong, match="holds None"):
        label_of(None)


def test_what_is_all_there_in_order_is_fine() -> None:
    ledger = ledger_of(0, 1, 2)
    ledger.on_seen(PLACE, 0, label(0))
    ledger.check_all(PLACE, found(0, 1, 2, 3))


def test_an_acknowledged_message_that_is_missing_is_lost() -> None:
    with pytest.raises(Wrong, match="acknowledged and lost: message 2"):
        ledger_of(0, 1, 2).check_all(PLACE, found(0, 1))


def test_an_acknowledged_message_at_another_offset_is_lost() -> None:
    ledger = ledger_of(0)
    ledger.on_acknowledged(PLACE, label(2), 1)
    with pytest.raises(Wrong, match="lost"):
        ledger.check_all(PLACE, found(0, 1, 2))


def test_a_message_acknowledged_without_an_offset_may_be_anywhere_but_not_nowhere() -> None:
    ledger = ledger_of(0)
    ledger.on_acknowledged(PLACE, label(2), None)
    ledger.check_all(PLACE, found(0, 1, 2))
    with pytest.raises(Wrong, match="acknowledged and lost: message 2"):
        ledger.check_all(PLACE, found(0, 1))


def test_what_a_reader_saw_must_not_vanish() -> None:
    ledger = ledger_of(0)
    ledger.on_seen(PLACE, 1, label(1))
    with pytest.raises(Wrong, match="seen by a reader and gone"):
        ledger.check_all(PLACE, found(0))


def test_two_readers_must_not_see_different_things() -> None:
    ledger = Ledger()
    ledger.on_seen(PLACE, 0, label(0))
    ledger.on_seen(PLACE, 0, label(1))
    with pytest.raises(Wrong, match="offset 0: message 1 of producer 0 was seen"):
        ledger.check()


def test_a_message_must_not_be_in_two_places() -> None:
    ledger = ledger_of(0)
    ledger.on_seen(PLACE, 5, label(0))
    with pytest.raises(Wrong, match="at 5 and was at 0 before"):
        ledger.check()


@pytest.mark.parametrize("numbers", [(0, 1, 1), (0, 2, 1)])
def test_order_and_doubles_are_noticed(numbers: tuple[int, ...]) -> None:
    with pytest.raises(Wrong, match="behind a later one"):
        check_order(PLACE, found(*numbers))


def test_producers_have_orders_of_their_own() -> None:
    check_order(PLACE, {0: label(5), 1: label(0, producer=1), 2: label(6), 3: label(9, producer=1)})


def test_gaps_are_noticed() -> None:
    with pytest.raises(Wrong, match="nothing at the offsets 1 to 1"):
        check_order(PLACE, {0: label(0), 2: label(1)})
