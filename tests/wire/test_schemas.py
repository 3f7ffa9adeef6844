"""Schemas are loaded when first needed, by whichever thread needs them."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys, threading
from moldau.wire.apis import VERSIONS
from moldau.wire.messages import load
from moldau.wire.schemas import request_schema, response_schema

sys.setswitchinterval(1e-6)
ways = (request_schema, response_schema, load)
together = threading.Barrier(len(ways))
problems = []

def work(ask):
    for api, versions in VERSIONS.items():
        for version in range(versions.first, versions.last + 1):
            together.wait()
            try:
                ask(api, version)
            except Exception as problem:
                problems.append(f"{api.name} v{version}: {problem!r}")

threads = [threading.Thread(target=work, args=(ask,)) for ask in ways]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("; ".join(problems) or 0)
"""


def test_threads_may_load_the_two_schemas_of_an_api_at_once() -> None:
    """The event loop asks a peer while a thread loads what it takes to answer the same API."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
