"""A real Spark cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

import pyspark

from moldau.spark.runtime.java import find_java_home
from tests.spark.class_archive import quick_java

START_WITHIN_S = 120.0
STOP_WITHIN_S = 20.0
HOST = "127.0.0.1"
QUICK_JAVA = quick_java()
SPARK_HOME = Path(pyspark.__file__).parent
# What a session on such a cluster needs.
ON_THIS_MACHINE = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}


class StandaloneSpark:
    """`with StandaloneSpark(folder) as cluster:` and then `session(master=cluster.url)`.

    Everything listens on free ports of 127.0.0.1, and the second worker of 127.0.0.2. Logs and work
    folders are in `folder`. At the end the workers, and with them their executors, and the master
    are gone.
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._sizes = ["--cores", str(cores), "--memory", memory]
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master", [])
            self.url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
            _wait_for(log, "I have been elected leader")
            logs = [
                self._start(
                    f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    [*self._sizes, "--work-dir", str(self._folder / f"work-{number}"), self.url],
                    # Hosts of their own: Spark starts a second attempt on another host only.
                    host=f"127.0.0.{number + 1}",
                )
                for number in range(self._count)
            ]
            for log in logs:
                _wait_for(log, "Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        # Workers end their executors when they are asked to stop.
        for process in reversed(self._processes):
            process.terminate()
        deadline = time.monotonic() + STOP_WITHIN_S
        for process in reversed(self._processes):
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                pass
            # What is left of its group: it was made the leader of one.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(STOP_WITHIN_S)
        self._processes.clear()

    def executors(self) -> list[int]:
        """The processes that run tasks now: a Java of each, child of a worker."""
        workers = {process.pid for process in self._processes[1:]}
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if parent in workers and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
        return sorted(found)

    def _start(self, name: str, main: str, arguments: list[str], host: str = HOST) -> Path:
        log = self._folder / f"{name}.log"
        home = find_java_home()
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYTHON"))
        }
        environment |= {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            **({"JAVA_HOME": str(home)} if home is not None else {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    str(SPARK_HOME / "bin" / "spark-class"),
                    main,
                    *("--host", host, "--port", "0", "--webui-port", "0"),
                    *arguments,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log


def _wait_for(log: Path, pattern: str) -> str:
    """What the log says, by a pattern: the first group, or all of it."""
    deadline = time.monotonic() + START_WITHIN_S
    while True:
        text = log.read_text("utf-8", "replace")
        found = re.search(pattern, text)
        if found is not None:
            return found[1] if found.re.groups else found[0]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log.name} does not say {pattern!r}:\n{text[-2000:]}")
        time.sleep(0.1)
