"""The Python client: producer, consumer, admin, serializers, on librdkafka.

Names are imported when they are first used, because librdkafka takes its time to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.async_consumer import AsyncConsumer
    from moldau.client.async_producer import AsyncProducer
    from moldau.client.avro import AvroSerializer
    from moldau.client.consumer import Consumer
    from moldau.client.delivery import Delivery, SetDelivery
    from moldau.client.errors import (
        ClientError,
        ConsumeFailed,
        DecodeError,
        DeliveryFailed,
        QueueFull,
        SerializationError,
    )
    from moldau.client.infos import (
        GroupDescription,
        GroupInfo,
        MemberInfo,
        PartitionInfo,
        PartitionLag,
        TopicInfo,
    )
    from moldau.client.message import ConsumedMessage, Message, MessageSet, ProducerRecord
    from moldau.client.partitioner import Partitioner, murmur2, partition_for_key
    from moldau.client.producer import Producer
    from moldau.client.serializers import (
        BytesSerializer,
        Deserializer,
        JsonSerializer,
        Serializer,
        StringSerializer,
    )
    from moldau.client.stream import MessageStream

_MODULES = {
    "Admin": "admin",
    "AsyncConsumer": "async_consumer",
    "AsyncProducer": "async_producer",
    "AvroSerializer": "avro",
    "BytesSerializer": "serializers",
    "ClientError": "errors",
    "ConsumeFailed": "errors",
    "ConsumedMessage": "message",
    "Consumer": "consumer",
    "DecodeError": "errors",
    "Delivery": "delivery",
    "DeliveryFailed": "errors",
    "Deserializer": "serializers",
    "GroupDescription": "infos",
    "GroupInfo": "infos",
    "JsonSerializer": "serializers",
    "MemberInfo": "infos",
    "Message": "message",
    "MessageSet": "message",
    "MessageStream": "stream",
    "PartitionInfo": "infos",
    "PartitionLag": "infos",
    "Partitioner": "partitioner",
    "Producer": "producer",
    "ProducerRecord": "message",
    "QueueFull": "errors",
    "SerializationError": "errors",
    "Serializer": "serializers",
    "SetDelivery": "delivery",
    "StringSerializer": "serializers",
    "TopicInfo": "infos",
    "murmur2": "partitioner",
    "partition_for_key": "partitioner",
}

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "AvroSerializer",
    "BytesSerializer",
    "ClientError",
    "ConsumeFailed",
    "ConsumedMessage",
    "Consumer",
    "DecodeError",
    "Delivery",
    "DeliveryFailed",
    "Deserializer",
    "GroupDescription",
    "GroupInfo",
    "JsonSerializer",
    "MemberInfo",
    "Message",
    "MessageSet",
    "MessageStream",
    "PartitionInfo",
    "PartitionLag",
    "Partitioner",
    "Producer",
    "ProducerRecord",
    "QueueFull",
    "SerializationError",
    "Serializer",
    "SetDelivery",
    "StringSerializer",
    "TopicInfo",
    "murmur2",
    "partition_for_key",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
