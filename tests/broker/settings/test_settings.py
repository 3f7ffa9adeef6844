"""The broker's settings as texts: what they mean, and what is said of wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.listeners import ListenerAddress, parse_address
from moldau.settings import INT_MAX, InvalidSetting, definitions


def test_the_defaults_suit_a_laptop() -> None:
    settings = BrokerSettings.parse({})
    assert settings == BrokerSettings()
    assert settings.all_listeners == (ListenerAddress("PLAINTEXT", "127.0.0.1", 9092),)
    assert settings.num_partitions == 1
    assert settings.auto_create_topics_enable


def test_texts_become_values() -> None:
    settings = BrokerSettings.parse(
        {
            "node.id": " 7 ",
            "num.partitions": "12",
            "auto.create.topics.enable": "FALSE",
            "log.dirs": "/somewhere/else",
            "broker.rack": "r1",
        }
    )
    assert settings.node_id == 7
    assert settings.num_partitions == 12
    assert settings.auto_create_topics_enable is False
    assert str(settings.folder) == "/somewhere/else"
    assert settings.broker_rack == "r1"


def test_kafkas_older_names_are_understood() -> None:
    settings = BrokerSettings.parse({"broker.id": "3", "log.dir": "/d"})
    assert (settings.node_id, settings.log_dirs) == (3, "/d")
    assert settings.given == {"node.id": "3", "log.dirs": "/d"}


def test_what_topics_inherit_is_set_by_the_brokers_names_for_it() -> None:
    settings = BrokerSettings.parse(
        {"log.retention.hours": "2", "log.segment.bytes": "5000", "message.max.bytes": "77"}
    )
    defaults = settings.topic_defaults
    assert defaults.retention_ms == 2 * 3_600_000
    assert defaults.segment_bytes == 5000
    assert defaults.max_message_bytes == 77


def test_records_are_kept_for_ever_in_any_unit() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        assert BrokerSettings.parse({name: "-1"}).topic_defaults.retention_ms == -1


def test_the_finer_unit_wins() -> None:
    texts = {
        "log.retention.hours": "2",
        "log.retention.minutes": "3",
        "log.retention.ms": "4",
    }
    assert BrokerSettings.parse(texts).topic_defaults.retention_ms == 4
    del texts["log.retention.ms"]
    assert BrokerSettings.parse(texts).topic_defaults.retention_ms == 180_000


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "type int"),
        ("num.partitions", "1_000", "type int"),
        ("num.partitions", "", "type int"),
        ("num.partitions", str(INT_MAX + 1), "at most"),
        ("node.id", "-1", "at least 0"),
        ("auto.create.topics.enable", "yes", "type boolean"),
        ("log.format", "xml", "one of: text, json"),
        ("log.segment.bytes", "-5", "at least"),
        ("log.cleanup.policy", "burn", "one of"),
        ("log.retention.hours", "soon", "whole number"),
        ("log.roll.hours", "0", "at least 1"),
        ("socket.request.max.bytes", "0", "at least 1"),
        ("listeners", "nowhere", "HOST:PORT"),
        ("listeners", "127.0.0.1:http", "HOST:PORT"),
        ("listeners", "127.0.0.1:65536", "HOST:PORT"),
        ("listeners", "", "at least one"),
        ("listeners", "://127.0.0.1:1", "the name is empty"),
        ("listeners", "A://h:1,B://h", "HOST:PORT"),
        ("listeners", "PLAINTEXT://h:1,plaintext://h:2", "two listeners are called PLAINTEXT"),
        ("listeners", "INSIDE://h:1", "add INSIDE:PLAINTEXT to"),
        ("advertised.listeners", "INSIDE://h:1", "no listener INSIDE, only PLAINTEXT"),
        ("advertised.listeners", "0.0.0.0:1", "clients cannot connect"),
        ("listener.security.protocol.map", "PLAINTEXT", "NAME:PROTOCOL"),
        ("listener.security.protocol.map", "PLAINTEXT:TELNET", "TELNET is not one of"),
        ("listener.security.protocol.map", "A:SSL,a:SSL", "A is named twice"),
        ("inter.broker.listener.name", "INSIDE", "only PLAINTEXT"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_the_reason(
    key: str, text: str, reason: str
) -> None:
    with pytest.raises(InvalidSetting, match=reason) as caught:
        BrokerSettings.parse({key: text})
    assert key in str(caught.value)


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidSetting, match=r"did you mean num\.partitions\?"):
        BrokerSettings.parse({"num.partition": "3"})
    with pytest.raises(InvalidSetting, match=r"did you mean log\.retention\.ms\?"):
        BrokerSettings.parse({"log.retention.msec": "3"})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1]:65535", ("fe80::1", 65535)),
        (":9092", ("", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address("listeners", text) == address


def test_listeners_have_names_and_advertised_addresses_of_their_own() -> None:
    settings = BrokerSettings.parse(
        {
            "listeners": "outside://0.0.0.0:9092, INSIDE://[::1]:0",
            "advertised.listeners": "OUTSIDE://kafka.example:443",
            "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        }
    )
    assert settings.all_listeners == (
        ListenerAddress("OUTSIDE", "0.0.0.0", 9092, ("kafka.example", 443)),
        ListenerAddress("INSIDE", "::1", 0),
    )


@pytest.mark.parametrize(
    ("listeners", "named", "chosen"),
    [
        ("h:1", "", "PLAINTEXT"),
        ("SSL://h:1,PLAINTEXT://h:2", "", "PLAINTEXT"),
        ("SSL://h:1,SASL_SSL://h:2", "", "SSL"),
        ("SSL://h:1,PLAINTEXT://h:2", "ssl", "SSL"),
    ],
)
def test_other_brokers_use_one_of_the_listeners(listeners: str, named: str, chosen: str) -> None:
    settings = BrokerSettings.parse(
        {
            "listeners": listeners,
            "inter.broker.listener.name": named,
            # What they are called says nothing about what they speak.
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "SSL", "SASL_SSL")
            ),
        }
    )
    assert settings.inter_broker_listener == chosen


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    try:
        _, port = parse_address("listeners", text)
    except InvalidSetting:
        return
    assert 0 <= port <= 65535


@given(st.sampled_from(sorted(definitions(BrokerSettings))), st.text(max_size=20))
def test_any_text_is_a_value_or_an_error(key: str, text: str) -> None:
    try:
        settings = BrokerSettings.parse({key: text})
    except InvalidSetting:
        return
    assert settings.given == {key: text}


def test_every_setting_is_documented_and_named_after_its_attribute() -> None:
    known = definitions(BrokerSettings)
    attributes = set(BrokerSettings.__struct_fields__)
    assert {setting.attribute for setting in known.values()} <= attributes
    for setting in known.values():
        assert setting.doc.endswith(".")
        # What it says of itself is what it understands.
        assert setting.parse(setting.format(setting.default)) == setting.default


def test_numbers_with_fractions_read_as_java_writes_them() -> None:
    rate = definitions(BrokerSettings)["log.cleaner.io.max.bytes.per.second"]
    assert rate.format(rate.default) == "1.7976931348623157E308"
    assert rate.parse(rate.format(rate.default)) == rate.default
    texts = {9e6: "9000000.0", 1e7: "1.0E7", 1234567890.5: "1.2345678905E9", 0.0005: "5.0E-4"}
    assert {value: rate.format(value) for value in texts} == texts


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back_as_it_was_written(value: float) -> None:
    rate = definitions(BrokerSettings)["log.cleaner.io.max.bytes.per.second"]
    assert float(rate.format(value)) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1_0.0"])
def test_a_rate_is_a_finite_number(text: str) -> None:
    with pytest.raises(InvalidSetting):
        BrokerSettings.parse({"log.cleaner.io.max.bytes.per.second": text})
