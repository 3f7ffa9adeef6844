"""Share groups: what members have in flight of the partitions that this broker leads, and lag."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.coordination.share.batches import ACQUIRED, AVAILABLE
from moldau.broker.slices import Slices
from moldau.http.metrics.families import Families, Kind, labels

if TYPE_CHECKING:
    from moldau.broker.server import Broker

_AT_A_TIME = 200
_KAFKA = "kafka_server_sharepartitionmetrics_"
_GROUP = "moldau_sharegroup_"
_SERIES: tuple[tuple[str, Kind, str], ...] = (
    (f"{_KAFKA}inflightmessagecount", "gauge", "Messages that members of a share group hold."),
    (f"{_KAFKA}acquisitionlocktimeout_total", "counter", "Messages whose locks ran out."),
    (f"{_GROUP}waiting", "gauge", "Messages that were delivered and are to be delivered again."),
    (f"{_GROUP}redelivered_total", "counter", "Deliveries after the first."),
    (f"{_GROUP}dead_total", "counter", "Messages that were rejected or are out of tries."),
    (f"{_GROUP}lag", "gauge", "Messages that a share group has yet to finish."),
)


async def add_shares(
    broker: Broker, families: Families, slices: Slices, *, one_by_one: bool
) -> None:
    """Add the families of share groups to those of a scrape; none if there are no such groups.

    Counts begin when this broker begins to lead a partition, or its group to read.
    """
    shares = broker.shares
    totals: dict[tuple[str, str], Counter[str]] = {}
    each_of = {name: families.family(name, kind, about) for name, kind, about in _SERIES}
    for number, shared in enumerate(shares, 1):
        machine = shared.machine
        if machine is not None:
            held, waiting = machine.count(ACQUIRED), machine.count(AVAILABLE)
            unseen = max(shared.partition.log.high_watermark - machine.end, 0)
            figures = (
                held, machine.expired, waiting, machine.redelivered, machine.dead,
                unseen + held + waiting,
            )  # fmt: skip
            place = (shared.key.group, shared.partition.topic)
            total = totals.setdefault(place, Counter())
            for (name, _, _), figure in zip(_SERIES, figures, strict=True):
                total[name] += figure
            if one_by_one:
                group, topic = place
                where = labels(group=group, topic=topic, partition=shared.partition.index)
                for (name, _, _), figure in zip(_SERIES, figures, strict=True):
                    each_of[name].add(figure, where)
        if number % _AT_A_TIME == 0:
            await slices.rest()
    if not one_by_one:
        for (group, topic), total in totals.items():
            for name, family in each_of.items():
                family.add(total[name], labels(group=group, topic=topic))
    families.counter(
        "moldau_dead_letters_total", "Dead letters of share groups that were written.",
        shares.dead_letters.buried,
    )  # fmt: skip
    families.counter(
        "moldau_dead_letters_failed_total", "Times that dead letters could not be written.",
        shares.dead_letters.failed,
    )  # fmt: skip
