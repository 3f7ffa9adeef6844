"""Groups through the console's API."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import pytest

from moldau.client.queue.queue import Queue
from moldau.console.settings import ConsoleSettings
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    place = confluent_kafka.TopicPartition(topic, 0, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def produce(broker: Broker, topic: str, count: int, timestamp: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=timestamp)
    producer.flush(30)


def test_lag_is_told_in_messages_and_in_seconds(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("behind", 1)
    produce(shared_broker, "behind", 10, int(time.time() * 1000) - 3_600_000)
    commit(shared_broker, "late", "behind", 4)
    (row,) = console.get("api/groups", q="late")["groups"]
    assert row["lag"] == 6
    assert 3600 <= row["lag_s"] < 3700
    assert row["topics"] == ["behind"]
    found = console.get("api/groups/late")
    (partition,) = found["partitions"]
    assert partition["committed"] == 4
    assert partition["end"] == 10
    assert partition["lag"] == 6
    assert found["state"] == "empty"
    assert {"group": "late", "lag": 6} in console.get("api/topics/behind")["groups"]
    problems = until(
        lambda: [
            each
            for each in console.get("api/overview")["problems"]
            if each["where"] == {"kind": "group", "name": "late"}
        ],
        "the problem",
    )
    assert "6 messages behind" in problems[0]["what"]


def test_how_fast_a_group_catches_up_and_when_it_will_have(shared_broker: Broker) -> None:
    shared_broker.create_topic("catching-up", 1)
    produce(shared_broker, "catching-up", 100, int(time.time() * 1000))
    commit(shared_broker, "quick", "catching-up", 10)
    settings = ConsoleSettings(shared_broker.bootstrap, sample_every_s=0.1)
    with RunningConsole(settings) as console:

        def partition(is_so: Callable[[float], bool]) -> dict[str, Any]:
            """Wait until the lag of the one partition grows or shrinks like that."""

            def look() -> dict[str, Any] | None:
                (found,) = console.get("api/groups/quick")["partitions"]
                trend = found["trend_per_s"]
                return dict(found) if trend is not None and is_so(trend) else None

            return until(look, "the trend")

        assert partition(lambda trend: trend == 0)["drain_s"] is None
        commit(shared_broker, "quick", "catching-up", 60)
        shrinking = partition(lambda trend: trend < 0)
        assert shrinking["lag"] == 40
        assert shrinking["drain_s"] == pytest.approx(40 / -shrinking["trend_per_s"], abs=0.06)
        produce(shared_broker, "catching-up", 900, int(time.time() * 1000))
        assert partition(lambda trend: trend > 0)["drain_s"] is None


def test_a_group_is_reset_after_a_preview(console: RunningConsole, shared_broker: Broker) -> None:
    shared_broker.create_topic("again", 2)
    produce(shared_broker, "again", 10, 1_700_000_000_000)
    commit(shared_broker, "resettable", "again", 7)
    path = "api/groups/resettable/reset"
    body = {"topic": "again", "to": "beginning", "partitions": [0], "preview": True}
    expected = [{"topic": "again", "partition": 0, "from": 7, "to": 0}]
    assert console.post(path, body) == {"changes": expected, "applied": False}
    assert console.get("api/groups/resettable")["partitions"][0]["committed"] == 7
    assert console.post(path, body | {"preview": False})["applied"]
    assert console.get("api/groups/resettable")["partitions"][0]["committed"] == 0
    for to, expected_to in (("end", 10), ("offset:3", 3), ("shift:4", 7), ("time:1", 0)):
        (move,) = console.post(path, body | {"preview": False, "to": to})["changes"]
        assert move["to"] == expected_to
    (move,) = console.post(path, body | {"to": "offset:999"})["changes"]
    assert move["to"] == 10
    console.post(path, body | {"to": "yesterday"}, 422)
    console.post(path, body | {"topic": "nowhere"}, 404)


def test_a_group_with_members_is_not_reset_and_its_members_are_shown(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("busy", 2)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": shared_broker.bootstrap, "group.id": "team/a", "client.id": "me"}
    )
    consumer.subscribe(["busy"])
    try:
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment")
        found = console.get("api/groups/team%2Fa")
        (member,) = found["members"]
        assert member["client_id"] == "me"
        assert member["partitions"] == [["busy", 0], ["busy", 1]]
        assert found["history"][0]["cause"]
        body = {"topic": "busy", "to": "end"}
        refused = console.post("api/groups/team%2Fa/reset", body, 409)
        assert "members" in refused["error"]["message"]
        console.send("DELETE", "api/groups/team%2Fa", status=409)
    finally:
        consumer.close()
    console.send("DELETE", "api/groups/team%2Fa")
    console.get("api/groups/team%2Fa", 404)


def share(broker: Broker, group: str, topic: str, finished: int) -> None:
    """Have a share group finish the first messages of a topic, and leave."""
    with Queue(topic, group=group, start="earliest", ahead=5, bootstrap=broker.bootstrap) as queue:
        for _ in range(finished):
            job = queue.take(30)
            assert job is not None
            job.done()


def test_the_lag_of_a_share_group_is_told_in_seconds_too(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("tasks", 1)
    produce(shared_broker, "tasks", 10, int(time.time() * 1000) - 3_600_000)
    share(shared_broker, "late-workers", "tasks", 4)
    found = until(
        lambda: next(
            (
                each
                for each in [console.get("api/groups/late-workers")]
                if each["lag"] == 6 and each["state"] == "empty"
            ),
            None,
        ),
        "the lag",
    )
    assert 3600 <= found["lag_s"] < 3700
    (partition,) = found["share"]["partitions"]
    assert 3600 <= partition.pop("lag_s") < 3700
    assert partition.pop("trend_per_s") in (None, 0)
    assert {name: partition[name] for name in ("topic", "start", "end", "lag")} == {
        "topic": "tasks", "start": 4, "end": 10, "lag": 6,
    }  # fmt: skip
    (row,) = console.get("api/groups", q="late-workers")["groups"]
    assert (row["lag"], row["topics"]) == (6, ["tasks"])
    assert 3600 <= row["lag_s"] < 3700
    assert "the oldest for 60 minutes" in console.get("api/groups/late-workers/why")["summary"]
    problems = until(
        lambda: [
            each
            for each in console.get("api/overview")["problems"]
            if each["where"] == {"kind": "group", "name": "late-workers"}
        ],
        "the problem",
    )
    assert "no members and is 6 messages behind" in problems[0]["what"]
    times = until(
        lambda: [
            each
            for each in console.get("api/series", names="group:late-workers.lag_s")["series"].get(
                "group:late-workers.lag_s", ()
            )
            if each
        ],
        "the series",
    )
    assert times[-1] >= 3600


def test_how_fast_a_share_group_catches_up_and_when_it_will_have(shared_broker: Broker) -> None:
    shared_broker.create_topic("chores", 1)
    produce(shared_broker, "chores", 100, int(time.time() * 1000))
    share(shared_broker, "helpers", "chores", 10)
    settings = ConsoleSettings(shared_broker.bootstrap, sample_every_s=0.1)
    with RunningConsole(settings) as console:

        def partition(is_so: Callable[[float], bool]) -> dict[str, Any]:
            def look() -> dict[str, Any] | None:
                (found,) = console.get("api/groups/helpers")["share"]["partitions"]
                trend = found["trend_per_s"]
                return dict(found) if trend is not None and is_so(trend) else None

            return until(look, "the trend")

        assert partition(lambda trend: trend == 0)["drain_s"] is None
        share(shared_broker, "helpers", "chores", 40)
        shrinking = partition(lambda trend: trend < 0)
        assert shrinking["drain_s"] > 0


def test_a_share_group_is_reset_after_a_preview(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("errands", 1)
    produce(shared_broker, "errands", 10, 1_700_000_000_000)
    share(shared_broker, "runners", "errands", 7)
    path = "api/groups/runners/reset"
    body = {"topic": "errands", "to": "beginning", "partitions": [0], "preview": True}

    def start() -> int | None:
        (found,) = console.get("api/groups/runners")["share"]["partitions"]
        return None if found["start"] is None else int(found["start"])

    until(lambda: start() == 7, "what is finished")
    until(lambda: console.get("api/groups/runners")["state"] == "empty", "the member to leave")
    expected = [{"topic": "errands", "partition": 0, "from": 7, "to": 0}]
    assert console.post(path, body) == {"changes": expected, "applied": False}
    assert start() == 7
    for to, expected_to in (("beginning", 0), ("end", 10), ("offset:3", 3), ("time:1", 0)):
        assert console.post(path, body | {"preview": False, "to": to})["applied"]
        assert start() == expected_to
    assert console.console.audit.last(1)[0].action == "reset group"
    with Queue("errands", group="runners", bootstrap=shared_broker.bootstrap) as queue:
        job = queue.take(30)
        assert job is not None
        assert job.offset == 0
        (partition,) = console.get("api/groups/runners")["share"]["partitions"]
        assert partition["in_flight"] >= 1
        # As the broker demands: nobody may be in it.
        refused = console.post(path, body | {"preview": False}, 409)
        assert "members" in refused["error"]["message"]
        assert console.post(path, body)["changes"]


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
def test_a_group_says_what_one_may_do_with_it(
    shared_broker: Broker, console: RunningConsole, kind: str
) -> None:
    topic, name = f"rights-{kind}", f"{kind}-with-rights"
    shared_broker.create_topic(topic, 1)
    produce(shared_broker, topic, 1, 1_700_000_000_000)
    with ExitStack() as stack:
        if kind == "share":
            queue = Queue(topic, group=name, start="earliest", bootstrap=shared_broker.bootstrap)
            next(iter(stack.enter_context(queue))).done()
        elif kind == "consumer":
            settings: dict[str, Any] = {
                "bootstrap.servers": shared_broker.bootstrap, "group.id": name,
                "group.protocol": "consumer", "auto.offset.reset": "earliest",
            }  # fmt: skip
            consumer = confluent_kafka.Consumer(settings)
            stack.callback(consumer.close)
            consumer.subscribe([topic])
            assert consumer.consume(1, 30)
        else:
            commit(shared_broker, name, topic, 1)
        found = console.get(f"api/groups/{name}")
        assert found["kind"] == kind
        assert {"Read", "Describe", "Delete"} <= set(found["operations"])
