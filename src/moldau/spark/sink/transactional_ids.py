"""Transactional ids of one process: numbered, and used again for the next batch."""

from __future__ import annotations

from moldau.spark.sink.committing import transactional_id


class TransactionalIds:
    """The ids of one writer in a run, one after another; those in `given_up` are left out."""

    def __init__(self, query: str, run: str, writer: str, given_up: set[int] | None = None) -> None:
        self._of = (query, run, writer)
        self._given_up = set() if given_up is None else given_up
        self.start_over()

    @property
    def current(self) -> str:
        query, run, writer = self._of
        return transactional_id(query, run, f"{writer}.{self._number}")

    def start_over(self) -> None:
        self._number = -1
        self.move_on()

    def move_on(self) -> None:
        self._number += 1
        while self._number in self._given_up:
            self._number += 1

    def give_up(self) -> None:
        """Never use the current one again: go on to the next."""
        self._given_up.add(self._number)
        self.move_on()
