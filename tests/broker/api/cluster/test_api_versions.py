"""ApiVersions: the first question of every client, in versions known and unknown."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.api.cluster.api_versions import served_versions
from moldau.broker.api.registry import DECLARED
from moldau.cluster.state.changes import BrokerJoined
from moldau.cluster.state.topics import BrokerInfo
from moldau.testing import Broker
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response
from moldau.wire.primitives import INT16, INT32
from tests.broker.wire_client import Client, inside, versions


@pytest.mark.parametrize("version", versions(Api.API_VERSIONS))
def test_every_version_lists_what_is_served(client: Client, version: int) -> None:
    answer = client.ask(
        Api.API_VERSIONS, version, client_software_name="test", client_software_version="1.0"
    )
    assert answer.error_code == 0
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges == served_versions()
    assert ranges[Api.FETCH] == (4, 18)
    assert ranges[Api.API_VERSIONS] == (0, 4)


def test_features_are_finalized_where_all_brokers_know_of_them(
    moldau_broker: Broker,
) -> None:
    def ask(version: int) -> Any:
        names = {"client_software_name": "test", "client_software_version": "1.0"}
        with Client(moldau_broker) as client:
            return client.ask(Api.API_VERSIONS, version, **names)

    replicas, transactions = "eligible.leader.replicas.version", "transaction.version"
    groups = "group.version"
    shares = "share.version"
    for version in (3, 4):
        answer = ask(version)
        assert answer.finalized_features_epoch == 4
        levels = {
            each.name: (each.min_version_level, each.max_version_level)
            for each in answer.finalized_features
        }
        assert levels == {replicas: (1, 1), transactions: (2, 2), groups: (1, 1), shares: (1, 1)}
        ranges = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        expected = {replicas: (0, 1), transactions: (0, 2), groups: (0, 1), shares: (0, 1)}
        assert ranges == (expected if version == 4 else {})

    old = BrokerJoined(BrokerInfo(9, "elsewhere", 9092))
    inside(moldau_broker, lambda server: server.state.apply(old))
    answer = ask(4)
    assert answer.finalized_features_epoch == 0
    assert not answer.finalized_features


def test_produce_is_advertised_from_version_0() -> None:
    assert served_versions()[Api.PRODUCE] == (0, 13)


def test_no_version_is_announced_that_has_no_meaning_here(
    client: Client,
) -> None:
    answer = client.ask(Api.API_VERSIONS, 0)
    last = {each.api_key: each.max_version for each in answer.api_keys}
    assert last[Api.INIT_PRODUCER_ID] == 6, "Kafka holds back two-phase commit, we do not"
    assert last[Api.DESCRIBE_LOG_DIRS] == 4, "v5 is about cordoned folders, which are none here"


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        # All topics, no tags.
        (Api.DESCRIBE_LOG_DIRS, 5, b"\x00\x00"),
    ],
)
def test_a_version_that_is_not_announced_costs_the_connection(
    client: Client, api: Api, version: int, body: bytes
) -> None:
    client.send_bytes(request_frame(api, version, 1, "early", body))
    assert client.is_closed()


def test_all_that_is_listed_is_handled_and_the_other_way_round() -> None:
    assert set(served_versions(to_brokers=True)) == set(DECLARED)


@pytest.mark.parametrize("version", [5, 99, 32767, -1, -32768])
def test_a_version_that_nobody_knows_is_answered_in_version_0(client: Client, version: int) -> None:
    header = INT16.pack(Api.API_VERSIONS) + INT16.pack(version) + INT32.pack(4711)
    # The rest of the request is whatever that version has.
    client.send_bytes(_framed(header + INT16.pack(4) + b"test" + b"\x00\x05junk\x05junk\x00"))
    frame = client.receive_frame()
    assert frame[:4] == INT32.pack(4711)
    answer = decode_response(Api.API_VERSIONS, 0, memoryview(frame)[4:])
    assert answer.error_code == 35
    (only,) = answer.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)
    # The client asks again in a version that both know.
    names = {"client_software_name": "test", "client_software_version": "1"}
    assert client.ask(Api.API_VERSIONS, only.max_version, **names).error_code == 0


@pytest.mark.parametrize("name", ["", "two words", "-a", "a.", "ä", "-" * 30_000])
def test_a_name_that_is_none_is_refused_as_kafka_does(client: Client, name: str) -> None:
    for version in versions(Api.API_VERSIONS):
        for names in ((name, "1.0"), ("test", name)):
            answer = client.ask(
                Api.API_VERSIONS,
                version,
                client_software_name=names[0],
                client_software_version=names[1],
            )
            assert answer.error_code == (0 if version < 3 else 42)
            assert bool(answer.api_keys) == (version < 3)


@pytest.mark.parametrize(
    "body", [b"", b"\x05te", b"\x05test", b"\x00\x02a\x00", b"\x02a\x00\x00", b"\x02a\x021"]
)
def test_a_body_without_its_names_costs_the_connection(client: Client, body: bytes) -> None:
    client.send_bytes(request_frame(Api.API_VERSIONS, 3, 1, None, body))
    assert client.is_closed()


def test_tagged_fields_of_the_header_are_skipped(client: Client) -> None:
    header = INT16.pack(Api.API_VERSIONS) + INT16.pack(3) + INT32.pack(9) + INT16.pack(-1)
    client.send_bytes(_framed(header + b"\x02\x00\x01A\x07\x03abc" + b"\x02a\x021\x00"))
    assert client.receive_frame()[:6] == INT32.pack(9) + INT16.pack(0)


def test_what_is_listed_is_what_the_schemas_have(moldau_session_broker: Broker) -> None:
    with Client(moldau_session_broker) as client:
        answer = client.ask(Api.API_VERSIONS, 0)
    for each in answer.api_keys:
        known = VERSIONS[Api(each.api_key)]
        assert each.max_version == known.last
        assert each.min_version == known.first or each.api_key == Api.PRODUCE


def _framed(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data
