"""Lines of a TOML file."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.pipeline.file.places import Places

TEXT = '''name = "x"   # a name
list = [
  1, # ] not the end
  "[",
]

[sources.views]
topic = "a"
schema = """
  time = not a key
  [not.a.table]
"""
watermark = { column = "time", delay = "1 s" }

[ sources . "odd name" ]
topic.deeper = 'b'

[sinks.raw]
path = "p"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("list",), 2),
        (("sources",), 7),
        (("sources", "views"), 7),
        (("sources", "views", "topic"), 8),
        (("sources", "views", "schema"), 9),
        (("sources", "views", "watermark"), 13),
        (("sources", "views", "watermark", "delay"), 13),
        (("sources", "odd name"), 15),
        (("sources", "odd name", "topic", "deeper"), 16),
        (("sinks", "raw", "path"), 19),
        (("sinks", "raw", "missing"), 18),
        (("nowhere",), 1),
    ],
)
def test_keys_and_tables_are_found_on_their_lines(path: tuple[str, ...], line: int) -> None:
    assert Places(TEXT).line(path) == line


def test_a_place_inside_a_long_string_has_its_own_line() -> None:
    text = 'a = 1\nsql = """\nSELECT x,\n  y\nFROM z"""\nshort = "SELECT x"\n'
    places, value = Places(text), tomllib.loads(text)["sql"]
    assert places.line_in(("sql",), 0) == 3
    assert places.line_in(("sql",), value.index("y")) == 4
    assert places.line_in(("sql",), value.index("FROM")) == 5
    assert places.line_in(("short",), 3) == 6


def test_a_string_that_begins_on_the_line_of_its_key_counts_from_there() -> None:
    assert Places("sql = '''SELECT\nx'''\n").line_in(("sql",), 0) == 1
    assert Places("sql = '''SELECT\nx'''\n").line_in(("sql",), 7) == 2


@given(st.text(alphabet="ab=[]{}.\"'#\n\\ ", max_size=60))
def test_any_text_can_be_scanned(text: str) -> None:
    Places(text).line(("a", "b"))
