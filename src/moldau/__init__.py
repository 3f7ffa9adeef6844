"""Moldau: a distributed commit log that speaks Kafka's protocol.

The client's names (`moldau.Producer`, `moldau.Consumer` and so on) are imported when they are first
used: `moldau broker` pays for everything that is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client import Admin as Admin
    from moldau.client import AsyncConsumer as AsyncConsumer
    from moldau.client import AsyncProducer as AsyncProducer
    from moldau.client import AsyncQueue as AsyncQueue
    from moldau.client import AvroSerializer as AvroSerializer
    from moldau.client import BytesSerializer as BytesSerializer
    from moldau.client import ClientError as ClientError
    from moldau.client import ConsumedMessage as ConsumedMessage
    from moldau.client import ConsumeFailed as ConsumeFailed
    from moldau.client import Consumer as Consumer
    from moldau.client import DecodeError as DecodeError
    from moldau.client import Delivery as Delivery
    from moldau.client import DeliveryFailed as DeliveryFailed
    from moldau.client import Job as Job
    from moldau.client import JsonSerializer as JsonSerializer
    from moldau.client import Message as Message
    from moldau.client import MessageSet as MessageSet
    from moldau.client import MessageStream as MessageStream
    from moldau.client import Producer as Producer
    from moldau.client import ProducerFenced as ProducerFenced
    from moldau.client import ProducerRecord as ProducerRecord
    from moldau.client import Queue as Queue
    from moldau.client import QueueFull as QueueFull
    from moldau.client import SerializationError as SerializationError
    from moldau.client import SetDelivery as SetDelivery
    from moldau.client import StringSerializer as StringSerializer
    from moldau.client import Transaction as Transaction
    from moldau.client import TransactionAborted as TransactionAborted

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Underscored names are asked for by the import system and by debuggers, never by users.
    if not name.startswith("_"):
        from importlib import import_module

        client = import_module("moldau.client")
        if name in client.__all__:
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
