"""The server: JSON-RPC 2.0, a message a line, as the protocol has it over standard input."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from moldau import __version__
from moldau.console.console import Console
from moldau.console.mcp.tools import NoSuchTool, Tools
from moldau.console.settings import ConsoleSettings

logger = logging.getLogger("moldau.console.mcp")

# The newest first: it is offered to clients that ask for one that we do not know.
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_PARSE, _INVALID, _NO_METHOD, _PARAMETERS, _INTERNAL = -32700, -32600, -32601, -32602, -32603
_INSTRUCTIONS = (
    "Tools to inspect a cluster of Kafka-compatible brokers. Start with get_overview, which lists "
    "problems first. why_is_group_behind explains the lag of a consumer group."
)


class Refusal(Exception):
    """What a request is refused with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class McpServer:
    """Answers messages one after the other. For one thread."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "initialize": self._initialize,
            "ping": lambda given: {},
            "tools/list": lambda given: {"tools": self._tools.listed()},
            "tools/call": self._call,
        }

    def answer(self, line: bytes) -> bytes | None:
        """Return the answer to one line; None to what wants none."""
        id: Any = None
        try:
            try:
                message = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as problem:
                raise Refusal(_PARSE, f"not JSON: {problem}") from None
            if not isinstance(message, dict) or not isinstance(message.get("method"), str):
                raise Refusal(_INVALID, "a request needs a method")
            if "id" not in message:
                # A notification, such as that the client is ready.
                return None
            id = message["id"]
            given = message.get("params") or {}
            if not isinstance(given, dict):
                raise Refusal(_PARAMETERS, "params must be an object")
            method = self._methods.get(message["method"])
            if method is None:
                raise Refusal(_NO_METHOD, f"there is no method {message['method']}")
            content: dict[str, Any] = {"result": method(given)}
        except Refusal as refused:
            content = {"error": {"code": refused.code, "message": refused.message}}
        except Exception as problem:
            logger.exception("a request failed")
            content = {"error": {"code": _INTERNAL, "message": type(problem).__name__}}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": id, **content})

    def _initialize(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = given.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "moldau", "version": __version__},
            "instructions": _INSTRUCTIONS,
        }

    def _call(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments = given.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise Refusal(_PARAMETERS, "arguments must be an object")
        try:
            text, is_error = self._tools.call(str(given.get("name", "")), arguments)
        except NoSuchTool as problem:
            raise Refusal(_PARAMETERS, f"there is no tool {problem}") from None
        return {"content": [{"type": "text", "text": text}], "isError": is_error}


async def serve(
    settings: ConsoleSettings, source: BinaryIO, out: BinaryIO, *, may_change: bool
) -> None:
    """Answer what comes in, until it ends."""
    console = Console(settings)
    console.start()
    server = McpServer(Tools(console, may_change=may_change))
    loop = asyncio.get_running_loop()
    try:
        while line := await loop.run_in_executor(None, source.readline):
            if not line.strip():
                continue
            # In a thread, so that what is asked of the loop meanwhile is done.
            answer = await loop.run_in_executor(None, server.answer, line)
            if answer is not None:
                out.write(answer + b"\n")
                out.flush()
    finally:
        await console.stop()
