"""Dead letters through the console's API."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.client import partition_for_key
from moldau.console.api.dead_letters import librdkafka_login
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Mask
from moldau.security.client import ClientSecurity
from moldau.security.librdkafka import for_librdkafka
from moldau.testing import Broker
from tests.console.consoles import RunningConsole


def letter(origin: str, offset: int, reason: str, value: str) -> dict[str, Any]:
    headers = {
        "own": "kept", "moldau.origin.topic": origin, "moldau.origin.partition": "0",
        "moldau.origin.offset": str(offset), "moldau.reason": reason, "moldau.source": "orders",
    }  # fmt: skip
    return {"key": "k", "value": value, "headers": [list(pair) for pair in headers.items()]}


@pytest.mark.slow
def test_letters_are_browsed_by_reason_edited_and_moved_once(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("bills")
    shared_broker.create_topic("bills-dead-letters")
    path = "api/topics/bills-dead-letters/messages"
    console.post(path, letter("bills", 4, "not JSON", "{broken"), 201)
    console.post(path, letter("bills", 9, "amount is missing", "{}"), 201)
    console.post(path, {"value": "no letter at all"}, 201)
    (row,) = [
        each
        for each in console.get("api/dead-letters")["topics"]
        if each["topic"] == "bills-dead-letters"
    ]
    assert (row["origin"], row["count"]) == (["bills"], 3)
    assert {"reason": "not JSON", "count": 1} in row["reasons"]
    found = console.get("api/dead-letters/bills-dead-letters", reason="json")["letters"]
    assert [(each["offset"], each["redriven"]) for each in found] == [(0, False)]
    assert found[0]["origin"] == {"topic": "bills", "partition": 0, "offset": 4}

    order = "api/dead-letters/bills-dead-letters/redrive"
    chosen = {"partition": 0, "offset": 0, "value": '{"put": "right"}'}
    preview = console.post(order, {"letters": [chosen], "preview": True})
    assert preview == {
        "moved": 1, "moved_before": 0, "by_topic": {"bills": 1}, "applied": False,
    }  # fmt: skip
    assert console.get("api/topics/bills/messages")["messages"] == []
    for expected in (1, 0):
        outcome = console.post(order, {"letters": [chosen, {"partition": 0, "offset": 1}]})
        assert outcome["applied"]
        assert outcome["moved"] == 2 * expected
    messages = console.get("api/topics/bills/messages", from_="beginning")["messages"]
    values = [each["value"]["json"] for each in messages]
    assert sorted(map(str, values)) == ["{'put': 'right'}", "{}"]
    assert [each["headers"][0][0] for each in messages] == ["own", "own"]
    again = console.get("api/dead-letters/bills-dead-letters")["letters"]
    assert all(each["redriven"] for each in again)
    actions = [each["action"] for each in console.get("api/security/audit")["records"]]
    assert "redrove letters" in actions


@pytest.mark.slow
def test_a_letter_with_another_key_goes_to_the_partition_of_that_key(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("trips", 8)
    shared_broker.create_topic("trips-dead-letters")
    for offset, value in ((1, '{"n": 1}'), (2, '{"n": 2}'), (3, None)):
        body = letter("trips", offset, "no such rider", "") | {"value": value}
        console.post("api/topics/trips-dead-letters/messages", body, 201)
    chosen: list[dict[str, Any]] = [
        {"partition": 0, "offset": 0, "key": "rider-7"},
        {"partition": 0, "offset": 1, "key": '{"id": 7}', "key_encoding": "json", "value": "{}"},
        {"partition": 0, "offset": 2, "key": "rider-7"},
    ]
    order = "api/dead-letters/trips-dead-letters/redrive"
    assert console.post(order, {"letters": chosen})["moved"] == 3
    found = console.get("api/topics/trips/messages", from_="beginning")["messages"]
    keys = [each["key"].get("text") or str(each["key"]["json"]) for each in found]
    places = [(each["partition"], each["value"] is None) for each in found]
    assert sorted((key, *place) for key, place in zip(keys, places, strict=True)) == [
        ("rider-7", partition_for_key(b"rider-7", 8), False),
        ("rider-7", partition_for_key(b"rider-7", 8), True),
        ("{'id': 7}", partition_for_key(b'{"id": 7}', 8), False),
    ]  # fmt: skip
    assert partition_for_key(b"rider-7", 8) != 0


def test_a_letter_that_is_not_there_is_not_moved(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("other-dlq")
    path = "api/dead-letters/other-dlq/redrive"
    console.post(path, {"letters": [{"partition": 0, "offset": 5}]}, 404)
    console.post(path, {"letters": []}, 422)
    console.post("api/dead-letters/nowhere/redrive", {"all": True}, 404)


def test_the_visitor_counts_for_more_than_the_login_of_the_environment() -> None:
    base = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    settings = ConsoleSettings("h:1", sign_in=base)
    visitor = settings.security_of("ann", 'pass"word\\')
    assert isinstance(visitor, ClientSecurity)
    of_file = {"sasl.jaas.config": 'm required username="own" password="secret";'}
    found = for_librdkafka({**of_file, **librdkafka_login(visitor)})
    assert (found["sasl.username"], found["sasl.password"]) == ("ann", 'pass"word\\')


def share_letter(offset: int, group: str = "workers") -> dict[str, Any]:
    told = {
        "topic": "jobs", "partition": "0", "offset": str(offset), "group": group,
        "message": "out of tries",
    }  # fmt: skip
    headers = [[f"__dlq.errors.{name}", text] for name, text in told.items()]
    return {"value": f"job {offset}", "headers": headers}


@pytest.mark.slow
def test_letters_of_a_share_group_are_moved_one_by_one_or_all_and_once(
    shared_broker: Broker,
) -> None:
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap)) as console:
        shared_broker.create_topic("jobs", 4)
        shared_broker.create_topic("dlq.jobs")
        for offset in range(5):
            console.post("api/topics/dlq.jobs/messages", share_letter(offset), 201)
        console.post("api/topics/dlq.jobs/messages", share_letter(9, "others"), 201)
        order = "api/dead-letters/dlq.jobs/redrive"
        third = {"partition": 0, "offset": 3, "key": "anna", "value": "job 3, put right"}
        first = {"partition": 0, "offset": 1}
        preview = console.post(order, {"letters": [third], "preview": True})
        assert (preview["moved"], preview["by_topic"]) == (1, {"jobs": 1})
        assert console.post(order, {"letters": [third]})["moved"] == 1
        again = console.post(order, {"letters": [first, third]})
        assert (again["moved"], again["moved_before"]) == (1, 1)
        letters = console.get("api/dead-letters/dlq.jobs")["letters"]
        assert {each["offset"] for each in letters if each["redriven"]} == {1, 3}

        assert console.post(order, {"all": True, "preview": True})["moved"] == 4
        assert console.post(order, {"all": True})["moved"] == 4
        assert console.post(order, {"all": True})["moved"] == 0
        assert console.post(order, {"letters": [first]})["moved_before"] == 1
        written = console.get("api/topics/jobs/messages", from_="beginning")["messages"]
        values = sorted(each["value"]["text"] for each in written)
        assert values == ["job 0", "job 1", "job 2", "job 3, put right", "job 4", "job 9"]
        (edited,) = [each for each in written if each["key"]]
        assert edited["partition"] == partition_for_key(b"anna", 4) != 0
        letters = console.get("api/dead-letters/dlq.jobs")["letters"]
        assert all(each["redriven"] for each in letters)
        notes = console.get("api/security/audit")["records"]
        assert [each["details"]["moved"] for each in notes if each["action"] == "redrove letters"]


@pytest.mark.parametrize("header", ["moldau.origin.topic", "__dlq.errors.topic"])
def test_letters_hide_what_their_origin_hides(shared_broker: Broker, header: str) -> None:
    topic = f"hidden-{len(header)}"
    shared_broker.create_topic(topic)
    masks = tuple(map(Mask.parse, ("customers:card", "customers:@key", "customers:@own")))
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, masks=masks)) as console:
        path = f"api/topics/{topic}/messages"
        for origin in ("customers", "others"):
            body = letter(origin, 1, "amount is missing", '{"card": "4111", "n": 1}')
            body["headers"][1][0] = header
            console.post(path, body, 201)
        first, second = console.get(path)["messages"]
        assert first["value"]["json"] == {"card": "***", "n": 1}
        assert first["key"]["text"] == first["headers"][0][1]["text"] == "***"
        assert second["value"]["json"]["card"] == "4111"
        assert [each["offset"] for each in console.get(path, key="k")["messages"]] == [1]
        for expression, expected in {
            "value.card = '4111'": [1], "value.n = 1": [0, 1], "key = 'k'": [1],
            "headers.own = 'kept'": [1],
        }.items():  # fmt: skip
            found = console.get(path, filter=expression)["messages"]
            assert [each["offset"] for each in found] == expected, expression
        if header == "moldau.origin.topic":
            letters = console.get(f"api/dead-letters/{topic}")["letters"]
            assert [each["value"]["json"]["card"] for each in letters] == ["4111", "***"]
