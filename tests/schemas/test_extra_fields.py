"""Extra fields: what a reader's schema would drop of a writer's."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.schemas.avro.extra_fields import extra_fields


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


ID = field("id")
PLACE = record("Place", field("table"))
WIDER = record("Place", field("table"), field("floor", ["null", "int"]))


@pytest.mark.parametrize(
    ("reader", "writer", "found"),
    [
        (record("Order", ID), record("Order", ID), []),
        (record("Order", ID, field("more", default=0)), record("Order", ID), []),
        (record("Order", ID), record("Order", ID, field("price", "double")), ["price (double)"]),
        (record("Order", field("key", aliases=["id"])), record("Order", ID), []),
        (
            record("Order", field("at", PLACE)),
            record("Order", field("at", WIDER)),
            ["at.floor (null or int)"],
        ),
        (
            record("Order", field("at", {"type": "array", "items": PLACE})),
            record("Order", field("at", {"type": "array", "items": WIDER})),
            ["at[].floor (null or int)"],
        ),
        (
            record("Order", field("at", {"type": "map", "values": ["null", PLACE]})),
            record("Order", field("at", {"type": "map", "values": ["null", WIDER]})),
            ["at{}.floor (null or int)"],
        ),
        (
            record("Order", field("at", ["null", PLACE])),
            record("Order", field("at", WIDER)),
            ["at.floor (null or int)"],
        ),
        (
            record("Node", ID, field("next", ["null", "Node"])),
            record("Node", ID, field("next", ["null", "Node"]), field("x", PLACE)),
            ["x (Place)"],
        ),
        (
            record("Order", ID),
            record("Order", ID, field("at", {"type": "long", "logicalType": "timestamp-millis"})),
            ["at (timestamp-millis)"],
        ),
    ],
)
def test_fields_that_the_reader_lacks_are_named_with_their_types(
    reader: Any, writer: Any, found: list[str]
) -> None:
    assert extra_fields(reader, writer) == found
