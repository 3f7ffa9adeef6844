"""The settings of TLS that brokers and clients share, under Kafka's names."""

from __future__ import annotations

from moldau.settings import Settings, setting

STORE_TYPES = ("", "PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class TlsSettings(Settings):
    """Where the own certificate comes from, whom to trust, and which versions to speak."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "",
        "The format of ssl.keystore.location. If empty, it is detected from the file's content.",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        "",
        "The file with the private key and its certificates: PEM, or PKCS12. A changed file is "
        "read again; open connections stay open.",
    )
    ssl_keystore_password: str = setting(
        "ssl.keystore.password", "", "The password of a PKCS12 keystore.", secret=True
    )
    ssl_key_password: str = setting(
        "ssl.key.password", "", "The password of an encrypted private key.", secret=True
    )
    ssl_keystore_key: str = setting(
        "ssl.keystore.key", "", "The private key itself, in PEM.", secret=True
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain",
        "",
        "The certificates of ssl.keystore.key, in PEM, its own first.",
        secret=True,
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "",
        "The format of ssl.truststore.location. If empty, it is detected from the file's content.",
        choices=STORE_TYPES,
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        "",
        "The file with the certificates of the authorities to trust: PEM, or PKCS12.",
    )
    ssl_truststore_password: str = setting(
        "ssl.truststore.password", "", "The password of a PKCS12 truststore.", secret=True
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates",
        "",
        "The certificates of the authorities to trust, in PEM.",
        secret=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        TLS_VERSIONS,
        "The TLS versions to allow.",
        choices=TLS_VERSIONS,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "The cipher suites to allow, by their standard names or OpenSSL's. If empty, those that "
        "Python takes for safe.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a client verifies that it reached the right broker: by the name in the certificate "
        "(https), or not at all (empty).",
        choices=("https", ""),
    )
