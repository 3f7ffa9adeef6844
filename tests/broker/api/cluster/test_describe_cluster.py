from __future__ import annotations

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.asking import Asker, versions

MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_CLUSTER))
def test_the_cluster_is_described_in_every_version(
    moldau_session_broker: Broker, asker: Asker, version: int
) -> None:
    answer = asker.ask(Api.DESCRIBE_CLUSTER, version, endpoint_type=1)
    assert answer.error_code == 0
    assert len(answer.cluster_id) == 22
    assert answer.controller_id == 0
    [broker] = answer.brokers
    assert broker.broker_id == 0
    assert (broker.host, broker.port) == (moldau_session_broker.host, moldau_session_broker.port)
    assert broker.rack is None
    assert answer.cluster_authorized_operations == -(2**31)


def test_operations_are_told_when_asked_for(asker: Asker) -> None:
    answer = asker.ask(
        Api.DESCRIBE_CLUSTER, endpoint_type=1, include_cluster_authorized_operations=True
    )
    assert answer.cluster_authorized_operations == 8096


def test_controllers_have_no_endpoints_of_their_own(asker: Asker) -> None:
    for endpoint_type, error in ((2, MISMATCHED_ENDPOINT_TYPE), (9, UNSUPPORTED_ENDPOINT_TYPE)):
        answer = asker.ask(Api.DESCRIBE_CLUSTER, endpoint_type=endpoint_type)
        assert answer.error_code == error
        assert answer.error_message
        assert answer.endpoint_type == 1


def test_the_cluster_keeps_its_id(moldau_broker: Broker) -> None:
    def cluster_id() -> str:
        with Asker(moldau_broker) as asker:
            return str(asker.ask(Api.DESCRIBE_CLUSTER, endpoint_type=1).cluster_id)

    before = cluster_id()
    moldau_broker.stop()
    moldau_broker.start()
    assert cluster_id() == before


def test_confluents_admin_client_describes_the_cluster(moldau_session_broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": moldau_session_broker.bootstrap})
    described = admin.describe_cluster().result(60)
    assert described.controller.id == 0
    assert [node.port for node in described.nodes] == [moldau_session_broker.port]
