"""Digests that a card makes: the kernels, on this processor, against the BLAKE3 library; and which digests are asked of a card."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.compute import card_hasher, cuda_driver
from gpu_agent.compute.arena import Arena
from gpu_agent.compute.card_hasher import CHUNK, CardHasher, Part, Scratch, card_hashing
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.compute.fabric_messages import CARD_BYTES
from gpu_agent.compute.fabric_server import Keeper
from gpu_agent.hardware.hbm import Extent
from shared.errors import Unavailable
from tests.gpu.compiled_tree import COMPILER, CompiledTree

SIZE = 96 << 10
HEADS = 4096
HOST = torch.device("cpu")
compiled = pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> CompiledTree:
    return CompiledTree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def arena() -> Arena:
    made = Arena(torch.zeros(SIZE, dtype=torch.uint8))
    made.flat.copy_(torch.frombuffer(bytearray(random.Random(5).randbytes(SIZE)), dtype=torch.uint8))
    return made


def library_digest(arena: Arena, parts: Sequence[Part]) -> bytes:
    flat = arena.flat.numpy().tobytes()
    return blake3(b"".join(head + flat[at : at + length] for head, at, length in parts)).digest()


def hashed(arena: Arena, tree: card_hasher.Tree, scratch: Scratch, calls: Sequence[Sequence[Part]]) -> bytes:
    hasher = CardHasher(arena, tree, scratch)
    for parts in calls:
        hasher.add(parts)
    return hasher.digest()


def is_clear(scratch: Scratch) -> bool:
    everything = (scratch.window, scratch.heads, scratch.values, scratch.above, scratch.roots)
    return not any(bool(torch.any(one)) for one in everything)


@compiled
@pytest.mark.parametrize("window", [2 * CHUNK, 16 * CHUNK, 128 * CHUNK])
@pytest.mark.parametrize(
    "length",
    [CHUNK + 1, CHUNK + 63, CHUNK + 64, CHUNK + 65, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK, 16 * CHUNK, 16 * CHUNK + 1,
     31 * CHUNK + 17, 32 * CHUNK, SIZE],
)  # fmt: skip
def test_a_cards_digest_is_the_librarys(arena: Arena, tree: CompiledTree, window: int, length: int) -> None:
    scratch = Scratch(HOST, window, HEADS)
    for start in {0, min(16, SIZE - length), min(5, SIZE - length)}:  # the last not where a thread can read at once
        assert hashed(arena, tree, scratch, [[(b"", start, length)]]) == library_digest(arena, [(b"", start, length)])
        assert is_clear(scratch)


@compiled
@given(
    calls=st.lists(
        st.lists(
            st.tuples(st.binary(max_size=80), st.integers(0, SIZE // 2), st.integers(0, SIZE // 4)), max_size=4
        ),
        min_size=1, max_size=3,
    )
)  # fmt: skip
def test_heads_and_extents_are_hashed_in_turn(arena: Arena, tree: CompiledTree, calls: list[list[Part]]) -> None:
    parts = [(b"a head of more than a chunk" * 40, 3, 5), *(part for parts in calls for part in parts)]
    scratch = Scratch(HOST, 8 * CHUNK, HEADS)
    assert hashed(arena, tree, scratch, [parts[:1], *calls]) == library_digest(arena, parts)
    assert is_clear(scratch)


@compiled
def test_no_more_than_a_chunk_is_not_for_it(arena: Arena, tree: CompiledTree) -> None:
    hasher = CardHasher(arena, tree, Scratch(HOST, 2 * CHUNK, HEADS))
    hasher.add([(b"head", 0, CHUNK - 4)])
    with pytest.raises(ValueError, match="chunk"):
        hasher.digest()


@compiled
@pytest.mark.parametrize("sound", [True, False])
def test_a_card_that_makes_other_digests_is_not_asked(
    tree: CompiledTree, monkeypatch: pytest.MonkeyPatch, sound: bool
) -> None:
    class Played(CompiledTree):
        def __init__(self, device: str) -> None:
            self._library, self._number = tree._library, tree._number

        def parents(self, values: torch.Tensor, count: int, root: bool, above: torch.Tensor) -> None:
            super().parents(values, count, root, above)
            if not sound:
                above[0] ^= 1

    monkeypatch.setattr(card_hasher, "CardTree", Played)
    monkeypatch.setattr(card_hasher, "WINDOW", 16 * CHUNK)
    begin = card_hashing(Arena(torch.zeros(SIZE, dtype=torch.uint8)))
    assert (begin is not None) == sound
    if begin is not None:
        hasher = begin()
        hasher.add([(b"", 0, SIZE)])
        assert hasher.digest() == blake3(bytes(SIZE)).digest()


@compiled
def test_the_keeper_has_the_card_make_what_it_is_asked_to(arena: Arena, tree: CompiledTree) -> None:
    scratch, begun = Scratch(HOST, 16 * CHUNK, HEADS), list[CardHasher]()

    def begin() -> CardHasher:
        begun.append(CardHasher(arena, tree, scratch))
        return begun[-1]

    ours, theirs = socket.socketpair()
    slots = [torch.zeros(8 * CHUNK, dtype=torch.uint8) for _ in range(2)]
    keeper = Keeper(arena, slots, theirs, begin)
    for card, head in ((True, b"one"), (False, b"two"), (True, b"three")):
        parts = [(head, 0, 40 * CHUNK), (b"", 41 * CHUNK, 7)]
        ask = {"op": "hash", "card": card}
        first = keeper._do(ask | {"parts": [(parts[0][0].hex(), *parts[0][1:])], "begins": True, "ends": False})
        last = keeper._do(ask | {"parts": [("", *parts[1][1:])], "begins": False, "ends": True})
        assert (first, last) == ({}, {"digest": library_digest(arena, parts).hex()})
    assert len(begun) == 2
    for end in (ours, theirs):
        end.close()


def test_only_what_is_long_is_the_cards_and_leaves_staging_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, asked = DeviceFabric("cpu", 8 << 20), list[bool]()
    ask = fabric._ask

    def heard(**request: Any) -> dict[str, Any]:
        asked.append(request["card"])
        return ask(**request)

    monkeypatch.setattr(fabric, "_ask", heard)
    try:
        assert not fabric.hashes, "there is no card"
        for hashes, length in ((False, 4 << 20), (True, CARD_BYTES), (True, CARD_BYTES + 1)):
            monkeypatch.setattr(fabric, "hashes", hashes)
            fabric.wash()
            assert fabric.digest([(b"", Extent(0, length))]) == blake3(bytes(length)).digest()
            assert any(fabric._used) == (not asked[-1]), (
                "what did not pass through staging need not be washed out of it"
            )
        assert asked == [False, False, True]
    finally:
        fabric.close()


@pytest.mark.parametrize(
    ("said", "fatal"), [("CUDA error: out of memory", False), ("CUDA error: an illegal address", True)]
)
def test_without_memory_beside_hbm_digests_are_the_hosts(
    monkeypatch: pytest.MonkeyPatch, said: str, fatal: bool
) -> None:
    def full(*_: object) -> Scratch:
        raise RuntimeError(said)

    monkeypatch.setattr(card_hasher, "CardTree", lambda device: None)
    monkeypatch.setattr(card_hasher, "Scratch", full)
    arena = Arena(torch.zeros(SIZE, dtype=torch.uint8))
    if fatal:
        with pytest.raises(RuntimeError, match="illegal"):
            card_hashing(arena)
    else:
        assert card_hashing(arena) is None


def test_without_the_driver_digests_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise Unavailable("no driver", code="cuda-failed")

    monkeypatch.setattr(cuda_driver, "driver", absent)
    assert card_hashing(Arena(torch.zeros(SIZE, dtype=torch.uint8))) is None
