"""The settings of a broker's way to ZooKeeper that are about security."""

from __future__ import annotations

from moldau.broker.settings.access import AccessSettings
from moldau.security.tls_settings import STORE_TYPES
from moldau.settings import InvalidSetting, setting


class ZooKeeperSettings(AccessSettings):
    """How ZooKeeper knows this broker, and the broker ZooKeeper."""

    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl",
        False,
        "Whether only the brokers may read and write their data in ZooKeeper. They prove who they "
        "are with zookeeper.digest or zookeeper.sasl.jaas.config: set one of these on all brokers "
        "first.",
    )
    zookeeper_digest: str = setting(
        "zookeeper.digest",
        "",
        "USER:PASSWORD that the brokers of a cluster authenticate to ZooKeeper with, the same "
        "for all.",
        secret=True,
    )
    zookeeper_sasl_jaas_config: str = setting(
        "zookeeper.sasl.jaas.config",
        "",
        "The name and password that the brokers of a cluster authenticate to ZooKeeper with by "
        "SASL; its servers must know them. For example: org.apache.zookeeper.server.auth."
        'DigestLoginModule required username="..." password="...";.',
        secret=True,
    )
    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper are encrypted."
    )
    zookeeper_ssl_keystore_location: str = setting(
        "zookeeper.ssl.keystore.location",
        "",
        "The file with this broker's key and certificate for ZooKeeper: PEM, or PKCS12.",
    )
    zookeeper_ssl_keystore_password: str = setting(
        "zookeeper.ssl.keystore.password", "", "The password of that keystore.", secret=True
    )
    zookeeper_ssl_keystore_type: str = setting(
        "zookeeper.ssl.keystore.type", "", "The format of that keystore.", choices=STORE_TYPES
    )
    zookeeper_ssl_truststore_location: str = setting(
        "zookeeper.ssl.truststore.location",
        "",
        "The file with the certificates of the authorities that sign ZooKeeper's servers: "
        "PEM, or PKCS12.",
    )
    zookeeper_ssl_truststore_password: str = setting(
        "zookeeper.ssl.truststore.password", "", "The password of that truststore.", secret=True
    )
    zookeeper_ssl_truststore_type: str = setting(
        "zookeeper.ssl.truststore.type", "", "The format of that truststore.", choices=STORE_TYPES
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "https",
        "How to verify that a ZooKeeper server is the right one: by the name in its certificate "
        "(https), or not at all (empty).",
        choices=("https", ""),
    )

    def check_zookeeper(self) -> None:
        """Raise InvalidSetting for what does not go together."""
        user, colon, password = self.zookeeper_digest.partition(":")
        if self.zookeeper_digest and not (user and colon and password):
            raise InvalidSetting("zookeeper.digest", None, "expected USER:PASSWORD")
        if self.zookeeper_set_acl and not (self.zookeeper_digest or self.zookeeper_login):
            reason = "it needs zookeeper.digest or zookeeper.sasl.jaas.config"
            raise InvalidSetting("zookeeper.set.acl", "true", reason)
        _ = self.zookeeper_login

    @property
    def zookeeper_login(self) -> tuple[str, str] | None:
        """Name and password for SASL, None without; InvalidSetting where one is missing."""
        name = "zookeeper.sasl.jaas.config"
        if not self.zookeeper_sasl_jaas_config:
            return None
        # A broker without it starts sooner.
        from moldau.security.jaas import InvalidJaas, parse_jaas

        try:
            login = parse_jaas(self.zookeeper_sasl_jaas_config)
        except InvalidJaas as problem:
            raise InvalidSetting(name, None, str(problem)) from None
        if login.module != "DigestLoginModule":
            raise InvalidSetting(
                name, None, f"only DigestLoginModule is supported, not {login.module}"
            )
        user, password = login.options.get("username"), login.options.get("password")
        if not user or not password:
            raise InvalidSetting(name, None, "DigestLoginModule needs username and password")
        return user, password
