"""Worker processes, as an event loop sees them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from moldau.schemas.schema import InvalidSchema
from moldau.schemas.worker.keeping import Keeping
from moldau.schemas.worker.messages import (
    LENGTH,
    Admit,
    Answer,
    Forgotten,
    Invalid,
    Request,
    decode_answer,
    encode,
)

TIMEOUT_S = 10.0
# How often a question is asked of one new process after the other.
_TRIES = 3

A = TypeVar("A")


class WorkerLost(Exception):
    """A request that got no answer, and why."""


class WorkerProcess(Generic[A]):
    """Starts a module as a process with the first request, and again after one that it did not
    survive.

    One request at a time; the others wait. `lives` counts the processes. Event loop only.
    """

    def __init__(self, module: str, decode: Callable[[bytes], A], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.process: asyncio.subprocess.Process | None = None
        self.lives = 0
        self._module = module
        self._decode = decode
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def ask(self, request: Any | Callable[[], Any]) -> A:
        """Return the answer to a request, which may be made when its turn has come.

        WorkerLost if there is none in time, or if the process does not survive it.
        """
        async with self._turn:
            if self._is_closed:
                raise WorkerLost("the broker is stopping")
            try:
                async with asyncio.timeout(self.timeout_s):
                    process = await self._running()
                    return await self._exchange(
                        process, request() if callable(request) else request
                    )
            except TimeoutError:
                self._kill()
                raise WorkerLost(f"checking it took longer than {self.timeout_s:g} s") from None
            except (OSError, asyncio.IncompleteReadError):
                self._kill()
                raise WorkerLost("the process that checked it died") from None
            except BaseException:
                # Whoever asked is gone, and the answer must not be taken for the next one's.
                self._kill()
                raise

    async def _running(self) -> asyncio.subprocess.Process:
        process = self.process
        if process is None or process.returncode is not None:
            self.lives += 1
            process = self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        return process

    async def _exchange(self, process: asyncio.subprocess.Process, request: Any) -> A:
        assert process.stdin is not None
        assert process.stdout is not None
        body = encode(request)
        process.stdin.write(LENGTH.pack(len(body)))
        process.stdin.write(body)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        return self._decode(await process.stdout.readexactly(size))

    def _kill(self) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.kill()

    async def close(self) -> None:
        """End the process, and whoever waits for it."""
        self._is_closed = True
        process = self.process
        self._kill()
        if process is not None:
            await process.wait()


class SchemaWorker:
    """The process that parses and compares schemas. It is told each version of a subject once."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.worker: WorkerProcess[Answer] = WorkerProcess(
            "moldau.schemas.worker", decode_answer, timeout_s
        )
        self._keeping = Keeping()
        self._turn = asyncio.Lock()

    async def ask(self, request: Request) -> Answer:
        """Return the worker's answer; InvalidSchema says what is wrong with the schema."""
        try:
            # What is told before a question must not be forgotten for another one.
            async with self._turn:
                found = await self._answer(request)
        except WorkerLost as problem:
            raise InvalidSchema(str(problem)) from None
        if isinstance(found, Invalid):
            raise InvalidSchema(found.reason)
        return found

    async def _answer(self, request: Request) -> Answer:
        if not isinstance(request, Admit) or not request.versions:
            return await self.worker.ask(request)
        for _ in range(_TRIES):
            numbers, news = self._keeping.refer(request.versions)
            for each in news:
                await self.worker.ask(each)
            short = msgspec.structs.replace(request, versions=[], kept=numbers)
            found = await self.worker.ask(short)
            if not isinstance(found, Forgotten):
                return found
            self._keeping.forget_all()
        raise WorkerLost("the process that checked it died repeatedly")

    async def close(self) -> None:
        await self.worker.close()
