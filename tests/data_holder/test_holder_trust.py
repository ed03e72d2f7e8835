"""The holder's trust anchors against a really manufactured installation: CPU quote, GPU report and statement key, and their refusal."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from data_holder.trust import TrustAnchors, load_anchors
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform.api import load_enclave
from gpu_agent.platform.device_manufacture import manufacture_device
from gpu_agent.platform.files import Installation
from gpu_agent.platform.manufacture import manufacture
from shared.attestation.channel import OrchestratorExpectation, build_orchestrator_runtime, report_data
from shared.attestation.nonces import gpu_nonce
from shared.claims.manifest import EvidencePolicy
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, EmulationWarning, GputError, VerificationFailed
from shared.service.configuration import configuration
from shared.service.guest import Guest
from shared.wire.spdm import get_measurements
from shared.wire.visit import ChannelOffer, Evidence, GpuEvidence
from tests.adversary.rows import attack
from tests.attestation.cpu_world import LocalProvider, measured
from tests.data_holder.conftest import Start
from tests.data_holder.holder_world import DEVICE, NAME, SESSION, make_manifest

pytestmark = pytest.mark.filterwarnings("ignore::shared.errors.EmulationWarning")
SIGNING, ENROLLED = PartyKey.generate(), PartyKey.generate()
MANIFEST = make_manifest("ab" * 32)


class Installed:
    """An installation with one GPU and an orchestrator's CVM."""

    def __init__(self, folder: Path) -> None:
        cvms = ["orchestrator", "holder-north"]
        manufacture(folder, ["gpu-0"], cvms, make_device=manufacture_device, at=time.time())
        self.folder = folder
        self.enclave = load_enclave(Installation(folder), {})
        self.gpu = RootOfTrust.load(folder / "devices" / "gpu-0", os.urandom)

    def gpu_evidence(self, signing: bytes = SIGNING.public) -> GpuEvidence:
        challenge, th2 = bytes(32), bytes(48)
        report = self.gpu.report(get_measurements(gpu_nonce(challenge, th2, 0, signing)))
        return GpuEvidence(
            report=base64.b64encode(report).decode(), chain=self.gpu.chain_pem, challenge=challenge.hex(), th2=th2.hex(),
            epoch=0, statement_key=base64.b64encode(self.gpu.statement_certificate).decode(),
        )  # fmt: skip

    async def evidence(self, cvm: str, raw: bytes) -> Evidence:
        """What an orchestrator in this CVM sends, measured as an orchestrator is."""
        settings, trust = {"allow_emulated": True}, self.folder / "trust"
        boot = configuration("orchestrator", backend="emulated", trust_dir=trust, settings=settings)
        guest = Guest(LocalProvider(self.enclave, cvm), [*boot, *measured(raw)])
        return await guest.quote(report_data("orchestrator", raw), about=SESSION)

    def offer(self, *, gpu: GpuEvidence | None = None, cvm: str = "orchestrator") -> ChannelOffer:
        gpu = gpu or self.gpu_evidence()
        raw = build_orchestrator_runtime(
            session=SESSION, holder=NAME, manifest=MANIFEST.digest().hex(), peer_nonce="01" * 32, nonce="02" * 32,
            signing_key=SIGNING.public, enrolled_key=ENROLLED.public, gpu_evidence=gpu, not_after=int(time.time()) + 600,
        )  # fmt: skip
        quote = asyncio.run(self.evidence(cvm, raw))
        data = base64.b64encode(raw).decode()
        return ChannelOffer(channel="c_1", runtime_data=data, evidence=quote, gpu_evidence=gpu)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        return Installed(tmp_path_factory.mktemp("installation"))


def verify(installed: Installed, offer: ChannelOffer, *, allow_emulated: bool = True, manifest: Any = MANIFEST) -> Any:
    anchors: TrustAnchors = load_anchors(installed.folder / "trust", allow_emulated=allow_emulated)
    expected = OrchestratorExpectation(SESSION, NAME, MANIFEST.digest().hex(), "01" * 32, None)
    return anchors.verify_orchestrator(offer, expected, manifest, at=time.time())


def test_genuine_evidence_names_device_and_statement_key(installed: Installed) -> None:
    seen = verify(installed, installed.offer())
    assert seen.gpu.device == installed.gpu.device
    assert seen.gpu.statement_key == installed.gpu.statement_key.public
    assert seen.gpu.backend.value == "EMULATED"


def test_emulated_evidence_needs_this_holders_own_consent(installed: Installed) -> None:
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(), allow_emulated=False)
    hardware = MANIFEST.model_copy(update={"gpu_evidence": EvidencePolicy(roots=("NVIDIA",))})
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(), manifest=hardware)


def test_a_gpu_report_for_another_signing_key_is_refused(installed: Installed) -> None:
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(gpu=installed.gpu_evidence(PartyKey.generate().public)))


def test_agreed_gpu_measurements_must_match(installed: Installed) -> None:
    policy = EvidencePolicy(roots=("EMULATED",), measurements=("ab" * 48,))
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(), manifest=MANIFEST.model_copy(update={"gpu_evidence": policy}))


def test_a_statement_key_that_another_device_certified_is_refused(installed: Installed, tmp_path: Path) -> None:
    other = Installed(tmp_path)
    certificate = base64.b64encode(other.gpu.statement_certificate).decode()
    swapped = installed.gpu_evidence().model_copy(update={"statement_key": certificate})
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(gpu=swapped))


def test_a_holders_quote_does_not_pass_for_the_orchestrators(installed: Installed) -> None:
    with pytest.raises(VerificationFailed):
        verify(installed, installed.offer(cvm="holder-north"))


@pytest.mark.parametrize("field", ["report", "statement_key"])
@pytest.mark.parametrize("text", ["A", "AAA=A===", "AAAA\n AAAA", "!!!!", "é"])
def test_text_that_is_not_base64_stays_inside_the_error_family(installed: Installed, field: str, text: str) -> None:
    """The orchestrator's CVM quotes whatever it is told to; a hostile text must neither pass nor crash the holder."""
    hostile = installed.gpu_evidence().model_copy(update={field: text})
    with pytest.raises(GputError) as caught:
        verify(installed, installed.offer(gpu=hostile))
    assert caught.value.code == "malformed-base64"


@attack("V09", any="stopped: holders insist on the session's device")
def test_another_gpu_than_the_sessions_is_refused(installed: Installed) -> None:
    anchors = load_anchors(installed.folder / "trust", allow_emulated=True)
    for device, code in ((installed.gpu.device, None), ("00" * 8, "gpu-device")):
        expected = OrchestratorExpectation(SESSION, NAME, MANIFEST.digest().hex(), "01" * 32, None, gpu_device=device)
        if code is None:
            assert (
                anchors.verify_orchestrator(installed.offer(), expected, MANIFEST, at=time.time()).gpu.device == device
            )
            continue
        with pytest.raises(VerificationFailed) as caught:
            anchors.verify_orchestrator(installed.offer(), expected, MANIFEST, at=time.time())
        assert caught.value.code == code


def test_a_trust_folder_without_rim_roots_is_refused(installed: Installed, tmp_path: Path) -> None:
    shutil.copytree(installed.folder / "trust", tmp_path / "trust")
    (tmp_path / "trust" / "rim-roots.pem").unlink()
    with pytest.raises(ConfigurationError):
        load_anchors(tmp_path / "trust", allow_emulated=True)


async def test_a_second_channel_insists_on_the_gpu_of_the_first(start: Start) -> None:
    async with start() as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.orchestrator.approvals)
        channels, approved = running.holder.visits._channels, running.holder.approvals.approved(SESSION)
        for _ in range(2):
            await channels.open(SESSION, approved)
        verifier: Any = running.holder.foundation.verifier
        asked = [expected.gpu_device for expected in verifier.expectations]
        assert asked[0] is None
        assert set(asked[1:]) == {DEVICE}


async def test_a_gpu_report_for_another_channels_challenge_opens_no_channel(start: Start) -> None:
    async with start() as running:
        running.orchestrator.gpu_challenge = "11" * 32
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.orchestrator.approvals)
        with pytest.raises(VerificationFailed) as caught:
            await running.holder.visits._channels.open(SESSION, running.holder.approvals.approved(SESSION))
        assert caught.value.code == "channel-gpu-challenge"
        assert running.orchestrator.proven is None


async def test_an_inbox_item_that_is_not_base64_does_not_end_the_holder(start: Start) -> None:
    async with start() as running:
        running.orchestrator.post("approval_wanted", manifest="A")  # as the pattern allows, but no base64
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.orchestrator.approvals)
