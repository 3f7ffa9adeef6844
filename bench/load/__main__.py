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
        case tasks.TlsLoopback():
            from bench.load.tls import tls_loopback

            return tls_loopback(task)
        case tasks.PacedRequests():
            from bench.load.paced import paced_requests

            return paced_requests(task)
        case tasks.DecodeAlone():
            from bench.load.decode import decode_alone

            return decode_alone(task)
        case tasks.ReadAlone():
            from bench.load.decode import read_alone

            return read_alone(task)
        case tasks.MergeScattered():
            from bench.load.merges import merge_scattered

            return merge_scattered(task)
        case tasks.FramedTransactions():
            from bench.load.framed_transactions import framed_transactions

            return framed_transactions(task)
        case tasks.Transactions():
            from bench.load.transactions import transactions

            return transactions(task)
        case tasks.AbortedShare():
            from bench.load.transactions import write_with_aborted

            return write_with_aborted(task)
        case tasks.RebalanceConsumerGroup():
            from bench.load.consumer_groups import rebalance_consumer_group

            return rebalance_consumer_group(task)
        case tasks.ManyConsumerGroups():
            from bench.load.many_groups import many_consumer_groups

            return many_consumer_groups(task)
        case tasks.ShareTopic():
            from bench.load.share_groups import share_topic

            return share_topic(task)
        case tasks.ShareAcknowledgements():
            from bench.load.share_groups import acknowledge_one_by_one

            return acknowledge_one_by_one(task)
        case tasks.ShareStamped():
            from bench.load.share_groups import share_stamped

            return share_stamped(task)


if __name__ == "__main__":
    answer_with(lambda text: run(msgspec.json.decode(text, type=tasks.Task)))
