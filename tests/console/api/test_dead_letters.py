"""Dead letters through the console's API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.client import partition_for_key
from moldau.console.api.redrives import librdkafka_login
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Mask
from moldau.security.client import ClientSecurity
from moldau.security.librdkafka import for_librdkafka
from moldau.testing import Broker
from moldau.testing.waiting import until
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


@pytest.mark.parametrize("kind", ["pipeline", "share"])
def test_reasons_do_not_tell_what_is_hidden(shared_broker: Broker, kind: str) -> None:
    """They may quote it, as those of a check against a schema do."""
    topic = f"told-{kind}-dead-letters"
    shared_broker.create_topic(topic)
    of = of_pipeline if kind == "pipeline" else of_share_group
    origins = (f"payers-{kind}", f"others-{kind}")
    for origin in origins:
        shared_broker.create_topic(origin)
    bury(
        shared_broker,
        topic,
        [
            of(origin, number, "/card: '4111' is not of type 'number'")
            for number, origin in enumerate(origins)
        ],
    )
    masks = (Mask.parse("payers-*:card"),)
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, masks=masks)) as console:
        path = f"api/dead-letters/{topic}"
        shown = console.get(path)["letters"]
        assert [each["reason"][:9] for each in shown] == ["/card: '4", "***"]
        hidden = console.get(f"api/topics/{topic}/messages")["messages"][0]
        assert "4111" not in json.dumps(hidden)
        rows = {each["topic"]: each for each in console.get("api/dead-letters")["topics"]}
        assert sorted(each["reason"][:9] for each in rows[topic]["reasons"]) == ["***", "/card: '4"]
        by_reason = console.get(path, reason="4111")["letters"]
        assert [each["origin"]["topic"] for each in by_reason] == [origins[1]]
        for reason, count in (("4111", 1), ("***", 1)):
            order = {"all": True, "reason": reason, "preview": True}
            found = console.post(f"{path}/redrive", order)
            assert found["moved"] == count, (reason, found)


def test_an_offset_that_no_log_has_is_refused(shared_broker: Broker) -> None:
    shared_broker.create_topic("offsets-dead-letters")
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap)) as console:
        for offset, status in ((1 << 40, 404), ((1 << 63) - 1, 404), (1 << 63, 422)):
            order = {"letters": [{"partition": 0, "offset": offset}]}
            console.post("api/dead-letters/offsets-dead-letters/redrive", order, status)


def bury(broker: Broker, topic: str, letters: Iterable[dict[str, Any]]) -> None:
    """Write many letters, in their order."""
    producer = Producer(broker.librdkafka_settings)
    for each in letters:
        headers: list[tuple[str, str | bytes | None]] = [tuple(pair) for pair in each["headers"]]
        producer.produce(topic, each["value"], key=each.get("key"), headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0


def of_pipeline(origin: str, offset: int, reason: str) -> dict[str, Any]:
    return letter(origin, offset, reason, str(offset))


def of_share_group(origin: str, offset: int, reason: str) -> dict[str, Any]:
    found = share_letter(offset)
    found["headers"][0][1] = origin
    found["headers"][-1][1] = reason
    return found | {"value": str(offset)}


@pytest.mark.slow
@pytest.mark.parametrize("made", [of_pipeline, of_share_group])
def test_all_letters_of_a_reason_are_moved_and_none_of_others(
    console: RunningConsole,
    shared_broker: Broker,
    made: Callable[[str, int, str], dict[str, Any]],
) -> None:
    origin = f"reasons-{made.__name__}".replace("_", "-")
    topic = f"{origin}-dlq"
    shared_broker.create_topic(origin)
    shared_broker.create_topic(topic)
    reasons = ["not JSON", "too late", "not json at all", "too late"]
    bury(shared_broker, topic, [made(origin, *each) for each in enumerate(reasons)])
    order = f"api/dead-letters/{topic}/redrive"
    of_one = {"all": True, "reason": "Not JSON"}
    assert console.post(order, of_one | {"preview": True})["moved"] == 2
    assert console.post(order, of_one)["moved"] == 2
    assert console.post(order, of_one)["moved"] == 0
    written = console.get(f"api/topics/{origin}/messages", from_="beginning")["messages"]
    assert sorted(each["value"]["text"] for each in written) == ["0", "2"]
    letters = console.get(f"api/dead-letters/{topic}")["letters"]
    assert {each["offset"] for each in letters if each["redriven"]} == {0, 2}
    console.post(order, {"letters": [{"partition": 0, "offset": 1}], "reason": "late"}, 422)
    # What is chosen besides is moved, whatever its reason.
    both = {"letters": [{"partition": 0, "offset": 1}], "all": True, "reason": "no such reason"}
    assert console.post(order, both | {"preview": True})["moved"] == 1
    assert console.post(order, both)["moved"] == 1
    assert console.post(order, {"all": True})["moved"] == 1


@pytest.mark.slow
def test_letters_of_any_age_are_shown_page_by_page_and_can_be_chosen(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("years")
    shared_broker.create_topic("years-dlq", 2)
    # The old ones are in one partition, the others in both.
    bury(
        shared_broker, "years-dlq", [of_pipeline("years", n, "old") | {"key": "a"} for n in (1, 2)]
    )
    many = (of_pipeline("years", n, "new") | {"key": f"k{n}"} for n in range(10, 5_600))
    bury(shared_broker, "years-dlq", many)
    path = "api/dead-letters/years-dlq"
    found: list[tuple[str, int]] = []
    before, pages = "", 0
    while pages == 0 or before:
        page = console.get(path, limit=1000, before=before)
        found += [(each["reason"], each["origin"]["offset"]) for each in page["letters"]]
        before, pages = page["older"] or "", pages + 1
    assert len(found) == len(set(found)) == 5_592
    assert {reason for reason, _ in found[-2:]} == {"old"}
    assert pages == 6
    first = console.get(path, reason="old", limit=1)
    second = console.get(path, reason="old", limit=1, before=first["older"])
    (newer,), (oldest,) = first["letters"], second["letters"]
    assert [newer["origin"]["offset"], oldest["origin"]["offset"]] == [2, 1]
    for nonsense in ("nothing", "beginning", "before:?"):
        assert console.http.get(path, params={"before": nonsense}).status_code in (400, 422)

    place = {"partition": oldest["partition"], "offset": oldest["offset"]}
    outcome = console.post(f"{path}/redrive", {"letters": [place]})
    assert outcome["moved"] == 1
    for missing in ({"partition": 0, "offset": 1 << 40}, {"partition": 7, "offset": 0}):
        console.post(f"{path}/redrive", {"letters": [place, missing]}, 404)
    # That there are letters to move is seen however many others are newer.
    assert console.post(f"{path}/redrive", {"all": True, "reason": "old"})["moved"] == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_record_that_the_check_has_set_aside_is_put_right_and_let_in_once(
    console: RunningConsole, shared_broker: Broker
) -> None:
    pytest.importorskip("numba", reason="the check is compiled by numba")
    shared_broker.create_topic("aside")
    shared_broker.create_topic(
        "tolls",
        moldau_value_schema_validation="true",
        moldau_schema_validation_quarantine="aside",
    )
    known = console.post("api/schemas/tolls-value/versions", {"schema": '"string"'}, 201)["id"]
    producer = Producer(shared_broker.librdkafka_settings)
    for value in (b"no string", b"no string"):
        producer.produce("tolls", value, key=b"k")
    assert producer.flush(300) == 0

    def row() -> Any:
        topics = console.get("api/dead-letters")["topics"]
        return next((each for each in topics if each["topic"] == "aside"), None)

    assert until(row, "the quarantine")["origin"] == ["tolls"]
    letters = console.get("api/dead-letters/aside")["letters"]
    assert [each["kind"] for each in letters] == ["quarantine"] * 2
    assert letters[0]["origin"] == {"topic": "tolls", "partition": 0, "offset": -1}
    assert "does not begin with a zero" in letters[0]["reason"]
    order = "api/dead-letters/aside/redrive"
    mended = {
        "partition": 0, "offset": 1, "value": "right", "value_encoding": "schema",
        "schema_id": known,
    }  # fmt: skip
    assert console.post(order, {"letters": [mended]})["moved"] == 1
    again = console.post(order, {"letters": [mended]})
    assert (again["moved"], again["moved_before"]) == (0, 1)
    written = console.get("api/topics/tolls/messages", from_="beginning")["messages"]
    assert [each["value"]["json"] for each in written] == ["right"]
    letters = console.get("api/dead-letters/aside")["letters"]
    assert {each["offset"]: each["redriven"] for each in letters} == {0: False, 1: True}
    # One that is not put right is set aside again, and so is not lost.
    assert console.post(order, {"all": True})["moved"] == 1
    letters = console.get("api/dead-letters/aside")["letters"]
    assert [each["redriven"] for each in letters] == [False, True, True]


def test_a_letter_from_a_topic_that_cannot_be_is_shown_like_others(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("odd-dlq")
    names = ("x" * 40_000, "no topic at all/", "nowhere")
    bury(shared_broker, "odd-dlq", [letter(name, 0, "odd", "{}") for name in names])
    found = console.get("api/dead-letters/odd-dlq")["letters"]
    assert [each["origin"]["topic"] for each in found] == list(reversed(names))
    assert all(each["may_redrive"] for each in found)
