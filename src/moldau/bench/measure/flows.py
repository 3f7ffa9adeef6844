"""Figures that every flow of messages has."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.bench.results import Figure, Target, figure
from moldau.bench.tasks import Flow

MB, GB = 1e6, 1e9


def flow_figures(
    flows: Sequence[Flow],
    size: int,
    *,
    rate_target: Target | None = None,
    cpu_target: Target | None = None,
) -> list[Figure]:
    """Messages a second, megabytes of payload a second, broker CPU per gigabyte and message."""
    return [
        figure("messages", "msg/s", [f.messages / f.seconds for f in flows], rate_target),
        figure("payload", "MB/s", [f.messages * size / f.seconds / MB for f in flows]),
        figure(
            "broker CPU per GB",
            "CPU-s/GB",
            [f.broker_cpu_s / (f.messages * size / GB) for f in flows],
            cpu_target,
        ),
        figure("broker CPU per message", "us", [cpu_us_per_message(f) for f in flows]),
    ]


def cpu_us_per_message(flow: Flow) -> float:
    return flow.broker_cpu_s * 1e6 / flow.messages


def client_limit(flows: Sequence[Flow]) -> Figure:
    """Return how fast the client was against a broker that does nothing."""
    return figure("client's own limit", "msg/s", [f.messages / f.seconds for f in flows])
