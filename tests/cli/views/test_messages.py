"""Messages as text and JSON, without a broker."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.views.messages import (
    BadLine,
    HeaderList,
    Outgoing,
    compile_format,
    message_as_json,
    parse_json_line,
)


class Received:
    """A consumed message, as far as printing is concerned."""

    def __init__(
        self, key: bytes | None, value: bytes | None, headers: HeaderList | None = None
    ) -> None:
        self.fields: dict[str, Any] = {
            "topic": "words",
            "partition": 2,
            "offset": 41,
            "timestamp": (1, 1_700_000_000_123),
            "key": key,
            "value": value,
            "headers": headers,
        }

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return lambda: self.fields[name]


def received(key: bytes | None, value: bytes | None, headers: HeaderList | None = None) -> Message:
    return cast(Message, Received(key, value, headers))


def test_a_format_fills_every_placeholder() -> None:
    render = compile_format(
        r"{topic} {partition} {offset} {timestamp} {time} {key}\t{value} {headers}"
    )
    line = render(received(b"k", b"v", [("a", b"1"), ("b", None)]))
    assert line == b"words 2 41 1700000000123 2023-11-14T22:13:20.123Z k\tv a=1,b=\n"


def test_a_format_keeps_doubled_braces_and_backslashes() -> None:
    assert compile_format(r"{{{key}}} \\n")(received(b"k", None)) == b"{k} \\n\n"


def test_bytes_that_are_no_text_are_printed_as_they_are() -> None:
    assert compile_format("{value}")(received(None, b"\xff\x00")) == b"\xff\x00\n"


@pytest.mark.parametrize("template", ["{nonsense}", "{}", "{key:>4}", "{key!r}", "{value", "}"])
def test_a_format_with_anything_else_in_braces_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        compile_format(template)


@given(st.text())
def test_any_format_is_compiled_or_refused(template: str) -> None:
    try:
        compile_format(template)(received(b"k", b"v", []))
    except ValueError:
        pass


contents = st.none() | st.binary() | st.text().map(str.encode)


@given(contents, contents, st.lists(st.tuples(st.text(), contents)))
def test_a_consumed_json_line_makes_the_same_message_again(
    key: bytes | None, value: bytes | None, headers: HeaderList
) -> None:
    again = parse_json_line(message_as_json(received(key, value, headers)))
    assert again == Outgoing(key, value, headers, partition=2, timestamp_ms=1_700_000_000_123)


def test_json_values_that_are_no_strings_are_sent_as_json_text() -> None:
    line = b'{"key": 7, "value": {"name": "Vltava", "km": 430.2}, "headers": {"a": "b"}}'
    assert parse_json_line(line) == Outgoing(
        b"7", b'{"name": "Vltava", "km": 430.2}', [("a", b"b")]
    )


def test_base64_fields_are_sent_as_the_bytes_they_stand_for() -> None:
    encoded = base64.b64encode(b"\xfe\xff").decode()
    line = json.dumps({"key_base64": encoded, "headers": [["h", {"base64": encoded}]]})
    assert parse_json_line(line.encode()) == Outgoing(b"\xfe\xff", None, [("h", b"\xfe\xff")])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valeu": 1}', "unknown field 'valeu'"),
        (b'{"value_base64": "!"}', "value_base64 is not base64"),
        (b'{"partition": -1}', "partition must be a whole number"),
        (b'{"partition": true}', "partition must be a whole number"),
        (b'{"timestamp": "now"}', "timestamp must be a whole number"),
        (b'{"headers": "a"}', "headers must be"),
        (b'{"headers": [["a"]]}', "a header must be a"),
        (b'{"headers": {"a": 1}}', "header a: the value must be a string"),
        (b'{"value": "\\ud800"}', "lone surrogate"),
    ],
)
def test_a_bad_json_line_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        parse_json_line(line)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["key", "value", "headers", "partition", "timestamp", "base64"]),
                inner,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_json_line_is_a_message_or_a_bad_line(line: bytes) -> None:
    try:
        parse_json_line(line)
    except BadLine:
        pass


def test_deeply_nested_json_is_a_bad_line() -> None:
    with pytest.raises(BadLine, match="not JSON"):
        parse_json_line(b"[" * 100_000)
