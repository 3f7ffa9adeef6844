"""Clusters whose brokers prove to each other who they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.settings import InvalidSetting
from moldau.testing import Broker
from moldau.testing.waiting import until_async
from tests.broker.replication.brokers import Brokers
from tests.broker.replication.conftest import Tell
from tests.certificates import authority, of_broker

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="broker" password="among brokers";'
)


def secured(protocol: str, folder: Path) -> dict[str, str]:
    keystore, truststore = folder / "broker.pem", folder / "authority.pem"
    keystore.write_text(of_broker().pem)
    truststore.write_text(authority().certificate)
    return {
        "listeners": "OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": f"OUTSIDE:PLAINTEXT,INSIDE:{protocol}",
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.location": str(truststore),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.inside.scram-sha-256.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": "300",
    }


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_brokers_copy_and_forward_over_their_own_listener(
    tell: Tell, tmp_path: Path, protocol: str
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.until_same("t", 0, 1)
        expected = "User:CN=broker" if protocol == "SSL" else "User:broker"

        def principals() -> set[str]:
            return {
                str(each.context.principal)
                for number in (0, 1)
                for each in cluster[number].connections
                if each.context.listener == "INSIDE"
            }

        # A connection that has just been made has none yet.
        await until_async(lambda: principals() == {expected}, expected)
        # Sessions end meanwhile, and nobody notices.
        for value in "bcdef":
            await cluster.write(0, "t", value, acks=-1)
        await cluster.until_same("t", 0, 1)
        await until_async(lambda: cluster[0].state.controller_id >= 0, "a controller")

    tell(story, 2, **secured(protocol, tmp_path))


def test_brokers_may_change_to_a_secure_listener_one_after_another(
    tell: Tell, tmp_path: Path
) -> None:
    async def story(cluster: Brokers) -> None:
        await cluster.create("t", (0, 1))
        await cluster.write(0, "t", "a", acks=-1)
        await cluster.stop(1)
        await cluster.start(1, inter_broker_listener_name="INSIDE")
        await cluster.until_in_sync("t", (0, 1))
        await cluster.write(0, "t", "b", acks=-1)
        await cluster.until_same("t", 0, 1)
        # The follower came in by the listener that it has for brokers, which is not the leader's.
        assert "User:broker" in {str(each.context.principal) for each in cluster[0].connections}

    tell(story, 2, **secured("SASL_SSL", tmp_path) | {"inter.broker.listener.name": "OUTSIDE"})


def test_a_broker_of_a_cluster_needs_a_name_for_the_others(tmp_path: Path) -> None:
    settings = secured("SASL_SSL", tmp_path) | {"zookeeper.connect": "127.0.0.1:1"}
    key = "listener.name.inside.scram-sha-256.sasl.jaas.config"
    settings[key] = 'ScramLoginModule required user_admin="x";'
    with pytest.raises(InvalidSetting, match="connections to other brokers need this"):
        Broker(settings).start()
