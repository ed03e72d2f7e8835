"""Messages of several MAC chains under anything that can be done to them: whole and unchanged, or refused. Knows no grant."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.crypto import chains as module
from shared.crypto.aead import TAG_BYTES, OpeningChannel, SealingChannel
from shared.crypto.chains import ALONE_BYTES, MAX_CHAINS, OpeningChains, SealingChains, bound, cut
from shared.crypto.schedule import chain_key
from shared.errors import GputError, VerificationFailed

KEY, MASK = bytes(range(32)), bytes(range(12))
AAD = b"header of one record"
counts = st.integers(1, MAX_CHAINS)
several = st.integers(2, 8)


def both(chains: int, key: bytes = KEY) -> tuple[SealingChains, OpeningChains]:
    how: dict[str, Any] = {"label": "t", "iv_mask": MASK, "channel_counter": 7}
    return SealingChains(key, chains, **how), OpeningChains(key, chains, **how)


def pieces(sealed: bytes, chains: int) -> list[bytes]:
    """Each chain's ciphertext and tag."""
    places = cut(len(sealed) - chains * TAG_BYTES, chains)
    return [sealed[s + n * TAG_BYTES : e + (n + 1) * TAG_BYTES] for n, (s, e) in enumerate(places)]


def refused(opening: OpeningChains, sealed: bytes, aad: bytes = AAD) -> None:
    """Nothing of it is given away, and nothing opens afterwards."""
    with pytest.raises(VerificationFailed) as caught:
        opening.open(sealed, aad)
    assert caught.value.code == "tag-mismatch"
    with pytest.raises(GputError):
        opening.open(sealed, aad)
    assert keys(opening) == set()


def keys(end: SealingChains | OpeningChains) -> set[int]:
    """Chains that still have one."""
    return {number for number, channel in enumerate(end._channels) if channel._cipher is not None}


@settings(max_examples=80, deadline=None)
@given(counts, st.lists(st.binary(max_size=700), min_size=1, max_size=4))
def test_what_was_sealed_opens(chains: int, messages: list[bytes]) -> None:
    seal, opening = both(chains)
    for number, message in enumerate(messages, 1):
        sealed = seal.seal(message, AAD)
        assert len(sealed) == len(message) + chains * TAG_BYTES
        assert opening.open(sealed, AAD) == message
        opening.check_repeat(number, sealed, AAD)
    assert seal.counter == len(messages)


@given(counts, st.integers(0, 1 << 22))
def test_pieces_are_whole_blocks_and_cover_the_message_once(chains: int, length: int) -> None:
    places = cut(length, chains)
    assert len(places) == chains
    assert [start for start, _ in places] == [0, *(end for _, end in places)][:-1]
    assert places[-1][1] == length
    assert all(start % 16 == 0 or start == length for start, _ in places)
    assert max(end - start for start, end in places) <= length / chains + 16


def test_one_chain_is_the_plain_channel_byte_for_byte() -> None:
    plain = SealingChannel(KEY, label="t", iv_mask=MASK, channel_counter=7)
    seal, opening = both(1)
    for message in (b"", b"abc", bytes(5000)):
        assert seal.seal(message, AAD) == plain.seal(message, AAD)
    there = OpeningChannel(KEY, label="t", iv_mask=MASK, channel_counter=7)
    again, _ = both(1)
    assert there.open(again.seal(b"abc", AAD), AAD) == b"abc"
    assert opening.open(both(1)[0].seal(b"abc", AAD), AAD) == b"abc"


@pytest.mark.parametrize("chains", [2, 3, 4, MAX_CHAINS])
def test_long_messages_are_opened_side_by_side(chains: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names, honest = [], OpeningChannel.open_into

    def noted(self: OpeningChannel, *rest: Any) -> int:
        names.append(threading.current_thread().name)
        return honest(self, *rest)

    monkeypatch.setattr(OpeningChannel, "open_into", noted)
    message = os.urandom(ALONE_BYTES + 5)
    seal, opening = both(chains)
    out = bytearray(len(message))
    assert opening.open_into(seal.seal(message, AAD), AAD, out) == len(message)
    assert out == message
    assert len(names) == chains
    assert sum(name.startswith("chain") for name in names) == chains - 1


def test_a_failure_is_told_when_no_chain_works_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who erases the memory then is not overtaken by a chain that still writes into it."""
    begun, ended, go_on = [], [], threading.Event()
    honest = OpeningChannel.open_into

    def slow(self: OpeningChannel, *rest: Any) -> int:
        begun.append(self.label)
        if threading.current_thread().name.startswith("chain"):
            assert go_on.wait(100)
        else:
            go_on.set()  # the first chain, whose tag is wrong, is through before any other begins its work
            return honest(self, *rest)
        try:
            return honest(self, *rest)
        finally:
            ended.append(self.label)

    monkeypatch.setattr(OpeningChannel, "open_into", slow)
    seal, opening = both(4)
    sealed = bytearray(seal.seal(bytes(ALONE_BYTES), AAD))
    sealed[0] ^= 1
    refused_out = bytearray(ALONE_BYTES)
    with pytest.raises(VerificationFailed):
        opening.open_into(sealed, AAD, refused_out)
    assert (len(begun), len(ended)) == (4, 3)


@settings(max_examples=60, deadline=None)
@given(several, st.data())
def test_no_chain_is_left_out_exchanged_repeated_or_cut(chains: int, data: st.DataObject) -> None:
    message = bytes(range(256)) * chains
    parts = pieces(both(chains)[0].seal(message, AAD), chains)
    first, second = data.draw(st.permutations(range(chains)).map(lambda order: order[:2]))
    swapped = list(parts)
    swapped[first], swapped[second] = parts[second], parts[first]
    repeated = list(parts)
    repeated[first] = parts[second]
    dropped = [part for number, part in enumerate(parts) if number != first]
    byte = data.draw(st.integers(0, len(b"".join(parts)) - 1))
    flipped = bytearray(b"".join(parts))
    flipped[byte] ^= 1
    whole = b"".join(parts)
    wrong = [b"".join(swapped), b"".join(repeated), b"".join(dropped), bytes(flipped), whole[:-1], b"", parts[0]]
    for one in wrong:
        refused(both(chains)[1], one)


@pytest.mark.parametrize("length", [160, ALONE_BYTES])
@pytest.mark.parametrize("at", range(4))
def test_every_chains_tag_counts_one_after_another_and_side_by_side(at: int, length: int) -> None:
    message = bytes(length)
    seal, opening = both(4)
    sealed = seal.seal(message, AAD)
    parts = [bytearray(part) for part in pieces(sealed, 4)]
    parts[at][-1] ^= 1
    changed = b"".join(parts)
    refused(both(4)[1], changed)
    assert opening.open(sealed, AAD) == message
    with pytest.raises(VerificationFailed):
        opening.check_repeat(1, changed, AAD)
    opening.check_repeat(1, sealed, AAD)
    assert keys(opening) == {0, 1, 2, 3}, "a false repeat changes nothing"


@pytest.mark.parametrize("length", [160, ALONE_BYTES])
def test_chains_that_may_be_out_of_step_work_no_more(length: int) -> None:
    """Where a buffer is too short for the last chain only, the first ones have taken their counters."""
    seal, opening = both(4)
    sealed = seal.seal(bytes(length), AAD)
    with pytest.raises(ValueError, match="buffer must be"):
        opening.open_into(sealed, AAD, bytearray(length - 1))
    with pytest.raises(ValueError, match="buffer must be"):
        seal.seal_into(bytes(length), AAD, bytearray(len(sealed) - 1))
    assert keys(seal) == keys(opening) == set()


@settings(max_examples=40, deadline=None)
@given(several, st.data())
def test_no_chain_moves_between_messages(chains: int, data: st.DataObject) -> None:
    """Neither to a later message of the visit, nor to one at the same place of another visit."""
    number = data.draw(st.integers(0, chains - 1))
    messages = [bytes([mark]) * 160 * chains for mark in (1, 2)]
    seal, opening = both(chains)
    one, other = (pieces(seal.seal(message, AAD), chains) for message in messages)
    moved = list(other)
    moved[number] = one[number]
    assert opening.open(b"".join(one), AAD) == messages[0]
    refused(opening, b"".join(moved))
    elsewhere = pieces(both(chains, bytes(reversed(KEY)))[0].seal(messages[0], AAD), chains)
    refused(both(chains)[1], b"".join([*elsewhere[:number], one[number], *elsewhere[number + 1 :]]))


@settings(max_examples=40, deadline=None)
@given(counts, counts)
def test_another_number_of_chains_opens_nothing(chains: int, others: int) -> None:
    if chains == others:
        return
    message = bytes(16 * MAX_CHAINS * 3)
    refused(both(others)[1], both(chains)[0].seal(message, AAD))
    # Nor with as many tags as the other number has: what was cut or added is not authenticated.
    padded = (both(chains)[0].seal(message, AAD) + bytes(MAX_CHAINS * TAG_BYTES))[: len(message) + others * TAG_BYTES]
    refused(both(others)[1], padded)


@pytest.mark.parametrize("chains", [1, 4])
def test_another_header_opens_nothing(chains: int) -> None:
    """Index, total and length stand in it."""
    refused(both(chains)[1], both(chains)[0].seal(bytes(500), AAD), AAD[:-1] + b"!")


def test_every_chain_has_a_key_and_an_iv_space_of_its_own() -> None:
    found = [chain_key(KEY, MASK, chains, number) for chains in range(2, MAX_CHAINS + 1) for number in range(chains)]
    assert len({key for key, _ in found} | {KEY}) == len(found) + 1
    assert len({mask for _, mask in found} | {MASK}) == len(found) + 1
    others = {chain_key(KEY, bytes(12), 2, number)[0] for number in (0, 1)}
    assert not others & {key for key, _ in found}, "nor does another IV space lead to the same key"


@pytest.mark.parametrize("chains", [0, -1, MAX_CHAINS + 1])
def test_there_are_between_one_and_32_chains(chains: int) -> None:
    with pytest.raises(VerificationFailed) as caught:
        both(chains)
    assert caught.value.code == "bad-chains"


def test_an_erased_key_seals_and_opens_nothing() -> None:
    seal, opening = both(3)
    sealed = seal.seal(b"data", AAD)
    assert keys(seal) == keys(opening) == {0, 1, 2}
    seal.erase()
    opening.erase()
    assert keys(seal) == keys(opening) == set()
    for act in (lambda: seal.seal(b"data", AAD), lambda: opening.open(sealed, AAD)):
        with pytest.raises(GputError) as caught:
            act()
        assert caught.value.code == "key-erased"


# ------------------------------------------------------------ why number and total are bound, and what chains are for


def naive(plain: bytes, number: int) -> bytes:
    """A chain as it would be under one key, with the record's IV plus its number, and neither number nor total in its AAD."""
    return AESGCM(KEY).encrypt((100 + number).to_bytes(12, "little"), plain, AAD)


def test_unbound_chains_would_let_the_last_one_be_cut_off_and_bound_ones_do_not() -> None:
    plain = [bytes([mark]) * 64 for mark in (1, 2, 3)]
    unbound = [naive(part, number) for number, part in enumerate(plain)]
    opened = [AESGCM(KEY).decrypt((100 + n).to_bytes(12, "little"), part, AAD) for n, part in enumerate(unbound[:2])]
    assert opened == plain[:2]  # two of three chains, and each tag verifies
    sealed = pieces(both(3)[0].seal(b"".join(plain), AAD), 3)
    refused(both(2)[1], b"".join(sealed[:2]))
    key, mask = chain_key(KEY, MASK, 3, 0)
    iv = ((1 | 7 << 32) ^ int.from_bytes(mask, "little")).to_bytes(12, "little")
    assert AESGCM(key).decrypt(iv, sealed[0], bound(AAD, 0, 3)) == plain[0]
    for aad in (AAD, bound(AAD, 1, 3), bound(AAD, 0, 2)):
        with pytest.raises(InvalidTag):
            AESGCM(key).decrypt(iv, sealed[0], aad)


def ghash_tag(key: bytes, iv: bytes, aad: bytes, ciphertext: bytes) -> tuple[bytes, int]:
    """(GCM's tag, multiplications that had to follow one another), from NIST SP 800-38D step by step."""
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # GCM is made of single blocks
    h, steps, state = int.from_bytes(encrypt(bytes(16)), "big"), 0, 0
    lengths = (len(aad) * 8).to_bytes(8, "big") + (len(ciphertext) * 8).to_bytes(8, "big")
    for text in (aad, ciphertext, lengths):
        for at in range(0, len(text), 16):
            state = _times(state ^ int.from_bytes(text[at : at + 16].ljust(16, b"\0"), "big"), h)
            steps += 1
    return (state ^ int.from_bytes(encrypt(iv + b"\0\0\0\1"), "big")).to_bytes(16, "big"), steps


def _times(x: int, y: int) -> int:
    product = 0
    for bit in range(127, -1, -1):
        product ^= y if x >> bit & 1 else 0
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


@pytest.mark.parametrize("chains", [1, 2, 4])
def test_each_chain_is_as_many_dependent_steps_as_its_blocks(chains: int) -> None:
    message = os.urandom(16 * 64)
    parts = pieces(both(chains)[0].seal(message, AAD), chains)
    longest = 0
    for number, part in enumerate(parts):
        key, mask = (KEY, MASK) if chains == 1 else chain_key(KEY, MASK, chains, number)
        iv = ((1 | 7 << 32) ^ int.from_bytes(mask, "little")).to_bytes(12, "little")
        aad = bound(AAD, number, chains)
        tag, steps = ghash_tag(key, iv, aad, part[:-TAG_BYTES])
        assert tag == part[-TAG_BYTES:]
        longest = max(longest, steps - -(-len(aad) // 16) - 1)
    assert longest == module.dependent_steps(len(message), chains) == 64 // chains
