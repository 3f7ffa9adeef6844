"""The worker for schemas: it answers, and what it does not survive costs one request."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.schemas.levels import Level
from moldau.schemas.schema import InvalidSchema, Schema, SchemaType
from moldau.schemas.worker.answering import answer
from moldau.schemas.worker.messages import Admit, Admitted, Invalid, Known, Serialize, Serialized
from moldau.schemas.worker.process import SchemaWorker

INT = Schema('{"type":"int"}')
PROTO = Schema('syntax = "proto3"; message M {}', SchemaType.PROTOBUF)


@given(
    st.text(max_size=40) | st.binary(max_size=40).map(lambda data: data.decode("latin-1")),
    st.sampled_from(SchemaType),
)
def test_every_text_has_an_answer(text: str, kind: SchemaType) -> None:
    assert isinstance(answer(Admit(Schema(text, kind))), Admitted | Invalid)


def test_the_same_schema_is_found_however_it_is_written() -> None:
    found = answer(Admit(INT, versions=[Known(1, Schema('"long"')), Known(2, Schema('"int"'))]))
    assert found == Admitted('"int"', same=2)


def test_a_schema_of_another_type_is_not_compatible() -> None:
    request = Admit(PROTO, versions=[Known(1, INT)], level=Level.BACKWARD, looked_at=[1])
    found = answer(request)
    assert isinstance(found, Admitted)
    assert found.version == 1
    assert "TYPE_CHANGED" in found.problems[0]


def test_a_worker_that_dies_or_hangs_is_replaced() -> None:
    async def play() -> None:
        worker = SchemaWorker(timeout_s=20)
        assert await worker.ask(Admit(INT)) == Admitted('"int"')
        assert isinstance(await worker.ask(Serialize(PROTO)), Serialized)
        process = worker.worker.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert await worker.ask(Admit(INT)) == Admitted('"int"')
        process = worker.worker.process
        assert process is not None
        # Frozen, it never answers; whoever waits gives up, and the next one gets a new worker.
        os.kill(process.pid, signal.SIGSTOP)
        asking = asyncio.create_task(worker.ask(Admit(INT)))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await worker.ask(Admit(INT)) == Admitted('"int"')
        last = worker.worker.process
        worker.worker.timeout_s = 0.05
        assert last is not None
        os.kill(last.pid, signal.SIGSTOP)
        with pytest.raises(InvalidSchema, match="longer than"):
            await worker.ask(Admit(INT))
        await worker.close()
        assert await last.wait() == -signal.SIGKILL

    asyncio.run(play())
