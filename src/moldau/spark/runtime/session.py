"""A SparkSession that works at once: the right Python and Java, the source, quiet logs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.runtime.java import find_java_home
from moldau.spark.runtime.sockets import SOCKETS, socket_settings, tcp_settings
from moldau.spark.runtime.threads import activate, start_in_any_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "numba")
# For a file on this machine, Spark's own default starts a dozen programs (readlink, chmod), some 40
# ms for each of the two files of a micro-batch. This one, Spark's for file systems with nothing
# better, starts three; what a crash leaves is the same.
CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LOGGING = Path(__file__).with_name("log4j2.properties")


class SparkMissing(ImportError):
    """pyspark, or a package that goes with it, is not installed."""


class SparkFailed(RuntimeError):
    """Spark did not start; the message says with which master, and why."""


def session(
    app_name: str = "moldau",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with `format("moldau")`, made or found; `config` goes over all defaults.

    Without a `master` it is all the cores of this machine, or what spark-submit was told.
    PYSPARK_PYTHON and JAVA_HOME are set in this process where they are not right. On a cluster this
    package is sent to workers that lack it; what cannot be sent and is missing there is an error.
    """
    _require_packages()
    from pyspark.sql import SparkSession

    # spark-submit has started Java already, and knows the master.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = "local[*]"
    is_local = master is not None and master.startswith("local")
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    home = None if is_submitted else find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # pyspark writes each error to stderr as well, with Java's stack in one line of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    settings = _defaults(is_local) | dict(config or {})
    if is_local and settings.get(SOCKETS) != "false":
        settings = socket_settings() | settings
    for name, value in settings.items():
        builder = builder.config(name, value)
    is_new = SparkSession.getActiveSession() is None
    try:
        spark = builder.getOrCreate()
    except Exception as problem:
        raise SparkFailed(_reason(master, problem)) from problem
    activate(spark)
    start_in_any_thread()
    if not str(spark.sparkContext.master).startswith("local"):
        from moldau.spark.runtime.shipping import ship

        try:
            ship(spark)
        except BaseException:
            if is_new:
                spark.stop()
            raise
    return spark


def _defaults(is_local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    }
    if find_spec("pandas") is None:
        # Functions of Python would get their columns through it, and Spark warns that they do not.
        settings["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"
    if not is_local:
        # Said, since a session that was here before may have left its own.
        return settings | {"spark.python.daemon.module": "pyspark.daemon"} | tcp_settings()
    cores = os.cpu_count() or 1
    return settings | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Spark's own default of 200 is for clusters: here it would be 200 tasks of nothing.
        "spark.sql.shuffle.partitions": str(max(cores, 2)),
        "spark.python.daemon.module": "moldau.spark.runtime.worker_daemon",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
    }


def _reason(master: str | None, problem: Exception) -> str:
    from moldau.spark.pipeline.reasons import in_words

    words = in_words(problem)
    if "stopped SparkContext" in words:
        words = "no master answers there, or it rejected this application"
    return f"Spark did not start with the master {master or 'given to spark-submit'}: {words}"


def _require_packages() -> None:
    # Only looked for: numba takes a second to import, and the driver has no use for it.
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise SparkMissing(
            f"{' and '.join(missing)} not installed; the Spark part of Moldau "
            "needs an extra: pip install 'moldau[spark]'"
        )
