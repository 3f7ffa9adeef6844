"""InitProducerId without transactions."""

from __future__ import annotations

from typing import Any

from conformance.registry import case
from conformance.session import Session
from moldau.wire.apis import Api


@case(Api.INIT_PRODUCER_ID)
def idempotent_producers(s: Session, version: int) -> None:
    def ready() -> bool:
        answer = s.quietly(Api.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout=1000)
        return int(answer.error_code) == 0

    s.until(ready, "block of producer ids")

    def init(what: str, **more: Any) -> Any:
        values = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        return s.ask(what, Api.INIT_PRODUCER_ID, version, **values | more)

    first, second = init("first"), init("second")
    if first is not None and second is not None:
        s.note("another id", first.producer_id != second.producer_id, Api.INIT_PRODUCER_ID)
    init("no timeout", transaction_timeout=0)
    init("a negative timeout", transaction_timeout=-1)
    init("an empty transactional id", transactional_id="")
    if version >= 3:
        init("an id of its own", producer_id=4_000_000, producer_epoch=3)
        if first is not None:
            mine = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
            again = init("the id that it was given", **mine)
            s.note("it is another", again.producer_id != first.producer_id, Api.INIT_PRODUCER_ID)
        init("an id without an epoch", producer_id=5, producer_epoch=-1)
        init("an epoch without an id", producer_id=-1, producer_epoch=5)
