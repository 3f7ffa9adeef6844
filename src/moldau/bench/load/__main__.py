"""`python -m moldau.bench.load TASK`: do one task and print the answer."""

from __future__ import annotations

import msgspec

from moldau.bench import tasks
from moldau.bench.load.answer import answer_with


def run(task: tasks.Task) -> msgspec.Struct:
    # Imported here so that a process which drives a bare socket does not load librdkafka.
    match task:
        case tasks.Produce():
            from moldau.bench.load.produce import produce

            return produce(task)
        case tasks.Consume():
            from moldau.bench.load.consume import consume

            return consume(task)
        case tasks.SmallRequests():
            from moldau.bench.load.requests import small_requests

            return small_requests(task)
        case tasks.CommitRequests():
            from moldau.bench.load.requests import commit_requests

            return commit_requests(task)
        case tasks.CommitSynchronously():
            from moldau.bench.load.commits import commit_synchronously

            return commit_synchronously(task)
        case tasks.RebalanceGroup():
            from moldau.bench.load.group import rebalance_group

            return rebalance_group(task)
        case tasks.ManyProducers():
            from moldau.bench.load.many import many_producers

            return many_producers(task)
        case tasks.ProduceStamped():
            from moldau.bench.load.stamped import produce_stamped

            return produce_stamped(task)
        case tasks.ConsumeStamped():
            from moldau.bench.load.stamped import consume_stamped

            return consume_stamped(task)
        case tasks.ClientProgram():
            from moldau.bench.load.client import run_program

            return run_program(task)
        case tasks.Loopback():
            from moldau.bench.load.loopback import loopback

            return loopback(task)
        case tasks.SparkServer():
            from moldau.bench.load.spark import serve

            return serve(task)


if __name__ == "__main__":
    answer_with(lambda text: run(msgspec.json.decode(text, type=tasks.Task)))
