"""Changing a live topic."""

from __future__ import annotations

from contextlib import closing

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from moldau.testing import Broker


def alter(broker: Broker, topic: str, configs: dict[str, str]) -> None:
    """Changes settings of a live topic."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
