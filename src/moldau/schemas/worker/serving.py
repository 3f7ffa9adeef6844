"""The loop of a worker process: a request, an answer, and so on until its input ends."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Any

from moldau.schemas.worker.messages import LENGTH, encode

# More than any schema of people needs: a bad one must not take the machine's memory.
_MOST_MEMORY = 4 << 30


def serve(decode: Callable[[bytes], Any], answer: Callable[[Any], Any]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    # Libraries print to standard output; the answers go where they cannot.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(0, "rb", closefd=False) as requests:
        while head := requests.read(LENGTH.size):
            body = encode(answer(decode(requests.read(LENGTH.unpack(head)[0]))))
            out.write(LENGTH.pack(len(body)) + body)
            out.flush()
