"""Leader epochs of a log: which one wrote which offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from moldau.log.errors import CorruptFile
from moldau.log.files.checkpoint import decode_entries, encode_entries

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
SAVED = 2**63 - 1


class LeaderEpochs:
    """The first offset of every leader epoch that wrote to the log; both rise. Event loop only.

    On disk it is `leader-epoch-checkpoint`, a checkpoint file of `EPOCH START` lines, written with
    each flush. A crash leaves it older than the log: recovery reads what is missing from the
    batches after the recovery point.
    """

    __slots__ = ("_epochs", "_starts", "latest", "unsaved_from")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        # The lowest offset about which the file does not say the same.
        self.unsaved_from = SAVED
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.unsaved_from = SAVED

    @property
    def dirty(self) -> bool:
        return self.unsaved_from != SAVED

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_start(self) -> int:
        """Where the latest epoch began, or -1."""
        return self._starts[-1] if self._starts else UNDEFINED_OFFSET

    def assign(self, epoch: int, start: int) -> None:
        """Note that `epoch` wrote at `start`; entries that contradict it go.

        One that is known to have begun before still did. Taken for later than it was, it would hide
        from others that what they have of earlier epochs was never committed.
        """
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start:
            return
        lowest = start
        while epochs and (epochs[-1] > epoch or starts[-1] >= start):
            epochs.pop()
            lowest = min(lowest, starts.pop())
        if not epochs:
            # Most logs never know another one, and a list that has grown is half as large again.
            self._epochs, self._starts = [epoch], [start]
        elif epochs[-1] != epoch:
            epochs.append(epoch)
            starts.append(start)
        self.latest = epoch
        self.unsaved_from = min(self.unsaved_from, lowest)

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, where it ended), as OffsetForLeaderEpoch answers.

        (-1, -1) when the epoch is unknown here.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1."""
        number = bisect_right(self._starts, offset)
        return self._epochs[number - 1] if number else UNDEFINED_EPOCH

    def truncate_end(self, log_end: int) -> None:
        """Forget epochs that began at `log_end` or later."""
        keep = bisect_left(self._starts, log_end)
        if keep < len(self._starts):
            self.unsaved_from = min(self.unsaved_from, self._starts[keep])
            del self._epochs[keep:], self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def truncate_start(self, log_start: int) -> None:
        """Forget epochs that ended before `log_start`; the one that wrote it begins there now."""
        number = bisect_right(self._starts, log_start)
        if number and (number > 1 or self._starts[0] != log_start):
            del self._epochs[: number - 1], self._starts[: number - 1]
            self._starts[0] = log_start
            self.unsaved_from = 0

    def encode(self) -> bytes:
        return encode_entries(f"{epoch} {start}" for epoch, start in self.entries)

    @classmethod
    def decode(cls, content: bytes, path: str) -> LeaderEpochs:
        """Decode what `encode` wrote; raise CorruptFile for anything else."""
        try:
            entries = [
                (int(epoch), int(start)) for epoch, start in decode_entries(content, path, 2)
            ]
        except ValueError:
            raise CorruptFile(path, "an entry is not two numbers") from None
        for (epoch, start), (later, later_start) in pairwise(entries):
            if later <= epoch or later_start <= start:
                raise CorruptFile(path, f"epoch {later} does not follow {epoch}")
        if entries and (entries[0][0] < 0 or entries[0][1] < 0):
            raise CorruptFile(path, "a negative epoch or offset")
        return cls(entries)
