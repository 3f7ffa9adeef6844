"""Bad input to the registry of a broker that is a process of its own: it costs nobody else time."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest

from bench.load.bad_schemas import bad_requests
from moldau.local.ports import free_ports
from tests.http.scraping import Scrape
from tests.processes import started

MIB = 1 << 20
# A stall begins at 0.05. This is what a machine that is busy with other tests may make of one.
MOST_CPU_S = 0.2


@pytest.mark.slow
def test_bad_input_neither_holds_the_loop_nor_stays_in_memory(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "moldau", "broker", "--listen", "127.0.0.1:0"),
        *("--data-dir", str(tmp_path / "data"), "--http", f"127.0.0.1:{port}"),
    ]
    requests = list(bad_requests())
    with (
        started(command, stdout=PIPE, start_new_session=True) as process,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()

        def send_all() -> float:
            """Send everything; return the memory that the broker has then."""
            for each in requests:
                try:
                    answer = client.request(each.method, each.path, content=each.body)
                except httpx.TransportError:
                    # The broker hangs up on who goes on sending what is too large.
                    assert each.status == 413
                    continue
                assert answer.status_code == each.status, (each.name, answer.text[:300])
            return Scrape(url).value("process_resident_memory_bytes")

        # The first time, what is needed at all is loaded.
        client.post("/subjects/warm/versions", json={"schema": '"int"'})
        before = send_all()
        after = max(send_all() for _ in range(2))
        scrape = Scrape(url)
        assert scrape.value("moldau_loop_longest_stall_cpu_seconds") < MOST_CPU_S
        assert after - before < 32 * MIB
        process.terminate()
        assert process.wait(30) == 0
