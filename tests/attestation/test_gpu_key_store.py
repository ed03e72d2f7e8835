"""The GPU's key store: every published slot once, masks where the driver has them, nothing left after erasure."""

from __future__ import annotations

import random

import pytest

from gpu_agent.hardware import key_store
from gpu_agent.hardware.key_store import KeyStore
from shared.crypto.schedule import KEY_SLOTS, slot_key
from shared.errors import NotFound, ProtocolViolation

EXPORT = bytes.fromhex(  # reference known answer: export master secret of DHE 00..2f
    "b7155535b662cdb0aa3f4c06b51a8907147bbe08f40906fc12d55b7505a16ed0484899cc161a1eca14f245adf1cd32df"
)


def store(seed: int = 1) -> KeyStore:
    return KeyStore(EXPORT, random.Random(seed).randbytes)


def test_known_answers() -> None:
    assert store().key("Lce00_h2d_user").hex() == "59d1a5ca538d4976148d1c52b40115489450a049cbed5a0bbcc47451fa4bb54a"
    assert store().key("cpu_gsp_locked_rpc").hex() == "2b3eaa70dc3c429af0999b76c4bfa1ab4eaf3087827046c3dade7c38c07e5401"


def test_every_slot_has_its_own_key_and_ids() -> None:
    keys = {label: store().key(label) for label in KEY_SLOTS}
    assert len(set(keys.values())) == len(keys) == 7 + 6 + 8 * 6
    assert len(set(KEY_SLOTS.values())) == len(KEY_SLOTS)
    assert all(keys[label] == slot_key(EXPORT, label) for label in keys)


def test_masks_are_drawn_by_the_gpu_and_gsp_has_none() -> None:
    ours, other = store(1), store(2)
    masks = [ours.iv_mask(label) for label, (space, _) in KEY_SLOTS.items() if space]
    assert len(set(masks)) == len(masks) == 6 + 8 * 6
    assert {len(mask) for mask in masks} == {12}
    assert ours.iv_mask("Lce00_h2d_user") != other.iv_mask("Lce00_h2d_user")
    for label in (label for label, (space, _) in KEY_SLOTS.items() if not space):
        with pytest.raises(NotFound):
            ours.iv_mask(label)


@pytest.mark.parametrize("secret", [b"", bytes(48), b"x" * 32, b"x" * 49])
def test_no_store_without_a_secret(secret: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        KeyStore(secret, random.Random(1).randbytes)


def test_erased_is_erased_and_unknown_is_unknown() -> None:
    keys = store()
    with pytest.raises(NotFound):
        keys.key("Lce08_h2d_user")
    keys.erase()
    for read in (keys.key, keys.iv_mask):
        with pytest.raises(ProtocolViolation) as caught:
            read("Lce00_h2d_user")
        assert caught.value.code == "key-erased"


def test_no_key_is_shown() -> None:
    keys = store()
    shown = repr(keys) + repr(vars(keys)["_keys"])
    assert all(keys.key(label).hex() not in shown and repr(keys.key(label)) not in shown for label in KEY_SLOTS)


def test_an_all_zero_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "slot_key", lambda secret, label: bytes(32))
    with pytest.raises(ProtocolViolation) as caught:
        store()
    assert caught.value.code == "zero-key"
