"""The routes of the registry's API: from a request to its operation, here or at the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moldau.broker.security.principal import ANONYMOUS
from moldau.http.host import Host
from moldau.http.registry import (
    associations,
    compatibility,
    contexts,
    schemas,
    settings,
    subjects,
)
from moldau.http.registry.call import Call, Operation
from moldau.http.registry.check import SchemaCheck
from moldau.http.registry.errors import (
    RegistryError,
    forwarding_failed,
    no_leader,
    other_site,
    timed_out,
)
from moldau.http.registry.leading import (
    APPLIED,
    FORWARDED,
    NotReached,
    Passed,
    judge_by_sender,
    leader_address,
    pass_on,
)
from moldau.http.registry.quarantine import Quarantine
from moldau.http.registry.registry import SchemaRegistry
from moldau.http.registry.rights import operations_of, permit
from moldau.schemas.registry.names import DEFAULT_CONTEXT
from moldau.wire.apis import RIGHTS

JSON_V1 = "application/vnd.schemaregistry.v1+json"
_TAKEN = (JSON_V1, "application/vnd.schemaregistry+json", "application/json",
          "application/octet-stream")  # fmt: skip
_NO_LEADER = 50004
_LEADER_WITHIN_S = 10.0
_CATCH_UP_WITHIN_S = 5.0
_PAUSE_S = 0.1
# A list of more items is encoded on a thread.
_LONG = 200
OPERATIONS: tuple[Operation, ...] = (
    *subjects.OPERATIONS,
    *schemas.OPERATIONS,
    *compatibility.OPERATIONS,
    *settings.OPERATIONS,
    *contexts.OPERATIONS,
    *associations.OPERATIONS,
)
# By how many parts a path has, and which is the first.
_BY_SHAPE: dict[tuple[int, str], list[Operation]] = {}
for _each in OPERATIONS:
    _BY_SHAPE.setdefault((len(_each.parts), _each.parts[0]), []).append(_each)
# In the scope of a request: the audit has heard that it was admitted. A write that finds no leader
# begins again.
_TOLD = "moldau.admitted"
METHODS = ["GET", "POST", "PUT", "DELETE"]


def routes(host: Host) -> list[Route]:
    """Return the routes; what comes after the first part of a path may have slashes in it."""
    entrance = _Entrance(host)
    check = SchemaCheck(entrance.registry, Quarantine(host.broker))
    host.broker.partitions.door = check
    host.on_start.append(entrance.registry.start)
    # Batches are checked, with all schemas, until the last client has its answer.
    host.on_drained += [entrance.registry.stop, check.close]
    # What answers there is a registry, to those who only look whether it is up.
    found = [Route("/", entrance.root, methods=["GET"])]
    for first in (
        "subjects",
        "schemas",
        "config",
        "mode",
        "compatibility",
        "contexts",
        "associations",
    ):
        found.append(Route(f"/{first}", entrance.serve, methods=METHODS))
        found.append(Route(f"/{first}/{{rest:path}}", entrance.serve, methods=METHODS))
    found.append(Route("/v1/metadata/{rest:path}", entrance.serve, methods=METHODS))
    return found


class _Entrance:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._broker = host.broker
        self.registry = SchemaRegistry(host.broker)

    async def root(self, request: Request) -> Response:
        return self._response(request, {})

    async def serve(self, request: Request) -> Response:
        try:
            return await self._serve(request)
        except RegistryError as problem:
            content = {"error_code": problem.code, "message": problem.message}
            return self._response(request, content, problem.status)

    async def _serve(self, request: Request) -> Response:
        parts, context = _parts(request.scope["raw_path"])
        operation, args = _operation(request.method, parts)
        _refuse_other_sites(request)
        judge_by_sender(self._host, request)
        # Those who have no right now need not send anything. It is asked for again when the
        # operation begins: until then, a name may become an alias.
        permit(self._host, request, operation, args, self.registry.state, context, tells=False)
        body = b"" if request.method in ("GET", "DELETE") else await _body(request)
        if operation.is_write:
            return await self._write(request, operation, args, body, context)
        try:
            await self.registry.follower.until_current()
        except TimeoutError:
            raise timed_out("this broker could not read its schemas in time") from None
        try:
            return await self._run(request, operation, args, body, context)
        except RegistryError as problem:
            if problem.status != 404 or FORWARDED in request.headers:
                raise
            found = await self._ask_leader(request, body)
            if found is None:
                raise
            return found

    async def _run(
        self,
        request: Request,
        operation: Operation,
        args: list[str],
        body: bytes,
        context: str,
    ) -> Response:
        call = Call(self.registry, args, request.scope["query_string"], body, context)

        async def work() -> Any:
            # The operation begins with nothing in between, on the state that was judged.
            state, tells = self.registry.state, not request.scope.get(_TOLD)
            call.rights = permit(self._host, request, operation, args, state, context, tells=tells)
            request.scope[_TOLD] = True
            return await operation.handler(call)

        if request.method == "GET" and call.text("format") is None:
            content = await work()
        else:
            # It may take the one process that parses schemas, and the right to write.
            async with self.registry.turns.of(_sender(request)):
                content = await work()
        if isinstance(content, list) and len(content) > _LONG:
            content = msgspec.Raw(await asyncio.to_thread(msgspec.json.encode, content))
        found = self._response(request, content)
        told = operations_of(self._host, request, operation, args, context, self.registry.state)
        if told is not None:
            found.headers[f"x-{RIGHTS}"] = told
        return found

    async def _write(
        self,
        request: Request,
        operation: Operation,
        args: list[str],
        body: bytes,
        context: str,
    ) -> Response:
        """Write here, if this broker leads, else at the leader, which may be another meanwhile."""
        await self.registry.ensure_topic()
        follower = self.registry.follower
        problem: RegistryError = no_leader()
        try:
            async with asyncio.timeout(_LEADER_WITHIN_S):
                while True:
                    if follower.is_leader:
                        problem = timed_out(f"the write took longer than {_LEADER_WITHIN_S:g} s")
                        try:
                            return await self._run(request, operation, args, body, context)
                        except RegistryError as refusal:
                            if refusal.code != _NO_LEADER:
                                raise
                            problem = refusal
                    elif FORWARDED in request.headers:
                        raise no_leader()
                    else:
                        answer, problem = await self._pass_on(request, body, problem)
                        if answer is not None:
                            return answer
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise problem from None

    def _origin(self, request: Request) -> str:
        return self._broker.origins.vouch("" if request.client is None else request.client.host)

    async def _pass_on(
        self, request: Request, body: bytes, problem: RegistryError
    ) -> tuple[Response | None, RegistryError]:
        leader = self.registry.follower.leader
        if leader < 0:
            return None, problem
        try:
            address = leader_address(self._broker, leader)
            passed = await pass_on(address, request, body, self._origin(request))
        except NotReached as reason:
            return None, forwarding_failed(str(reason))
        if passed.status == 500 and _code(passed.body) == _NO_LEADER:
            return None, problem
        return await self._answered(passed), problem

    async def _ask_leader(self, request: Request, body: bytes) -> Response | None:
        """Return what the leader says of a thing that this broker does not know (yet)."""
        follower = self.registry.follower
        if follower.is_leader or follower.leader < 0:
            return None
        try:
            address = leader_address(self._broker, follower.leader)
            passed = await pass_on(address, request, body, self._origin(request))
        except (NotReached, RegistryError):
            # Readers go on without the leader, with what is known here.
            return None
        return await self._answered(passed) if passed.status < 500 else None

    async def _answered(self, passed: Passed) -> Response:
        """Give the leader's answer once this broker knows as much: its client may ask on here."""
        try:
            async with asyncio.timeout(_CATCH_UP_WITHIN_S):
                await self.registry.follower.until_applied(passed.applied)
        except TimeoutError:
            pass
        return Response(passed.body, passed.status, media_type=passed.content_type or JSON_V1)

    def _response(self, request: Request, content: Any, status: int = 200) -> Response:
        accepted = request.headers.get("accept", "")
        is_plain = "json" in accepted and "schemaregistry" not in accepted
        kind = "application/json" if is_plain else JSON_V1
        found = Response(msgspec.json.encode(content), status, media_type=kind)
        if FORWARDED in request.headers:
            found.headers[APPLIED] = str(self.registry.follower.applied)
        return found


def _parts(raw_path: bytes) -> tuple[list[str], str]:
    """Return the parts of a path, still quoted, and the context that it begins with."""
    parts = raw_path.decode("latin-1").strip("/").split("/")
    if parts[0] == "contexts" and len(parts) > 2:
        name = parts[1].replace("%3A", ":").replace("%3a", ":").strip(":")
        return parts[2:], name if name.startswith(".") else f".{name}"
    return parts, DEFAULT_CONTEXT


def _operation(method: str, parts: Sequence[str]) -> tuple[Operation, list[str]]:
    others = []
    for operation in _BY_SHAPE.get((len(parts), parts[0]), ()):
        args = operation.match(parts)
        if args is not None:
            if operation.method == method:
                return operation, args
            others.append(operation.method)
    if others:
        raise RegistryError(405, 405, f"HTTP 405 Method Not Allowed: {method}")
    raise RegistryError(404, 404, "HTTP 404 Not Found")


def _sender(request: Request) -> object:
    """Return who shares turns: a user, or those at one address who are nobody."""
    principal = request.scope["principal"]
    if principal != ANONYMOUS:
        return principal
    return "" if request.client is None else request.client.host


def _refuse_other_sites(request: Request) -> None:
    """Refuse what a page of another site has a visitor's browser send: with the visitor's rights,
    or from a machine that everybody is let in from."""
    origin = request.headers.get("origin")
    if origin is None or request.method == "GET":
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        raise other_site()


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", JSON_V1).partition(";")[0].strip().lower()
    if kind not in _TAKEN:
        raise RegistryError(415, 415, f"HTTP 415 Unsupported Media Type: {kind[:100]}")
    return await request.body()


def _code(body: bytes) -> int:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return 0
    return int(found.get("error_code", 0)) if isinstance(found, dict) else 0
