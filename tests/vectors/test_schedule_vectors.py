"""Known answers of the key schedules and of one GCM record (computed independently of this code). Knows no service."""

from __future__ import annotations

import hashlib

import pytest

from shared.crypto import schedule as s
from shared.crypto.aead import OpeningChannel, SealingChannel, at_rest_open, at_rest_seal
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation, VerificationFailed

DHE = bytes(range(0x30))
TH1, TH2 = hashlib.sha384(b"TH1").digest(), hashlib.sha384(b"TH2").digest()
EXPORT = bytes.fromhex(
    "b7155535b662cdb0aa3f4c06b51a8907147bbe08f40906fc12d55b7505a16ed0484899cc161a1eca14f245adf1cd32df"
)


def _schedule() -> dict[str, bytes]:
    hs = s.handshake_secret(DHE)
    req, rsp = s.hs_secrets(hs, TH1)
    master = s.master_secret(hs)
    req_app, rsp_app = s.app_secrets(master, TH2)
    key, iv = s.traffic_key_iv(req_app)
    return {
        "handshake_secret": hs,
        "req_hs_secret": req,
        "rsp_hs_secret": rsp,
        "req_finished_key": s.finished_key(req),
        "rsp_finished_key": s.finished_key(rsp),
        "master_secret": master,
        "req_app_secret": req_app,
        "rsp_app_secret": rsp_app,
        "export_master_secret": s.export_master_secret(master, TH2),
        "req_app_key": key,
        "req_app_iv": iv,
        "Lce00_h2d_user": s.slot_key(EXPORT, "Lce00_h2d_user"),
        "Lce00_h2d_user_rotated": s.legacy_rotate(s.slot_key(EXPORT, "Lce00_h2d_user"), "Lce00_h2d_user"),
        "cpu_gsp_locked_rpc": s.slot_key(EXPORT, "cpu_gsp_locked_rpc"),
    }


EXPECTED = {
    "handshake_secret": "360732e7447a7e51164ebc696c02061ead7f37c94691c4c830c8bb5ccc75ad69aa72ba3bc5d8112486c6d0c5c6b9e0be",
    "req_hs_secret": "f0f4ac156cb899c225795993af309514ef2fd6d83e7da85a290e5312f28ea6a8c3d0352feef252a549cfa560a1c6ebcd",
    "rsp_hs_secret": "aa68dd4f64e97b144a527d219582587c6d68a0f9839a0b5bb170c13a9a5f3610e9fe6902fa9391c43c4e0f2d0267402a",
    "req_finished_key": "8ef3b82dbfc815a539ac5ed0be4890a6a1f0e527b528a55a2d717ee2c25147c4771d7ae01825309726b0b4f25762fa92",
    "rsp_finished_key": "cbed34d302b257443ba6214a304831167f694fccfb7bfc9d4f3ebc0590c37f65e28ce91891515906d812b7a34c1409db",
    "master_secret": "f442a227e961f4e0895c5e57b6cb27bed85896553b8dd8b13afd94c254c851dc295be6cba7e7a1f7b88e40b2be3da454",
    "req_app_secret": "fa6bd428503d6b2379938da1ad27df489fe7923a02184230b1a1480da6056a1464412d63ddcfedca9f2f4508138dbb6f",
    "rsp_app_secret": "080a1a288efc98141b496c3d53e32c3d4b53ab9a47ca7c6b0ef168f9bd9e734eac563ff71945c222de6bb8aabd2fd080",
    "export_master_secret": EXPORT.hex(),
    "req_app_key": "0a8d2e782a6921460819c7ac2178fbeca045008ab31cdc58b69928587af2f898",
    "req_app_iv": "44930246a511b690b5d4e3fb",
    "Lce00_h2d_user": "59d1a5ca538d4976148d1c52b40115489450a049cbed5a0bbcc47451fa4bb54a",
    "Lce00_h2d_user_rotated": "c2394b6951e6f22a09a0428513082fc62a189583f7dce88238e06ff61bde9759",
    "cpu_gsp_locked_rpc": "2b3eaa70dc3c429af0999b76c4bfa1ab4eaf3087827046c3dade7c38c07e5401",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_known_answer(name: str) -> None:
    assert _schedule()[name].hex() == EXPECTED[name]


def test_one_record_of_the_copy_engine() -> None:
    key = s.slot_key(EXPORT, "Lce00_h2d_user")
    mask = bytes(range(0x10, 0x1C))
    channel = SealingChannel(key, label="Lce00_h2d_user", iv_mask=mask, channel_counter=1)
    assert channel._iv(1).hex() == "111112131515161718191a1b"
    sealed = channel.seal(b"hello gpu travelling", b"")
    assert sealed.hex() == "1ac2a0d363f1c344568abfb97d9595f66fbcbc4dd885017c99f2849fb32fd664e51e98b9"
    opening = OpeningChannel(key, label="Lce00_h2d_user", iv_mask=mask, channel_counter=1)
    out = bytearray(20)
    assert opening.open_into(sealed, b"", out) == 20
    assert out == b"hello gpu travelling"


def test_every_slot_has_its_own_key() -> None:
    keys = {s.slot_key(EXPORT, label) for label in s.KEY_SLOTS}
    assert len(keys) == len(s.KEY_SLOTS) == 7 + 6 + 8 * 6


def test_counters_move_once_per_record_and_never_wrap() -> None:
    seal = SealingChannel(b"k" * 32, label="t")
    opening = OpeningChannel(b"k" * 32, label="t")
    first, second = seal.seal(b"a", b""), seal.seal(b"b", b"")
    with pytest.raises(VerificationFailed):
        opening.open(second, b"")
    assert opening.counter == 0
    assert (opening.open(first, b""), opening.open(second, b"")) == (b"a", b"b")
    with pytest.raises(VerificationFailed):
        opening.open(second, b"")
    opening.check_repeat(2, second, b"")
    with pytest.raises(VerificationFailed):
        opening.check_repeat(1, second, b"")
    seal.counter = 2**32 - 1
    with pytest.raises(ProtocolViolation) as caught:
        seal.seal(b"c", b"")
    assert caught.value.code == "counter-exhausted"


def test_wide_counter_is_checked_whole() -> None:
    seal = SealingChannel(b"k" * 32, label="gsp", wide=True)
    seal.counter = 2**32 - 1  # the stock 64-bit branch would stop here or wrap; ours goes on
    seal.seal(b"x", b"")
    assert seal.counter == 2**32
    seal.counter = 2**64 - 1
    with pytest.raises(ProtocolViolation):
        seal.seal(b"x", b"")


def test_budget_erasure_and_zero_keys() -> None:
    seal = SealingChannel(b"k" * 32, label="t", budget=3)
    seal.seal(bytes(32), b"")
    with pytest.raises(ProtocolViolation) as caught:
        seal.seal(b"", b"")
    assert caught.value.code == "key-budget-exhausted"
    seal.erase()
    with pytest.raises(ProtocolViolation) as caught:
        seal.seal(b"", b"")
    assert caught.value.code == "key-erased"
    with pytest.raises(ProtocolViolation):
        SealingChannel(bytes(32), label="zero")


def test_at_rest_names_have_keys_of_their_own() -> None:
    key = Secret(b"s" * 32)
    sealed = at_rest_seal(key, "resume", b"value", b"context")
    assert at_rest_open(key, "resume", sealed, b"context") == b"value"
    for name, aad in (("other", b"context"), ("resume", b"else")):
        with pytest.raises(VerificationFailed):
            at_rest_open(key, name, sealed, aad)
