"""The protocol of a connection, without one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.peer.dialogue import Asked, Dialogue
from moldau.peer.errors import MalformedAnswer, PeerError, Refused, UnsupportedByBroker
from moldau.wire.apis import Api
from moldau.wire.headers import response_frame
from moldau.wire.messages import encode_response


def api_versions(
    asked: Asked, version: int, ranges: dict[Api, tuple[int, int]], code: int = 0
) -> memoryview:
    keys = [
        {"api_key": int(api), "min_version": low, "max_version": high}
        for api, (low, high) in ranges.items()
    ]
    body = encode_response(Api.API_VERSIONS, version, {"error_code": code, "api_keys": keys})
    return memoryview(response_frame(Api.API_VERSIONS, version, asked.correlation_id, body))[4:]


def greeted(ranges: dict[Api, tuple[int, int]]) -> Dialogue:
    dialogue = Dialogue("broker:1", "test")
    asked, _ = dialogue.greeting()
    assert dialogue.greeted(asked, api_versions(asked, asked.version, ranges))
    return dialogue


def test_the_newest_version_that_both_speak_is_used() -> None:
    dialogue = greeted({Api.METADATA: (0, 9), Api.FETCH: (4, 99)})
    assert dialogue.version_of(Api.METADATA) == 9
    assert dialogue.version_of(Api.FETCH) == 18
    assert dialogue.version_of(Api.FETCH, at_most=12) == 12


@pytest.mark.parametrize("ranges", [{}, {Api.FETCH: (0, 3)}, {Api.FETCH: (90, 99)}])
def test_a_request_without_a_common_version_is_named(ranges: dict[Api, tuple[int, int]]) -> None:
    with pytest.raises(UnsupportedByBroker, match="broker:1 supports FETCH"):
        greeted(ranges).version_of(Api.FETCH)


def test_a_broker_that_is_too_old_for_the_greeting_is_greeted_again() -> None:
    dialogue = Dialogue("broker:1", "test")
    asked, _ = dialogue.greeting()
    assert not dialogue.greeted(asked, api_versions(asked, 0, {Api.API_VERSIONS: (0, 2)}, 35))
    asked, _ = dialogue.greeting()
    assert asked.version == 0
    assert dialogue.greeted(asked, api_versions(asked, 0, {Api.METADATA: (0, 8)}))
    assert dialogue.version_of(Api.METADATA) == 8


def test_a_refused_greeting_says_why() -> None:
    dialogue = Dialogue("broker:1", "test")
    asked, _ = dialogue.greeting()
    with pytest.raises(Refused, match="SASL_AUTHENTICATION_FAILED"):
        dialogue.greeted(asked, api_versions(asked, 3, {}, 58))


def test_an_answer_to_another_question_is_not_taken() -> None:
    dialogue = greeted({Api.METADATA: (0, 9)})
    asked, _ = dialogue.ask(Api.METADATA, {"topics": None})
    with pytest.raises(MalformedAnswer, match="answered request"):
        dialogue.answer(asked, memoryview(b"\0\0\0\x63\0"))


@given(st.sampled_from([Api.METADATA, Api.LIST_OFFSETS, Api.FIND_COORDINATOR]), st.binary())
def test_arbitrary_bytes_are_an_answer_or_malformed(api: Api, body: bytes) -> None:
    dialogue = greeted({api: (0, 99)})
    asked, _ = dialogue.ask(api, {})
    try:
        dialogue.answer(asked, memoryview(asked.correlation_id.to_bytes(4, "big") + b"\0" + body))
    except MalformedAnswer:
        pass


@given(st.binary(max_size=64))
def test_an_arbitrary_greeting_is_an_error_and_nothing_worse(frame: bytes) -> None:
    dialogue = Dialogue("broker:1", "test")
    asked, _ = dialogue.greeting()
    try:
        dialogue.greeted(asked, memoryview(asked.correlation_id.to_bytes(4, "big") + frame))
    except PeerError:
        pass
