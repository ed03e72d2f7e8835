"""Keys, IVs and everything sealed but copy records: made a second time from docs/formats.md and compared with the product's."""

from __future__ import annotations

import hashlib
import hmac
import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.hardware.commands_transfer import checkpoint
from orchestrator.gpu_session import checkpoints
from orchestrator.sealed_file import SealedWriter
from shared.claims.visit import CursorRange, Grant, Shares
from shared.crypto import schedule
from shared.crypto.aead import at_rest_seal
from shared.crypto.command_channel import CommandChannel
from shared.crypto.secret import Secret
from shared.crypto.shares import Share, direct_key
from shared.crypto.spdm_record import SpdmRecords
from shared.crypto.stock_channel import StockChannel
from shared.wire.gpu import Checkpoint
from tests.conformance.independent import page_sealed, page_signed

SESSION, VISIT = "s_0123456789abcdef", "v_0123456789abcdef"
EXPORT, MASKS = bytes(range(48)), {"h2d": bytes(range(1, 13)), "d2h": bytes(range(51, 63))}
secrets = st.binary(min_size=32, max_size=32)
long_secrets = st.binary(min_size=48, max_size=48)
TWO_CHUNKS = 2**20 + 5


def grant(**changes: Any) -> Grant:
    fields: dict[str, Any] = {
        "session": SESSION, "visit": VISIT, "life": 1, "epoch": 9, "holder": "north", "port": "holder-north", "region": 4,
        "byte_budget": 10_000, "cursor": CursorRange(start=0, count=8), "dataset_root": "d0" * 32, "dataset_records": 40,
        "record_bytes": 8, "chunk_bytes": 4096, "recipient": "ee" * 32, "expires_at": 2_000_000_000,
    }  # fmt: skip
    return Grant(**{**fields, **changes})


@given(secrets, secrets, secrets, st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_a_visits_keys(root: bytes, ours: bytes, theirs: bytes, epoch: int, region: int) -> None:
    drawn = page_sealed.draw(root, epoch, ours, theirs)
    assert schedule.draw_epoch(root, epoch, ours, theirs) == drawn
    context = schedule.VisitContext(SESSION, epoch, "north", region, hashlib.sha256(b"one-time").digest())
    found = (schedule.visit_key(drawn[0], context), schedule.visit_iv_mask(drawn[0], context))
    assert found == page_sealed.visit_keys(drawn[0], SESSION, epoch, "north", region, b"one-time")


@given(long_secrets, secrets, st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_keys_of_a_life(master: bytes, random: bytes, life: int, boots: int) -> None:
    assert schedule.root_key(master, life) == page_sealed.hkdf(master, page_signed.cbor(["gput/root-key", life]))
    resume = page_sealed.hkdf(master, page_signed.cbor(["gput/resume-secret", SESSION]))
    assert schedule.resume_secret(master, SESSION) == resume
    said = page_signed.cbor(["gput/resume", life, boots, random, bytes(96)])
    proof = hmac.digest(resume, said, "sha384")
    assert schedule.resume_proof(resume, life, boots, random, bytes(96)) == proof
    for label in ("cpu_gsp_locked_rpc", "Lce00_d2h_kernel"):
        assert schedule.slot_key(master, label) == page_sealed.slot(master, label)


def test_the_traffic_key_of_direct() -> None:
    own, theirs = X25519PrivateKey.from_private_bytes(bytes([5]) * 32), Share(lambda count: bytes([6]) * count)
    public = own.public_key().public_bytes_raw()
    named = grant(shares=Shares(holder=public.hex(), gpu=theirs.public.hex()))
    agreed = own.exchange(X25519PublicKey.from_public_bytes(theirs.public))
    bound = [SESSION, VISIT, "north", 4, 9, "h2d", public, theirs.public]
    assert direct_key(bytes(range(32)), theirs.agree(public), named) == page_sealed.direct_key(
        bytes(range(32)), agreed, bound
    )


@given(
    st.lists(st.tuples(st.binary(max_size=60), st.lists(st.binary(max_size=40), max_size=3)), min_size=1, max_size=4)
)
def test_command_frames_and_their_bulk_records(frames: list[tuple[bytes, list[bytes]]]) -> None:
    """Both directions at once: bulk records count over all frames of their direction."""
    for side, direction, slot in (("orchestrator", "h2d", "cpu_gsp_locked_rpc"), ("gpu", "d2h", "gsp_cpu_locked_rpc")):
        channel = CommandChannel(EXPORT, 3, cast(Any, side))
        channel.set_masks(MASKS["h2d"], MASKS["d2h"])
        sealed_bulk = 0
        for n, (payload, bulk) in enumerate(frames, 1):
            number, ct, records = channel.seal(payload, bulk)
            aad = page_sealed.frame_aad(3, n, direction, records)
            frame_key = AESGCM(page_sealed.slot(EXPORT, slot))
            assert (number, frame_key.decrypt(page_sealed.wide_iv(n), ct, aad)) == (n, payload)
            for index, record in enumerate(records):
                sealed_bulk += 1
                iv = page_sealed.narrow_iv(sealed_bulk, 0, MASKS[direction])
                cipher = AESGCM(page_sealed.slot(EXPORT, f"Lce00_{direction}_kernel"))
                assert cipher.decrypt(iv, record, page_sealed.bulk_aad(3, n, index, len(bulk))) == bulk[index]


@pytest.mark.parametrize(("side", "direction"), [("holder", "h2d"), ("gpu", "d2h")])
def test_stock_frames(side: str, direction: str) -> None:
    channel = StockChannel(bytes(range(32)), grant(), cast(Any, side))
    bound = [SESSION, VISIT, "north", 9]
    cipher = AESGCM(page_sealed.stock_key(bytes(range(32)), bound, direction))
    for n in (1, 2):
        number, sealed = channel.seal(b"command")
        aad = page_signed.cbor(["gput/stock", *bound, n, direction])
        assert (number, cipher.decrypt(page_sealed.wide_iv(n), sealed, aad)) == (n, b"command")


@given(long_secrets, long_secrets, st.lists(st.binary(max_size=50), min_size=1, max_size=3))
def test_spdms_keys_and_records(secret: bytes, hashed: bytes, messages: list[bytes]) -> None:
    both = tuple(page_sealed.spdm_expand(secret, label, hashed, 48) for label in ("req hs data", "rsp hs data"))
    assert schedule.hs_secrets(secret, hashed) == both
    both = tuple(page_sealed.spdm_expand(secret, label, hashed, 48) for label in ("req app data", "rsp app data"))
    assert schedule.app_secrets(secret, hashed) == both
    assert schedule.export_master_secret(secret, hashed) == page_sealed.spdm_expand(secret, "exp master", hashed, 48)
    records = SpdmRecords(0x8001_0002, secret)
    for number, message in enumerate(messages):
        assert records.seal(message) == page_sealed.spdm_record(0x8001_0002, secret, number, message)


@given(secrets, st.text("abc/#0", max_size=20), st.binary(max_size=80), st.binary(max_size=20))
def test_what_is_sealed_under_a_name(key: bytes, name: str, plain: bytes, aad: bytes) -> None:
    assert at_rest_seal(Secret(key), name, plain, aad) == page_sealed.sealed_under_name(key, name, plain, aad)


@pytest.mark.parametrize("length", [0, 1, 2**20, TWO_CHUNKS])
def test_a_long_file(length: int) -> None:
    plain, file = bytes(length), io.BytesIO()
    writer = SealedWriter(file, Secret(bytes(range(32))), f"model/{SESSION}", lambda count: b"\x07" * count)
    writer.write(plain)
    writer.finish()
    expected = page_sealed.sealed_file(bytes(range(32)), f"model/{SESSION}", b"\x07" * 16, plain)
    assert file.getvalue() == expected


@pytest.mark.parametrize("noise", [b"", bytes(range(32))], ids=["not private", "private"])
@pytest.mark.parametrize("length", [1, 2**20, TWO_CHUNKS])
def test_a_checkpoints_chunks(length: int, noise: bytes, tmp_path: Any) -> None:
    """The GPU's own command over a committed state, under the key that the orchestrator makes of its secret."""
    secret, name = bytes(range(32)), "k_0123456789abcdef"
    state = bytes(at % 251 for at in range(length))
    chunks: list[bytes] = []
    key = checkpoints.Checkpoints(tmp_path, Secret(secret))._key(name)
    gpu = SimpleNamespace(
        model=SimpleNamespace(
            named=lambda: SimpleNamespace(model="11" * 32, optimiser="22" * 32, step=70_000), committed_bytes=length,
            read_committed=lambda start, count: memoryview(state)[start : start + count],
            mend_kept=lambda: None, require_kept=lambda: None,
        ),
        session=SimpleNamespace(checkpoints={}, noise=Secret(noise) if noise else None),
    )  # fmt: skip
    bulk = SimpleNamespace(give=chunks.append)
    checkpoint(cast(Any, gpu), Checkpoint(key=key, name=name, length=32 * 2**20), cast(Any, bulk))
    assert chunks == page_sealed.checkpoint_chunks(secret, name, 70_000, noise, state)
