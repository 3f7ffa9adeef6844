"""Shipping this package to the workers of a cluster.

Workers are asked what they have. Where they lack this package, or have another version of it, it is
sent as an archive, which goes before what is installed there. Packages with compiled code cannot be
sent like that: where one is missing, the error says on which machine, and what to do.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import zipfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.spark.errors import log
from moldau.spark.runtime import probe

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ASK_WITHIN_S = 60.0
_JOBS = "moldau-workers"


class WorkersLack(ImportError):
    """The workers' Python has not what tasks need."""


def ship(spark: SparkSession) -> None:
    """Make `format("moldau")` work on all workers of this session, or raise WorkersLack.

    Machines that join later are not asked: if they lack a package, tasks there fail with its name.
    """
    from moldau.spark.source.source import MoldauSource

    context = spark.sparkContext
    mine = probe.fingerprint_of(map(str, _folders()))
    archive = f"moldau-{mine}.zip"
    if archive not in _included(context):
        answers = _ask(context)
        _require_packages(answers)
        if not answers or any(answer.fingerprint != mine for answer in answers):
            folder = tempfile.mkdtemp(prefix="moldau-")
            # Workers may ask for it as long as the session lives.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = build_archive(Path(folder, archive))
            context.addPyFile(str(path))
            # Streams are planned on this machine, by the workers' Python, which Spark does not
            # tell of the archive; on other machines there is no such path, and none is needed.
            paths = [str(path), context.environment.get("PYTHONPATH", "")]
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # Spark looks for sources by itself only once, with the workers' Python as it is installed.
    spark.dataSource.register(MoldauSource)


def build_archive(path: Path) -> Path:
    """Return this package as one file that Python can import from."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in _folders():
            for file in map(Path, probe.files_of(str(folder))):
                archive.write(file, Path(folder.name, file.relative_to(folder)))
    return path


def _folders() -> list[Path]:
    return [Path(next(iter(import_module(name).__path__))) for name in probe.SHIPPED]


def _included(context: SparkContext) -> set[str]:
    return {Path(name).name for name in context._python_includes or ()}


def _ask(context: SparkContext) -> list[probe.Answer]:
    """Ask the workers what they have; nothing if none of them was free to answer."""
    import pyspark

    cloudpickle: Any = pyspark.cloudpickle
    outcome: list[Any] = []

    def ask() -> None:
        context.setJobGroup(_JOBS, "what the workers have", interruptOnCancel=True)
        count = max(context.defaultParallelism, 2)
        # The workers may not have this package yet, so the question goes with its code.
        cloudpickle.register_pickle_by_value(probe)
        try:
            tasks = context.parallelize(range(count), count).mapPartitions(probe.answer)
            outcome.append(tasks.collect())
        except Exception as problem:
            outcome.append(problem)
        finally:
            cloudpickle.unregister_pickle_by_value(probe)

    thread = threading.Thread(target=ask, name=_JOBS, daemon=True)
    thread.start()
    thread.join(ASK_WITHIN_S)
    if thread.is_alive():
        context.cancelJobGroup(_JOBS)
        log.warning(
            "no worker of %s was free within %g s, so Moldau is sent to the workers unchecked; "
            "missing packages will show when tasks run",
            context.master,
            ASK_WITHIN_S,
        )
        return []
    (found,) = outcome
    if isinstance(found, Exception):
        raise WorkersLack(
            f"the workers of {context.master} cannot run {context.pythonExec}: "
            f"{_reason(found)}; set PYSPARK_PYTHON to a Python on the workers "
            "that has `moldau[spark]` installed"
        ) from found
    return [probe.Answer(*answer) for answer in found]


def _require_packages(answers: list[probe.Answer]) -> None:
    lacking = sorted({(each.host, each.python, each.missing) for each in answers if each.missing})
    if lacking:
        raise WorkersLack(
            "workers lack packages that tasks need: "
            + "; ".join(f"{host} ({python}): {', '.join(names)}" for host, python, names in lacking)
            + ". Install them there (pip install 'moldau[spark]'), set "
            "PYSPARK_PYTHON to a Python on the workers that has them, or ship "
            "one with spark.archives (venv-pack)"
        )


def _reason(problem: Exception) -> str:
    """Return the line of a failed job that says why."""
    lines = [line.strip() for line in str(problem).splitlines()]
    telling = [line for line in lines if "Caused by" in line or "Cannot run program" in line]
    telling += [line for line in lines if "Error" in line or "Exception" in line]
    return telling[0] if telling else lines[0] if lines else repr(problem)
