"""The GPU's key store: every published slot, masks where they belong, nothing after erasure. Knows no session."""

from __future__ import annotations

import random

import pytest

from gpu_agent.hardware import key_store
from gpu_agent.hardware.key_store import KeyStore
from shared.crypto.schedule import KEY_SLOTS, slot_key
from shared.errors import GputError, NotFound, ProtocolViolation

EXPORT = bytes(range(48))


def store() -> KeyStore:
    return KeyStore(EXPORT, random.Random(1).randbytes)


def test_every_slot_by_its_label() -> None:
    keys = store()
    for label, (space, _) in KEY_SLOTS.items():
        assert keys.key(label) == slot_key(EXPORT, label)
        if space == key_store.GSP_KEYSPACE:
            with pytest.raises(NotFound):
                keys.iv_mask(label)
        else:
            assert len(keys.iv_mask(label)) == 12
    masked = [label for label, (space, _) in KEY_SLOTS.items() if space]
    assert len({keys.iv_mask(label) for label in masked}) == len(masked) == 6 + 8 * 6


def test_masks_are_drawn_and_keys_derived() -> None:
    other = KeyStore(EXPORT, random.Random(2).randbytes)
    assert other.key("Lce00_h2d_kernel") == store().key("Lce00_h2d_kernel")
    assert other.iv_mask("Lce00_h2d_kernel") != store().iv_mask("Lce00_h2d_kernel")


@pytest.mark.parametrize("secret", [b"", bytes(48), b"k" * 32])
def test_no_secret_no_store(secret: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        KeyStore(secret, random.Random(1).randbytes)


def test_an_all_zero_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "slot_key", lambda secret, label: bytes(32))
    with pytest.raises(ProtocolViolation) as caught:
        store()
    assert caught.value.code == "zero-key"


def test_erasure_and_unknown_labels() -> None:
    keys = store()
    with pytest.raises(NotFound):
        keys.key("Lce99_h2d_user")
    keys.erase()
    for ask in (keys.key, keys.iv_mask):
        with pytest.raises(GputError) as caught:
            ask("Lce00_h2d_user")
        assert caught.value.code == "key-erased"


def test_nothing_shows_a_key() -> None:
    keys = store()
    secret = keys.key("Lce00_h2d_user")
    assert str(secret) not in repr(keys) + repr(vars(keys))
