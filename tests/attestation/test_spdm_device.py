"""A manufactured device attested over SPDM from the first byte to the minted fact. Knows no HTTP and no HBM."""

from __future__ import annotations

import pytest

from gpu_agent.hardware.spdm import SpdmResponder
from shared.attestation.nonces import gpu_nonce
from shared.attestation.spdm_requester import SpdmRequester, SpdmSession
from shared.canonical import sha256
from shared.errors import BadRequest, GputError, VerificationFailed
from shared.wire import spdm
from tests.adversary.rows import attack
from tests.attestation.gpu_evidence_world import AT, GpuWorld, entropy

SIGNING_KEY = b"s" * 32


class Opened:
    """Hooks that only remember."""

    def __init__(self) -> None:
        self.sessions: list[tuple[int, bytes, bytes]] = []
        self.faults: list[BaseException] = []

    def check_resume(self, vendor: spdm.VendorElement, request_random: bytes, public_key: bytes) -> None:
        """Nothing to resume here."""

    def session_opened(self, vendor: spdm.VendorElement, session_id: int, export: bytes, th2: bytes) -> None:
        self.sessions.append((session_id, export, th2))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def shake(responder: SpdmResponder, seed: int = 5, request_id: bytes | None = None) -> SpdmSession:
    source = entropy(seed)
    stuck = source if request_id is None else lambda size: request_id if size == 2 else source(size)
    requester = SpdmRequester(entropy=stuck, signing_key_digest=sha256(SIGNING_KEY))
    message: bytes | None = requester.start()
    while message is not None:
        message = requester.feed(responder.message(message))
    return requester.session


def responder(world: GpuWorld, seed: int = 4) -> tuple[SpdmResponder, Opened]:
    hooks = Opened()
    return SpdmResponder(world.rot, entropy=entropy(seed), hooks=hooks, report=hooks.faults.append), hooks


def test_from_the_first_byte_to_a_verified_gpu(world: GpuWorld) -> None:
    device, hooks = responder(world)
    session = shake(device)
    assert session.chain_pem == world.rot.chain_pem
    nonce = gpu_nonce(b"c" * 32, session.th2, 1, SIGNING_KEY)
    report = session.parse_measurements(device.message(session.request_measurements(nonce)))
    assert len(report) == 4130
    gpu = world.verify(report, session.chain_pem, nonce=nonce, at=AT)
    assert gpu.device == world.rot.device
    assert hooks.sessions == [(session.session_id, session.take_export_master_secret(), session.th2)]
    # The report speaks for this session alone: another transcript asks for another nonce.
    other = gpu_nonce(b"c" * 32, shake(device, seed=6).th2, 1, SIGNING_KEY)
    with pytest.raises(VerificationFailed) as caught:
        world.verify(report, session.chain_pem, nonce=other)
    assert caught.value.code == "gpu-nonce"


@attack("V09", any="stopped: the handshake is signed by the device's own leaf")
def test_a_relayed_handshake_shows_the_other_devices_chain(
    world: GpuWorld, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A device cannot hold a session under another device's chain: KEY_EXCHANGE_RSP is signed by its own leaf."""
    other = GpuWorld.make(tmp_path_factory.mktemp("other"), seed=70)
    mine, _ = responder(world)
    mine._rot = type("Swapped", (), {"chain_spdm": other.rot.chain_spdm, "sign": staticmethod(world.rot.sign)})()
    with pytest.raises(VerificationFailed) as caught:
        shake(mine)
    assert caught.value.code == "signature-invalid"


def test_measurements_need_a_session_and_its_order(world: GpuWorld) -> None:
    device, _ = responder(world)
    assert device.message(spdm.get_measurements(bytes(32)))[1] == spdm.ERROR
    session = shake(device)
    first, second = session.request_measurements(b"1" * 32), session.request_measurements(b"2" * 32)
    assert device.message(second)[1] == spdm.ERROR
    assert session.parse_measurements(device.message(first))
    assert device.message(first)[1] == spdm.ERROR


def test_a_malformed_secured_request_is_answered_inside_the_session(world: GpuWorld) -> None:
    device, _ = responder(world)
    session = shake(device)
    for message in (spdm.GET_VERSION_MESSAGE, b"\x11\xe9\x02\x01", b"\x11\xec\0\0"):
        with pytest.raises(GputError):
            session.parse_measurements(device.message(session._seal.seal(message)))
    assert session.parse_measurements(device.message(session.request_measurements(b"n" * 32)))


@pytest.mark.parametrize("record", [b"", b"\x11", bytes(8), b"\xff" * 64, bytes(70_000)])
def test_noise_is_answered_with_an_error(world: GpuWorld, record: bytes) -> None:
    device, hooks = responder(world)
    assert device.message(record)[1] == spdm.ERROR
    session = shake(device)
    assert device.message(session.session_id.to_bytes(4, "little") + record)[1] == spdm.ERROR
    assert session.parse_measurements(device.message(session.request_measurements(b"n" * 32)))
    assert len(hooks.sessions) == 1


def test_a_session_id_is_no_message_and_never_the_standing_one(world: GpuWorld) -> None:
    """The requester chooses half of the id; even with the device's entropy stuck, the other half keeps them apart."""
    device, _ = responder(world)
    device._entropy = lambda size: bytes([1]) * size
    previous = None
    for seed in range(3):
        session = shake(device, seed, request_id=spdm.GET_VERSION_MESSAGE[:2])
        assert session.session_id >> 31 == 1
        assert session.session_id != previous
        previous = session.session_id
        assert device.message(spdm.GET_VERSION_MESSAGE) == spdm.VERSION_MESSAGE


def test_a_device_that_answers_error_is_told_as_one(world: GpuWorld) -> None:
    requester = SpdmRequester(entropy=entropy(1), signing_key_digest=bytes(32))
    device, _ = responder(world)
    message: bytes | None = requester.start()
    for _ in range(3):
        assert message is not None
        message = requester.feed(device.message(message))
    with pytest.raises(BadRequest) as caught:
        requester.feed(spdm.error(spdm.UNEXPECTED_REQUEST))
    assert caught.value.code == "spdm-error"
