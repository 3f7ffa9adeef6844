"""The Python client: producer, consumer, admin, serializers, on librdkafka.

Names are imported when they are first used, because librdkafka takes its time to load.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client.admin.admin import Admin
    from moldau.client.admin.infos import (
        GroupDescription,
        GroupInfo,
        MemberInfo,
        PartitionInfo,
        PartitionLag,
        TopicInfo,
    )
    from moldau.client.avro import AvroSerializer
    from moldau.client.consumer.async_consumer import AsyncConsumer
    from moldau.client.consumer.consumer import Consumer
    from moldau.client.consumer.stream import MessageStream
    from moldau.client.errors import (
        ClientError,
        ConsumeFailed,
        DecodeError,
        DeliveryFailed,
        ProducerFenced,
        QueueFull,
        SerializationError,
        TransactionAborted,
    )
    from moldau.client.message import ConsumedMessage, Message, MessageSet, ProducerRecord
    from moldau.client.producer.async_producer import AsyncProducer
    from moldau.client.producer.delivery import Delivery, SetDelivery
    from moldau.client.producer.partitioner import Partitioner, murmur2, partition_for_key
    from moldau.client.producer.producer import Producer
    from moldau.client.producer.transaction import Transaction
    from moldau.client.queue.async_queue import AsyncQueue
    from moldau.client.queue.job import Job
    from moldau.client.queue.queue import Queue
    from moldau.client.serializers import (
        BytesSerializer,
        Deserializer,
        JsonSerializer,
        Serializer,
        StringSerializer,
    )

_MODULES = {
    "Admin": "admin.admin",
    "AsyncConsumer": "consumer.async_consumer",
    "AsyncProducer": "producer.async_producer",
    "AsyncQueue": "queue.async_queue",
    "AvroSerializer": "avro",
    "BytesSerializer": "serializers",
    "ClientError": "errors",
    "ConsumeFailed": "errors",
    "ConsumedMessage": "message",
    "Consumer": "consumer.consumer",
    "DecodeError": "errors",
    "Delivery": "producer.delivery",
    "DeliveryFailed": "errors",
    "Deserializer": "serializers",
    "GroupDescription": "admin.infos",
    "GroupInfo": "admin.infos",
    "Job": "queue.job",
    "JsonSerializer": "serializers",
    "MemberInfo": "admin.infos",
    "Message": "message",
    "MessageSet": "message",
    "MessageStream": "consumer.stream",
    "PartitionInfo": "admin.infos",
    "PartitionLag": "admin.infos",
    "Partitioner": "producer.partitioner",
    "Producer": "producer.producer",
    "ProducerFenced": "errors",
    "ProducerRecord": "message",
    "Queue": "queue.queue",
    "QueueFull": "errors",
    "SerializationError": "errors",
    "Serializer": "serializers",
    "SetDelivery": "producer.delivery",
    "StringSerializer": "serializers",
    "TopicInfo": "admin.infos",
    "Transaction": "producer.transaction",
    "TransactionAborted": "errors",
    "murmur2": "producer.partitioner",
    "partition_for_key": "producer.partitioner",
}

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
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
    "Job",
    "JsonSerializer",
    "MemberInfo",
    "Message",
    "MessageSet",
    "MessageStream",
    "PartitionInfo",
    "PartitionLag",
    "Partitioner",
    "Producer",
    "ProducerFenced",
    "ProducerRecord",
    "Queue",
    "QueueFull",
    "SerializationError",
    "Serializer",
    "SetDelivery",
    "StringSerializer",
    "TopicInfo",
    "Transaction",
    "TransactionAborted",
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
