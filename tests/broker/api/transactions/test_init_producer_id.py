from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, versions

NONE = {"producer_id": -1, "producer_epoch": -1}


@pytest.mark.parametrize("version", versions(Api.INIT_PRODUCER_ID))
def test_every_producer_gets_an_id_of_its_own_in_every_version(asker: Asker, version: int) -> None:
    answers = [
        asker.ask(Api.INIT_PRODUCER_ID, version, transactional_id=None, **NONE) for _ in range(3)
    ]
    assert all((answer.error_code, answer.producer_epoch) == (0, 0) for answer in answers)
    assert len({answer.producer_id for answer in answers}) == 3


def test_a_producer_that_starts_over_gets_a_new_id(asker: Asker) -> None:
    first = asker.ask(Api.INIT_PRODUCER_ID, transactional_id=None, **NONE)
    again = asker.ask(
        Api.INIT_PRODUCER_ID,
        transactional_id=None,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )
    assert (again.error_code, again.producer_epoch) == (0, 0)
    assert again.producer_id > first.producer_id


def test_half_an_identity_or_an_empty_transactional_id_is_refused(asker: Asker) -> None:
    for values in (
        {"transactional_id": None, "producer_id": 5, "producer_epoch": -1},
        {"transactional_id": None, "producer_id": -1, "producer_epoch": 5},
        {"transactional_id": "", **NONE},
    ):
        answer = asker.ask(Api.INIT_PRODUCER_ID, **values)
        assert answer.error_code == Error.INVALID_REQUEST
        assert answer.producer_id == -1


def test_ids_do_not_come_back_after_a_restart(moldau_broker: Broker) -> None:
    seen: list[int] = []
    for _ in range(2):
        with Asker(moldau_broker) as asker:
            for _ in range(3):
                answer = asker.ask(Api.INIT_PRODUCER_ID, transactional_id=None, **NONE)
                seen.append(answer.producer_id)
        moldau_broker.stop()
        moldau_broker.start()
    assert len(set(seen)) == 6
