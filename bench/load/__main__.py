"""`python -m bench.load TASK`: do one task and print the answer."""

from __future__ import annotations

import msgspec

from bench import tasks
from moldau.bench.load.answer import answer_with


def run(task: tasks.Task) -> msgspec.Struct:
    # Imported here so that a process which drives a bare socket does not load Arrow.
    match task:
        case tasks.BulkProduce():
            from bench.load.bulk import bulk_produce

            return bulk_produce(task)
        case tasks.BulkFetch():
            from bench.load.bulk import bulk_fetch

            return bulk_fetch(task)
        case tasks.PacedRequests():
            from bench.load.paced import paced_requests

            return paced_requests(task)
        case tasks.DecodeAlone():
            from bench.load.decode import decode_alone

            return decode_alone(task)
        case tasks.ReadAlone():
            from bench.load.decode import read_alone

            return read_alone(task)


if __name__ == "__main__":
    answer_with(lambda text: run(msgspec.json.decode(text, type=tasks.Task)))
