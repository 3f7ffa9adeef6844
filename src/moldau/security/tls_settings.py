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
        "The form of ssl.keystore.location. If empty, it is told from the file's content.",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        "",
        "The file with the private key and its certificates: PEM, or PKCS12. "
        "A file that changes is read again; open connections stay.",
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
        "The form of ssl.truststore.location. If empty, it is told from the file's content.",
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
        "The versions of TLS that are spoken.",
        choices=TLS_VERSIONS,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "The cipher suites that are spoken, by their standard names or by OpenSSL's. If empty, "
        "those that Python takes for safe.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a client makes sure that a broker is the one it asked for: by the name in "
        "the certificate (https), or not at all (empty).",
        choices=("https", ""),
    )
