"""Access to a console: what keeps strangers and other sites' pages out."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from moldau.console.settings import ConsoleSettings, sign_in_properties
from moldau.peer.cluster import Cluster
from moldau.testing import Broker
from tests.console.consoles import CSRF, RunningConsole


def test_answers_forbid_other_sites_to_frame_or_feed_the_page(console: RunningConsole) -> None:
    for path in ("/", "api/session", "api/nothing"):
        headers = console.http.get(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_a_change_without_the_header_of_the_page_is_refused(console: RunningConsole) -> None:
    answer = console.http.post("api/topics", json={"name": "forged"})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "no_csrf_header"
    console.get("api/topics/forged", 404)


def test_a_name_that_somebody_else_pointed_here_is_refused(console: RunningConsole) -> None:
    answer = httpx.get(f"{console.url}/api/session", headers={"Host": "evil.example"})
    assert answer.status_code == 403
    answer = httpx.get(f"{console.url}/api/session", headers={"Host": "localhost:1234"})
    assert answer.status_code == 200


def test_a_read_only_console_changes_nothing(shared_broker: Broker) -> None:
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, read_only=True)) as console:
        assert console.get("api/session")["read_only"]
        assert console.post("api/topics", {"name": "no"}, 403)["error"]["code"] == "read_only"


@pytest.mark.slow
def test_a_cluster_that_is_away_is_said_to_be_and_comes_back() -> None:
    broker = Broker()
    with broker:
        broker.create_topic("kept")
        with RunningConsole(ConsoleSettings(broker.bootstrap, sample_every_s=0.5)) as console:
            assert console.get("api/topics")["topics"]
            broker.stop()
            assert console.get("api/topics", 502)["error"]["code"] == "cluster_unreachable"
            assert console.get("api/session")["cluster_id"] == ""
            broker.start()
            assert [each["name"] for each in console.get("api/topics")["topics"]] == ["kept"]


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with Broker(secure=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def locked_console(locked: Broker) -> Iterator[RunningConsole]:
    sign_in = sign_in_properties(locked.client_settings)
    with RunningConsole(ConsoleSettings(locked.bootstrap, sign_in=sign_in)) as console:
        yield console


def test_strangers_send_no_more_than_a_login_takes(locked_console: RunningConsole) -> None:
    with httpx.Client(base_url=f"{locked_console.url}/", headers=CSRF, timeout=60) as http:
        for size, status in ((8000, 401), (60_000, 422), (70_000, 413)):
            answer = http.post("api/session", json={"user": "nobody", "password": "x" * size})
            assert answer.status_code == status, answer.text
        # They are not even heard elsewhere.
        assert http.post("api/topics", json={"name": "x" * 70_000}).status_code == 401


def admin_login(broker: Broker) -> dict[str, str]:
    from moldau.security.client import ClientSecurity

    security = ClientSecurity.parse(broker.client_settings)
    assert security is not None
    login = security.login()
    return {"user": login["username"], "password": login["password"]}


def test_people_sign_in_with_users_of_the_broker_and_out_again(
    locked: Broker, locked_console: RunningConsole
) -> None:
    console = locked_console
    before = console.get("api/session")
    assert (before["auth"], before["user"], before["signed_in"]) == ("password", None, False)
    console.get("api/topics", 401)
    console.post("api/session", {"user": "admin", "password": "wrong"}, 401)
    console.get("api/topics", 401)
    session = console.post("api/session", admin_login(locked))
    assert session["user"] == "admin"
    assert "Alter" in session["operations"]
    console.post("api/topics", {"name": "as-admin"}, 201)
    assert console.get("api/topics")["topics"][0]["name"] == "as-admin"
    assert "Delete" in console.get("api/topics/as-admin")["operations"]
    console.send("DELETE", "api/session")
    console.get("api/topics", 401)


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(
    locked: Broker, locked_console: RunningConsole
) -> None:
    with httpx.Client(base_url=locked_console.url, headers=CSRF) as http:
        answer = http.post("api/session", json=admin_login(locked))
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie


def test_without_rights_of_ones_own_nothing_is_shown_or_changed(
    locked: Broker, locked_console: RunningConsole
) -> None:
    console = locked_console
    console.post("api/session", admin_login(locked))
    console.post("api/topics", {"name": "private"}, 201)
    add_user(locked, "nobody", "secret-1")
    console.post("api/session", {"user": "nobody", "password": "secret-1"})
    try:
        assert console.get("api/topics")["topics"] == []
        assert console.get("api/groups")["groups"] == []
        console.get("api/topics/private", 403)
        console.get("api/topics/private/messages", 403)
        console.post("api/topics/private/messages", {"value": "x"}, 403)
        console.post("api/topics", {"name": "mine"}, 403)
        console.send("DELETE", "api/topics/private", status=403)
        series = console.get("api/series", names="topic:private.in_msgs")
        assert "topic:private.in_msgs" not in series["series"]
    finally:
        console.send("DELETE", "api/session")


def add_user(broker: Broker, name: str, password: str) -> None:
    """Add a user who may do nothing."""
    import hashlib
    import os

    from moldau.peer.retries import PeerSettings
    from moldau.security.client import ClientSecurity
    from moldau.wire.apis import Api

    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 4096)
    entry = {
        "name": name, "mechanism": 2, "iterations": 4096, "salt": salt, "salted_password": salted,
    }  # fmt: skip
    settings = PeerSettings(security=ClientSecurity.parse(broker.client_settings))
    with Cluster([(broker.host, broker.port)], settings) as cluster:
        values = {"deletions": [], "upsertions": [entry]}
        (told,) = cluster.some_broker().ask(Api.ALTER_USER_SCRAM_CREDENTIALS, values).results
        assert told.error_code == 0
