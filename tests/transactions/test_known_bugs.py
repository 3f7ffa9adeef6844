"""Bugs that others had in their transactions, and the tests that show we do not have them.

The table is the list; this test only sees to it that every test in it is there.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

_MACHINE = "broker/coordination/transactions/test_machine.py"
_RECOVERY = "broker/api/transactions/test_recovery.py"
_API = "broker/api/transactions/test_transactions.py"
_OFFSETS = "broker/api/transactions/test_offsets.py"
_MARKERS = "broker/api/records/test_write_txn_markers.py"
_PRODUCERS = "log/producers/test_verifications.py"
_COMPACTION = "log/compaction/test_compacted_transactions.py"
_SCENARIOS = "scenarios/transactions/test_transactions.py"
_REORDERING = "transactions/test_reordering.py"
_FAILED = "spark/sink/test_failed_writes.py"

# By a bug, what went wrong there and the tests, in files below `tests`.
BUGS: dict[str, tuple[str, list[str]]] = {
    "KAFKA-17754, Jepsen on Bufstream 0.1.0": (
        "a late request of one transaction is taken for one of the next",
        [
            f"{_REORDERING}::test_a_late_end",
            f"{_REORDERING}::test_a_late_write",
            f"{_REORDERING}::test_librdkafka_has_the_hole_of_its_dialect",
            f"{_REORDERING}::test_tv2_shows_no_anomaly_however_late_requests_come",
            f"{_API}::test_a_late_end_of_tv2_does_not_end_the_next_transaction",
            "broker/coordination/transactions/test_interleavings.py"
            "::test_the_model_notices_a_coordinator_that_does_not_raise_the_epoch",
        ],
    ),
    "KAFKA-19446, KIP-1228": (
        "a late marker of TV2 ends the next transaction",
        [
            f"{_PRODUCERS}::test_a_late_marker_of_version_2_does_not_end_the_next_transaction",
            f"{_MARKERS}::test_late_markers_are_refused",
        ],
    ),
    "KAFKA-19999": (
        "a marker of TV2 that is repeated is refused for ever, and the transaction hangs",
        [
            f"{_PRODUCERS}::test_a_repeated_marker_of_version_2_is_taken_while_nothing_is_open",
            f"{_RECOVERY}::test_markers_whose_answers_were_lost_are_written_again",
        ],
    ),
    "KAFKA-20310": (
        "the next producer id is not in the log when the coordinator moves",
        [
            f"{_RECOVERY}::test_a_producer_of_tv2_gets_another_id_when_its_epochs_run_out"
            "_even_if_all_is_lost",
            "broker/coordination/transactions/test_records.py"
            "::test_a_transaction_comes_back_as_it_was_written",
        ],
    ),
    "KAFKA-20090, KAFKA-19367, KAFKA-18660": (
        "epochs overflow, or are raised twice",
        [
            f"{_RECOVERY}::test_a_producer_at_its_last_epoch_can_be_fenced",
            f"{_MACHINE}::test_a_producer_can_be_fenced_whatever_its_epoch",
            f"{_MACHINE}::test_a_second_producer_aborts_the_open_transaction_and_comes_again",
            f"{_MACHINE}::test_an_end_with_the_last_epoch_brings_a_new_producer_id",
            f"{_PRODUCERS}::test_the_last_epoch_ends_transactions_of_its_own",
        ],
    ),
    "KAFKA-20785": (
        "a commit that loses against the time-out is told INVALID_TXN_STATE",
        [
            f"{_RECOVERY}::test_an_end_that_comes_after_the_time_out_is_fenced",
            f"{_RECOVERY}::test_an_end_that_comes_before_the_time_out_wins",
            f"{_MACHINE}::test_a_commit_that_loses_against_the_time_out_is_fenced",
            f"{_API}::test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced",
        ],
    ),
    "KAFKA-17507, KAFKA-17877": (
        "markers are answered before the offsets can be read, or twice",
        [
            f"{_OFFSETS}::test_staged_offsets_count_when_the_transaction_is_committed",
            f"{_OFFSETS}::test_markers_are_answered_when_the_offsets_can_be_read",
            f"{_MARKERS}::test_the_owner_of_a_topic_writes_its_markers",
            "scenarios/transactions/test_staged_offsets.py"
            "::test_a_transaction_is_not_complete_before_its_offsets_can_be_read_elsewhere",
        ],
    ),
    "KAFKA-14904": (
        "a pending transition stops the verification of writes",
        [
            f"{_RECOVERY}::test_a_write_is_verified_while_a_partition_is_being_added",
        ],
    ),
    "KAFKA-13727, KAFKA-8351, KAFKA-10702, crabka #528, redpanda #6664, redpanda #15672": (
        "compaction drops markers too early or data of committed transactions, or keeps aborted "
        "data",
        [
            f"{_COMPACTION}::test_markers_are_not_taken_for_records_of_one_key",
            f"{_COMPACTION}::test_a_marker_stays_while_its_records_do",
            f"{_COMPACTION}::test_a_transaction_with_records_after_the_compacted_part_stays_indexed",
            f"{_COMPACTION}::test_an_aborted_transaction_in_the_untouched_rest_of_a_segment"
            "_stays_indexed",
            f"{_COMPACTION}::test_a_compacted_transaction_is_not_open_to_a_new_replica",
            f"{_COMPACTION}::test_whatever_is_compacted_readers_and_new_replicas_see_the_same",
            f"{_SCENARIOS}::test_a_new_replica_of_a_compacted_topic_shows_what_was_committed",
        ],
    ),
    "redpanda #31483": (
        "an offset that is staged expires, or overtakes a later one",
        [
            f"{_OFFSETS}::test_offsets_of_an_open_transaction_do_not_expire",
            f"{_OFFSETS}::test_an_offset_committed_after_a_staged_one_wins"
            "_and_still_does_after_a_restart",
            f"{_OFFSETS}::test_of_two_transactions_the_one_that_staged_last_wins",
        ],
    ),
    "librdkafka #4849": (
        "an abort before the first partition is added ends the client",
        [
            f"{_API}::test_tv1_aborts_nothing_without_an_error",
            f"{_MACHINE}::test_an_abort_that_has_nothing_to_abort_is_no_error",
        ],
    ),
    "librdkafka #5511": (
        "offsets cannot be sent when the group's coordinator goes",
        [
            f"{_SCENARIOS}::test_offsets_are_sent_while_the_groups_coordinators_are_restarted",
            f"{_SCENARIOS}::test_coordinators_are_killed_and_frozen_under_load",
        ],
    ),
    "librdkafka, purging what it has sent": (
        "a message is taken for one of the transaction before, which was aborted in doubt",
        [
            "clients/retries/test_given_up.py"
            "::test_librdkafka_loses_nothing_of_the_transaction_after_one_that_it_aborted_in_doubt",
            f"{_PRODUCERS}::test_a_sequence_of_a_transaction_that_has_ended_is_refused",
        ],
    ),
    "FLINK-40689": (
        "what was staged cannot be committed again by its stored identity, as the epoch has moved",
        [f"{_FAILED}::test_a_transaction_is_ended_again_by_the_identity_that_staged_it"],
    ),
    "FLINK-40626": (
        "staged transactions that another attempt has replaced stay open",
        [f"{_FAILED}::test_what_was_staged_by_a_run_that_is_superseded_holds_no_reader_back"],
    ),
    "Jepsen on Redpanda 21.10.1": (
        "aborted reads, inconsistent offsets, circular information flow, lost writes, duplicates, "
        "and offsets that are committed with nothing to show for it",
        [
            "transactions/test_checker.py::test_an_anomaly_in_a_right_history_is_found",
            "torture/test_transactions.py::test_transactions_show_no_anomaly_through_faults",
            "client/producer/test_transaction.py"
            "::test_offsets_are_committed_with_the_messages_or_read_again",
        ],
    ),
}


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_the_tests_that_are_named(bug: str) -> None:
    _, tests = BUGS[bug]
    assert tests
    for each in tests:
        path, _, name = each.partition("::")
        assert name in functions_of(TESTS / path), each
