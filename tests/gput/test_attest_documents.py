"""Documents about machines, judged by themselves: whose root they stand on, whether it counts (law L10), and whom it withdrew."""

from __future__ import annotations

import pytest

from gpu_agent.platform.collateral_maker import make_collateral
from gput.attest.documents import judge
from gput.attest.judging import Judged
from gput.attest.table import print_checks
from gput.attest.trust import Trust, Wish
from shared.attestation.evidence_files import pieces_of
from shared.attestation.snp_trust import SnpRoots, SnpTrust
from shared.claims.manifest import EvidencePolicy
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.gpu_evidence_world import Factory

MACHINE, GPU = Machine(), Factory()
DRIVER, VBIOS = GPU.rims.both(GPU.firmware)
DOCUMENTS = {
    "gpu": GPU.pem().encode(), "gpu-rim": DRIVER, "gpu-rim of the VBIOS": VBIOS, "collateral": MACHINE.collateral.document(),
}  # fmt: skip
OF_EMULATION, OF_NVIDIA = EvidencePolicy(roots=("EMULATED",)), EvidencePolicy(roots=("NVIDIA", "INTEL"))


def judged(document: bytes, wish: Wish) -> Judged:
    trust = Trust(GPU.trust, MACHINE.trust(), SnpTrust(SnpRoots({}, {}), {}))
    (found,) = judge(pieces_of(document, "document"), trust, wish)
    return found


def code(document: bytes, **wish: object) -> str:
    refusal = judged(document, Wish(AT, **wish)).refusal  # type: ignore[arg-type]  # options of `Wish`
    return refusal.code if refusal is not None else ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_emulated_root_counts_only_where_it_is_allowed(name: str) -> None:
    document, kind = DOCUMENTS[name], name.split()[0]
    assert code(document) == f"{kind}-root-set"
    assert code(document, policy=OF_EMULATION) == f"{kind}-emulated"
    assert code(document, policy=OF_NVIDIA, allow_emulated=True) == f"{kind}-root-set"
    assert code(document, allow_emulated=True) == ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_set_is_named_in_every_form(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for allowed in (True, False):
        found = judged(DOCUMENTS[name], Wish(AT, allow_emulated=allowed))
        assert found.record["gput.root-set"] == "EMULATED"
        print_checks(found.title, found.record["checks"], found.words)
        assert capsys.readouterr().out.startswith(f"document: {found.kind}, root set EMULATED\n")


def test_collateral_whose_signer_its_own_root_withdrew_is_refused() -> None:
    for signer in (MACHINE.maker.signer, MACHINE.maker.authority):
        withdrawn = make_collateral(MACHINE.maker, AT, revoked=[signer.certificate]).document()
        assert code(withdrawn, allow_emulated=True) == "collateral-revoked"
