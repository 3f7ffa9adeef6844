"""Cipher suites: the names of `ssl.cipher.suites`, and what OpenSSL makes of them.

Kafka's settings have the names of the standards (`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`), and
OpenSSL has names of its own (`ECDHE-RSA-AES256-GCM-SHA384`). Both are taken.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from moldau.security.key_material import TlsError

SETTING = "ssl.cipher.suites"
# The suites of TLS 1.3 that OpenSSL speaks by default.
_OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
# Parts of standard names whose hash OpenSSL leaves out.
_WITHOUT_HASH = ("CCM", "CCM8", "POLY1305")


def limit_suites(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Have a context whose versions are limited already speak only these; TlsError if it cannot.

    A version of TLS that none of them is for is not spoken, as in Java.
    """
    if not suites:
        return
    of_1_3 = [each for each in suites if each in _OF_TLS_1_3]
    older = [_by_openssl(each) for each in suites if each not in _OF_TLS_1_3]
    if not of_1_3:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    elif hasattr(context, "set_ciphersuites"):
        either: Any = context
        either.set_ciphersuites(":".join(of_1_3))
    elif len(of_1_3) < len(_OF_TLS_1_3):
        raise TlsError(
            SETTING,
            "this version of Python cannot choose among the suites of TLS 1.3: name all of "
            f"{', '.join(_OF_TLS_1_3)}, or none of them for TLS 1.2 alone",
        )
    if not older:
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_3)
    if context.minimum_version > context.maximum_version:
        raise TlsError(SETTING, "none of them belongs to a version in ssl.enabled.protocols")
    for each in older:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(each)
        except ssl.SSLError:
            raise TlsError(SETTING, f"this OpenSSL has no cipher suite {each}") from None
    if older:
        context.set_ciphers(":".join(older))


def for_openssl(suites: Sequence[str]) -> str:
    """Return suites of TLS 1.2 as OpenSSL takes them in one text; those of TLS 1.3 have no place in
    that."""
    names = [each.strip() for each in suites]
    return ":".join(_by_openssl(each) for each in names if each and each not in _OF_TLS_1_3)


def _by_openssl(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2."""
    if not name.startswith("TLS_"):
        return name
    exchange, _, rest = name.removeprefix("TLS_").partition("_WITH_")
    for bits in ("128", "256"):
        rest = rest.replace(f"AES_{bits}", f"AES{bits}").replace(f"ARIA_{bits}", f"ARIA{bits}")
    parts = rest.replace("CCM_8", "CCM8").replace("_CBC", "").split("_")
    if len(parts) > 2 and parts[-2] in _WITHOUT_HASH:
        del parts[-1]
    # An exchange by RSA alone goes without saying.
    before = [] if exchange == "RSA" else exchange.split("_")
    return "-".join(before + parts)
