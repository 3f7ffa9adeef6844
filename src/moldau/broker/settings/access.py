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
        "Who decides on requests: Kafka's StandardAuthorizer, by the cluster's access rules. If "
        "empty, everybody may do everything.",
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
        "Whether everybody may do everything to a resource that no access rule is about.",
    )
    audit_interval_ms: int = setting(
        "audit.interval.ms",
        60_000,
        "How long refusals of a kind are counted before they are logged as one line. The first "
        "is logged at once.",
        minimum=100,
        maximum=INT_MAX,
    )
    audit_admissions_enable: bool = setting(
        "audit.admissions.enable",
        False,
        "Whether the audit tells of admissions, too, logins among them.",
    )

    audit_topic: str = setting(
        "audit.topic",
        "",
        "A topic that the audit is written to as well, as JSON. It is created when there is "
        "something to write; brokers need Write on it, or are super users. If empty, there is "
        "none.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        "The most connections that may be open at once from one address. Further ones are closed.",
        minimum=0,
        maximum=INT_MAX,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides",
        "",
        "Other limits than max.connections.per.ip for single addresses: ADDRESS:COUNT,...",
        dynamic=True,
    )

    quota_window_num: int = setting(
        "quota.window.num",
        11,
        "How many samples a rate with a quota is measured over.",
        minimum=1,
        maximum=INT_MAX,
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        1,
        "How long each of them lasts. Who connects or takes time too often waits at most so long.",
        minimum=1,
        maximum=INT_MAX,
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        11,
        "For how many samples changes to the cluster can be saved up (controller_mutation_rate).",
        minimum=1,
        maximum=INT_MAX,
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        1,
        "How long each of them lasts.",
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
