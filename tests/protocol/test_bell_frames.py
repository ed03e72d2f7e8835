"""Frames of a bounce buffer's doorbell: what was packed is what is unpacked, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BadRequest
from shared.wire.bounce import (
    FRAME,
    MAX_ANSWER_BYTES,
    MAX_NAME,
    MAX_PLACES,
    MAX_RUNG_BYTES,
    BellAck,
    Rung,
    pack_ack,
    pack_names,
    pack_rung,
    unpack_ack,
    unpack_rung,
)

NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=MAX_NAME)
U32 = st.integers(0, 2**32 - 1)
PLACES = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1)), min_size=1, max_size=20)


def packed(gpu: str = "gpu-0", port: str = "holder-north", places: tuple[tuple[int, int], ...] = ((0, 8),)) -> bytes:
    return pack_rung(1, 0, pack_names(gpu, port), places)


@given(NAMES, NAMES, U32, st.integers(0, 2**16 - 1), PLACES)
def test_a_ring_comes_as_it_was_sent(
    gpu: str, port: str, turn: int, wait_ms: int, places: list[tuple[int, int]]
) -> None:
    assert unpack_rung(pack_rung(turn, wait_ms, pack_names(gpu, port), places)) == Rung(
        gpu, port, turn, wait_ms, places
    )


@given(st.builds(BellAck, U32, st.integers(0, 2**64 - 1), st.booleans(), U32))
def test_an_acknowledgement_comes_as_it_was_sent(ack: BellAck) -> None:
    assert unpack_ack(pack_ack(ack)) == ack


def test_a_wait_too_long_to_be_said_is_said_as_the_longest() -> None:
    assert unpack_ack(pack_ack(BellAck(1, 2, False, 2**40))).waited_us == 2**32 - 1


@given(st.binary(max_size=200))
def test_any_bytes_are_a_ring_or_refused(frame: bytes) -> None:
    try:
        rung = unpack_rung(frame)
    except BadRequest:
        return
    assert rung.places
    assert pack_rung(rung.turn, rung.wait_ms, pack_names(rung.gpu, rung.port), rung.places) == frame


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        packed()[:-1],
        packed() + b"\0",
        packed(places=()),
        packed(places=((0, 0),)),
        packed(places=((0, 8),) * (MAX_PLACES + 1)),
        packed(gpu=""),
        packed(port=""),
        packed().replace(b"gpu-0", b"gpu-\xff"),
        packed()[:6] + b"\xff\xff" + packed()[8:],
    ],
)
def test_what_is_no_ring_is_refused(frame: bytes) -> None:
    with pytest.raises(BadRequest):
        unpack_rung(frame)


def test_no_more_places_than_a_frame_may_have_fit_into_it() -> None:
    longest = packed("g" * MAX_NAME, "p" * MAX_NAME, ((0, 8),) * MAX_PLACES)
    assert len(longest) <= MAX_RUNG_BYTES
    assert len(unpack_rung(longest).places) == MAX_PLACES
    assert len(pack_ack(BellAck(0, 0, True))) <= MAX_ANSWER_BYTES - FRAME.size


@pytest.mark.parametrize(
    "frame", [b"", bytes(16), bytes(18), pack_ack(BellAck(1, 2, True)).replace(b"\x01\0\0\0\0", b"\x02\0\0\0\0")]
)
def test_what_is_no_acknowledgement_is_refused(frame: bytes) -> None:
    with pytest.raises(BadRequest):
        unpack_ack(frame)


@pytest.mark.parametrize("name", ["gpü", "g" * (MAX_NAME + 1)])
def test_a_name_that_no_frame_takes_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="no doorbell takes"):
        pack_names(name, "holder-north")
