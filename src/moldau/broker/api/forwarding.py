"""Requests that only the controller can answer, on their way there.

A client may ask any broker. One that is not the controller passes the request on as it came, over a
connection that it keeps, and the answer back. When the controller goes meanwhile, the request is
put to the next one.

The broker that passes a request on names itself as the client. A broker that gets such a request
without being the controller answers with nothing, since its own view may be older than the asker's
and the request could go in circles.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.broker.api.registry import Answer, Handler, Refusal
from moldau.broker.net.request import FORWARDED_BY, Request
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.decisions.topics import Outcome
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.changes import AnyChange, BrokerJoined, ControllerElected, TopicCreated
from moldau.cluster.state.topics import BrokerInfo
from moldau.peer.errors import PeerError
from moldau.peer.peers import Purpose
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.errors import Error
from moldau.wire.messages import decode_response, encode_request
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# How long a request looks for a controller that answers it.
WITHIN_S = 20.0
# How long the controller may leave requests unanswered before the connection counts as dead.
PATIENCE_S = 30.0
# Before the same controller is tried again.
PAUSE_S = 0.1
# How long a topic that the controller has created may take to be known here.
KNOWN_WITHIN_S = 5.0

NOT_HERE = b""

FORWARDING = Purpose(FORWARDED_BY.removesuffix("-"))

logger = logging.getLogger("moldau.broker")


class Forwarding:
    """This broker's way to the controller. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._state = broker.state
        # Set with each change that somebody here may be waiting for, and then replaced.
        self._changed = asyncio.Event()
        broker.store.subscribe(self._notice)
        broker.controller.create_at_controller = self.create_topics

    async def relay(self, request: Request, handler: Handler, refuse: Refusal) -> Answer:
        """The controller's answer; `handler`'s, if this broker has become the controller."""
        if request.forwarded_by is not None:
            return NOT_HERE
        try:
            answer = await self._ask(request.api, request.version, request.raw)
        except ClusterError as error:
            logger.warning("%s could not be passed on: %s", Api(request.api).name, error.message)
            return refuse(request, error)
        if answer is not None:
            return answer
        own = handler(self._broker, request)
        return await own if inspect.isawaitable(own) else own

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[Outcome] | None:
        """Has the controller create these, and waits until they are known here.

        What exists already is as good. None if this broker has become the controller.
        """
        if not topics:
            return []
        api, version = Api.CREATE_TOPICS, VERSIONS[Api.CREATE_TOPICS].last
        wanted = {"topics": [_described(topic) for topic in topics]}
        try:
            body = await self._ask(api, version, encode_request(api, version, wanted))
        except ClusterError as error:
            return [error] * len(topics)
        if body is None:
            return None
        answers = {}
        for answer in decode_response(api, version, memoryview(body)).topics:
            code = Error(int(answer.error_code))
            if code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                answers[str(answer.name)] = ClusterError(code, answer.error_message or code.name)
        await self._until_known([t.name for t in topics if t.name not in answers])
        return [
            answers.get(t.name) or self._state.topics.get(t.name) or _not_known_yet(t.name)
            for t in topics
        ]

    async def _ask(self, api: int, version: int, body: bytes) -> bytes | None:
        """The encoded answer of whoever is the controller; None if this broker is.

        A request may be carried out twice if its answer was lost, as in Kafka.
        """
        problem = "no broker is the controller at the moment"
        try:
            async with asyncio.timeout(WITHIN_S):
                while not self._broker.controller.is_in_office:
                    changed = self._changed
                    controller = self._state.brokers.get(self._state.controller_id)
                    if controller is not None:
                        try:
                            answer = await self._ask_one(controller, api, version, body)
                        except (PeerError, MalformedRequest) as reason:
                            problem = f"the controller, broker {controller.id}: {reason}"
                        else:
                            if answer:
                                return answer
                            problem = f"broker {controller.id} says it is not the controller"
                    await _wait(changed, PAUSE_S)
        except TimeoutError:
            raise ClusterError(
                Error.NOT_CONTROLLER,
                f"The request found no controller within {WITHIN_S:g} s ({problem}); try again.",
            ) from None
        return None

    async def _ask_one(
        self, controller: BrokerInfo, api: int, version: int, body: bytes
    ) -> bytes | None:
        """The answer of this broker; None when it is the controller no more."""
        asking = asyncio.ensure_future(self._exchange(controller.id, api, version, body))
        try:
            while not asking.done():
                changed = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait([asking, changed], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if not self._is_controller(controller):
                    # It may be frozen, and never answer.
                    break
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()

    def _is_controller(self, broker: BrokerInfo) -> bool:
        now = self._state.brokers.get(self._state.controller_id)
        return now is not None and (now.id, now.epoch) == (broker.id, broker.epoch)

    async def _exchange(self, broker: int, api: int, version: int, body: bytes) -> bytes:
        lane = self._broker.peers.lane(broker, FORWARDING, patience_s=lambda: PATIENCE_S)
        connection = await lane.connection()
        return await connection.relay(api, version, body)

    async def _until_known(self, names: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                while not self._state.topics.keys() >= set(names):
                    await self._changed.wait()
        except TimeoutError:
            logger.warning("the controller has created %s, but no word of it came here", names)

    def _notice(self, changes: Sequence[AnyChange]) -> None:
        for change in changes:
            if isinstance(change, (ControllerElected, BrokerJoined, TopicCreated)):
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
                return


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        return


def _described(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": replicas}
            for index, replicas in topic.assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in topic.configs.items()],
    }


def _not_known_yet(name: str) -> ClusterError:
    return ClusterError(
        Error.LEADER_NOT_AVAILABLE, f"Topic '{name}' was created and will be known here soon."
    )
