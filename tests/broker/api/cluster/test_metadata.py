"""Metadata over the wire: every version, creation on demand, and the cache of encoded answers."""

from __future__ import annotations

import socket
from typing import Any
from uuid import UUID, uuid4

import pytest

from moldau.broker.api.cluster.metadata_cache import MetadataCache
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, fresh_name, inside, versions


def ask(
    client: Client, names: list[str] | None, version: int | None = None, *, create: bool = False
) -> Any:
    topics = None if names is None else [{"name": name} for name in names]
    return client.ask(Api.METADATA, version, topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_every_version_describes_a_topic_and_the_brokers(
    client: Client, moldau_session_broker: Broker, version: int
) -> None:
    topic = client.create(partitions=3)
    answer = ask(client, [topic], version)
    (broker,) = answer.brokers
    host, port = moldau_session_broker.host, moldau_session_broker.port
    assert (broker.node_id, broker.host, broker.port) == (0, host, port)
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    assert sorted(each.partition_index for each in found.partitions) == [0, 1, 2]
    for partition in found.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 0)
        assert (partition.replica_nodes, partition.isr_nodes) == ((0,), (0,))
        if version >= 5:
            assert partition.offline_replicas == ()
        if version >= 7:
            assert partition.leader_epoch == 0
    if version >= 1:
        assert (answer.controller_id, found.is_internal, broker.rack) == (0, False, None)
    if version >= 2:
        assert answer.cluster_id
    if version >= 8:
        assert found.topic_authorized_operations == -(2**31)
    if version >= 10:
        assert isinstance(found.topic_id, UUID)


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_every_version_can_ask_for_all_topics_and_from_1_on_for_none(
    client: Client, version: int
) -> None:
    topic = client.create()
    everything = ask(client, [] if version == 0 else None, version)
    assert topic in {each.name for each in everything.topics}
    if version >= 1:
        assert ask(client, [], version).topics == ()


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_an_unknown_topic_comes_to_be_where_that_is_allowed(client: Client, version: int) -> None:
    topic = fresh_name("auto")
    if version >= 4:
        (refused,) = ask(client, [topic], version).topics
        assert refused.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = ask(client, [topic], version, create=True).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert made.partitions[0].leader_id == 0


def test_a_topic_named_twice_is_made_once(client: Client) -> None:
    topic = fresh_name("auto")
    answer = ask(client, [topic, topic], create=True)
    assert {(each.name, each.error_code) for each in answer.topics} == {(topic, 0)}


def test_many_clients_that_want_the_same_new_topic_get_the_same_one(
    moldau_broker: Broker,
) -> None:
    clients = [Client(moldau_broker) for _ in range(10)]
    for client in clients:
        client.send(Api.METADATA, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    answers = [client.receive().topics[0] for client in clients]
    assert {each.error_code for each in answers} == {0}
    assert len({each.topic_id for each in answers}) == 1
    for client in clients:
        client.close()


def test_one_request_makes_so_many_topics_and_the_next_one_the_others(
    moldau_broker: Broker,
) -> None:
    names = [f"t{place}" for place in range(1100)]
    with Client(moldau_broker) as client:
        codes = [each.error_code for each in ask(client, names, create=True).topics]
        assert codes == [0] * 1000 + [Error.UNKNOWN_TOPIC_OR_PARTITION] * 100
        assert {each.error_code for each in ask(client, names, create=True).topics} == {0}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b", "../etc"])
def test_a_bad_name_is_refused_and_not_made(client: Client, name: str) -> None:
    (answer,) = ask(client, [name], create=True).topics
    assert answer.error_code == Error.INVALID_TOPIC_EXCEPTION
    assert name not in {each.name for each in ask(client, None).topics}


def test_a_name_that_collides_with_another_is_refused(client: Client) -> None:
    topic = client.create(fresh_name("dotted") + ".x")
    (answer,) = ask(client, [topic.replace(".", "_")], create=True).topics
    assert answer.error_code == Error.INVALID_TOPIC_EXCEPTION


@pytest.mark.moldau({"auto.create.topics.enable": False})
def test_topics_are_not_made_where_the_broker_forbids_it(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        (answer,) = ask(client, ["t"], create=True).topics
        assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(client, None).topics == ()


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(client: Client, version: int) -> None:
    topic = client.create()
    topic_id = client.topic_id(topic)
    wanted = [{"topic_id": topic_id, "name": None}, {"topic_id": uuid4(), "name": None}]
    found, missing = client.ask(Api.METADATA, version, topics=wanted).topics
    assert (found.name, found.topic_id) == (topic, topic_id)
    assert (missing.error_code, missing.name) == (Error.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_have_no_answer_to_an_id_refuse_the_request(
    client: Client, version: int
) -> None:
    topic = client.create()
    topic_id = client.topic_id(topic)
    questions: list[list[dict[str, Any]]] = [
        [{"topic_id": topic_id, "name": None}, {"topic_id": UUID(int=0), "name": topic}],
        [{"topic_id": UUID(int=0), "name": None}],
        [{"topic_id": uuid4(), "name": "n"}],
    ]
    for wanted in questions:
        answer = client.ask(Api.METADATA, version, topics=wanted, allow_auto_topic_creation=True)
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
        assert [(each.error_code, each.name) for each in answer.topics] == [
            (Error.INVALID_REQUEST, each["name"] or "") for each in wanted
        ]


def test_a_topic_is_answered_once_however_often_it_is_asked_for(client: Client) -> None:
    topic, strange_id = client.create(), uuid4()
    topic_id = client.topic_id(topic)
    by_id = [{"topic_id": each, "name": None} for each in (topic_id, strange_id) * 2]
    answer = client.ask(Api.METADATA, 12, topics=[{"name": topic}, *by_id, {"name": topic}])
    assert [(each.name, each.topic_id) for each in answer.topics] == [
        (topic, topic_id),
        (None, strange_id),
    ]


def test_operations_are_told_when_asked_for(client: Client) -> None:
    topic = client.create()
    answer = client.ask(
        Api.METADATA,
        10,
        topics=[{"name": topic}, {"name": "nobody-made-this"}, {"name": "not/good"}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    told = [each.topic_authorized_operations for each in answer.topics]
    assert told == [0b1101_1111_1000] * 3
    assert answer.cluster_authorized_operations > 0


def test_answers_follow_what_happens(client: Client) -> None:
    topic = client.create()
    for _ in range(2):
        assert ask(client, [topic]).topics[0].error_code == 0
    client.ask(
        Api.CREATE_PARTITIONS, topics=[{"name": topic, "count": 4, "assignments": None}], timeout=1
    )
    assert len(ask(client, [topic]).topics[0].partitions) == 4
    client.ask(Api.DELETE_TOPICS, topics=[{"name": topic, "topic_id": None}], timeout=5000)
    (gone,) = ask(client, [topic]).topics
    assert gone.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_names_itself_by_the_address_that_the_client_reached() -> None:
    with Broker(listeners="0.0.0.0:0") as broker:
        for host in ("127.0.0.1", "127.0.0.2"):
            try:
                client = Client((host, broker.port))
            except OSError:
                pytest.skip(f"{host} is not an address here")
            with client:
                (found,) = ask(client, None).brokers
                assert (found.host, found.port) == (host, broker.port)


def test_a_broker_names_itself_as_advertised() -> None:
    with (
        Broker({"advertised.listeners": "kafka.example:1234", "node.id": 7}) as broker,
        Client(broker) as client,
    ):
        answer = ask(client, None)
        (found,) = answer.brokers
        assert (found.node_id, found.host, found.port) == (7, "kafka.example", 1234)
        assert answer.controller_id == 7


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_broker_listens_on_ipv6() -> None:
    try:
        with Broker(listeners="[::1]:0") as broker, Client(("::1", broker.port)) as client:
            assert ask(client, None).brokers[0].host == "::1"
    except OSError:
        pytest.skip("no IPv6 here")


def test_encoded_answers_are_kept_within_bounds() -> None:
    cache = MetadataCache()
    cache.get(1, (13, "h", 1, b"", None))
    for place in range(10_000):
        cache.put(1, (13, "h", 1, b"%d" % place + bytes(10_000), None), bytes(10_000))
    kept = sum(len(key[3]) + len(answer) for key, answer in cache._answers.items())
    assert 0 < kept <= 16 << 20
    assert cache.get(2, (13, "h", 1, b"", None)) is None
    assert not cache._answers
    cache.put(2, (13, "h", 1, b"", None), b"answer")
    assert cache.get(2, (13, "h", 1, b"", None)) == b"answer"
    # An answer that was made while the cluster changed is not kept.
    cache.put(1, (13, "h", 1, b"old", None), b"answer")
    assert cache.get(2, (13, "h", 1, b"old", None)) is None


def test_large_questions_do_not_fill_the_cache(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        for place in range(12):
            ask(client, [f"{'x' * 249}-{place}-{each}" for each in range(4000)], 12)
    cache = inside(moldau_broker, lambda server: server.metadata_cache)
    assert sum(len(key[3]) + len(answer) for key, answer in cache._answers.items()) <= 16 << 20
