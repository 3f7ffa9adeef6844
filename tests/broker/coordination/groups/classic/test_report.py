"""Rebalances as the log tells them, in one line each."""

from __future__ import annotations

from moldau.broker.coordination.groups.classic.generations import State
from tests.broker.coordination.groups.classic.playing import REBALANCE_MS, SESSION_MS, Table


def test_a_rebalance_is_told_in_one_line_with_its_reason() -> None:
    table = Table("orders")
    first, second = table.stable("a", "b")
    assert str(table.reports[0]) == (
        "group 'orders' rebalanced to generation 1 in 0 ms because 'a-1' joined."
        " Now 1 member by 'range', led by 'a-1'. Nothing to do."
    )
    table.pass_time(SESSION_MS - 1)
    table.heartbeat(second, 2)
    table.pass_time(1)
    assert len(table.reports) == 2
    generation = table.join(second).joined.generation
    table.sync(second, generation, {})
    report = table.reports[-1]
    assert report.needs_action
    assert f"'{first}' sent no heartbeat within its session timeout." in str(report)
    assert "To do: check whether it still runs" in str(report)
    table.leave(second)
    assert str(table.reports[-1]).endswith("'b-2' left. Now it is empty. Nothing to do.")


def test_a_name_with_a_line_break_makes_no_second_line() -> None:
    table = Table("group\nERROR")
    table.stable("client\nERROR", *"abcdefgh")
    assert all("\n" not in str(report) for report in table.reports)
    assert len(table.reports) == 9


def test_a_report_names_late_members_in_the_order_they_came_whatever_the_process() -> None:
    table = Table(initial_delay_ms=100)
    for client in "abcde":
        table.join(client=client, session_ms=2 * REBALANCE_MS)
    table.pass_time(200)
    assert table.state() is State.COMPLETING_REBALANCE
    table.pass_time(REBALANCE_MS)
    assert table.state() is State.EMPTY
    assert "'a-1', 'b-2', 'c-3', 'd-4', 'e-5' did not fetch" in str(table.reports[-1])
