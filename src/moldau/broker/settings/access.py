"""The settings of access control: who decides on requests, and what is told of that."""

from __future__ import annotations

from moldau.broker.settings.http import HttpSettings
from moldau.settings import INT_MAX, InvalidSetting, setting

# Kafka's name for its authorizer, under which ours has the same rules.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class AccessSettings(HttpSettings):
    """The settings of a broker that say who may do what."""

    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "",
        "The class that authorizes requests: Kafka's StandardAuthorizer, which applies the "
        "cluster's access rules. If empty, everybody may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = setting(
        "super.users",
        "",
        "The principals that may do everything, separated by semicolons: User:admin;User:broker.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everybody may do everything to a resource that no access rule covers.",
    )
    audit_interval_ms: int = setting(
        "audit.interval.ms",
        60_000,
        "How long refusals of the same kind are counted before one line is logged for all of "
        "them. The first is logged at once.",
        minimum=100,
        maximum=INT_MAX,
    )
    audit_admissions_enable: bool = setting(
        "audit.admissions.enable",
        False,
        "Whether the audit also records what was allowed, including logins.",
    )

    audit_topic: str = setting(
        "audit.topic",
        "",
        "A topic to write the audit to as well, as JSON. It is created with the first entry; "
        "brokers need Write on it, unless they are super users. If empty, there is none.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        "The most connections that may be open at once from one address. Further connections "
        "are closed.",
        minimum=0,
        maximum=INT_MAX,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        "",
        "Limits for single addresses that replace max.connections.per.ip: ADDRESS:COUNT,...",
        dynamic=True,
    )

    quota_window_num: int = setting(
        "quota.window.num",
        11,
        "The number of samples over which a rate with a quota is measured.",
        minimum=1,
        maximum=INT_MAX,
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        1,
        "The duration of each sample. A client that exceeds its quota of connections or "
        "request time is delayed for at most this long.",
        minimum=1,
        maximum=INT_MAX,
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        "The number of samples over which an unused quota of changes to the cluster "
        "(controller_mutation_rate) adds up.",
        minimum=1,
        maximum=INT_MAX,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        1,
        "The duration of each of these samples.",
        minimum=1,
        maximum=INT_MAX,
    )

    def most_connections_of(self, host: str) -> int:
        """Return the most connections that may be open at once from this address."""
        if not self.max_connections_per_ip_overrides:
            return self.max_connections_per_ip
        return self.connection_overrides.get(host, self.max_connections_per_ip)

    @property
    def connection_overrides(self) -> dict[str, int]:
        """The limits of single addresses; InvalidSetting where one is none."""
        found = {}
        text = self.max_connections_per_ip_overrides
        for each in text.split(","):
            if not each.strip():
                continue
            host, _, count = each.strip().rpartition(":")
            if not host or not count.isascii() or not count.isdecimal():
                reason = f"'{each.strip()}' is not of the form ADDRESS:COUNT"
                raise InvalidSetting("max.connections.per.ip.overrides", text, reason)
            found[host.strip("[]")] = int(count)
        return found

    @property
    def all_super_users(self) -> frozenset[str]:
        """The principals of super.users; InvalidSetting for one that is none."""
        found = frozenset(each.strip() for each in self.super_users.split(";") if each.strip())
        for each in found:
            kind, colon, name = each.partition(":")
            if not (kind and colon and name):
                raise InvalidSetting(
                    "super.users", self.super_users, f"'{each}' is not of the form User:NAME"
                )
        return found
