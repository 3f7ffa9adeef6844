"""Committing dead letters: each record's once, whichever attempt and whichever run read it."""

from __future__ import annotations

import logging
from itertools import chain

from moldau.peer.coordinators import LOST, Coordinators
from moldau.peer.errors import Refused
from moldau.spark.errors import WriteFailed
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.letter_ranges import Counted, Letters, LettersEnded, Range, without
from moldau.wire.errors import Error

log = logging.getLogger("moldau.spark")


class LetterCommits:
    """The letters of one cluster, for one thread."""

    def __init__(self, commits: CommitLog, coordinators: Coordinators) -> None:
        self._log = commits
        self._coordinators = coordinators

    def missing(self, wanted: Letters) -> tuple[Range, ...]:
        """Return the ranges whose letters are not committed, for certain."""
        self._log.read()
        for each in self._overlapping(wanted):
            self._finish(each)
        return self._left_of(wanted)

    def commit(self, letters: Letters) -> None:
        """Commit these letters, unless another attempt has been faster: then abort them."""
        self._log.append([letters])
        counted = self._overlapping(letters)
        if [each.letters.transaction for each in counted] == [letters.transaction]:
            self._finish(counted[0])
            if not self._overlapping(letters):
                raise WriteFailed(
                    f"the transaction {letters.transaction.id!r} of dead letters timed out before "
                    "it was committed; they must be written again"
                )
            return
        self._coordinators.end([letters.transaction], commits=False)
        for each in counted:
            self._finish(each)
        if self._left_of(letters):
            # Another run divides the partition in another way. The next attempt knows by then.
            raise WriteFailed(
                f"dead letters of {letters.topic}-{letters.partition} are being written by another "
                "run; they must be checked again"
            )

    def _left_of(self, letters: Letters) -> tuple[Range, ...]:
        covered = [each.letters.ranges for each in self._overlapping(letters)]
        return without(letters.ranges, chain.from_iterable(covered))

    def _overlapping(self, letters: Letters) -> list[Counted]:
        return self._log.commits.letters.of(letters.scope).overlapping(letters)

    def _finish(self, counted: Counted) -> None:
        """Commit the transaction of an entry that counts, or find out that it is lost."""
        if counted.is_ended:
            return
        letters = counted.letters
        (code,) = self._coordinators.end([letters.transaction], commits=True).values()
        # Whoever committed it may have used the id again since: it has said so.
        if code and self._has_ended(counted):
            return
        if code == Error.INVALID_PRODUCER_ID_MAPPING:
            # It has ended, in a way that nobody knows any more: before they are lost, they are
            # written twice.
            log.warning(
                "the transactional id %r of dead letters has expired; %s to %s of %s-%d are "
                "written again, and may appear twice",
                letters.transaction.id,
                letters.ranges[0][0],
                letters.ranges[-1][1] - 1,
                letters.topic,
                letters.partition,
            )
        if code and code not in LOST:
            # They are staged still, and whoever comes next can commit them.
            raise Refused(code, f"end of {letters.transaction.id!r}")
        now_ms = self._log.now_ms()
        ended = LettersEnded(letters.scope, letters.transaction, now_ms, bool(code))
        scope = self._log.commits.letters.of(letters.scope)
        self._log.append([ended], scope.removable(letters.batch, now_ms))

    def _has_ended(self, counted: Counted) -> bool:
        self._log.read()
        return counted.is_ended
