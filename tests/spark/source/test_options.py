"""Options: what is taken, and how what is not taken is refused."""

from __future__ import annotations

import pytest

from moldau.spark.errors import OptionError
from moldau.spark.names import WITHOUT_HEADERS
from moldau.spark.source.options import CLIENT, KNOWN, REFUSED, WITHOUT_EFFECT, SourceOptions

BASE = {"kafka.bootstrap.servers": "host:9092"}


def parse(**more: str) -> SourceOptions:
    return SourceOptions.parse(BASE | {"subscribe": "orders"} | more)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = parse()
    assert options.read.columns == WITHOUT_HEADERS
    assert options.read.fail_on_data_loss
    assert not options.read.fetch.read_committed
    start, end = options.batch_bounds()
    assert (start.kind, end.kind, options.stream_start().kind) == ("earliest", "latest", "latest")
    assert options.max_trigger_delay_s == 15 * 60


def test_names_have_no_case() -> None:
    assert parse(INCLUDEHEADERS="TRUE").read.columns[-1] == "headers"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscibe", "subscribe"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("column", "columns"),
    ],
)
def test_a_misspelt_option_is_named_with_the_nearest_right_one(given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"no option '{given.lower()}'; did you mean '{meant}'"):
        parse(**{given: "1"})


def test_a_misspelt_option_is_only_warned_of_where_sparks_own_source_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        given = BASE | {"subscribe": "orders", "minPartition": "3"}
        assert SourceOptions.parse(given, strict=False).min_partitions is None
    hint = "there is no option 'minpartition', so it has no effect; did you mean 'minPartitions'?"
    assert caplog.text.count(hint) == 1
    # What Spark's own source refuses is refused here, too.
    with pytest.raises(OptionError, match="startingOffsets"):
        SourceOptions.parse(given | {"kafka.auto.offset.reset": "latest"}, strict=False)


def test_names_of_groups_tell_brokers_who_reads() -> None:
    assert parse().read.peer.client_id == "moldau-spark"
    assert parse(groupIdPrefix="mine").read.peer.client_id == "mine"
    both = {"groupIdPrefix": "mine", "kafka.group.id": "ours"}
    assert parse(**both).read.peer.client_id == "ours"


def test_the_driver_asks_for_offsets_as_often_as_it_is_told() -> None:
    patient = parse(**{"fetchOffset.numRetries": "50", "fetchOffset.retryIntervalMs": "3000"})
    assert patient.driver.retry_within_s == 150
    assert (patient.driver.first_backoff_s, patient.driver.longest_backoff_s) == (3, 3)
    assert patient.read.peer.retry_within_s == 60
    # It never gives up sooner than Kafka's own time-out says.
    assert parse(**{"fetchOffset.numRetries": "0"}).driver.retry_within_s == 60


@pytest.mark.parametrize("name", [name for name in REFUSED if not name.endswith(".")])
def test_an_option_that_is_not_supported_is_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}' is not supported: "):
        parse(**{name: "1"})


def test_no_option_is_both_taken_and_refused() -> None:
    assert not {name.lower() for name in KNOWN} & {name.lower() for name in REFUSED}
    assert not set(CLIENT) & set(WITHOUT_EFFECT)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"minPartitions": "0"}, "minPartitions is 0, but must be 1 or more"),
        ({"minPartitions": "many"}, "not a whole number"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"kafka.isolation.level": "dirty"}, "must be one of read_uncommitted"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: SASL_SSL needs one"),
        ({"kafka.ssl.provider": "x"}, "does not have this security setting"),
        ({"maxTriggerDelay": "soon"}, "not a duration"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is higher than"),
        ({"subscribePattern": "a.*"}, "exactly one of"),
        ({"columns": "value,colour"}, "columns has 'colour', but must be among key, value"),
        ({"columns": "value,value"}, "twice"),
        ({"columns": "value", "includeHeaders": "true"}, "disagree"),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not an address"),
    ],
)
def test_a_wrong_value_is_named(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**more)


def test_a_pattern_that_has_no_equivalent_is_refused_with_its_position() -> None:
    with pytest.raises(OptionError, match=r"subscribePattern: .* at position 6 of 'orders\[a'"):
        SourceOptions.parse(BASE | {"subscribePattern": "orders[a"})


@pytest.mark.parametrize("missing", ["subscribe", "kafka.bootstrap.servers"])
def test_what_must_be_given_is_named(missing: str) -> None:
    given = BASE | {"subscribe": "orders"}
    del given[missing]
    with pytest.raises(OptionError, match=missing):
        SourceOptions.parse(given)


@pytest.mark.parametrize(
    "text",
    ["first", "{", "[]", '{"orders": [1]}', '{"orders": {"x": 1}}', '{"orders": {"0": "1"}}'],
)
def test_offsets_that_are_not_offsets_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        parse(startingOffsets=text).stream_start()


def test_one_timestamp_goes_before_timestamps_and_those_before_offsets() -> None:
    by_time = '{"orders": {"0": 5}}'
    bounds = [
        parse(
            startingOffsets="earliest", startingOffsetsByTimestamp=by_time, startingTimestamp="9"
        ),
        parse(startingOffsets="earliest", startingOffsetsByTimestamp=by_time),
        parse(startingOffsets="earliest"),
    ]
    kinds = [options.stream_start().kind for options in bounds]
    assert kinds == ["timestamp", "timestamps", "earliest"]


def test_what_only_a_batch_or_only_a_stream_can_do_is_said() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batch"):
        parse(endingOffsets="latest").stream_start()
    with pytest.raises(OptionError, match="cannot be latest in a batch"):
        parse(startingOffsets="latest").batch_bounds()
    with pytest.raises(OptionError, match="cannot be earliest in a batch"):
        parse(endingOffsets='{"orders": {"0": -2}}').batch_bounds()
    with pytest.raises(OptionError, match="commitGroup is for streams"):
        parse(commitGroup="g").batch_bounds()


def test_client_settings_reach_the_client() -> None:
    settings = parse(
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.default.api.timeout.ms": "2500",
            "kafka.client.id": "me",
            "kafka.max.poll.records": "1",
        }
    ).read
    assert settings.fetch.read_committed
    assert settings.fetch.max_bytes == 1000
    assert (settings.peer.retry_within_s, settings.peer.client_id) == (2.5, "me")


def test_security_is_set_as_for_sparks_own_source() -> None:
    jaas = 'a.ScramLoginModule required username="alice" password="wonder land";'
    options = parse(
        **{
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.truststore.location": "/t.pem",
            "kafka.ssl.truststore.password": "of the store",
        }
    )
    security = options.read.peer.security
    assert security is not None
    assert security.login() == {"username": "alice", "password": "wonder land"}
    assert security.settings.ssl_truststore_location == "/t.pem"
    for secret in ("wonder land", "of the store"):
        assert secret not in repr(options)
