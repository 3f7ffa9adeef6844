"""Avro on the command line: JSON in and out, schemas from the store in the brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from moldau.cli.clients import CLIENT_ID, require_broker, silent_logger
from moldau.cli.views.messages import BadLine, Decoded, Outgoing, Parse
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from confluent_kafka import Message

    from moldau.schemas import SchemaStore

Encode = Callable[[Any], bytes]


def read_schema(file: Path) -> Any:
    """Return the schema of a file; wrong usage if it is none."""
    from moldau.client.avro import parse_avro

    try:
        schema = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(
            f"{file} is not JSON: {problem}", param_hint="--avro-schema"
        ) from None
    try:
        parse_avro(schema)
    except ValueError as problem:
        raise typer.BadParameter(f"{file}: {problem}", param_hint="--avro-schema") from None
    return schema


def connect_store(bootstrap: str) -> SchemaStore:
    require_broker(bootstrap)
    from moldau.client.errors import ClientError
    from moldau.schemas import SchemaStore

    try:
        return SchemaStore(bootstrap, client_id=CLIENT_ID, logger=silent_logger())
    except ClientError as problem:
        raise Failure(f"the schema store does not answer: {problem}") from None


def avro_encoder(bootstrap: str, topic: str, schema: Any, subject: str) -> Encode:
    """Write values with a schema, which is registered under the subject if it is not yet."""
    from moldau.client.avro import encode_avro, parse_avro
    from moldau.client.errors import ClientError, SerializationError
    from moldau.schemas import pack_header

    with connect_store(bootstrap) as store:
        try:
            header = pack_header(store.register(subject, schema).id)
        except ClientError as problem:
            raise Failure(
                str(problem),
                "change the schema so that it is compatible, or choose another --subject",
            ) from None
    parsed = parse_avro(schema)

    def encode(value: Any) -> bytes:
        try:
            return encode_avro(parsed, value, topic, header)
        except SerializationError as problem:
            raise BadLine(str(problem)) from None

    return encode


def avro_parser(parse: Parse, encode: Encode) -> Parse:
    """Lines whose value is JSON, which is encoded; an empty line is nothing."""

    def parse_line(line: bytes) -> Outgoing | None:
        message = parse(line) if line else None
        if message is None or message.value is None:
            return message
        try:
            value = json.loads(message.value)
        except (ValueError, RecursionError) as problem:
            raise BadLine(f"not JSON: {problem}") from None
        return Outgoing(message.key, encode(value), message.headers)

    return parse_line


class AvroDecoder:
    """Makes JSON of values that name a schema, in front or in a header.

    One that cannot be read is shown as it is; it is counted, and said with its place and reason.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._deserialize: Callable[..., Any] | None = None
        self.undecodable = 0

    def __call__(self, message: Message) -> Decoded | None:
        from moldau.client.errors import ClientError

        payload = message.value()
        if payload is None:
            return None
        try:
            value = self._connected()(message.topic() or "", payload, message.headers())
        except (ValueError, ClientError) as problem:
            self.undecodable += 1
            place = f"{message.topic()} partition {message.partition()} offset {message.offset()}"
            show(f"{place} is printed undecoded: {problem}", "yellow", stderr=True)
            return None
        return Decoded(json.loads(json.dumps(value, default=_plain)))

    def check(self) -> None:
        if self.undecodable:
            one = self.undecodable == 1
            raise Failure(
                f"{self.undecodable} value{' was' if one else 's were'} not decoded as Avro"
            )

    def _connected(self) -> Callable[..., Any]:
        """Only when the first value has come: where there is none, there need be no store."""
        if self._deserialize is None:
            from moldau.schemas import RegisteredAvroSerializer

            serializer = RegisteredAvroSerializer(connect_store(self._bootstrap))
            self._deserialize = serializer.deserialize
        return self._deserialize


def _plain(value: object) -> str:
    """Convert values that JSON lacks: bytes as in Avro's own JSON, the rest as text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    return str(value)
