"""Forwarding: requests that only the controller can answer, on their way there.

A client may ask any broker. One that is not the controller passes the request on as it came, in an
envelope that says who asked and from where (see `moldau.broker.api.cluster.envelope`), and the
answer back. When the controller goes meanwhile, the request is put to the next one. A broker that
is not the controller passes on no request that was passed on: its own view may be older than the
other broker's, and the request could go in circles.

Brokers of an earlier version know no envelopes. They pass requests on without, under a client id
that says so and has their own broker id, and take them so. That name is believed of none but them.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from moldau.broker.api.registry import Answer, Refusal
from moldau.broker.net.context import Context
from moldau.broker.net.request import Request
from moldau.broker.node import Node
from moldau.broker.security.authorizer import Operation
from moldau.broker.security.principal import broker_principal
from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.decisions.topics import Outcome
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.changes import AnyChange, BrokerJoined, ControllerElected, TopicCreated
from moldau.cluster.state.topics import BrokerInfo
from moldau.peer.errors import PeerError, name_of
from moldau.peer.peers import Peers, Purpose
from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request
from moldau.wire.primitives import MalformedRequest
from moldau.wire.principal import encode_principal

# How long a request looks for a controller that answers it.
WITHIN_S = 20.0
# How long the controller may leave requests unanswered before the connection counts as dead.
PATIENCE_S = 30.0
# Before the same controller is tried again.
PAUSE_S = 0.1
# How long a topic that the controller has created may take to be known here.
KNOWN_WITHIN_S = 5.0

# The client id of a forwarding broker of an earlier version, before its own id, and the answer that
# it gets from a broker that is not the controller.
FORWARDED_BY = "moldau-forwarded-by-"
NOT_HERE = b""
_FORWARDED = re.compile(FORWARDED_BY + r"([0-9]{1,10})")

FORWARDING = Purpose(FORWARDED_BY.removesuffix("-"))

logger = logging.getLogger("moldau.broker")


class Forwarding:
    """This broker's way to the controller. Event loop only."""

    def __init__(self, node: Node, controller: Controller, peers: Peers) -> None:
        self._id = node.id
        self._state = node.state
        self._controller = controller
        self._peers = peers
        # Set with each change that somebody here may be waiting for, and then replaced.
        self._changed = asyncio.Event()
        node.store.subscribe(self._notice)
        controller.create_at_controller = self.create_topics

    @property
    def is_at_controller(self) -> bool:
        """Whether this broker is the controller itself."""
        return self._controller.is_active

    async def relay(
        self,
        request: Request,
        handler: Callable[[Request], Answer | Awaitable[Answer]],
        refuse: Refusal,
    ) -> Answer:
        """Return the controller's answer; `handler`'s, if this broker has become the controller."""
        if request.is_forwarded:
            raise ClusterError(Error.NOT_CONTROLLER, "another broker is the controller")
        if self.was_forwarded(request):
            return NOT_HERE
        try:
            answer = await self._ask(request)
        except ClusterError as error:
            logger.warning("%s could not be forwarded: %s", Api(request.api).name, error.message)
            return refuse(request, error)
        if answer is not None:
            request.is_relayed = True
            return answer
        own = handler(request)
        return await own if inspect.isawaitable(own) else own

    async def create_topics(
        self, topics: Sequence[NewTopic], asker: object
    ) -> list[Outcome] | None:
        """Let the controller create these topics, and wait until this broker knows them.

        The context of who asked for them goes along; without one they are this broker's own wish.
        What already exists is as good. None if this broker has become the controller.
        """
        if not topics:
            return []
        api, version = Api.CREATE_TOPICS, VERSIONS[Api.CREATE_TOPICS].last
        raw = encode_request(api, version, {"topics": [_described(topic) for topic in topics]})
        if not isinstance(asker, Context):
            asker = Context("", "", 0, "", 0, broker_principal(self._id))
        try:
            body = await self._ask(Request(api, version, 0, f"broker-{self._id}", asker, raw=raw))
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

    def earlier_forwarder(self, request: Request) -> int | None:
        """Return the broker of an earlier version that has passed this request on, if one has."""
        match = _FORWARDED.fullmatch(request.client_id)
        if match is None or not request.context.is_inter_broker:
            return None
        info = self._state.brokers.get(int(match[1]))
        if info is None or info.knows_envelopes:
            return None
        # Anybody may call themselves so.
        is_broker = request.may_on_cluster(Operation.CLUSTER_ACTION, quietly=True)
        return info.id if is_broker else None

    def was_forwarded(self, request: Request) -> bool:
        """Return whether another broker has passed the request on to this one."""
        return request.is_forwarded or self.earlier_forwarder(request) is not None

    async def _ask(self, request: Request) -> bytes | None:
        """Return the encoded answer of whoever is the controller; None if this broker is.

        A request may be carried out twice if its answer was lost, as in Kafka.
        """
        problem = "there is no controller at the moment"
        try:
            async with asyncio.timeout(WITHIN_S):
                while not self._controller.is_active:
                    changed = self._changed
                    controller = self._state.brokers.get(self._state.controller_id)
                    if controller is not None:
                        try:
                            answer = await self._ask_one(controller, request)
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

    async def _ask_one(self, controller: BrokerInfo, request: Request) -> bytes | None:
        """Return the answer of this broker; None when it is the controller no more."""
        asking = asyncio.ensure_future(self._exchange(controller.id, request))
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

    async def _exchange(self, broker: int, request: Request) -> bytes | None:
        """Return the body of a broker's answer; None or nothing if it is not the controller."""
        api, version = request.api, request.version
        lane = self._peers.lane(broker, FORWARDING, patience_s=lambda: PATIENCE_S)
        connection = await lane.connection()
        if not connection.speaks(Api.ENVELOPE):
            if request.authorizer is not None:
                raise ClusterError(
                    Error.UNSUPPORTED_VERSION,
                    f"The controller, broker {broker}, runs a version without access control: "
                    "upgrade it first.",
                )
            return await connection.relay(api, version, request.raw)
        context = request.context
        values = {
            "request_data": request_frame(
                api, version, request.correlation_id, request.client_id, request.raw
            )[4:],
            "request_principal": encode_principal(*context.principal),
            "client_host_address": _address(context.client_host),
        }
        answer = await connection.ask(Api.ENVELOPE, values)
        code = int(answer.error_code)
        if code == Error.NOT_CONTROLLER:
            return None
        if code or answer.response_data is None:
            # As in Kafka: it says nothing about the request, and the client could do nothing.
            raise ClusterError(
                Error.UNKNOWN_SERVER_ERROR,
                f"The controller, broker {broker}, refused the request: {name_of(code)}",
            )
        return bytes(answer.response_data[5 if is_flexible(api, version) else 4 :])

    async def _until_known(self, names: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                while not self._state.topics.keys() >= set(names):
                    await self._changed.wait()
        except TimeoutError:
            logger.warning(
                "the controller has created %s, but this broker has not learned of it yet", names
            )

    def _notice(self, changes: Sequence[AnyChange]) -> None:
        for change in changes:
            if isinstance(change, (ControllerElected, BrokerJoined, TopicCreated)):
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
                return


def _address(host: str) -> bytes:
    """Return the bytes of a client's address; those of nobody's where it has none, as this
    broker."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


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
