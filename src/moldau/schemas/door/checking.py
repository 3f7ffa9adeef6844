"""Checking a batch against the schemas of a subject."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import numpy as np

from moldau.records.batch import HEADER_SIZE, BatchError, BatchHeader, read_header
from moldau.records.compression import Codec, decompress
from moldau.records.record import MAX_DECOMPRESSED, build_batch, decode_records
from moldau.schemas.door.kernel import (
    ELSEWHERE,
    FOUND_WIDTH,
    LEFT_OVER,
    NO_MAGIC,
    NOT_AVRO,
    NOT_OF_SCHEMA,
    TOO_SHORT,
    UNKNOWN_GUID,
    UNKNOWN_ID,
    check_records,
)
from moldau.schemas.door.messages import CheckBatch, Checked, Letter, Table
from moldau.schemas.door.programs import Programs
from moldau.schemas.door.values import Check, begin_batch, check_of
from moldau.schemas.header import GUID_SIZE, KEY_HEADER, VALUE_HEADER
from moldau.schemas.parsing import parse
from moldau.schemas.schema import SchemaType

# An answer that named millions of records would be many times the size of its request.
_MOST_NAMED = 10_000
_LONGEST_REASON = 1_000
_WORDS = {
    TOO_SHORT: "it is too short to name a schema",
    NO_MAGIC: "it does not begin with a zero byte and a schema id",
    NOT_OF_SCHEMA: "its bytes are not a value of schema {id}",
    LEFT_OVER: "bytes are left over after the value of schema {id}",
    UNKNOWN_ID: "schema {id} is not registered under {subject}",
    UNKNOWN_GUID: "schema {id} is not registered under {subject}",
}
# What a header is called that names the schema of a key or a value, by whether it is a key's.
_NAMES = {
    is_key: np.frombuffer(name.encode(), dtype=np.uint8)
    for is_key, name in ((True, KEY_HEADER), (False, VALUE_HEADER))
}


class Subject:
    """The schemas of one subject, made ready."""

    def __init__(self, table: Table) -> None:
        self.name = table.subject
        programs = Programs()
        self._checks: dict[int, Check] = {}
        self._unusable: dict[int, str] = {}
        roots = {}
        guids = []
        for known in sorted(table.schemas, key=lambda each: each.id):
            roots[known.id] = NOT_AVRO
            guids.append(_halves(known.guid))
            try:
                if known.schema.schema_type is SchemaType.AVRO:
                    roots[known.id] = programs.add(parse(known.schema, known.dependencies))
                else:
                    self._checks[known.id] = check_of(known.schema, known.dependencies)
            except Exception as problem:
                # Whatever a library makes of it: the schemas beside it are good.
                self._unusable[known.id] = f"schema {known.id} cannot be used: {problem}"
        self._ids = np.array(list(roots), dtype=np.int64)
        self._guids = np.array(guids, dtype=np.int64).reshape(-1, 2)
        self._roots = np.array(list(roots.values()), dtype=np.int64)
        self._nodes, self._children = programs.tables()

    def check(
        self, body: Any, count: int, is_key: bool
    ) -> tuple[list[tuple[int, str]], set[int | str]]:
        """Return the records that are not values of their schemas, and names that are not known."""
        data = np.frombuffer(body, dtype=np.uint8)
        # Whatever it lies in: the loop is compiled for one kind of array.
        data.setflags(write=False)
        # Each record takes seven bytes at least: a count that lies costs no memory.
        if count * 7 > len(data):
            raise BatchError(f"{count} records do not fit in it")
        found = np.zeros((count, FOUND_WIDTH), dtype=np.int64)
        wrong = check_records(
            data, is_key, _NAMES[is_key], self._ids, self._guids, self._roots, self._nodes,
            self._children, found,
        )  # fmt: skip
        if wrong < 0:
            raise BatchError("the batch's records are malformed")
        problems: list[tuple[int, str]] = []
        unknown: set[int | str] = set()
        part = "key" if is_key else "value"
        for row in np.nonzero(found[:, 0])[0] if wrong else ():
            code, schema, start, end, index, index_end = (int(each) for each in found[row])
            name: int | str = schema
            if code == UNKNOWN_GUID:
                name = str(uuid.UUID(bytes=bytes(data[index - GUID_SIZE + 1 : index])))
            if code == ELSEWHERE:
                payload = bytes(data[index:index_end]) + bytes(data[start:end])
                reason = self._other(schema, payload)
            else:
                reason = _WORDS[code].format(id=name, subject=self.name)
            if code in (UNKNOWN_ID, UNKNOWN_GUID):
                unknown.add(name)
            if reason is not None and len(problems) < _MOST_NAMED:
                problems.append((int(row), f"the {part}: {reason}"))
        return problems, unknown

    def _other(self, named: int, payload: bytes) -> str | None:
        check = self._checks.get(named)
        return self._unusable.get(named) if check is None else check(payload)


class Checker:
    """Answers for batches, with the tables that it was told."""

    def __init__(self) -> None:
        self._subjects: dict[str, Subject] = {}

    def learn(self, table: Table) -> None:
        self._subjects[table.subject] = Subject(table)

    def check(self, request: CheckBatch) -> Checked:
        """Return the answer for a batch, whatever it does to the libraries."""
        try:
            for table in request.tables:
                self.learn(table)
            return self._check(request)
        except BatchError as problem:
            return Checked([], [], str(problem))
        except Exception as problem:
            # It would not be understood a second time either, so the process must not die of it:
            # that would have the client send it again and again.
            reason = f"cannot parse the batch: {type(problem).__name__}: {problem}"
            return Checked([], [], reason[:_LONGEST_REASON])

    def _check(self, request: CheckBatch) -> Checked:
        header = read_header(request.batch)
        section = memoryview(request.batch)[HEADER_SIZE : header.size]
        body = decompress(Codec.of(header.codec), section, MAX_DECOMPRESSED)
        problems: list[tuple[int, str]] = []
        unknown: set[int | str] = set()
        begin_batch()
        for subject, is_key in ((request.key_subject, True), (request.value_subject, False)):
            if subject is not None:
                more, ids = self._subjects[subject].check(body, header.count, is_key)
                problems += more
                unknown |= ids
        rest: bytes | None = None
        letters: list[Letter] = []
        # What is more than can be named is refused as a whole.
        if request.sets_aside and 0 < len(problems) < _MOST_NAMED:
            rest, letters = _set_aside(body, header, dict(problems))
        return Checked(sorted(problems), sorted(unknown, key=str), None, rest, letters)


def _halves(guid: str) -> tuple[int, int]:
    """Return a guid as two signed numbers."""
    high, low = struct.unpack(">qq", uuid.UUID(guid).bytes) if guid else (0, 0)
    return high, low


def _set_aside(
    body: Any, header: BatchHeader, reasons: dict[int, str]
) -> tuple[bytes, list[Letter]]:
    """Return the batch without some of its records, and those; offsets and sequence stay."""
    kept, letters = [], []
    for index, record in enumerate(decode_records(body, header)):
        if index in reasons:
            headers = list(record.headers)
            letters.append(
                Letter(record.timestamp, record.key, record.value, headers, reasons[index])
            )
        else:
            kept.append(record)
    batch = build_batch(
        kept,
        Codec.of(header.codec),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    return bytes(batch), letters
