"""Share groups for `moldau groups`, which librdkafka's admin does not know."""

from __future__ import annotations

from moldau.cli.requests import connect_cluster
from moldau.cli.views.output import console, show_json
from moldau.cli.views.share_group import ages, share_as_json, share_lines
from moldau.peer.groups import Groups
from moldau.peer.share_groups import SHARE, ShareGroups


def share_rows(bootstrap: str) -> list[tuple[str, str, str, int]]:
    """Return name, kind, state and number of members of all share groups."""
    with connect_cluster(bootstrap) as cluster:
        names = [each.name for each in Groups(cluster).listed() if each.kind == SHARE]
        found = [ShareGroups(cluster).find(name) for name in names]
    return [
        (group.name, SHARE, group.state.lower(), len(group.members))
        for group in found
        if group is not None
    ]


def describe_share_group(bootstrap: str, name: str, *, as_json: bool, is_first: bool) -> bool:
    """Show a share group; return whether there is one of that name."""
    with connect_cluster(bootstrap) as cluster:
        group = ShareGroups(cluster).find(name)
    if group is None:
        return False
    oldest = ages(group, bootstrap)
    if as_json:
        show_json(share_as_json(group, oldest))
        return True
    out = console()
    for line in ([] if is_first else [""]) + share_lines(group, oldest):
        out.print(line)
    return True
