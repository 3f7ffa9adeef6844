"""The key map: keys and the last offset of each, in a fixed amount of memory."""

from __future__ import annotations

from array import array

# Two words of a key's hash and one for its offset.
_WORDS = 3
_WORD_BYTES = 8
_MOST_FILLED = 0.9
_FEWEST_SLOTS = 16


class KeyMap:
    """An open-addressing table of 128-bit hashes of keys to offsets, of `max_bytes` at most.

    It takes less where `most_keys` need less. Keys are not kept: two with the same hash would count
    as one, which for 128 bits does not happen. The hash is Python's own (SipHash with a secret that
    is new in every process) of the key and of a second form of it, so no one can choose keys that
    meet. A plain dict would hold a fifth of the keys in the same memory.
    """

    def __init__(self, max_bytes: int, most_keys: int | None = None) -> None:
        slots = max_bytes // (_WORDS * _WORD_BYTES)
        if most_keys is not None:
            slots = min(slots, int(most_keys / _MOST_FILLED) + 1)
        self._slots = max(slots, _FEWEST_SLOTS)
        self._end = self._slots * _WORDS
        self._table = array("q", (0,)) * self._end
        self._room = int(self._slots * _MOST_FILLED)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of a key, which only rise; False when the map is full."""
        table = self._table
        first, second = hash(key), hash(b"\0" + key)
        place = first % self._slots * _WORDS
        while table[place + 2]:
            if table[place] == first and table[place + 1] == second:
                table[place + 2] = offset + 1
                return True
            place += _WORDS
            if place == self._end:
                place = 0
        if self._count >= self._room:
            return False
        self._count += 1
        table[place] = first
        table[place + 1] = second
        # Zero means empty, so offsets are kept one higher.
        table[place + 2] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 if it is not in the map."""
        table = self._table
        first, second = hash(key), hash(b"\0" + key)
        place = first % self._slots * _WORDS
        while table[place + 2]:
            if table[place] == first and table[place + 1] == second:
                return table[place + 2] - 1
            place += _WORDS
            if place == self._end:
                place = 0
        return -1
