"""The device with one defence taken away at a time: what each patch leaves out. Knows the device's rooms, no attack and no test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import shared.crypto.aead
from gpu_agent.hardware import copy_engine, record_rules
from gpu_agent.hardware.copy_engine import CopyEngine
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.grants import GrantTable
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.ledger import Ledger
from gpu_agent.hardware.regions import RegionFact, RegionTable
from gpu_agent.hardware.shares import Shares
from gpu_agent.hardware.state import GpuState
from shared.claims.visit import Grant
from shared.crypto import command_channel, schedule
from shared.crypto.command_channel import CommandChannel
from shared.crypto.shares import direct_key
from shared.crypto.stock_channel import StockChannel
from shared.names import RegionPhase, Role
from shared.protocol.membership import commitment, leaf_hashes
from shared.protocol.record_order import records_of
from shared.wire.codec import decode
from shared.wire.copy import Closing
from tests.laws import sabotage

Patch = pytest.MonkeyPatch
TAG = 16


class _Tagless:
    """AES-256-GCM that decrypts and does not look at the tag."""

    def __init__(self, key: bytes) -> None:
        self._key, self._real = key, AESGCM(key)
        self.encrypt, self.encrypt_into = self._real.encrypt, self._real.encrypt_into

    def decrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
        return Cipher(algorithms.AES(self._key), modes.GCM(bytes(iv))).decryptor().update(bytes(data)[:-TAG])

    def decrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
        plain = self.decrypt(iv, data, aad)
        memoryview(out)[: len(plain)] = plain
        return len(plain)


AESGCM = shared.crypto.aead.AESGCM


def tags_are_ignored(patch: Patch) -> None:
    patch.setattr(shared.crypto.aead, "AESGCM", _Tagless)


def closing_records_are_believed(patch: Patch) -> None:
    """Whatever a closing record states of the bytes is taken for true."""

    def close(self: CopyEngine, live: Any, raw: bytes, sealed: Any) -> None:
        try:
            closing = decode(Closing, live.channel.open(sealed, raw + live.context))
            stated, salt, dataset_salt = closing.commitment, closing.salt, closing.dataset_salt
        except Exception:  # it does not even open
            stated, salt, dataset_salt = "00" * 32, bytes(32), bytes(32)
        self._regions.move(live.grant.region, RegionFact.CLOSED, Role.HOLDER)
        live.consumed, live.commitment, live.salt, live.dataset_salt = True, stated, salt, dataset_salt

    patch.setattr(CopyEngine, "_close", close)


def nothing_of_a_record_is_checked(patch: Patch) -> None:
    """Neither order nor length nor tag nor what the closing record states."""
    tags_are_ignored(patch)
    closing_records_are_believed(patch)
    patch.setattr(copy_engine, "check_due", lambda live, header, now: None)


def lengths_are_free(patch: Patch) -> None:
    """A chunk may be of any length, and its tag is not looked at."""
    tags_are_ignored(patch)
    patch.setattr(record_rules, "lengths_due", lambda *_: range(1 << 21))


def closing_counts_are_believed(patch: Patch) -> None:
    """The commitment is compared, but neither chunks nor records nor length."""

    def close(self: CopyEngine, live: Any, raw: bytes, sealed: Any) -> None:
        closing = decode(Closing, live.channel.open(sealed, raw + live.context))
        data = self._hbm.view(self._regions.get(live.grant.region).address, live.received)
        self._regions.move(live.grant.region, RegionFact.CLOSED, Role.HOLDER)
        indexes = records_of(live.grant.cursor, live.grant.dataset_records).tolist()
        leaves = leaf_hashes(closing.dataset_salt, indexes, data)
        live.consumed, live.commitment = True, commitment(closing.salt, b"".join(leaves)).hex()
        live.salt, live.dataset_salt = closing.salt, closing.dataset_salt

    patch.setattr(CopyEngine, "_close", close)


def membership_is_not_proven(patch: Patch) -> None:
    def leaves(data: memoryview, *_: Any, salt: bytes, cursor: Any, records: int, hash_leaves: Any) -> list[bytes]:
        found: list[bytes] = hash_leaves(salt, records_of(cursor, records).tolist(), data)
        return found

    patch.setattr(copy_engine, "check_membership", leaves)


def grants_never_expire(patch: Patch) -> None:
    patch.setattr(copy_engine, "check_due", lambda live, header, now: record_rules.check_due(live, header, None))


def fences_kill_nothing(patch: Patch) -> None:
    sabotage.fences_kill_nothing(patch, None)  # type: ignore[arg-type]  # it needs no theatre


def fenced_keys_live_on(patch: Patch) -> None:
    """A fence is stated, and what its keys seal is taken all the same."""
    fenced: dict[int, Any] = {}
    require = GrantTable.require

    def end(self: GrantTable, epoch: int) -> Any:
        live = self._by_epoch.pop(epoch, None)
        if live is not None:
            fenced[epoch] = live
        return live

    def found(self: GrantTable, port: str, epoch: int, region: int) -> Any:
        return require(self, port, epoch, region) if epoch in self._by_epoch or epoch not in fenced else fenced[epoch]

    patch.setattr(GrantTable, "end", end)
    patch.setattr(GrantTable, "require", found)


def scrubs_lie(patch: Patch) -> None:
    sabotage.scrubs_lie(patch, None)  # type: ignore[arg-type]  # as above


def gradients_are_kept(patch: Patch) -> None:
    sabotage.gradients_are_kept(patch, None)  # type: ignore[arg-type]  # as above


def regions_are_granted_unscrubbed(patch: Patch) -> None:
    honest = RegionTable.move

    def move(self: RegionTable, handle: int, fact: RegionFact, actor: Role, proof: Any = None) -> Any:
        if fact is RegionFact.GRANTED:
            region = self.get(handle)
            region.phase = RegionPhase.GRANTED
            return region
        return honest(self, handle, fact, actor, proof)

    patch.setattr(RegionTable, "move", move)
    patch.setattr(RegionTable, "require_grantable", RegionTable.get)


def ports_are_not_compared(patch: Patch) -> None:
    def require(self: GrantTable, port: str, epoch: int, region: int) -> Any:
        return self._by_epoch[epoch]

    patch.setattr(GrantTable, "require", require)


def every_key_commands_the_gpu(patch: Patch) -> None:
    """A command path for keys of every mode, as stock firmware has it."""
    travel = {mode: replace(row, rights="rwx") for mode, row in copy_engine.TRAVEL.items()}
    patch.setattr(copy_engine, "TRAVEL", travel)


def frames_may_come_again(patch: Patch) -> None:
    def opened(self: StockChannel, n: int, ciphertext: bytes) -> bytes:
        self._opening.counter = n - 1
        return self._opening.open(ciphertext, self._aad(n, self._in))

    patch.setattr(StockChannel, "open", opened)


def nothing_is_swept(patch: Patch) -> None:
    patch.setattr(HBM, "clear_strays", lambda self: 0)


def buffers_are_not_compared_again(patch: Patch) -> None:
    patch.setattr(CopyEngine, "_still_there", lambda self, live: True)


def launches_measure_nothing(patch: Patch) -> None:
    patch.setattr(GpuState, "code_digest", lambda self: self.session.code_digest)
    patch.setattr(GpuState, "control_digest", lambda self: self.session.control_digest)


def visits_may_come_again(patch: Patch) -> None:
    patch.setattr(Ledger, "require_new", lambda self, grant: None)


def any_life_is_the_next(patch: Patch) -> None:
    patch.setattr(Device, "_require_next", lambda self, vendor: None)


def a_stranger_inherits_the_memory(patch: Patch) -> None:
    patch.setattr(HBM, "wipe", lambda self: None)


def any_share_will_do(patch: Patch) -> None:
    def agree(self: Shares, grant: Grant, visit_key: bytes) -> bytes:
        share = next(iter(self._drawn.values()))[1]
        assert grant.shares is not None
        return direct_key(visit_key, share.agree(bytes.fromhex(grant.shares.holder)), grant)

    patch.setattr(Shares, "agree", agree)


def keys_are_ratcheted(patch: Patch) -> None:
    """Each visit's key is made from the one before, as the stock driver does."""
    keys: dict[int, bytes] = {}

    def visit_key(secret: bytes, context: schedule.VisitContext) -> bytes:
        if context.epoch not in keys:
            fresh = schedule.hkdf(b"the first one", b"", 32)
            before = keys[max(keys)] if keys else None
            keys[context.epoch] = fresh if before is None else schedule.legacy_rotate(before, "Lce02_h2d_user")
        return keys[context.epoch]

    patch.setattr(schedule, "visit_key", visit_key)
    patch.setattr(copy_engine, "visit_key", visit_key)


def one_key_and_no_checks(patch: Patch) -> None:
    """The same key and counters for every visit, and records are taken for what they say."""
    nothing_of_a_record_is_checked(patch)
    keys_outlive_their_life(patch)


def keys_outlive_their_life(patch: Patch) -> None:
    """The same key, IV mask and counters for every visit of every life."""
    patch.setattr(GrantTable, "next_slot", lambda self: (2, 1))
    for room in (schedule, copy_engine):
        patch.setattr(room, "visit_key", lambda _secret, _context: schedule.hkdf(b"the same", b"", 32))
        patch.setattr(room, "visit_iv_mask", lambda _secret, _context: bytes(12))


class _Plain:
    """A cipher that hides nothing."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
        return bytes(data) + bytes(TAG)

    def encrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
        sealed = self.encrypt(iv, data, aad)
        memoryview(out)[: len(sealed)] = sealed
        return len(sealed)

    def decrypt(self, iv: Any, data: Any, aad: Any) -> bytes:
        return bytes(data)[:-TAG]

    def decrypt_into(self, iv: Any, data: Any, aad: Any, out: Any) -> int:
        plain = self.decrypt(iv, data, aad)
        memoryview(out)[: len(plain)] = plain
        return len(plain)


def nothing_is_encrypted(patch: Patch) -> None:
    patch.setattr(shared.crypto.aead, "AESGCM", _Plain)
    patch.setattr("tests.world.world_recorder.AESGCM", _Plain)


def directions_share_a_key(patch: Patch) -> None:
    """One key of the command channel for both directions, and no direction in what its tags cover."""
    patch.setattr(command_channel, "_RPC", dict.fromkeys(("h2d", "d2h"), "cpu_gsp_locked_rpc"))
    aad = CommandChannel._frame_aad
    patch.setattr(CommandChannel, "_frame_aad", lambda self, n, _, records: aad(self, n, "any", records))


def frames_are_taken_as_they_come(patch: Patch) -> None:
    """A frame's own word for its number and life is believed, and no tag is looked at."""
    tags_are_ignored(patch)
    honest = CommandChannel.open

    def opened(self: CommandChannel, life: int, n: int, ciphertext: bytes, records: Any) -> Any:
        self._open_rpc.counter = n - 1
        return honest(self, self.life, n, ciphertext, records)

    patch.setattr(CommandChannel, "open", opened)
