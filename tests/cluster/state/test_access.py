"""Access as part of a cluster's state: who may do what, how much and by which password."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.state.access import (
    CLOSED,
    AccessChange,
    AccessDamaged,
    Acl,
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ResourcePattern,
    ScramChanged,
    ScramCredential,
    subject_of,
)
from moldau.cluster.state.state import ClusterState

ORDERS = ResourcePattern(2, "orders", 3)
ALICE = Acl("User:alice", "*", 3, 3)
CREDENTIAL = ScramCredential(b"salt", b"stored-key", b"server-key", 4096)


def test_an_entry_replaces_what_was_known_of_its_subject_and_an_empty_one_removes_it() -> None:
    state = ClusterState()
    for change in (
        AclsChanged(ORDERS, (ALICE,)),
        QuotasChanged((("user", "alice"), ("client-id", None)), {"producer_byte_rate": 1.0}),
        ScramChanged("alice", {"SCRAM-SHA-256": CREDENTIAL}),
        GroupConfigured("a/b", {"consumer.session.timeout.ms": "50000"}),
    ):
        before = state.version
        state.apply(change)
        assert state.version > before
    access = state.access
    assert access.acls == {ORDERS: (ALICE,)}
    assert access.quotas == {(("user", "alice"), ("client-id", None)): {"producer_byte_rate": 1.0}}
    assert access.scram == {"alice": {"SCRAM-SHA-256": CREDENTIAL}}
    assert access.group_configs == {"a/b": {"consumer.session.timeout.ms": "50000"}}
    copy = ClusterState()
    for step in state.changes():
        copy.apply(step)
    assert copy.access.entries == access.entries
    for entry in list(access.entries.values()):
        state.apply(entry.emptied())
    assert (access.entries, access.acls, access.quotas, access.scram) == ({}, {}, {}, {})
    assert access.group_configs == {}


def test_a_credential_does_not_show_its_keys() -> None:
    assert "stored" not in repr(ScramChanged("alice", {"SCRAM-SHA-256": CREDENTIAL}))


names = st.text(max_size=30)
entries: st.SearchStrategy[AccessChange] = st.one_of(
    st.builds(AclsChanged, st.builds(ResourcePattern, st.integers(0, 9), names, st.integers(0, 9))),
    st.builds(
        QuotasChanged,
        st.lists(st.tuples(st.sampled_from(["user", "ip"]), st.none() | names), max_size=2).map(
            tuple
        ),
    ),
    st.builds(ScramChanged, names),
    st.builds(GroupConfigured, names),
)


@given(entries, entries)
def test_subjects_have_keys_of_their_own_that_zookeeper_takes(
    one: AccessChange, two: AccessChange
) -> None:
    assert (one.key == two.key) == (one == two)
    assert "/" not in one.key
    assert one.key.isascii()
    assert one.key.isprintable()
    assert msgspec.json.decode(msgspec.json.encode(one), type=AccessChange).key == one.key


@given(entries, st.text(max_size=30))
def test_a_key_leads_back_to_its_subject_and_to_no_other(entry: AccessChange, text: str) -> None:
    if not isinstance(entry, QuotasChanged) or entry.entity:
        assert subject_of(entry.key) == entry
    for key in (text, f"acl.{text}", f"quota.{text}", f"scram.{text}"):
        found = subject_of(key)
        assert found is None or found.key == key


def test_an_entry_that_cannot_be_read_closes_its_subject_and_comes_back() -> None:
    access = ClusterState().access
    entry = AclsChanged(ORDERS, (ALICE,))
    access.apply(entry)
    access.apply(AccessDamaged(entry.key, "why"))
    assert access.acls == {ORDERS: (CLOSED,)}
    assert access.damaged == {entry.key: "why"}
    address = QuotasChanged((("ip", None),), {"connection_creation_rate": 100.0})
    access.apply(AccessDamaged(address.key, "why"))
    assert access.quotas == {address.entity: {"connection_creation_rate": 1.0}}
    for each in (entry, address):
        access.apply(each)
    assert not access.damaged
    assert (access.acls, access.quotas) == ({ORDERS: (ALICE,)}, {address.entity: address.limits})
    access.apply(AccessDamaged(entry.key, "why"))
    access.apply(access.entries[entry.key].emptied())
    assert (access.acls, access.damaged) == ({}, {})
