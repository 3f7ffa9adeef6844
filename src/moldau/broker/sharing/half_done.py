"""Acknowledgements that were carried out in part, and may be said again as a whole.

Records that are given up need dead letters. Where these cannot be written, all else that was said
is done, and the member hears of an error. It may say all of that again, as with Kafka, which takes
back all of an acknowledgement that fails: what is done already is not refused then.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.broker.sharing.delivery import AcknowledgedRange

# What was said of each record, by offset.
Words = dict[int, int]


def words_about(ranges: Sequence[AcknowledgedRange], about: Sequence[tuple[int, int]]) -> Words:
    """Return what was said of some of the records."""
    return {
        offset: kind
        for each in ranges
        for first, last, kind in each.parts()
        for begin, end in about
        for offset in range(max(first, begin), min(last, end) + 1)
    }


class HalfDone:
    """What is done of the last acknowledgement of each member. Event loop only."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, Words] = {}

    def note(self, member: str, words: Words) -> None:
        self._words.setdefault(member, {}).update(words)

    def forget(self, member: str) -> None:
        """What the member says from now on is about records that it was given since."""
        self._words.pop(member, None)

    def rest(self, member: str, ranges: Sequence[AcknowledgedRange]) -> Sequence[AcknowledgedRange]:
        """Return what is left to do of what a member says."""
        words = self._words.get(member)
        if words is None:
            return ranges
        left: list[AcknowledgedRange] = []
        for each in ranges:
            for first, last, kind in each.parts():
                done = sorted(o for o, said in words.items() if first <= o <= last and said == kind)
                for offset in done:
                    if first < offset:
                        left.append(AcknowledgedRange(first, offset - 1, (kind,)))
                    first = offset + 1
                if first <= last:
                    left.append(AcknowledgedRange(first, last, (kind,)))
        return left
