"""Pipeline files: what is right, and which line is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.spark.pipeline.file.settings import DeltaSinkSettings

RIGHT = """\
[sources.views]
topic = "page-views"
schema = "time TIMESTAMP, page STRING"
watermark = { column = "time", delay = "10 seconds" }

[tables.pages]
sql = "SELECT page FROM views"

[sinks.raw]
from = "pages"
type = "delta"
path = "lake/pages"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "views.toml"
    path.write_text(text, "utf-8")
    return path


def problems(folder: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineError) as raised:
        Pipeline.load(write(folder, text))
    return [(problem.line, problem.message) for problem in raised.value.problems]


def test_a_file_is_read_with_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOLDAU_BOOTSTRAP", raising=False)
    settings = Pipeline.load(write(tmp_path, RIGHT)).settings
    assert settings.name == "views"
    assert settings.bootstrap == "127.0.0.1:9092"
    assert settings.general.checkpoint == "checkpoints/views"
    assert settings.sources["views"].format == "json"
    assert isinstance(settings.sinks["raw"], DeltaSinkSettings)


def test_a_given_address_and_single_settings_go_before_the_file(tmp_path: Path) -> None:
    pipeline = Pipeline.load(
        write(tmp_path, 'bootstrap = "file:1"\n' + RIGHT),
        bootstrap="given:2",
        folder=tmp_path / "elsewhere",
        overrides={"sinks.raw.path": "other", "name": "renamed"},
    )
    assert pipeline.settings.bootstrap == "given:2"
    assert pipeline.settings.name == "renamed"
    sink = pipeline.settings.sinks["raw"]
    assert isinstance(sink, DeltaSinkSettings)
    assert pipeline.file.resolve(sink.path) == str(tmp_path / "elsewhere" / "other")


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (
            ('topic = "page', 'topik = "page'),
            2,
            "there is no setting 'topik'; did you mean 'topic'",
        ),
        (('delay = "10', 'deley = "10'), 4, "there is no setting 'deley'; did you mean 'delay'?"),
        (('topic = "page-views"', "topic = 7"), 2, "topic: expected str"),
        (('topic = "page-views"', ""), 1, "give either 'topic' or 'pattern'"),
        (("10 seconds", "soon"), 4, "'soon' is not a time such as '10 seconds'"),
        (('schema = "time TIMESTAMP, page STRING"', ""), 1, "JSON needs a 'schema'"),
        (('type = "delta"', 'type = "detla"'), 11, "no sink of type 'detla'; did you mean 'delta'"),
        (('type = "delta"', ""), 9, "the setting 'type' is missing; it is one of topic, delta"),
        (('path = "lake/pages"', ""), 9, "the setting 'path' is missing"),
        (('from = "pages"', 'from = "pagse"'), 10, "no source or table 'pagse'; did you mean 'pa"),
        (('path = "l', 'mode = "upsert"\npath = "l'), 12, "upsert needs 'keys'"),
        (
            ('path = "l', 'mode = "update"\npath = "l'),
            12,
            "append, upsert (with keys) and complete",
        ),
        (('path = "l', 'mode = "appendd"\npath = "l'), 12, "mode: there is no choice 'appendd'"),
        (('path = "l', 'trigger = "often"\npath = "l'), 12, "'often' is not a time"),
        (("[tables.pages]", "[tables.views]"), 6, "views is already the name of a source"),
        (("[tables.pages]", "[tables.2pages]"), 6, "'2pages' is not a valid name in SQL"),
        (("[sources.views]", "bootstrap = 'here'\n[sources.views]"), 1, "'here' is not an address"),
        (("[sources.views]", "chekpoint = 'x'\n[sources.views]"), 1, "did you mean 'checkpoint'?"),
        (('schema = "t', 'metadata = ["ofset"]\nschema = "t'), 3, "did you mean 'offset'?"),
        (('schema = "t', 'tombstones = "gone"\nschema = "t'), 3, "there is no choice 'gone'"),
        (('path = "l', 'delete_where = "true"\npath = "l'), 9, "'delete_where' needs 'keys'"),
        (("[tables.pages]", "[tables.pages"), 6, "not TOML: "),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, change: tuple[str, str], line: int, said: str
) -> None:
    text = RIGHT.replace(*change)
    assert text != RIGHT
    found = problems(tmp_path, text)
    assert [where for where, message in found if said in message] == [line], found


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = RIGHT.replace("10 seconds", "soon").replace('from = "pages"', 'from = "x"')
    assert [line for line, _ in problems(tmp_path, text)] == [4, 10]


def test_a_sink_that_feeds_its_own_source_is_refused(tmp_path: Path) -> None:
    loop = RIGHT + '[sinks.loop]\nfrom = "pages"\ntype = "topic"\ntopic = "page-views"\n'
    ((line, message),) = problems(tmp_path, loop)
    assert (line, message) == (16, "source views reads page-views: that would be a loop")


def test_two_sinks_do_not_share_a_path(tmp_path: Path) -> None:
    twice = RIGHT + '[sinks.again]\nfrom = "pages"\ntype = "parquet"\npath = "lake/pages"\n'
    ((_, message),) = problems(tmp_path, twice)
    assert message == "sink raw already writes to lake/pages"


def test_an_empty_file_lacks_sources_and_sinks(tmp_path: Path) -> None:
    said = [message for _, message in problems(tmp_path, "")]
    assert said == ["there is no source: [sources.NAME]", "there is no sink: [sinks.NAME]"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.toml cannot be read: No such file"):
        Pipeline.load(tmp_path / "none.toml")
