"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from moldau.testing import Broker

pytest_plugins = ["pytester"]


def test_the_fixture_gives_a_running_broker(moldau_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": moldau_broker.bootstrap})
    assert admin.list_topics(timeout=60).topics == {}


@pytest.mark.moldau(num_partitions=5)
def test_the_marker_gives_it_settings(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("words", partitions=-1)
    admin = AdminClient({"bootstrap.servers": moldau_broker.bootstrap})
    assert len(admin.list_topics(timeout=60).topics["words"].partitions) == 5


def test_the_plugin_is_there_wherever_moldau_is_installed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(moldau_broker, moldau_session_broker):
            assert moldau_broker.bootstrap != moldau_session_broker.bootstrap
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_the_plugin_costs_a_pytest_run_that_does_not_use_it_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "moldau.testing.plugin" in sys.modules
            ours = {name.split(".")[1] for name in sys.modules if name.startswith("moldau.")}
            assert ours == {"testing"}
            assert "uvloop" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
