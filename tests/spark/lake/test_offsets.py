"""The offsets of a batch, from the checkpoint of its query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.lake import LakeError, Offsets, offsets_of_batch
from moldau.spark.lake.offsets import UNKNOWN, ends_of_log

PROGRESS = {"orders": {"0": 23, "1": 7}, "@id 0c2f orders": {}, "@ids": {"orders": "0c2f"}}


def log(*sources: object, version: str = "v1") -> str:
    return "\n".join([version, "{}", *(json.dumps(source) for source in sources)])


def write_log(checkpoint: Path, batch_id: int, *sources: object) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch_id)).write_text(log(*sources), "utf-8")


def test_a_batch_begins_where_the_one_before_it_ended(tmp_path: Path) -> None:
    write_log(tmp_path, 4, PROGRESS)
    write_log(tmp_path, 5, {"orders": {"0": 30, "1": 7, "2": 5}})
    expected = Offsets({"orders": {0: (23, 30), 1: (7, 7), 2: (UNKNOWN, 5)}})
    assert offsets_of_batch(str(tmp_path), 5) == expected
    assert offsets_of_batch(tmp_path.as_uri(), 5) == expected


def test_the_first_batch_begins_where_the_query_was_told_to(tmp_path: Path) -> None:
    write_log(tmp_path, 0, PROGRESS)
    assert offsets_of_batch(str(tmp_path), 0) == Offsets(
        {"orders": {0: (UNKNOWN, 23), 1: (UNKNOWN, 7)}}
    )
    start = Offsets.at({"orders": {0: 20, 1: 7}})
    assert offsets_of_batch(str(tmp_path), 0, start) == Offsets(
        {"orders": {0: (20, 23), 1: (7, 7)}}
    )


def test_a_topic_that_two_sources_read_is_as_far_as_the_slower_one() -> None:
    assert ends_of_log(log({"a": {"0": 9}}, {"a": {"0": 4}, "b": {"1": 2}})) == {
        "a": {0: 4},
        "b": {1: 2},
    }


def test_offsets_of_other_sources_are_left_out() -> None:
    assert ends_of_log(log(17, {"logOffset": 3}, None, {"sourceVersion": 1, "seqNum": 4})) == {}


def test_a_batch_that_was_never_planned_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="batch 3 was not planned"):
        offsets_of_batch(str(tmp_path), 3)


def test_a_checkpoint_elsewhere_is_refused() -> None:
    with pytest.raises(LakeError, match="only be read from a local folder, not over s3://"):
        offsets_of_batch("s3://bucket/checkpoint", 3)


def test_offsets_go_through_json_and_into_the_source_s_option() -> None:
    offsets = Offsets({"orders": {0: (5, 23), 11: (UNKNOWN, 0)}})
    assert Offsets.of_json(json.loads(json.dumps(offsets.to_json()))) == offsets
    assert json.loads(offsets.starting_offsets()) == {"orders": {"0": 23, "11": 0}}


def test_partitions_that_a_batch_does_not_name_stay_as_far_as_they_were() -> None:
    earlier = Offsets({"orders": {0: (0, 5), 1: (0, 6)}, "gone": {0: (1, 2)}})
    later = Offsets({"orders": {0: (5, 8)}})
    assert later.after(earlier) == Offsets({"orders": {0: (5, 8), 1: (6, 6)}, "gone": {0: (2, 2)}})


def test_an_empty_range_holds_no_records() -> None:
    assert not Offsets().has_records
    assert not Offsets.at({"orders": {0: 5}}).has_records
    assert Offsets({"orders": {0: (4, 5)}}).has_records


@given(st.text() | st.text().map(lambda text: f"v1\n{{}}\n{text}"))
def test_any_text_is_offsets_or_an_error_that_says_so(text: str) -> None:
    try:
        ends = ends_of_log(text)
    except LakeError:
        return
    assert all(isinstance(end, int) for topic in ends.values() for end in topic.values())


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("0123456789²a@-"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("0123456789²a@-"), inner),
)


@given(st.lists(_json))
def test_any_json_is_offsets_or_left_out(sources: list[object]) -> None:
    for topic in ends_of_log(log(*sources)).values():
        assert all(partition >= 0 for partition in topic)
