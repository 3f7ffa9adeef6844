"""The names in certificates: as Java writes them, and what Kafka's rules make of them."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.security.distinguished_name import NotACertificate, subject_of
from moldau.broker.security.principal_rules import (
    InvalidRules,
    NoRuleMatches,
    parse_rules,
    user_of,
)

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1)


def certificate(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    name = x509.Name([x509.NameAttribute(*each) for each in attributes])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
        .not_valid_before(NOW)
        .not_valid_after(NOW)
        .serial_number(1)
        .public_key(KEY.public_key())
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [
                (NameOID.COUNTRY_NAME, "CZ"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Praha"),
                (NameOID.LOCALITY_NAME, "Žižkov"),
                (NameOID.ORGANIZATION_NAME, "Acme, Inc."),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "a=b+c"),
                (NameOID.COMMON_NAME, "bob"),
            ],
            "CN=bob,OU=a\\=b\\+c,O=Acme\\, Inc.,L=Žižkov,ST=Praha,C=CZ",
        ),
        ([(NameOID.COMMON_NAME, " two ")], "CN=\\ two\\ "),
        ([(NameOID.COMMON_NAME, "#1")], "CN=\\#1"),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u1")], "UID=u1,DC=org"),
        # RFC 2253 has no name for it, so its bytes count.
        (
            [(NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "eve")],
            "CN=eve,1.2.840.113549.1.9.1=#1605614062" + "2e63",
        ),
    ],
)
def test_a_subject_reads_as_java_writes_it(
    attributes: list[tuple[x509.ObjectIdentifier, str]], text: str
) -> None:
    assert subject_of(certificate(*attributes)) == text


def test_a_subject_without_parts_is_empty() -> None:
    assert subject_of(certificate()) == ""


WHOLE = certificate((NameOID.COMMON_NAME, "alice"))


@settings(max_examples=200)
@given(st.data())
def test_bytes_that_are_no_certificate_are_refused(data: st.DataObject) -> None:
    whole = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, 150))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        assert isinstance(subject_of(cut), str)
    except NotACertificate:
        pass


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        ("", "CN=a", "CN=a"),
        # The examples of KIP-371.
        (
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
            "CN=serviceuser,OU=ServiceUsers,O=Unknown",
            "serviceuser",
        ),
        (
            "RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/L,DEFAULT",
            "CN=adminUser, OU=Admin, O=Unknown, L=Unknown, ST=Unknown, C=Unknown",
            "adminuser@admin",
        ),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U , DEFAULT", "cn=kafka1", "KAFKA1"),
        ("RULE:^CN=x$/y/,DEFAULT", "CN=other", "CN=other"),
        (r"RULE:^CN=(.*)$/\$1 costs \/ $1/", "CN=a", "$1 costs / a"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(rules: str, name: str, user: str) -> None:
    assert user_of(parse_rules(rules), name) == user


def test_a_name_that_no_rule_matches_is_nobodys() -> None:
    with pytest.raises(NoRuleMatches, match="'CN=b'"):
        user_of(parse_rules("RULE:^CN=a$/a/"), "CN=b")


@pytest.mark.parametrize("rules", ["RULE:a", "RULE:a/b", "default", "RULE:(/a/", "RULE:a/$1/"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(InvalidRules):
        parse_rules(rules)


@given(st.text(alphabet="RULE:/\\$1(),DFAT^L ", max_size=30))
def test_any_text_is_read_as_rules_or_refused(text: str) -> None:
    try:
        assert parse_rules(text)
    except InvalidRules:
        pass
