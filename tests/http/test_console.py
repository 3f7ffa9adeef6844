"""The console on a broker's HTTP side."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time

import httpx
import pytest

from moldau.security.client import ClientSecurity
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import CSRF
from tests.http.registry.test_rights import LOGINS
from tests.http.test_access import AUTHORIZER


def test_a_broker_serves_the_console_and_the_schemas_in_it() -> None:
    with Broker(http_listen="127.0.0.1:0") as broker:
        broker.create_topic("shown")
        with httpx.Client(base_url=f"{broker.http_url}/console/", timeout=30) as http:
            session = http.get("api/session").json()
            assert session["bootstrap"] == broker.bootstrap
            assert session["features"]["registry"]
            assert http.get("api/topics").json()["topics"][0]["name"] == "shown"
            assert http.post("api/topics", json={"name": "made"}, headers=CSRF).status_code == 201
            assert http.get("").status_code == 200
        bare = httpx.get(f"{broker.http_url}/console")
        assert bare.status_code == 307
        assert bare.headers["location"].endswith("/console/")


def test_a_locked_broker_lets_people_sign_in_to_the_console() -> None:
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        security = ClientSecurity.parse(broker.client_settings)
        assert security is not None
        context = security.context()
        assert isinstance(context, ssl.SSLContext)
        login = security.login()
        with httpx.Client(base_url=f"{broker.http_url}/console/", verify=context) as http:
            assert http.get("api/topics").status_code == 401
            body = {"user": login["username"], "password": login["password"]}
            answer = http.post("api/session", json=body, headers=CSRF)
            assert answer.status_code == 200, answer.text
            cookie = answer.headers["set-cookie"]
            assert "Path=/console/" in cookie
            assert "Secure" in cookie
            assert http.get("api/topics").json() == {"topics": []}
            assert http.get("api/schemas").status_code != 401
            # What lies beside the console still asks by itself.
            assert httpx.get(f"{broker.http_url}/metrics", verify=context).status_code == 401


def test_an_open_address_without_sign_in_shows_no_console_unless_told() -> None:
    with Broker(http_listen="0.0.0.0:0") as broker:
        port = broker.http_url.rpartition(":")[2]
        answer = httpx.get(f"http://127.0.0.1:{port}/console/api/session")
        assert answer.status_code == 503
        assert "http.console" in answer.text
    with Broker(http_listen="0.0.0.0:0", http_console="read-only") as broker:
        port = broker.http_url.rpartition(":")[2]
        session = httpx.get(f"http://127.0.0.1:{port}/console/api/session").json()
        assert session["read_only"]


def test_who_signs_in_over_http_does_not_become_nobody_with_more_rights() -> None:
    """The broker's own listener trusts this machine, and those from outside come with tokens."""
    given = LOGINS | AUTHORIZER | {"super.users": "User:root;User:ANONYMOUS"}
    with Broker(given | {"http.listen": "0.0.0.0:0"}) as broker:
        url = f"http://127.0.0.1:{broker.http_url.rpartition(':')[2]}"
        auth = ("mallory", "of mallory")
        assert httpx.get(f"{url}/metrics", auth=auth, timeout=60).status_code == 403
        answer = httpx.get(f"{url}/console/api/topics", auth=auth, timeout=60)
        assert answer.status_code == 503
        assert "User:ANONYMOUS" in answer.text


def test_a_broker_whose_console_nobody_opened_has_not_imported_it() -> None:
    code = (
        "import sys; import moldau.http.side; "
        "print([name for name in sys.modules if name.startswith(('moldau.console', 'confluent'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_live_view_goes_on_beyond_the_time_that_other_requests_may_take() -> None:
    with Broker(http_listen="127.0.0.1:0", http_request_timeout_ms=1500) as broker:
        broker.create_topic("live")
        url = f"{broker.http_url}/console/api"
        # Made before the clock runs.
        httpx.get(f"{url}/topics/live", timeout=30)
        began = time.monotonic()
        with httpx.stream("GET", f"{url}/topics/live/tail", timeout=30) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: messages"
            # Both limits have passed: the one of the request and the one of its connection.
            until(lambda: time.monotonic() - began > 3, "the end of both limits")
            sent = httpx.post(f"{url}/topics/live/messages", json={"value": "late"}, headers=CSRF)
            assert sent.status_code == 201
            found = next(line for line in lines if "late" in line)
            assert found.startswith("data: ")


@pytest.mark.slow
def test_a_search_on_a_locked_brokers_console_is_made_as_whoever_signed_in() -> None:
    pytest.importorskip("duckdb")
    with Broker(secure=True, http_listen="127.0.0.1:0") as broker:
        security = ClientSecurity.parse(broker.client_settings)
        assert security is not None
        context = security.context()
        assert isinstance(context, ssl.SSLContext)
        login = security.login()
        with httpx.Client(
            base_url=f"{broker.http_url}/console/", verify=context, timeout=60, headers=CSRF
        ) as http:
            body = {"user": login["username"], "password": login["password"]}
            assert http.post("api/session", json=body).status_code == 200
            assert http.post("api/topics", json={"name": "searched"}).status_code == 201
            for number in range(3):
                value = {"value": {"n": number}, "value_encoding": "json"}
                assert http.post("api/topics/searched/messages", json=value).status_code == 201
            begun = http.post("api/searches", json={"topic": "searched", "filter": "value.n > 0"})
            path = f"api/searches/{begun.json()['id']}/events"
            with http.stream("GET", path) as answer:
                text = "".join(answer.iter_text())
            assert "event: done" in text, text
            exported = http.get(path.replace("events", "export")).json()
            assert [each["value"]["json"]["n"] for each in exported] == [1, 2]
            # The broker has a name of its own, with which it takes samples.
            until(
                lambda: http.get("api/series", params={"names": "cluster.in_msgs"}).json()["times"],
                "a sample",
            )
            assert http.get("api/schemas").json()["schemas"] == []
