"""The registry of APIs: what is known of them before their modules are imported, and after."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from moldau.broker import api as apis
from moldau.broker.api import registry
from moldau.broker.api.catalog import AT_START, MODULES
from moldau.wire.apis import VERSIONS, Api
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import Client


def test_the_catalog_says_which_module_declares_which_apis() -> None:
    for module in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}."):
        importlib.import_module(module.name)
    found: dict[str, set[Api]] = {}
    for api, declared in registry.DECLARED.items():
        function = declared.handler or declared.reader
        assert function is not None, Api(api).name
        found.setdefault(function.__module__, set()).add(Api(api))
    assert found == {f"{apis.__name__}.{name}": set(each) for name, each in MODULES.items()}
    assert registry.DECLARED.keys() == VERSIONS.keys()


def test_what_is_imported_on_first_use_declares_nothing_that_counts_before() -> None:
    registry.load()
    for name, found in MODULES.items():
        for api in found if name not in AT_START else ():
            declared = registry.DECLARED[api]
            assert not declared.any_version, api.name
            assert not declared.stages, api.name
            assert not declared.inter_broker, api.name


# Of several rooms, and one that is read by hand.
FIRST: tuple[tuple[Api, dict[str, Any]], ...] = (
    (Api.LIST_TRANSACTIONS, {}),
    (Api.SHARE_FETCH, {"group_id": "g", "member_id": "m", "share_session_epoch": 5}),
    (Api.DESCRIBE_CLIENT_QUOTAS, {"components": []}),
    (Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["g"]}),
    (Api.METADATA, {"topics": []}),
    (Api.SHARE_GROUP_DESCRIBE, {"group_ids": ["g"]}),
    (Api.DESCRIBE_CLUSTER, {}),
)


def test_first_requests_are_answered_in_order_however_many_ask_at_once(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Client(("127.0.0.1", broker.port)) as one,
        Client(("127.0.0.1", broker.port)) as other,
    ):
        forth, back = list(FIRST), list(reversed(FIRST))
        for client, requests in ((one, forth), (other, back)):
            client.send_bytes(b"".join(client.frame(api, **values) for api, values in requests))
        for client, requests in ((one, forth), (other, back)):
            for api, _ in requests:
                name = type(client.receive()).__name__
                assert name == Api(api).name.title().replace("_", "") + "Response"
