"""A whole pipeline against a locked broker, for a process of its own.

Prints everything that Spark shows of it while it runs: plans, progress, every page of its UI and
every answer of the REST API behind it; at last, how many records each sink read.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from moldau.spark.pipeline import Pipeline, PipelineError

_PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery")
_ANSWERS = ("environment", "jobs", "stages", "sql", "allexecutors", "storage/rdd")
_LINK = re.compile(r"""href=["'](/[^"'#]+)["']""")
_MOST_PAGES = 60


def shown(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode("utf-8", "replace"))


def everything_shown(spark: Any) -> None:
    root = spark.sparkContext.uiWebUrl.rstrip("/")
    api = f"{root}/api/v1/applications/{spark.sparkContext.applicationId}"
    for name in _ANSWERS:
        sys.stdout.write(shown(f"{api}/{name}?details=true&planDescription=true") + "\n")
    waiting = [f"/{name}/" for name in _PAGES]
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_PAGES:
        path = waiting.pop(0)
        if path in seen or path.startswith(("/static", "/api")) or "/kill" in path:
            continue
        seen.add(path)
        text = shown(root + path.replace("&amp;", "&"))
        sys.stdout.write(text)
        waiting += _LINK.findall(text)
    sys.stdout.write(f"\n{len(seen)} pages\n")


def main(path: str, wrong: str) -> None:
    pipeline = Pipeline.load(path, master="local[1]")
    with pipeline.session() as spark:
        with pipeline.start(spark, once=True) as running:
            done = running.wait()
            for query in running.queries.values():
                sys.stdout.write(f"{query._jsq.explainInternal(True)}\n{query.recentProgress}\n")
            everything_shown(spark)
        sys.stdout.write(f"{pipeline.settings}\n{pipeline.file}\n")
        try:
            Pipeline.load(wrong).start(spark, once=True)
        except PipelineError as problem:
            sys.stdout.write(f"\nrefused: {problem}\n")
    counts = {name: each.rows for name, each in done.items()}
    sys.stdout.write(f"\n{json.dumps(counts)}\n")


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), sys.argv[2])
