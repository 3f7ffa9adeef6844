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
        (
            ('from = "pages"', 'from = "pagse"'),
            10,
            "no source, table or step 'pagse'; did you mean",
        ),
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
        (('path = "l', 'merge_where = "true"\npath = "l'), 9, "'merge_where' needs 'keys'"),
        (('path = "l', 'scd = 2\npath = "l'), 9, "'scd' needs 'keys'"),
        (('path = "l', 'scd = 3\npath = "l'), 12, "there is no choice 3"),
        (('path = "l', 'keys = ["page"]\nvalid_from = "x"\npath = "l'), 9, "is for scd = 2"),
        (('path = "l', 'delete_retention = "long"\npath = "l'), 12, "'long' is not a time such"),
        (('schema = "t', 'truncates = "dead-letter"\nschema = "t'), 3, "is for the format debe"),
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
    assert said == ["there is no source; add [sources.NAME]", "there is no sink; add [sinks.NAME]"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.toml cannot be read: No such file"):
        Pipeline.load(tmp_path / "none.toml")


def test_values_may_refer_to_the_environment_and_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_TEST_LAKE", "lake/of-tests")
    (tmp_path / "query.sql").write_text("SELECT page FROM views\n")
    (tmp_path / "password").write_text("of alice")
    text = RIGHT.replace("lake/pages", "${ENV:MOLDAU_TEST_LAKE}").replace(
        '"SELECT page FROM views"', '"${FILE:query.sql}"'
    )
    client = """\
registry = "https://alice:${FILE:password}@registry"
[client]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "alice"
"sasl.password" = "${FILE:password}"
"""
    file = Pipeline.load(write(tmp_path, client + text)).file
    sink = file.settings.sinks["raw"]
    assert isinstance(sink, DeltaSinkSettings)
    assert sink.path == "lake/of-tests"
    assert file.settings.tables["pages"].sql == "SELECT page FROM views"
    # What Spark would show stays a reference, and can be read from anywhere.
    assert file.client_options()["kafka.sasl.password"] == f"${{FILE:{tmp_path}/password}}"
    registry = file.settings.registry()
    assert registry is not None
    assert registry.url == f"https://alice:${{FILE:{tmp_path}/password}}@registry"
    assert registry.resolved().url == "https://alice:of alice@registry"
    assert "of alice" not in repr(file)
    security = file.security()
    assert security is not None
    assert security.login() == {"username": "alice", "password": "of alice"}


def test_a_registry_may_be_a_table_of_what_confluent_calls_its_settings(tmp_path: Path) -> None:
    (tmp_path / "info").write_text("alice:of alice")
    table = """\
[registry]
url = "https://registry"
"ssl.ca.location" = "authority.pem"
"schema.registry.ssl.certificate.location" = "/etc/alice.pem"
"basic.auth.user.info" = "${FILE:info}"
[client]
"security.protocol" = "SSL"
"ssl.truststore.location" = "authority.pem"
"""
    file = Pipeline.load(write(tmp_path, table + RIGHT)).file
    registry = file.settings.registry()
    assert registry is not None
    # Paths are relative to the file; what Spark would show stays a reference.
    assert registry.ssl_ca_location == f"{tmp_path}/authority.pem"
    assert registry.ssl_certificate_location == "/etc/alice.pem"
    assert registry.basic_auth_user_info == f"${{FILE:{tmp_path}/info}}"
    assert registry.resolved().basic_auth_user_info == "alice:of alice"
    assert file.client_options()["kafka.ssl.truststore.location"] == f"{tmp_path}/authority.pem"
    assert "of alice" not in repr(file)
    ((line, message),) = problems(tmp_path, table.replace("ssl.ca.loc", "ssl.ca.lok") + RIGHT)
    assert (line, message) == (
        3,
        "ssl.ca.lokation: there is no such registry setting; did you mean ssl.ca.location?",
    )


def test_references_to_nothing_are_named_with_their_lines(tmp_path: Path) -> None:
    text = RIGHT.replace("page-views", "${ENV:MOLDAU_NO_SUCH}").replace(
        "lake/pages", "${FILE:no-such}"
    )
    assert problems(tmp_path, text) == [
        (2, "the environment variable MOLDAU_NO_SUCH is not set"),
        (12, f"the file {tmp_path}/no-such cannot be read: No such file or directory"),
    ]


def test_what_a_client_cannot_be_told_is_refused_without_showing_it(tmp_path: Path) -> None:
    for client, reason in (
        ('"linger.ms" = "5"', "linger.ms is not a security setting"),
        ('"security.protocol" = "SASL_SSL"', "sasl.mechanism: SASL_SSL needs one"),
        ('"sasl.passwort" = "of alice"', "sasl.passwort: there is no such security setting"),
    ):
        ((_, message),) = problems(tmp_path, f"[client]\n{client}\n{RIGHT}")
        assert message.startswith(reason)
        assert "of alice" not in message
