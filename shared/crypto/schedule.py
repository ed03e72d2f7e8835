"""Every key derivation of the system in one place: SPDM 1.1 schedule, the driver's key store, our draws. Knows no message.

Sources: DSP0274 1.1 key schedule (reference h100.md 5.3), NVIDIA's key store (4.2), design 4.5. Inputs and outputs are plain
bytes; callers hold them in `Secret` or in a channel and let them die early.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Final, Literal

from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from shared.canonical import cbor_bytes

SECRET_BYTES: Final = 48
KEY_BYTES: Final = 32
IV_BYTES: Final = 12


# ------------------------------------------------------------ SPDM 1.1 (SHA-384)


def _expand384(secret: bytes, label: str, context: bytes, length: int) -> bytes:
    info = length.to_bytes(2, "little") + b"spdm1.1 " + label.encode() + context
    return HKDFExpand(SHA384(), length, info).derive(secret)


def _hmac384(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha384)


def handshake_secret(dhe: bytes) -> bytes:
    """HandshakeSecret = HMAC(Salt0, DHE X coordinate of 48 bytes)."""
    return _hmac384(bytes(SECRET_BYTES), dhe)


def hs_secrets(handshake: bytes, th1: bytes) -> tuple[bytes, bytes]:
    """(request, response) handshake secrets; `th1` is the 48-byte hash of TH1."""
    return _expand384(handshake, "req hs data", th1, 48), _expand384(handshake, "rsp hs data", th1, 48)


def finished_key(secret: bytes) -> bytes:
    """Key of the verify-data HMAC, from a handshake secret."""
    return _expand384(secret, "finished", b"", 48)


def verify_data(secret: bytes, transcript_hash: bytes) -> bytes:
    """HMAC-SHA-384 of a transcript hash under the finished key of `secret`."""
    return _hmac384(finished_key(secret), transcript_hash)


def master_secret(handshake: bytes) -> bytes:
    """MasterSecret = HMAC(Salt1, 48 zero bytes)."""
    return _hmac384(_expand384(handshake, "derived", b"", 48), bytes(SECRET_BYTES))


def app_secrets(master: bytes, th2: bytes) -> tuple[bytes, bytes]:
    """(request, response) data secrets; `th2` is the 48-byte hash of TH2."""
    return _expand384(master, "req app data", th2, 48), _expand384(master, "rsp app data", th2, 48)


def export_master_secret(master: bytes, th2: bytes) -> bytes:
    """Export master secret, 48 bytes."""
    return _expand384(master, "exp master", th2, 48)


def traffic_key_iv(secret: bytes) -> tuple[bytes, bytes]:
    """(key 32, IV salt 12) of one direction."""
    return _expand384(secret, "key", b"", KEY_BYTES), _expand384(secret, "iv", b"", IV_BYTES)


# ------------------------------------------------------------ the driver's key store (SHA-256)

_GSP = {
    "cpu_gsp_locked_rpc": 0, "gsp_cpu_locked_rpc": 1, "cpu_gsp_dma": 2, "gsp_cpu_dma": 3, "gsp_cpu_replayable_fault": 5,
    "gsp_cpu_non_replayable_fault": 7, "cpu_gsp_nvle_p2p_wrapping": 10,
}  # fmt: skip
_SEC2 = (
    "cpu_sec2_data_user", "cpu_sec2_hmac_user", "cpu_sec2_data_kernel", "cpu_sec2_hmac_kernel", "cpu_sec2_data_scrubber",
    "cpu_sec2_hmac_scrubber",
)  # fmt: skip
Privilege = Literal["user", "kernel", "p2p"]
COPY_ENGINES: Final = 8


def lce_label(engine: int, direction: Literal["h2d", "d2h"], privilege: Privilege) -> str:
    """Label of a logical copy engine's key, e.g. `Lce00_h2d_user`."""
    return f"Lce{engine:02d}_{direction}_{privilege}"


def _lce_slots(engine: int) -> dict[str, tuple[int, int]]:
    labels = [lce_label(engine, direction, p) for p in ("user", "kernel", "p2p") for direction in ("h2d", "d2h")]
    return {label: (2 + engine, number) for number, label in enumerate(labels)}


# label -> (keyspace, local id); the driver's global key id is keyspace << 16 | local id.
KEY_SLOTS: Final[dict[str, tuple[int, int]]] = {
    **{label: (0, number) for label, number in _GSP.items()},
    **{label: (1, number) for number, label in enumerate(_SEC2)},
    **{label: slot for engine in range(COPY_ENGINES) for label, slot in _lce_slots(engine).items()},
}


def _expand256(key: bytes, label: str, length: int = KEY_BYTES) -> bytes:
    return HKDFExpand(SHA256(), length, label.encode()).derive(key)


def slot_key(export_master: bytes, label: str) -> bytes:
    """Key of a slot: HKDF-Expand(first 32 bytes of the export master secret, label)."""
    return _expand256(export_master[:KEY_BYTES], label)


def legacy_rotate(key: bytes, label: str) -> bytes:
    """The stock driver's rotation. Hazard: whoever holds `key` derives every later key (design 4.5, attack H10)."""
    return _expand256(hashlib.sha256(key).digest(), label)


# ------------------------------------------------------------ our draws (design 4.5)


def hkdf(ikm: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256 (RFC 5869) with an empty salt."""
    return HKDF(SHA256(), length, None, info).derive(ikm)


def salted_hkdf(salt: bytes, ikm: bytes, info: bytes, length: int) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), length, salt, info).derive(ikm)


def root_key(export_master: bytes, life: int) -> bytes:
    """RK_0 of one life of the orchestrator."""
    return hkdf(export_master, cbor_bytes(["gput/root-key", life]), KEY_BYTES)


def resume_secret(export_master: bytes, session: str) -> bytes:
    """What a later life proves itself with; derived once, in the session's first life."""
    return hkdf(export_master, cbor_bytes(["gput/resume-secret", session]), KEY_BYTES)


def resume_proof(secret: bytes, life: int, boot_counter: int, request_random: bytes, public_key: bytes) -> bytes:
    """HMAC-SHA-384 that lets KEY_EXCHANGE open life `life` of a full GPU; bound to this very exchange."""
    fixed = cbor_bytes(["gput/resume", life, boot_counter, request_random, public_key])
    return _hmac384(secret, fixed)


def draw_epoch(rk: bytes, epoch: int, orchestrator_entropy: bytes, gpu_entropy: bytes) -> tuple[bytes, bytes]:
    """(VS_e, RK') = HKDF(RK, CBOR["draw", e, orchestrator random, GPU random]); the old RK is then erased."""
    both = hkdf(rk, cbor_bytes(["draw", epoch, orchestrator_entropy, gpu_entropy]), 2 * KEY_BYTES)
    return both[:KEY_BYTES], both[KEY_BYTES:]


@dataclass(frozen=True)
class VisitContext:
    """All that a visit key is bound to; `recipient` is SHA-256 (32 bytes) of the holder's one-time key."""

    session: str
    epoch: int
    holder: str
    region: int
    recipient: bytes

    def info(self, label: str) -> bytes:
        """HKDF info of one output."""
        return cbor_bytes([label, self.session, self.epoch, self.holder, "h2d", self.region, self.recipient])


def visit_key(vs: bytes, context: VisitContext) -> bytes:
    """K(e, h2d), 32 bytes."""
    return hkdf(vs, context.info("visit"), KEY_BYTES)


def visit_iv_mask(vs: bytes, context: VisitContext) -> bytes:
    """IV mask of the visit's channel, 12 bytes."""
    return hkdf(vs, context.info("iv-mask"), IV_BYTES)


def chain_key(key: bytes, iv_mask: bytes, chains: int, number: int) -> tuple[bytes, bytes]:
    """(key, IV mask) of one of several chains under a visit's key: none of them ever meets an IV of another, or of another k."""
    found = hkdf(key, cbor_bytes(["gput/chain", chains, number, iv_mask]), KEY_BYTES + IV_BYTES)
    return found[:KEY_BYTES], found[KEY_BYTES:]


@dataclass(frozen=True)
class Computation:
    """All that the result of one private training depends on and that can differ within a session. `dataset` and `cursor` (as claims) name
    the records, byte for byte: the GPU takes only what is proven to lie there. Digests in hex."""

    holder: str
    dataset: tuple[str, int]
    cursor: dict[str, Any]
    model: str
    optimiser: str
    first_step: int
    steps: int


def noise_key(secret: bytes, of: Computation) -> bytes:
    """What a private training's noise is drawn from; `secret` is the session's, and lives in the GPU and its sealed checkpoints.

    A repeat of the same computation draws the same noise: it gives the same model and tells nothing new. Any other one, were only one
    record or one weight different, draws its own: two results with the same noise would tell the difference of what the noise hides.
    """
    what = [of.holder, list(of.dataset), of.cursor, of.model, of.optimiser, of.first_step, of.steps]
    return hkdf(secret, cbor_bytes(["gput/noise-key", what]), KEY_BYTES)


def dataset_salt(sealing_key: bytes, holder: str, session: str, dataset: str) -> bytes:
    """Salt (32 bytes) of a holder's dataset commitment in one session; `sealing_key` is that CVM's own."""
    return hkdf(sealing_key, cbor_bytes(["gput/dataset-salt", holder, session, dataset]), KEY_BYTES)


def share_sealing_key(sealing_key: bytes) -> bytes:
    """What a holder's shares of sessions' keys are sealed with; `sealing_key` as for its salts."""
    return hkdf(sealing_key, cbor_bytes(["gput/recovery-shares"]), KEY_BYTES)


def dataset_row_key(sealing_key: bytes) -> bytes:
    """What a holder's rows of datasets carry their MACs under; `sealing_key` as for its salts."""
    return hkdf(sealing_key, cbor_bytes(["gput/holder-datasets"]), KEY_BYTES)


def checkpoint_key(secret: bytes, name: str) -> bytes:
    """Key of one checkpoint, used for its parts only."""
    return hkdf(secret, cbor_bytes(["gput/checkpoint", name]), KEY_BYTES)


# ------------------------------------------------------------ a session's key (design 4.5)


def session_journal_key(session_key: bytes, session: str) -> bytes:
    """MAC key of the session's journal."""
    return hkdf(session_key, cbor_bytes(["gput/session-journal", session]), KEY_BYTES)


def session_sealing_key(session_key: bytes, session: str) -> bytes:
    """What the session's resume secret and checkpoint key are sealed with."""
    return hkdf(session_key, cbor_bytes(["gput/session-sealing", session]), KEY_BYTES)


def session_key_check(session_key: bytes, session: str) -> bytes:
    """A public value (32 bytes) that only this key has: whether shares gave the right one."""
    return hkdf(session_key, cbor_bytes(["gput/session-key-check", session]), KEY_BYTES)


def share_coefficient(session_key: bytes, session: str, holders: tuple[str, ...], threshold: int, number: int) -> bytes:
    """48 bytes for one coefficient of the polynomial that shares the key: 16 more than the field needs, so that its remainder is even."""
    what = ["gput/share-coefficient", session, list(holders), threshold, number]
    return hkdf(session_key, cbor_bytes(what), 48)
