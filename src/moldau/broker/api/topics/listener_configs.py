"""Settings of listeners that change while a broker runs: new certificates, tried before they count.

Only the broker itself can tell whether it can use them, so whoever is asked tries them before the
controller decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from moldau.broker.api.topics.parts import TopicParts
from moldau.broker.settings.dynamic import listener_texts
from moldau.broker.settings.security import PREFIX, check, of_listener
from moldau.cluster.errors import ClusterError
from moldau.settings import InvalidSetting
from moldau.wire.errors import Error


def names_listeners(resource: Any) -> bool:
    """Return whether settings of a single listener are among those to change."""
    return any(config.name.startswith(PREFIX) for config in resource.configs)


async def check_listeners(
    parts: TopicParts, resource: Any, change: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    """Raise ClusterError where a listener of this broker could not use its new certificates."""
    names = {config.name for config in resource.configs if config.name.startswith(PREFIX)}
    if resource.resource_name != str(parts.node.id):
        return
    # Only here, since a broker without security needs none of it.
    from moldau.security.key_material import TlsError
    from moldau.security.tls import server_context

    settings, dynamic = parts.node.settings, parts.node.state.broker_configs
    configs = change(dict(dynamic.get(parts.node.id, {})))
    given = listener_texts(settings, {parts.node.id: configs})
    try:
        check(
            {name: configs[name] for name in names & configs.keys()},
            [each.name for each in settings.all_listeners],
        )
        for each in settings.all_listeners:
            prefix = f"{PREFIX}{each.name.lower()}."
            if each.has_tls and any(name.startswith(prefix) for name in names):
                own = of_listener(given, each.name)
                await asyncio.to_thread(server_context, own, own.ssl_client_auth)
    except TlsError as problem:
        message = f"listener {each.name} cannot use it: {problem}"
        raise ClusterError(Error.INVALID_REQUEST, message) from None
    except InvalidSetting as problem:
        raise ClusterError(Error.INVALID_REQUEST, str(problem)) from None
