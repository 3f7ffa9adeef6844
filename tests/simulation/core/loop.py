"""An event loop on virtual time: whole clusters in one thread, in an order that a seed decides.

Every step belongs to a process. The steps of one process run in the order in which they became due,
as asyncio promises; whose turn it is among the processes is decided by the seed. Time stands still
while there is anything to do, and then jumps to the next timer, so a day of waiting takes no time.

What would run on a thread (`run_in_executor`) runs in one piece at a later instant, and is answered
at a still later one: the process may die, freeze or hear of something else before, between and
after the two.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Any

from tests.simulation.core.process import Machine, Process, ProcessDied

# So many steps in a row without any time passing are a loop that never ends.
_MOST_AT_ONCE = 200_000
# Timers are late by up to this, as on a real machine.
_LATE_S = 0.001
_COMPACT = 5_000


class Livelock(Exception):
    """The processes keep each other busy without any time passing."""


class Step:
    """A callback of a process that is due at some time; None once it is cancelled."""

    __slots__ = ("arguments", "callback", "process", "when_s")
    is_timer = False

    def __init__(
        self, process: Process, when_s: float, callback: Callable[..., object], arguments: Any
    ) -> None:
        self.process = process
        self.when_s = when_s
        self.callback: Callable[..., object] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s


class Timer(Step):
    """A timer of a process itself; the handle that `call_later` returns."""

    __slots__ = ()
    is_timer = True


def _nothing() -> None:
    """Do nothing."""


def end_task(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that will not go on."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    # Whatever a coroutine does at its end is no matter.
    with suppress(BaseException):
        coroutine.close()


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of a simulation. `process` is the one whose step is running."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._random = dice.random
        self.now_s = 0.0
        self.process = self.outside = Process("simulator", Machine("outside", "0.0.0.0"))
        # Processes that have something to do now.
        self._busy: list[Process] = []
        self._timers: list[tuple[float, int, Step]] = []
        self._count = 0
        self.steps = 0
        self._at_once = 0
        self.is_over = False
        self.problems: list[str] = []
        self.set_exception_handler(self._note_problem)
        self.network: Any = None
        self.executor_s: Callable[[Process], float] = lambda process: self._random() * 0.002

    # -- time

    def time(self) -> float:
        return self.now_s

    # -- scheduling; asyncio calls these

    def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        process = self.process
        step = Step(process, self.now_s, callback, arguments)
        if process.is_alive and not self.is_over:
            if not process.ready:
                self._busy.append(process)
            process.ready.append(step)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        due_s = self.now_s + delay if delay > 0.0 else self.now_s
        timer = Timer(self.process, due_s, callback, arguments)
        self._count += 1
        heappush(self._timers, (due_s + self._random() * _LATE_S, self._count, timer))
        return timer

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_later(when - self.now_s, callback, *arguments)

    def soon_in(self, process: Process, callback: Any, *arguments: Any) -> Step:
        """Run a callback as a step of a process, as soon as it comes to that."""
        step = Step(process, self.now_s, callback, arguments)
        if process.is_alive and not self.is_over:
            if not process.ready:
                self._busy.append(process)
            process.ready.append(step)
        return step

    def later_in(self, process: Process, delay_s: float, callback: Any, *arguments: Any) -> Step:
        """Run a callback as a step of a process after a while."""
        due_s = self.now_s + delay_s if delay_s > 0.0 else self.now_s
        step = Step(process, due_s, callback, arguments)
        self._count += 1
        heappush(self._timers, (due_s + self._random() * _LATE_S, self._count, step))
        return step

    def arrive_in(self, delay_s: float, callback: Any) -> None:
        """Have the simulator do something after exactly that time."""
        at_s = self.now_s + delay_s
        self._count += 1
        heappush(self._timers, (at_s, self._count, Step(self.outside, at_s, callback, ())))

    def _enqueue(self, step: Step) -> None:
        """A timer is due."""
        process = step.process
        if not self.is_over:
            if step.is_timer and process.frozen_until > self.now_s:
                process.overdue.append(step)
                if process.ready:
                    return
                # So that somebody looks when it may go on.
                step = Step(process, self.now_s, _nothing, ())
            if not process.ready:
                self._busy.append(process)
            process.ready.append(step)

    # -- threads

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        process = self.process
        begins_s = self.executor_s(process)

        def work() -> None:
            try:
                result, problem = function(*arguments), None
            except ProcessDied:
                raise
            except BaseException as error:
                result, problem = None, error
            self.later_in(process, self._random() * 0.001, answer, result, problem)

        def answer(result: Any, problem: BaseException | None) -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)

        self.later_in(process, begins_s, work)
        return future

    async def shutdown_default_executor(self, timeout: Any = None) -> None:  # noqa: ASYNC109
        """There are no threads."""

    # -- running

    def _run_once(self) -> None:
        # What BaseEventLoop's run_forever calls until `stop`.
        turn = self.turn
        while not self._stopping:  # type: ignore[attr-defined]
            turn()

    def turn(self) -> None:
        """Let a process do a few steps; or time pass until the next timer, if nobody has any."""
        if self._busy:
            self._run_busy()
        elif self._timers:
            self._advance()
        else:
            raise Livelock("nothing is left to do, and the simulation still waits")

    def _advance(self) -> None:
        """Let time pass until the next timer."""
        timers = self._timers
        if len(timers) > _COMPACT:
            timers = self._timers = [
                each for each in timers if each[2].callback and each[2].process.is_alive
            ]
            heapify(timers)
        while timers:
            at_s, _, step = heappop(timers)
            process = step.process
            if step.callback is None or not process.is_alive:
                continue
            if at_s > self.now_s:
                self.now_s = at_s
                self._at_once = 0
            if process is not self.outside:
                self._enqueue(step)
            elif not self.is_over:
                # Nobody else has anything to do, so it is the simulator's turn.
                self.steps += 1
                self._at_once += 1
                try:
                    step.callback(*step.arguments)
                except Exception as error:
                    self._failed(process, step.callback, error)
            return

    def _run_busy(self) -> None:
        """Give a process its turn."""
        busy = self._busy
        place = int(self._random() * len(busy)) if len(busy) > 1 else 0
        process = busy[place]
        if process.frozen_until > self.now_s:
            # What is due meanwhile comes after what was due before, as on a real machine.
            busy.pop(place)
            self.later_in(self.outside, process.frozen_until - self.now_s, self.wake, process)
            return
        if process.overdue:
            process.ready.extend(process.overdue)
            process.overdue.clear()
        # A turn is a few steps at most: another process may come in between any two.
        self._do(process, 1 + int(self._random() * 4))
        if not process.ready and process in busy:
            busy.remove(process)
        if self._at_once > _MOST_AT_ONCE:
            raise Livelock(f"{self._at_once} steps at {self.now_s:.3f} s, the last of {process}")

    def _do(self, process: Process, most: int) -> None:
        """Do the next steps of a process."""
        after_step, done = process.after_step, 0
        self.process = process
        # Of one that dies on the way, it is emptied.
        ready = process.ready
        try:
            while done < most and ready and not self._stopping:  # type: ignore[attr-defined]
                step = ready.popleft()
                callback = step.callback
                if callback is None:
                    continue
                done += 1
                try:
                    callback(*step.arguments)
                except ProcessDied:
                    self.kill(process)
                except Exception as error:
                    self._failed(process, callback, error)
                if after_step is not None:
                    after_step(process)
        finally:
            self.process = self.outside
        self.steps += done
        self._at_once += done

    def _failed(self, process: Process, callback: object, error: Exception) -> None:
        self.problems.append(f"{process}: {callback!r} raised {error!r}")

    # -- processes

    def wake(self, process: Process) -> None:
        """Let a process that was frozen go on, if nothing has frozen it anew."""
        if process.is_alive and process.ready and process not in self._busy:
            self._busy.append(process)

    def kill(self, process: Process) -> None:
        """End a process at once; nothing that it had still to do is done."""
        if process.is_alive:
            process.is_alive = False
            process.belongings.extend((*process.ready, *process.overdue))
            process.ready.clear()
            process.overdue = []
            if process in self._busy:
                self._busy.remove(process)

    def discard(self) -> None:
        """Drop all that was still to be done."""
        self._timers.clear()
        for process in self._busy:
            process.ready.clear()
        self._busy.clear()

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, name=name)
        if self.is_over:
            # Begun by what others do at their end, or by a destructor: nobody would end it.
            end_task(task)
            return task
        # Kept, so that a dead process's coroutines are not closed, which would run their code.
        self.process.belongings.append(task)
        if len(self.process.belongings) > _COMPACT:
            self.process.belongings = [
                each
                for each in self.process.belongings
                if not isinstance(each, asyncio.Task) or not each.done()
            ]
        return task

    def _note_problem(self, loop: Any, context: dict[str, Any]) -> None:
        if not self.is_over:
            problem = context.get("exception")
            self.problems.append(f"{self.process}: {context.get('message')} {problem!r}")

    # -- the network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return [(2, 1, 6, "", (host, port))]

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self.network.listen(self.process, factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return await self.network.connect(self.process, factory, host, port)

    def _process_events(self, events: Any) -> None:
        """There are none of the system's."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
