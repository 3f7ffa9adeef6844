"""TLS contexts, made from Kafka's settings for both ends of a connection."""

from __future__ import annotations

import os
import ssl

from moldau.security.alerts import AlertingContext
from moldau.security.cipher_suites import limit_suites
from moldau.security.key_material import Pem, TlsError, load_key, load_trust, read_store
from moldau.security.tls_settings import TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# What ssl.client.auth asks of clients.
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

FileStamp = tuple[str, int, int, int]


def server_context(settings: TlsSettings, client_auth: str = "none") -> ssl.SSLContext:
    """Return the context of a listener; TlsError where the settings lack something."""
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_versions(context, settings)
    # A session that is taken up again would not see a new authority or another certificate.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    own = _own(settings)
    if own is None:
        raise TlsError(
            "ssl.keystore.location", "a TLS listener needs a private key and its certificate"
        )
    load_key(context, own)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if client_auth != "none":
        trusted = _trusted(settings)
        if trusted is None:
            # The public authorities would give anybody on the internet a way in.
            raise TlsError(
                "ssl.truststore.location",
                f"ssl.client.auth={client_auth} needs the authorities that sign client "
                "certificates",
            )
        load_trust(context, trusted)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections to brokers; TlsError where a setting cannot be used.

    Without a truststore the system's authorities are trusted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    _limit_versions(context, settings)
    own, trusted = _own(settings), _trusted(settings)
    if own is not None:
        load_key(context, own)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_trust(context, trusted)
    return context


def stamps(settings: TlsSettings) -> tuple[FileStamp, ...]:
    """Return what tells whether a file of these settings has been replaced."""
    found = []
    for path in (settings.ssl_keystore_location, settings.ssl_truststore_location):
        if path:
            try:
                stat = os.stat(path)
            except OSError:
                continue
            found.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)


def problem_in_words(problem: BaseException) -> str:
    """Return why a TLS handshake failed, for people."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate was rejected: {problem.verify_message}"
    if isinstance(problem, ssl.SSLError):
        reason = (problem.reason or str(problem)).replace("_", " ").lower()
        return _HINTS.get(problem.reason or "", reason)
    if isinstance(problem, TimeoutError | ConnectionAbortedError):
        return "the handshake took too long"
    return str(problem) or "the other side closed the connection"


def proves_nobody(problem: BaseException) -> bool:
    """Return whether a handshake failed because of what the other side's certificate says, or
    since there was none."""
    reason = getattr(problem, "reason", None)
    return (
        isinstance(problem, ssl.SSLCertVerificationError)
        or reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    )


# OpenSSL's reasons that say little to who does not know them.
_HINTS = {
    "HTTP_REQUEST": "the other side does not speak TLS, but plain HTTP",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the other side closed the connection",
    "UNSUPPORTED_PROTOCOL": "the other side supports no TLS version that is enabled here",
    "NO_SHARED_CIPHER": "the other side shares no cipher with this one",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side sent no certificate, which is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired, says the other side",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side requires a certificate of ours",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side supports no TLS version that is enabled here",
}


def _limit_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    enabled = [_VERSIONS[each] for each in settings.ssl_enabled_protocols]
    if not enabled:
        raise TlsError("ssl.enabled.protocols", "no version of TLS is enabled")
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    limit_suites(context, settings.ssl_cipher_suites)


def _own(settings: TlsSettings) -> Pem | None:
    """Return the private key and its certificates, if there are any."""
    if settings.ssl_keystore_key:
        if settings.ssl_keystore_location:
            raise TlsError("ssl.keystore.key", "ssl.keystore.location is set, too; give only one")
        text = f"{settings.ssl_keystore_key}\n{settings.ssl_keystore_certificate_chain}\n"
        return Pem("ssl.keystore.key", inline(text), settings.ssl_key_password)
    if not settings.ssl_keystore_location:
        return None
    name, path = "ssl.keystore.location", settings.ssl_keystore_location
    kind, password = settings.ssl_keystore_type, settings.ssl_keystore_password
    found = read_store(name, path, kind, password)
    # Of a PEM file only the key has a password.
    return Pem(name, found.text, settings.ssl_key_password or found.password)


def _trusted(settings: TlsSettings) -> Pem | None:
    if settings.ssl_truststore_certificates:
        if settings.ssl_truststore_location:
            reason = "ssl.truststore.location is set, too; give only one"
            raise TlsError("ssl.truststore.certificates", reason)
        return Pem("ssl.truststore.certificates", inline(settings.ssl_truststore_certificates), "")
    if not settings.ssl_truststore_location:
        return None
    return read_store(
        "ssl.truststore.location",
        settings.ssl_truststore_location,
        settings.ssl_truststore_type,
        settings.ssl_truststore_password,
    )


def inline(text: str) -> bytes:
    """Return PEM that stands in a properties file, where a line may end in `\\n` written out."""
    return text.replace("\\n", "\n").encode()
