"""A member of a share group, in a process of its own: BOOTSTRAP GROUP TOPIC.

Rejects values that end with 7 and accepts all others. Prints `? value` before it says anything of a
value, so that what was never printed so was never acknowledged; and `+ value` or `- value` when the
broker has confirmed what it said, so that what was printed so was acknowledged whatever becomes of
it.
"""

from __future__ import annotations

import sys

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer


def main(bootstrap: str, group: str, topic: str) -> None:
    """Work until somebody ends the process."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 200,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        said: dict[tuple[str, int], list[str]] = {}
        try:
            messages = consumer.poll(0.5)
        except KafkaException:
            continue
        given = [each for each in messages if each.error() is None]
        sys.stdout.writelines(f"? {(each.value() or b'').decode()}\n" for each in given)
        sys.stdout.flush()
        for message in given:
            value = (message.value() or b"").decode()
            is_bad = value.endswith("7")
            kind = AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, kind)
            place = (message.topic() or "", message.partition() or 0)
            said.setdefault(place, []).append(f"{'-' if is_bad else '+'} {value}\n")
        if not said:
            continue
        try:
            outcomes = consumer.commit_sync(30.0)
        except KafkaException:
            continue
        for partition, problem in outcomes.items():
            if problem is None:
                sys.stdout.writelines(said.get((partition.topic, partition.partition), ()))
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
