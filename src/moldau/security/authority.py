"""A certificate authority of one's own: signs the certificates of brokers and of users."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
# Clocks differ a little.
_EARLIER = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key and its certificate, both in PEM; the key is not encrypted."""

    key: str = field(repr=False)
    certificate: str

    @property
    def pem(self) -> str:
        """Both in one text, as Kafka's PEM keystores have it."""
        return self.key + self.certificate


class Authority:
    """An authority: its certificate, and the key that it signs with."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str = "Moldau authority", days: float = AUTHORITY_DAYS) -> Authority:
        """Return a new one, which signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        usage = {**_NO_USAGE, "key_cert_sign": True, "crl_sign": True, "digital_signature": True}
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _valid(days)
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, pem: str) -> Authority:
        """Return the one that `pem` was taken of; ValueError if it is not one of ours."""
        data = pem.encode()
        key = serialization.load_pem_private_key(data, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of an authority must be an elliptic-curve key")
        return cls(key, x509.load_pem_x509_certificate(data))

    @property
    def pem(self) -> str:
        """Its private key and certificate, to `load` it again."""
        return _key_in_pem(self._key) + self.certificate

    @property
    def certificate(self) -> str:
        """Its certificate: what others need to trust it."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, hosts: Sequence[str] = (), days: float = CERTIFICATE_DAYS) -> Issued:
        """Return a new key and certificate, for CN=`name`.

        With `hosts`, names or addresses, it is one for a broker, which is a client of other
        brokers, too. Without it is one for a user.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _valid(days).subject_name(_named(name)).public_key(key.public_key())
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(alternatives, critical=False)
        usage = {**_NO_USAGE, "digital_signature": True}
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            builder.issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(signer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        text = certificate.public_bytes(serialization.Encoding.PEM).decode()
        return Issued(_key_in_pem(key), text)


_NO_USAGE = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip


def _valid(days: float) -> x509.CertificateBuilder:
    """Return a builder for a certificate that expires in so many days; it has expired if those are
    negative."""
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _EARLIER)
        .not_valid_after(end)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_in_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
