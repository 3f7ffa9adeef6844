"""The console's API for assistants, over the Model Context Protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from moldau.console.mcp.server import McpServer
from moldau.console.mcp.tools import CHANGING, READING, Tools
from moldau.testing import Broker
from tests.console.api.test_groups import commit, produce
from tests.console.consoles import RunningConsole


def ask(server: McpServer, method: str, **params: Any) -> Any:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    answer = server.answer(line.encode())
    assert answer is not None
    return json.loads(answer)


@pytest.fixture
def server(console: RunningConsole) -> McpServer:
    return McpServer(Tools(console.console, may_change=False))


def called(server: McpServer, tool: str, /, **arguments: Any) -> tuple[Any, bool]:
    found = ask(server, "tools/call", name=tool, arguments=arguments)["result"]
    (content,) = found["content"]
    return content["text"], found["isError"]


def test_a_client_is_greeted_and_told_of_tools_that_change_nothing(server: McpServer) -> None:
    greeted = ask(server, "initialize", protocolVersion="2025-03-26")["result"]
    assert greeted["protocolVersion"] == "2025-03-26"
    assert greeted["serverInfo"]["name"] == "moldau"
    assert server.answer(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') is None
    tools = ask(server, "tools/list")["result"]["tools"]
    assert [each["name"] for each in tools] == list(READING)
    assert all(each["annotations"]["readOnlyHint"] for each in tools)
    browse = next(each for each in tools if each["name"] == "browse_messages")
    assert browse["inputSchema"]["required"] == ["topic"]
    assert "from" in browse["inputSchema"]["properties"]


def test_an_assistant_can_find_out_why_a_group_is_behind(
    server: McpServer, shared_broker: Broker
) -> None:
    shared_broker.create_topic("asked-about")
    produce(shared_broker, "asked-about", 10, 1_700_000_000_000)
    commit(shared_broker, "puzzling", "asked-about", 3)
    text, is_error = called(server, "why_is_group_behind", group="puzzling")
    assert not is_error
    found = json.loads(text)
    assert found["summary"].startswith("puzzling is 7 messages behind")
    assert "no members" in found["reasons"][0]["what"]
    text, _ = called(server, "browse_messages", topic="asked-about", limit=2)
    assert len(json.loads(text)["messages"]) == 2


def test_what_goes_wrong_is_told_as_the_protocol_wants_it(
    server: McpServer, console: RunningConsole
) -> None:
    text, is_error = called(server, "get_topic", topic="nowhere")
    assert is_error
    assert "UNKNOWN_TOPIC_OR_PARTITION" in text
    assert called(server, "get_topic") == ("topic is missing", True)
    assert called(server, "browse_messages", topic="x", limit="many")[1]
    for name in CHANGING:
        assert ask(server, "tools/call", name=name)["error"]["code"] == -32602
    assert ask(server, "resources/list")["error"]["code"] == -32601
    refused = json.loads(server.answer(b"nonsense") or b"")
    assert refused["error"]["code"] == -32700
    changing = McpServer(Tools(console.console, may_change=True))
    text, is_error = called(changing, "create_topic", name="by-assistant", preview=True)
    assert not is_error


@pytest.mark.slow
def test_the_command_speaks_over_standard_input_and_output(shared_broker: Broker) -> None:
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "get_cluster"}},
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "moldau", "mcp", "--log-format", "json"],
        env=os.environ | {"MOLDAU_BOOTSTRAP": shared_broker.bootstrap},
        input="".join(json.dumps(each) + "\n" for each in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second = map(json.loads, ran.stdout.splitlines())
    assert first["result"]["serverInfo"]["name"] == "moldau"
    assert json.loads(second["result"]["content"][0]["text"])["brokers"]
