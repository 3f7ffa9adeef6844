"""The screen of `moldau top`: a picture as tables for people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.top.picture import Picture
from moldau.cli.views.output import table_lines

if TYPE_CHECKING:
    from rich.text import Text

_MOST_ROWS = 12
_UNITS = ("B", "KB", "MB", "GB", "TB")


def lines_of(picture: Picture) -> list[Text]:
    """Return the lines of a picture, problems first."""
    from rich.text import Text

    lines = [Text(time.strftime("%H:%M:%S"), "dim")]
    lines += [Text(f"! {each}", "bold red") for each in picture.problems]
    if not picture.problems:
        lines.append(Text("no problems", "green"))
    lines += _section(
        ("BROKER", "HTTP", "LEADS", "HOLDS", "MSG/S", "IN/S", "OUT/S", "REQ/S", "PRODUCE P99",
         "FETCH P50", "CPU", "MEMORY", "CONNECTIONS"),
        (
            (
                f"{each.broker}{' *' if each.is_controller else ''}", each.url, each.leads,
                each.holds, f"{each.messages_s:,.0f}", in_bytes(each.bytes_in_s),
                in_bytes(each.bytes_out_s), f"{each.requests_s:,.0f}", _ms(each.produce_p99_ms),
                _ms(each.fetch_p50_ms), f"{each.cpu_share:.0%}", in_bytes(each.memory_bytes),
                each.connections,
            )
            for each in picture.brokers
        ),
    )  # fmt: skip
    lines += _section(
        ("TOPIC", "PARTITIONS", "MSG/S", "IN/S", "OUT/S"),
        (
            (each.topic, each.partitions, f"{each.messages_s:,.0f}", in_bytes(each.bytes_in_s),
             in_bytes(each.bytes_out_s))
            for each in picture.topics
        ),
    )  # fmt: skip
    lines += _section(
        ("GROUP", "TOPIC", "MEMBERS", "LAG", "SECONDS"),
        (
            (each.group, each.topic, each.members, each.lag,
             "-" if each.lag_s is None else f"{each.lag_s:,.1f}")
            for each in picture.groups
        ),
    )  # fmt: skip
    return lines


def _section(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Text]:
    from rich.text import Text

    found = list(rows)
    if not found:
        return []
    lines = [Text(""), *table_lines(columns, found[:_MOST_ROWS])]
    if len(found) > _MOST_ROWS:
        lines.append(Text(f"and {len(found) - _MOST_ROWS} more", "dim"))
    return lines


def in_bytes(count: float) -> str:
    """`1.5 MB`."""
    number = 0
    while count >= 1000 and number < len(_UNITS) - 1:
        count /= 1000
        number += 1
    return f"{count:.0f} {_UNITS[number]}" if number == 0 else f"{count:.1f} {_UNITS[number]}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
