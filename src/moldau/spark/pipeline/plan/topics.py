"""The topics of a pipeline: those it reads must exist, those it writes are created."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.peer.cluster import EARLIEST, Cluster
from moldau.peer.errors import PeerError
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.spark.names import OWN_TOPICS
from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import TopicSink
from moldau.spark.source.java_pattern import PatternError, java_pattern

DEAD_LETTERS_SUFFIX = "-dead-letters"


def topic_problems(file: PipelineFile) -> tuple[list[Problem], list[str] | None]:
    """Return what is wrong with the topics of the sources, and which topics have to be created.

    None for these when no broker answers.
    """
    try:
        with _connected(file) as cluster:
            topics = cluster.metadata().topics
    except PeerError as problem:
        return [file.problem(str(problem), "bootstrap")], None
    known = {
        name: len(view.leaders)
        for name, view in topics.items()
        if not view.is_internal and name not in OWN_TOPICS
    }
    problems = []
    for name, source in file.settings.sources.items():
        for topic in source.topics:
            if topic not in topics:
                hint = nearest(topic, known)
                problems.append(
                    file.problem(f"topic {topic!r} does not exist{hint}", "sources", name, "topic")
                )
        if source.pattern and not matching(file, source.pattern, known):
            message = f"no topic matches {source.pattern!r}{nearest(source.pattern, known)}"
            problems.append(file.problem(message, "sources", name, "pattern"))
    return problems, [name for name in written_topics(file) if name not in topics]


def _connected(file: PipelineFile) -> Cluster:
    security = file.security()
    settings = None if security is None else PeerSettings(security=security)
    return Cluster(parse_bootstrap(file.settings.bootstrap), settings)


def matching(file: PipelineFile, pattern: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a source with this pattern reads: never those that the pipeline
    writes."""
    own = written_topics(file)
    try:
        search = java_pattern(pattern).search
    except PatternError:
        # Building the source reports what is wrong with it.
        return list(topics)
    return [topic for topic in topics if search(topic) and topic not in own]


def dead_letter_topic(file: PipelineFile, name: str) -> str | None:
    """Return the topic for the bad records of a source; None if there are none, or
    they are fatal."""
    source = file.settings.sources[name]
    if source.format == "raw" or source.dead_letters is False:
        return None
    if isinstance(source.dead_letters, str):
        return source.dead_letters
    return (source.topics[0] if source.topics else name) + DEAD_LETTERS_SUFFIX


def written_topics(file: PipelineFile) -> dict[str, int | None]:
    """Return the topics that a pipeline writes, and the partitions to create them with."""
    found: dict[str, int | None] = {}
    for sink in file.settings.sinks.values():
        if isinstance(sink, TopicSink):
            found[sink.topic] = sink.partitions
    for name in file.settings.sources:
        letters = dead_letter_topic(file, name)
        if letters is not None:
            found.setdefault(letters, 1)
    return found


def require_topics(file: PipelineFile, more: str | None = None) -> None:
    """Create the missing ones of the topics that are written, and `more`.

    PipelineError for those to be read, and when no broker answers.
    """
    from moldau.client.admin.admin import Admin
    from moldau.client.errors import ClientError

    problems, missing = topic_problems(file)
    if problems:
        raise PipelineError(*problems)
    wanted = written_topics(file)
    to_make = [*(missing or ()), *([more] if more else ())]
    if to_make:
        try:
            security = file.security()
            settings = {} if security is None else security.properties()
            with Admin(file.settings.bootstrap, settings=settings) as admin:
                for topic in to_make:
                    admin.create_topic(topic, wanted.get(topic) or -1, if_not_exists=True)
        except ClientError as problem:
            raise PipelineError(Problem(f"topics could not be created: {problem}")) from None


def partitions_of(file: PipelineFile, source: str) -> dict[str, dict[int, int]]:
    """Return all partitions of a source's topics, each with the mark for its start."""
    settings = file.settings.sources[source]
    try:
        with _connected(file) as cluster:
            views = cluster.metadata(settings.topics or None).topics
            if settings.pattern:
                hidden = OWN_TOPICS | {name for name, view in views.items() if view.is_internal}
                shown = [name for name in views if name not in hidden]
                views = {name: views[name] for name in matching(file, settings.pattern, shown)}
            for view in views.values():
                view.check()
    except PeerError as problem:
        raise PipelineError(file.problem(str(problem), "sources", source)) from None
    return {name: dict.fromkeys(sorted(view.leaders), EARLIEST) for name, view in views.items()}
