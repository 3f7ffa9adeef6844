"""The worker for schemas: it answers, and what it does not survive costs one request."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.schemas.levels import Level
from moldau.schemas.schema import Dependency, InvalidSchema, Schema, SchemaType
from moldau.schemas.worker.answering import answer
from moldau.schemas.worker.keeping import Keeping
from moldau.schemas.worker.messages import (
    Admit,
    Admitted,
    Format,
    Formatted,
    Invalid,
    Keep,
    Known,
    encode,
)
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
        assert isinstance(await worker.ask(Format(PROTO, "serialized")), Formatted)
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


class Told(SchemaWorker):
    """Counts the bytes that go to the process, and the largest message."""

    def __init__(self) -> None:
        super().__init__(timeout_s=60)
        self.sizes: list[int] = []
        exchange = self.worker._exchange

        async def counted(process: Any, request: Any) -> Any:
            self.sizes.append(len(encode(request)))
            return await exchange(process, request)

        self.worker._exchange = counted  # type: ignore[method-assign]


def large(number: int) -> Schema:
    text = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1, "doc": "x" * 100_000})
    return Schema(text, metadata={"owner": str(number)})


def test_a_worker_is_told_each_version_once_and_in_pieces() -> None:
    async def play() -> None:
        worker = Told()
        versions = [Known(number, large(number)) for number in range(1, 101)]
        asked = Admit(large(7), versions=versions)
        found = await worker.ask(asked)
        assert isinstance(found, Admitted)
        assert found.same == 7
        assert sum(worker.sizes) > 10_000_000
        assert max(worker.sizes) < 2_000_000
        worker.sizes.clear()
        more = [*versions, Known(101, large(101))]
        found = await worker.ask(Admit(large(101), versions=more))
        assert isinstance(found, Admitted)
        assert found.same == 101
        assert sum(worker.sizes) < 300_000
        # A process that comes in its place knows nothing of it, and is told.
        process = worker.worker.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        found = await worker.ask(asked)
        assert isinstance(found, Admitted)
        assert found.same == 7
        await worker.close()

    asyncio.run(play())


def test_what_is_kept_is_bounded_but_for_what_is_asked_about() -> None:
    keeping = Keeping(most_bytes=1_000)
    first = [Known(number, Schema("x" * 400)) for number in range(4)]
    numbers, news = keeping.refer(first)
    assert [each.number for piece in news for each in piece.schemas] == [1, 2, 3, 4]
    assert numbers == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert keeping.refer(first[1:]) == ([(1, 2), (2, 3), (3, 4)], [Keep([], [1])])
    # The same text with other references is another schema.
    other = Known(9, first[3].schema, [Dependency("a", "y")])
    numbers, news = keeping.refer([other])
    assert numbers == [(9, 5)]
    assert news[0].gone == [4, 2]
    assert len(keeping) == 2
