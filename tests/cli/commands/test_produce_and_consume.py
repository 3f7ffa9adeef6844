"""`moldau produce` and `moldau consume` against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.cli.conftest import QUICKLY, Run
from tests.processes import started


def test_lines_come_back_in_order(moldau: Run, topic: str) -> None:
    produced = moldau("produce", topic, "--partition", "0", typed="one\ntwo\r\n\nfour")
    assert produced.status == 0, produced.err
    assert produced.out == f"{topic}: 4 messages delivered\n"
    consumed = moldau("consume", topic, "--from-beginning", "--max", "4")
    assert consumed.out == "one\ntwo\n\nfour\n"
    assert consumed.err == ""


def test_a_topic_that_does_not_exist_is_made_by_the_first_message(
    moldau: Run, fresh_name: str
) -> None:
    assert moldau("produce", fresh_name, typed="hello\n").status == 0
    assert moldau("consume", fresh_name, "--from-beginning", "--max", "1").out == "hello\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_the_same(moldau: Run, topic: str, codec: str) -> None:
    lines = "".join(f"line {number} {'x' * 50}\n" for number in range(200))
    moldau("produce", topic, "--partition", "0", "--compression", codec, *QUICKLY, typed=lines)
    assert moldau("consume", topic, "--from-beginning", "--max", "200").out == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers(moldau: Run, topic: str, acks: str) -> None:
    assert moldau("produce", topic, "--acks", acks, typed="x\n").status == 0
    assert moldau("consume", topic, "--from-beginning", "--max", "1").out == "x\n"


def test_keys_headers_and_places_are_shown_by_the_format(moldau: Run, topic: str) -> None:
    options = ("--key-separator", ": ", "--header", "from=test", "--partition", "2")
    moldau("produce", topic, *options, typed="name: value: more\n")
    template = r"{topic} {partition} {offset}\t{key}={value} {headers}"
    consumed = moldau("consume", topic, "--from-beginning", "--max", "1", "--format", template)
    assert consumed.out == f"{topic} 2 0\tname=value: more from=test\n"


def test_a_key_lands_where_javas_client_puts_it(moldau: Run, topic: str) -> None:
    # murmur2 of these keys modulo 3, as org.apache.kafka.common.utils.Utils computes it.
    typed = "21,a\nfoobar,b\na-little-bit-long-string,c\n"
    moldau("produce", topic, "--key-separator", ",", typed=typed)
    consumed = moldau(
        "consume", topic, "--from-beginning", "--max", "3", "--format", "{key} {partition}"
    )
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    expected = {f"{key} {(hashed & 0x7FFFFFFF) % 3}" for key, hashed in hashes.items()}
    assert set(consumed.out.splitlines()) == expected


def test_json_lines_carry_everything_there_and_back(moldau: Run, topic: str) -> None:
    messages = [
        {"key": "k", "value": "v", "headers": {"a": "1"}, "partition": 1, "timestamp": 1_000},
        {"key": None, "value": None, "partition": 1, "timestamp": 2_000},
        {"value_base64": "/wA=", "headers": [["h", None], ["h", "2"]], "partition": 1},
    ]
    typed = "\n".join(map(json.dumps, messages)) + "\n\n"
    produced = moldau("produce", topic, "--json", typed=typed)
    assert produced.json == {"topic": topic, "delivered": 3, "failed": 0}, produced.err

    first, second, third = moldau(
        "consume", topic, "--from-beginning", "--max", "3", "--json"
    ).json_lines
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1_000,
        "key": "k",
        "value": "v",
        "headers": [["a", "1"]],
    }
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, 2_000)
    assert third["value_base64"] == "/wA="
    assert third["headers"] == [["h", None], ["h", "2"]]


@pytest.mark.parametrize(
    ("options", "typed", "said"),
    [
        (("--json",), '{"value": "fine"}\n{"value": \n', "line 2: not JSON"),
        (("--json",), '{"value": "fine"}\n\n{"nonsense": 1}\n', "line 3: unknown field"),
        (("--key-separator", ","), "a,b\nno separator\n", "line 2: it has no key separator ','"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_delivered(
    moldau: Run, topic: str, options: tuple[str, ...], typed: str, said: str
) -> None:
    ended = moldau("produce", topic, *options, typed=typed)
    assert ended.status == 1
    assert said in ended.err
    assert moldau("consume", topic, "--from-beginning", "--timeout", "60", "--max", "1").out != ""


def test_a_file_is_read_instead_of_stdin(moldau: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("from a file\n")
    assert moldau("produce", topic, "--file", str(file)).status == 0
    assert moldau("consume", topic, "--from-beginning", "--max", "1").out == "from a file\n"


def test_a_message_that_is_too_large_is_counted_and_the_others_arrive(
    moldau: Run, topic: str, moldau_session_broker: Broker
) -> None:
    name = f"{topic}-small"
    moldau_session_broker.create_topic(name, max_message_bytes=1000)
    large = json.dumps({"value": "x" * 2000})
    typed = f'{{"value": "before"}}\n{large}\n'
    ended = moldau("produce", name, "--json", typed=typed)
    assert ended.status == 1
    assert ended.json["failed"] >= 1
    assert ended.json["delivered"] + ended.json["failed"] == 2
    assert "too large" in ended.err
    assert "max.message.bytes" in ended.err


def test_a_partition_that_is_not_there_fails(moldau: Run, topic: str) -> None:
    ended = moldau("produce", topic, "--partition", "9", typed="x\n")
    assert ended.status == 1
    assert "1 of 1 messages were not delivered" in ended.err


def test_offsets_choose_where_to_start(moldau: Run, topic: str) -> None:
    moldau("produce", topic, "--partition", "0", *QUICKLY, typed="a\nb\nc\nd\n")
    where = ("--partition", "0", "--timeout", "60", "--max", "2")
    assert moldau("consume", topic, "--offset", "2", *where).out == "c\nd\n"
    assert moldau("consume", topic, "--offset", "-1", *where[:2], "--max", "1").out == "d\n"
    assert moldau("consume", topic, "--offset", "-99", *where).out == "a\nb\n"
    assert moldau("consume", topic, "--offset", "earliest", *where).out == "a\nb\n"


def test_an_offset_outside_the_log_is_refused_with_the_range(moldau: Run, topic: str) -> None:
    moldau("produce", topic, "--partition", "0", *QUICKLY, typed="a\n")
    ended = moldau("consume", topic, "--partition", "0", "--offset", "7")
    assert ended.status == 1
    assert "holds offsets 0 to 1, not 7" in ended.err


def test_only_the_chosen_partition_is_read(moldau: Run, topic: str) -> None:
    moldau("produce", topic, "--partition", "0", *QUICKLY, typed="zero\n")
    moldau("produce", topic, "--partition", "1", *QUICKLY, typed="one\n")
    options = ("--from-beginning", "--partition", "1", "--timeout", "1")
    assert until(lambda: moldau("consume", topic, *options).out) == "one\n"


def test_nothing_new_ends_at_the_timeout_with_success(moldau: Run, topic: str) -> None:
    ended = moldau("consume", topic, "--timeout", "0.3")
    assert (ended.status, ended.out) == (0, "")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("consume", "nowhere"), 1, "topic nowhere does not exist"),
        (("consume", "TOPIC", "--partition", "9"), 1, "no partition 9; it has 0 to 2"),
        (("consume", "TOPIC", "--format", "{nope}"), 2, "{nope} is not a placeholder"),
        (("consume", "TOPIC", "--offset", "soon"), 2, "'soon' is not a number"),
        (("consume", "TOPIC", "--offset", "1", "--from-beginning"), 2, "cannot be used together"),
        (("produce", "TOPIC", "--json", "--key-separator", ","), 2, "cannot be used together"),
        (("produce", "TOPIC", "--compression", "rar"), 2, "rar"),
        (("produce", "TOPIC", "--file", "no-such-file"), 2, "no-such-file"),
    ],
)
def test_mistakes_are_said_in_words(
    moldau: Run, topic: str, words: tuple[str, ...], status: int, said: str
) -> None:
    ended = moldau(*(topic if word == "TOPIC" else word for word in words))
    assert ended.status == status
    assert said in " ".join(ended.err.replace("│", " ").split())


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_without_a_broker_it_says_how_to_get_one(moldau: Run, command: str) -> None:
    ended = moldau(command, "anything", "--bootstrap", "127.0.0.1:1")
    assert ended.status == 1
    assert "no broker can be reached at 127.0.0.1:1 (connection refused)" in ended.err
    assert "moldau broker" in ended.err


def start_consumer(broker: Broker, *words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(
        [sys.executable, "-m", "moldau", "consume", *words, "--bootstrap", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_consumer_goes_on_until_ctrl_c_and_then_ends_well(
    moldau: Run, topic: str, moldau_session_broker: Broker
) -> None:
    with start_consumer(moldau_session_broker, topic, "--from-beginning") as consumer:
        assert consumer.stdout is not None
        for line in ("first", "second"):
            moldau("produce", topic, *QUICKLY, typed=f"{line}\n")
            assert consumer.stdout.readline() == f"{line}\n"
        consumer.send_signal(signal.SIGINT)
        _, errors = consumer.communicate(timeout=60)
    assert consumer.returncode == 0
    assert errors == ""


def test_a_reader_that_has_enough_ends_the_consumer_quietly(
    moldau: Run, topic: str, moldau_session_broker: Broker
) -> None:
    moldau("produce", topic, "--partition", "0", *QUICKLY, typed="a\n" * 5000)
    with start_consumer(moldau_session_broker, topic, "--from-beginning") as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "a\n"
        consumer.stdout.close()
        moldau("produce", topic, *QUICKLY, typed="one more\n" * 5000)
        assert consumer.wait(60) == 0
        assert consumer.stderr is not None
        assert consumer.stderr.read() == ""


@pytest.mark.slow
def test_messages_that_a_dying_broker_did_not_take_are_counted(fresh_name: str) -> None:
    with Broker() as broker:
        broker.create_topic(fresh_name)
        options = ("--timeout", "8", "--json", "--bootstrap", broker.bootstrap)
        with started(
            [sys.executable, "-m", "moldau", "produce", fresh_name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as producer:
            assert producer.stdin is not None
            producer.stdin.write('{"value": "in time"}\n')
            producer.stdin.flush()
            with start_consumer(broker, fresh_name, "--from-beginning", "--max", "1") as consumer:
                assert consumer.communicate(timeout=60)[0] == "in time\n"
            broker.stop()
            out, errors = producer.communicate('{"value": "too late"}\n', timeout=60)
    assert producer.returncode == 1
    assert json.loads(out) == {"topic": fresh_name, "delivered": 1, "failed": 1}
    assert "1 of 2 messages were not delivered" in errors
    assert "Traceback" not in errors


def test_a_consumer_goes_on_after_the_broker_was_restarted(fresh_name: str) -> None:
    with Broker() as broker:
        broker.create_topic(fresh_name)
        with start_consumer(broker, fresh_name, "--from-beginning") as consumer:
            assert consumer.stdout is not None
            assert consumer.stderr is not None
            send(broker, fresh_name, "before")
            assert consumer.stdout.readline() == "before\n"
            broker.stop()
            assert consumer.stderr.readline() == "connection lost; waiting for the broker\n"
            broker.start()
            send(broker, fresh_name, "after")
            assert consumer.stdout.readline() == "after\n"
            consumer.send_signal(signal.SIGINT)
            assert consumer.wait(60) == 0


@pytest.mark.slow
def test_a_consumer_that_times_out_without_a_connection_fails(fresh_name: str) -> None:
    with Broker() as broker:
        broker.create_topic(fresh_name)
        options = ("--from-beginning", "--timeout", "8")
        with start_consumer(broker, fresh_name, *options) as consumer:
            assert consumer.stdout is not None
            send(broker, fresh_name, "only this")
            assert consumer.stdout.readline() == "only this\n"
            broker.stop()
            _, errors = consumer.communicate(timeout=60)
    assert consumer.returncode == 1
    assert "the connection was lost after 1 message\n" in errors


def send(broker: Broker, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(60) == 0
