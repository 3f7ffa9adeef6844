"""Access in a real ensemble: who may do what, on every broker, whatever it has missed."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

from moldau.cluster.decisions.access import (
    AclFilter,
    CredentialChange,
    QuotaChange,
    alter_quotas,
    alter_scram,
    create_acls,
    delete_acls,
)
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.access import (
    CLOSED,
    AccessEntry,
    Acl,
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ResourcePattern,
    ScramChanged,
    ScramCredential,
)
from moldau.cluster.state.changes import TopicCreated
from moldau.cluster.store import Conflict
from moldau.cluster.zookeeper.writes import Draft
from moldau.testing.waiting import until_async
from tests.cluster.zookeeper.clusters import Member, joined, tell, topic

ORDERS = ResourcePattern(2, "orders", 3)
ODD = ResourcePattern(3, "a group/with ümlaut and ..", 4)
ALICE = Acl("User:alice", "*", 3, 3)
BOB = Acl("User:bob", "*", 3, 2)
NEW = ScramCredential(b"s2", b"k2", b"v2", 8192)
ENTRIES: list[AccessEntry] = [
    AclsChanged(ORDERS, (ALICE,)),
    AclsChanged(ODD, (ALICE, BOB)),
    QuotasChanged((("user", "alice"), ("client-id", None)), {"producer_byte_rate": 1024.0}),
    ScramChanged("alice", {"SCRAM-SHA-512": ScramCredential(b"\x00s", b"k", b"v", 4096)}),
]


def test_entries_reach_every_broker_change_and_go(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit(ENTRIES)
            mine, theirs = one.store.state.access, two.store.state.access
            assert list(mine.entries.values()) == ENTRIES
            await until_async(lambda: theirs.entries == mine.entries)
            await one.store.commit([AclsChanged(ORDERS, (ALICE, BOB)), ENTRIES[1].emptied()])
            await until_async(lambda: theirs.acls == {ORDERS: (ALICE, BOB)})
            group = GroupConfigured("a group/with ümlaut", {"consumer.session.timeout.ms": "50000"})
            await one.store.commit([group])
            await until_async(lambda: theirs.group_configs == {group.group: group.configs})
            await one.store.commit([group.emptied()])
            await until_async(lambda: not theirs.group_configs)
            # Deleted and created again, whose node begins at version 0 as the first did.
            await one.store.commit([AclsChanged(ORDERS)])
            await one.store.commit([AclsChanged(ORDERS, (BOB,))])
            await one.store.commit([AclsChanged(ORDERS, (ALICE,))])
            await until_async(lambda: theirs.acls == {ORDERS: (ALICE,)})
            late = Member(connect, 3)
            await late.store.open()
            try:
                assert late.store.state.access.entries == mine.entries
            finally:
                await late.store.close()

    asyncio.run(scenario())


def test_a_broker_that_missed_the_notices_reads_all_entries(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1, 2) as (one, two):
            await one.store.commit(ENTRIES)
            await until_async(lambda: len(two.store.state.access.entries) == len(ENTRIES))
            tree = two.store._tree
            # As if the watch had never fired and the notices in between were trimmed.
            tree._last_notice = "c-0000000000"
            async with two.store._lock:
                await one.store.commit([AclsChanged(ORDERS, (BOB,)), ENTRIES[1].emptied()])
            await one.store.commit([TopicCreated(topic("a"))])
            await until_async(lambda: "a" in two.store.state.topics)
            await until_async(lambda: two.store.state.access.acls == {ORDERS: (BOB,)})

    asyncio.run(scenario())


def test_of_two_decisions_on_one_resource_the_second_is_made_anew(connect: str) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            waiting = Draft(one.store.state, [AclsChanged(ORDERS, (ALICE,))])
            await one.store.commit([AclsChanged(ORDERS, (BOB,))])
            with pytest.raises(Conflict):
                waiting.writes(one.store.state)

    asyncio.run(scenario())


DAMAGES = [
    b"",
    b"nonsense",
    b"{}",
    b'{"change":"AccessDamaged","key":"%s","problem":""}',
    b'{"change":"AclsChanged","resource":{"kind":2,"name":"orders","pattern":3},"acls":[]}',
    b'{"change":"AclsChanged","resource":{"kind":2,"name":"orders","pattern":3},"acls":[{'
    b'"principal":"User:bob","host":"*","operation":3,"permission":9}]}',
    b'{"change":"AclsChanged","resource":{"kind":2,"name":"orders","pattern":3},"acls":[{'
    b'"principal":"User:bob","host":"*","operation":99,"permission":2}]}',
    b'{"change":"QuotasChanged","entity":[["user","alice"],["client-id",null]],'
    b'"limits":{"producer_byte_rate":0}}',
    b'{"change":"ScramChanged","user":"alice","credentials":{}}',
]


def test_a_damaged_entry_closes_what_it_is_about_until_it_is_repaired(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit(ENTRIES)
            access = one.store.state.access
            sound = {each.key: raw.get(f"/access/{each.key}")[0] for each in ENTRIES}
            for damage in DAMAGES:
                for each in ENTRIES:
                    raw.set(f"/access/{each.key}", damage)
                tell(raw, access=list(sound))
                await until_async(lambda: len(access.damaged) == len(ENTRIES))
                assert access.acls == {ORDERS: (CLOSED,), ODD: (CLOSED,)}
                (limits,) = access.quotas.values()
                assert limits["producer_byte_rate"] == 1024
                assert not access.scram
                # A broker that starts now has never seen the sound ones.
                late = Member(connect, 3)
                await late.store.open()
                try:
                    assert late.store.state.access.entries == access.entries
                    assert late.store.state.access.acls == access.acls
                finally:
                    await late.store.close()
                for key, data in sound.items():
                    raw.set(f"/access/{key}", data)
                tell(raw, access=list(sound))
                await until_async(lambda: not access.damaged)
                assert list(access.entries.values()) == ENTRIES
            assert "only super users" in caplog.text

    asyncio.run(scenario())


def test_damaged_passwords_and_quotas_are_replaced_and_damaged_rules_are_not(
    connect: str, raw: KazooClient
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            await one.store.commit(ENTRIES)
            access = one.store.state.access
            for each in ENTRIES:
                raw.set(f"/access/{each.key}", b"nonsense")
            tell(raw, access=[each.key for each in ENTRIES])
            await until_async(lambda: len(access.damaged) == len(ENTRIES))
            changes, outcomes = create_acls(access, [(ORDERS, BOB)])
            assert not changes
            assert "/access/acl.2.3.orders in ZooKeeper is damaged" in str(outcomes[0])
            any_rule = AclFilter(1, None, 1, None, None, 1, 1)
            nothing, refused = delete_acls(access, [any_rule])
            assert not nothing
            assert isinstance(refused[0], ClusterError)
            quota, password = ENTRIES[2:]
            assert isinstance(quota, QuotasChanged)
            assert isinstance(password, ScramChanged)
            limits, _ = alter_quotas(
                access, [QuotaChange(quota.entity, {"consumer_byte_rate": 5.0})]
            )
            wanted = CredentialChange("alice", "SCRAM-SHA-512", NEW)
            passwords, _ = alter_scram(access, [wanted], {})
            await one.store.commit([*limits, *passwords])
            assert access.quotas == {quota.entity: {"consumer_byte_rate": 5.0}}
            assert access.scram == {"alice": {"SCRAM-SHA-512": NEW}}
            assert set(access.damaged) == {each.key for each in ENTRIES[:2]}

    asyncio.run(scenario())


def test_a_node_by_a_name_that_is_none_of_ours_is_left_out(
    connect: str, raw: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with joined(connect, 1) as (one,):
            for name in ("acl", "acl..3.x", "acl.2.3.%ff", "role.admin", "quota."):
                raw.create(f"/access/{name}", b"nonsense")
            async with one.store._lock:
                await one.store._tree.load()
            assert set(one.store.state.access.damaged) <= {"quota."}
            assert "Moldau does not use this name" in caplog.text

    asyncio.run(scenario())
