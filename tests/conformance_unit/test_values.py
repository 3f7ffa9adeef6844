"""Values of the conformance suite: how it compares two answers."""

from __future__ import annotations

from uuid import UUID

from conformance.deliberate import DELIBERATE, Place, explanation
from conformance.registry import Case
from conformance.report import unmet
from conformance.runner import Finding, Verdict
from conformance.values import Difference, Symbols, Text, differences, shown_batches
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.messages import decode_response, encode_response

_ID = UUID(int=77 << 64)


def test_equal_values_have_no_difference() -> None:
    value = {"a": [1, {"name": "x", "b": None}], "c": "text"}
    assert list(differences(value, value)) == []


def test_a_difference_names_its_place() -> None:
    kafka = {"topics": [{"name": "x", "error_code": "none"}]}
    moldau = {"topics": [{"name": "x", "error_code": "other"}]}
    assert list(differences(kafka, moldau)) == [Difference("topics[x].error_code", "none", "other")]


def test_another_order_of_named_elements_is_one_difference() -> None:
    one, two = {"name": "x", "n": 1}, {"name": "y", "n": 2}
    assert list(differences([one, two], [two, one], "topics")) == [
        Difference("topics (order)", ["x", "y"], ["y", "x"])
    ]


def test_elements_without_names_are_compared_by_place() -> None:
    assert list(differences([1, 2], [2, 1], "ids")) == [
        Difference("ids[0]", 1, 2),
        Difference("ids[1]", 2, 1),
    ]


def test_what_one_side_lacks_is_absent() -> None:
    found = list(differences({"a": 1}, {"b": 1}))
    assert found == [Difference("a", 1, "(absent)"), Difference("b", "(absent)", 1)]


def test_a_number_is_not_the_truth_value_that_equals_it() -> None:
    assert list(differences(1, True)) == [Difference("", 1, True)]


def test_sentences_are_alike_but_not_like_none() -> None:
    assert list(differences(Text("a"), Text("b"))) == []
    assert len(list(differences(Text("a"), None))) == 1


def test_what_must_differ_is_replaced_by_symbols() -> None:
    data = encode_response(
        Api.METADATA,
        12,
        {
            "brokers": [{"node_id": 1, "host": "h", "port": 4711}],
            "cluster_id": "secret",
            "topics": [{"name": "case-t1", "topic_id": _ID}],
        },
    )
    plain = Symbols(4711, "case").plain(decode_response(Api.METADATA, 12, memoryview(data)))
    assert plain["brokers"][0]["port"] == "<port>"
    assert plain["cluster_id"] == "<cluster id>"
    assert plain["topics"][0]["name"] == "~t1"
    assert plain["topics"][0]["topic_id"] == "<id of ~t1>"
    assert plain["throttle_time"] == 0


def test_unknown_ids_are_numbered_as_they_come() -> None:
    symbols = Symbols(1)
    assert [symbols.of("member", name) for name in ("b", "a", "b")] == [
        "<member 1>",
        "<member 2>",
        "<member 1>",
    ]


def test_records_are_shown_batch_by_batch_with_what_is_cut_off() -> None:
    batch = bytes(build_batch([Record(0, 5, b"k", b"v", ())]))
    shown = shown_batches(batch + batch + batch[:-1])
    assert [each["count"] for each in shown["batches"]] == [1, 1]
    assert shown["partial"] == len(batch) - 1
    assert shown_batches(b"") == {"batches": [], "partial": 0}


def test_a_reason_explains_only_what_it_names() -> None:
    place = Place("Fetch", path="*.records.partial", moldau="0")
    found = Difference("responses[x].partitions[0].records.partial", 44, 0)
    assert place.has("Fetch", "limits", "150 in all", found)
    assert not place.has("Produce", "limits", "150 in all", found)
    assert not place.has("Fetch", "limits", "150 in all", Difference(found.path, 44, 1))


def test_brackets_in_a_pattern_are_no_character_classes() -> None:
    place = Place(path="topics[*].partitions[*]", kafka="'(absent)'", moldau="[]")
    assert place.has("A", "b", "c", Difference("topics[x].partitions[0]", "(absent)", []))
    assert not place.has("A", "b", "c", Difference("topicsx", "(absent)", []))


def test_what_nobody_meant_has_no_explanation() -> None:
    assert explanation("Fetch", "limits", "a", Difference("error_code", "none", "other")) is None
    met = explanation("Metadata", "all", "b", Difference("topics (order)", ["x", "y"], ["y", "x"]))
    assert met is not None
    assert met[0] in DELIBERATE
    assert met[1].path == "* (order)"


def test_every_deliberate_difference_has_one_reason_and_places_of_its_own() -> None:
    reasons = [each.reason for each in DELIBERATE]
    places = [place for each in DELIBERATE for place in each.places]
    assert len(set(reasons)) == len(reasons)
    assert len(set(places)) == len(places)
    assert Place() not in places


def test_a_deliberate_difference_that_no_case_met_is_named() -> None:
    places = [place for each in DELIBERATE for place in each.places]
    assert len(list(unmet({"Fetch": Verdict()}))) == len(places)
    found = Difference("topics (order)", ["x", "y"], ["y", "x"])
    case = Case("Metadata", Api.METADATA, "all", lambda session, version: None)
    verdict = Verdict()
    met = DELIBERATE[0]
    verdict.findings.append(Finding(case, 1, None, None, found, met, met.places[0]))
    left = list(unmet({"Metadata": verdict}))
    assert len(left) == len(places) - 1
    assert not any(met.reason in line for line in left)
