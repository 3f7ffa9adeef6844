"""An unknown user costs the broker as much as a wrong password, so that time tells nothing."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from scramp import ScramClient

from moldau.broker.security.cluster_credentials import ClusterCredentials
from moldau.broker.security.credentials import NoCredentials
from moldau.broker.security.sasl.mechanism import AuthenticationFailed
from moldau.broker.security.sasl.plain import Plain
from moldau.broker.security.sasl.scram import Scram
from moldau.cluster.state.access import Access, ScramChanged, ScramCredential

# Calls into C that take time by what they are given; the others look things up.
_WORK = ("hmac", "sha", "digest", "pbkdf2", "update", "compare", "b64", "a2b", "b2a", "urandom")


def work_of(attempt: Any) -> Counter[str]:
    """How often an attempt calls each function that hashes, compares or draws numbers."""
    counts: Counter[str] = Counter()

    def note(frame: Any, event: str, function: Any) -> None:
        name = getattr(function, "__name__", "")
        if event == "c_call" and any(word in name.lower() for word in _WORK):
            counts[name] += 1

    sys.setprofile(note)
    try:
        with pytest.raises(AuthenticationFailed):
            attempt()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_does_the_same_work_for_who_does_not_exist(mechanism: str) -> None:
    scram = Scram(mechanism, {"alice": "wonder land"}, NoCredentials, lambda: b"of the cluster")
    scram.prepare()

    def attempt(user: str) -> Counter[str]:
        exchange = scram.begin()
        client = ScramClient([mechanism], user, "a guess")
        first = client.get_client_first().encode()
        told: list[bytes] = []
        begun = Counter(work_of_step(lambda: told.append(exchange.respond(first).challenge)))
        client.set_server_first(told[0].decode())
        final = client.get_client_final().encode()
        return begun + work_of(lambda: exchange.respond(final))

    known, unknown = attempt("alice"), attempt("nobody")
    assert known == unknown
    assert sum(known.values()) > 5


def work_of_step(step: Any) -> Counter[str]:
    """The same, of a step that succeeds."""

    def and_fail() -> None:
        step()
        raise AuthenticationFailed("", "")

    return work_of(and_fail)


def test_plain_does_the_same_work_for_who_does_not_exist() -> None:
    plain = Plain({"alice": "wonder land"})
    counts = [
        work_of(lambda: plain.respond(f"\0{user}\0a guess".encode()))  # noqa: B023
        for user in ("alice", "nobody")
    ]
    assert counts[0] == counts[1]
    assert counts[0]["compare_digest"] == 1


def told_of(scram: Scram, user: str) -> tuple[bytes, int]:
    """The salt and the iterations that anybody is told who gives a name."""
    found, _ = scram.find(user)
    return found.salt, found.iterations


def test_those_of_the_settings_have_the_salts_of_nobody_at_every_broker() -> None:
    secret = [b""]
    name = "SCRAM-SHA-512"
    users = {"admin": "of admin"}
    one, other = (Scram(name, users, NoCredentials, lambda: secret[0]) for _ in range(2))
    none = Scram(name, {}, NoCredentials, lambda: secret[0])
    assert told_of(one, "admin") == told_of(other, "admin") == told_of(none, "admin")
    # Known only later, as to a broker that has not read the cluster's metadata yet.
    before = told_of(one, "admin")
    secret[0] = b"of the cluster"
    assert told_of(one, "admin") == told_of(other, "admin") == told_of(none, "admin") != before
    exchange, client = one.begin(), ScramClient([name], "admin", "of admin")
    client.set_server_first(exchange.respond(client.get_client_first().encode()).challenge.decode())
    assert exchange.respond(client.get_client_final().encode()).user == "admin"


def test_nobody_has_iterations_and_a_salt_like_those_of_the_clusters_users() -> None:
    access = Access()
    credentials = ClusterCredentials(access, lambda: len(access.scram))
    scram = Scram("SCRAM-SHA-256", {}, lambda: credentials, lambda: b"of the cluster")
    assert told_of(scram, "x")[1] == 4096
    for user, salt, iterations in (("a", 26, 8192), ("b", 26, 8192), ("c", 100, 5000)):
        credential = ScramCredential(bytes(salt), b"", b"", iterations)
        access.apply(ScramChanged(user, {"SCRAM-SHA-256": credential}))
    seen = {(len(salt), count) for salt, count in (told_of(scram, f"n{n}") for n in range(100))}
    assert seen == {(26, 8192), (64, 5000)}
    assert told_of(scram, "n1") == told_of(scram, "n1")
