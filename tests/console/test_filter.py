"""Filters: expressions of SQL over a message, and nothing else."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from moldau.console.search.filter import BadFilter, connect, parse  # noqa: E402

ROWS = [
    ("a", '{"n": 5, "s": "x", "ok": true, "in": {"deep": [1, {"p": "q"}]}}', 0, 10),
    ("b", '{"n": "17", "s": "y", "ok": false}', 1, 11),
    ("c", "no json", 1, 12),
    (None, None, 0, 13),
    ("e", '{"n": 9007199254740993, "a b": 1.5}', 2, 14),
]


def passing(text: str) -> list[int]:
    """Return the offsets of the rows that pass."""
    database = connect()
    found = parse(database, text)
    table = pa.table(
        {
            "row": list(range(len(ROWS))),
            "key": [row[0] for row in ROWS],
            "value": [row[1] for row in ROWS],
            "partition": [row[2] for row in ROWS],
            "offset": [row[3] for row in ROWS],
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}], [], None, None, None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    database.register("batch", table)
    return sorted(10 + row for (row,) in database.execute(found.query).fetchall())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.n > 4", [10, 11, 14]),
        ("value.n = 17", [11]),
        ("value.n BETWEEN 1 AND 10", [10]),
        ("value.n IN (5, 6)", [10]),
        ("value.n * 2 = 10", [10]),
        ("value.n = 9007199254740993", [14]),
        ("value.n = 9007199254740992", []),
        ("value.s = 'x' OR key = 'b'", [10, 11]),
        ("value.ok", [10]),
        ("NOT value.ok", [11]),
        ("value.ok = false", [11]),
        ("value.in.deep[1].p = 'q'", [10]),
        ('value."a b" >= 1.5', [14]),
        ("value IS NULL", [13]),
        ("value LIKE 'no%'", [12]),
        ("offset >= 12 AND partition = 1", [12]),
        ("key ILIKE 'A'", [10]),
        ("headers.h = '2'", [10]),
        ("headers.none IS NULL AND offset < 11", [10]),
        ("upper(value.s) = 'Y' -- a comment", [11]),
    ],
)
def test_an_expression_picks_messages(text: str, expected: list[int]) -> None:
    assert passing(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1=1) UNION SELECT 1 FROM (SELECT 1",
        "1=1) ORDER BY (1",
        "key = (SELECT 'a')",
        "EXISTS (SELECT 1 FROM read_csv('/etc/passwd'))",
        "true; DROP TABLE batch",
        "",
        "value.n >",
        "headers.a.b = 1",
        "other.thing = 1",
        "sum(1) OVER () = 1",
        "(" * 300 + "true" + ")" * 300 + " and",
    ],
)
def test_what_is_no_expression_over_a_message_is_refused(text: str) -> None:
    with pytest.raises(BadFilter):
        parse(connect(), text)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SET enable_external_access=true",
        "INSTALL httpfs",
        "COPY (SELECT 1) TO '/tmp/never'",
    ],
)
def test_the_database_behind_filters_reaches_nothing_outside(statement: str) -> None:
    import duckdb

    with pytest.raises(duckdb.Error):
        connect().execute(statement).fetchall()
