"""Fetching collateral: off by default, from a service of one's own, for genuine machines only, and kept for the next start."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote as url_encoded

import httpx2
import pytest

from gpu_agent.platform.collateral_maker import make_collateral
from orchestrator.settings import OrchestratorSettings
from shared.attestation import collateral_refresh
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_folder import write_bundle
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import verify_cpu_evidence
from shared.errors import ConfigurationError, Unavailable
from shared.service.collateral_source import PccsSource
from shared.wire.collateral import Authority, CollateralAnswers
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.snp_world import body, good_chip, platform, signed
from tests.attestation.test_cpu_verifier import DATA, MACHINE, RAW, refused, verify

GOOD, DAY = MACHINE.collateral, 86_400.0
URL = "https://collateral.example/cache/"


def answered(bundle: Collateral) -> CollateralAnswers:
    info = f'{{"tcbInfo":{bundle.tcb_info},"signature":"{bundle.tcb_info_signature.hex()}"}}'
    identity = f'{{"enclaveIdentity":{bundle.qe_identity},"signature":"{bundle.qe_identity_signature.hex()}"}}'
    return CollateralAnswers(
        tcb_info=info.encode(), tcb_chain=url_encoded(bundle.tcb_info_issuer_chain), qe_identity=identity.encode(),
        qe_chain=bundle.qe_identity_issuer_chain, pck_crl=bundle.pck_crl,
        pck_crl_chain=url_encoded(bundle.pck_crl_issuer_chain), root_ca_crl=bundle.root_ca_crl,
    )  # fmt: skip


class Source:
    """A collateral service that remembers what it was asked."""

    def __init__(self, bundle: Collateral) -> None:
        self.bundle, self.asked = bundle, list[tuple[str, Authority]]()

    async def fetch(self, fmspc: str, authority: Authority) -> CollateralAnswers:
        self.asked.append((fmspc, authority))
        return answered(self.bundle)


def keeper(source: Source | None, folder: Path | None = None) -> CollateralKeeper:
    return CollateralKeeper(CollateralStore(MACHINE.roots.certificates), MACHINE.roots, source, folder)


def test_nothing_is_fetched_by_default(tmp_path: Path) -> None:
    assert OrchestratorSettings.model_fields["collateral_url"].default is None


async def test_without_a_source_nothing_happens() -> None:
    idle = keeper(None)
    assert await idle.prepare(evidence(RAW), AT) is None
    refused("collateral-missing", trust=MACHINE.trust(collateral=idle.store))


async def test_a_genuine_machines_collateral_is_fetched_kept_and_used(tmp_path: Path) -> None:
    source = Source(GOOD)
    fetching = keeper(source, tmp_path / "collateral")
    assert await fetching.prepare(evidence(RAW), AT) is None
    assert source.asked == [("ee6d75000000", "platform")]
    verify(RAW, trust=MACHINE.trust(collateral=fetching.store))
    again = CollateralStore.load(tmp_path / "collateral", MACHINE.roots.certificates)
    verify(RAW, trust=MACHINE.trust(collateral=again))
    await fetching.prepare(evidence(RAW), AT + 10)
    assert len(source.asked) == 1, "what is at hand is not asked for"


async def test_what_is_about_to_end_is_renewed_in_time() -> None:
    source = Source(make_collateral(MACHINE.maker, AT, valid_days=30))
    fetching = keeper(source)
    await fetching.prepare(evidence(RAW), AT)
    source.bundle = make_collateral(MACHINE.maker, AT + 29 * DAY, valid_days=30)
    await fetching.prepare(evidence(RAW), AT + 28 * DAY)
    assert len(source.asked) == 1
    await fetching.prepare(evidence(RAW), AT + 29.5 * DAY)
    verify(RAW, trust=MACHINE.trust(collateral=fetching.store), at=AT + 31 * DAY)


async def test_strangers_and_repeats_fetch_nothing() -> None:
    stranger = Machine("stranger")
    source = Source(stranger.collateral)
    fetching = keeper(source)
    for quote in (stranger.raw(bytes(64)), b"no quote", b""):
        assert await fetching.prepare(evidence(quote), AT) is not None
    assert not source.asked
    for second in range(3):
        why = await fetching.prepare(evidence(RAW), AT + second)
        assert (why or "collateral-root").startswith("collateral-root"), (
            "what it brings is verified like everything else"
        )
    assert len(source.asked) == 1, "a service that has nothing is not asked again at once"
    refused("collateral-missing", trust=MACHINE.trust(collateral=fetching.store))
    source.bundle = GOOD
    assert await fetching.prepare(evidence(RAW), AT + 61) is None
    verify(RAW, trust=MACHINE.trust(collateral=fetching.store))


async def test_other_machines_have_no_collateral_and_nothing_to_be_warned_of() -> None:
    """Where a service is set, every SEV-SNP peer was logged as a malformed quote."""
    source = Source(GOOD)
    report = platform().evidence(signed(body(), good_chip().key), good_chip().leaf)
    assert await keeper(source).prepare(report, AT) is None
    assert not source.asked
    assert await keeper(source).endorsed(report, AT) == report


async def test_a_machine_of_either_authority_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one FMSPC there are machines with certificates of the platform CA's and of the processor CA's, and each needs its list."""
    source = Source(Machine("stranger").collateral)  # is never of use
    fetching, asked = keeper(source), list[Authority](["platform", "processor", "platform"])
    monkeypatch.setattr(collateral_refresh, "_authority", lambda _pck: asked[len(source.asked)])
    for _ in range(2):
        await fetching.prepare(evidence(RAW), AT)
    assert source.asked == [("ee6d75000000", "platform"), ("ee6d75000000", "processor")]


def test_a_bundle_is_durable_before_its_name_and_never_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not leave an empty file, with which a service does not start, nor take the one that was there."""
    early, late = (
        make_collateral(MACHINE.maker, AT, valid_days=30),
        make_collateral(MACHINE.maker, AT + DAY, valid_days=30),
    )
    write_bundle(tmp_path, "m", early)
    seen, fsync, replace = list[str](), os.fsync, os.replace

    def synced(descriptor: int) -> None:
        seen.append("folder" if os.path.samestat(os.fstat(descriptor), tmp_path.stat()) else "content")
        assert (tmp_path / "m.json").read_bytes() in (early.document(), late.document())
        fsync(descriptor)

    def named(draft: Path, path: Path) -> None:
        seen.append(path.name[:9])
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    write_bundle(tmp_path, "m", late)
    assert seen == ["content", "m.earlier", "folder", "content", "m.json", "folder"]
    kept = {path.name[:9]: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {"m.earlier": early.document(), "m.json": late.document()}


# ------------------------------------------------------------------------------------------- HTTP


def service(changes: dict[str, httpx2.Response] | None = None) -> tuple[httpx2.MockTransport, list[str]]:
    answers, asked = answered(GOOD), list[str]()
    replies = {
        "/cache/tdx/certification/v4/tcb": httpx2.Response(
            200, content=answers.tcb_info, headers={"TCB-Info-Issuer-Chain": answers.tcb_chain}
        ),
        "/cache/tdx/certification/v4/qe/identity": httpx2.Response(
            200, content=answers.qe_identity,
            headers={"SGX-Enclave-Identity-Issuer-Chain": url_encoded(answers.qe_chain)},
        ),
        "/cache/sgx/certification/v4/pckcrl": httpx2.Response(
            200, content=answers.pck_crl, headers={"SGX-PCK-CRL-Issuer-Chain": answers.pck_crl_chain}
        ),
        "/cache/sgx/certification/v4/rootcacrl": httpx2.Response(200, content=answers.root_ca_crl.hex().encode() + b"\n"),
        **(changes or {}),
    }  # fmt: skip

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        assert "authorization" not in request.headers
        return replies[request.url.path]

    return httpx2.MockTransport(answer), asked


async def test_a_service_is_asked_for_four_things() -> None:
    transport, asked = service()
    answers = await PccsSource(URL, transport=transport).fetch("ee6d75000000", "platform")
    assert Collateral.from_answers(answers) == GOOD
    assert [url.split("/v4/")[1] for url in asked] == [
        "tcb?fmspc=ee6d75000000", "qe/identity", "pckcrl?ca=platform&encoding=der", "rootcacrl",
    ]  # fmt: skip
    assert all(url.startswith(URL) for url in asked)


@pytest.mark.parametrize(
    "wrong",
    [
        httpx2.Response(404),
        httpx2.Response(302, headers={"location": "https://elsewhere.example/"}),
        httpx2.Response(200, content=b"{}"),
        httpx2.Response(200, content=b"x" * 2_000_000, headers={"TCB-Info-Issuer-Chain": "x"}),
    ],
)
async def test_a_service_that_does_not_answer_well_is_unavailable(wrong: httpx2.Response) -> None:
    transport, _ = service({"/cache/tdx/certification/v4/tcb": wrong})
    with pytest.raises(Unavailable) as caught:
        await PccsSource(URL, transport=transport).fetch("ee6d75000000", "platform")
    assert caught.value.code == "collateral-service"


async def test_an_absent_service_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await PccsSource("http://127.0.0.1:9").fetch("ee6d75000000", "processor")


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "collateral.example", "https://user:secret@x/", "https://x/?key=1", "https://x/#a"]
)
def test_only_a_plain_address_of_ones_own_is_taken(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PccsSource(url)
    assert "secret" not in str(caught.value)


async def test_a_quote_that_came_without_collateral_takes_along_what_counts_now() -> None:
    """A real machine makes none; receipts are verified where nobody has kept it."""
    source = Source(GOOD)
    own = keeper(source)
    alone = evidence(RAW)
    endorsed = await own.endorsed(alone, AT)
    assert source.asked
    assert (alone.endorsements, endorsed.quote) == ("", alone.quote)
    verify_cpu_evidence(
        endorsed, report_data=DATA, role="orchestrator", roots=MACHINE.roots, reference=MACHINE.reference,
        policy=MACHINE.policy, at=AT, collateral=CollateralStore(MACHINE.roots.certificates),
    )  # fmt: skip
    assert await own.endorsed(endorsed, AT) is endorsed


@pytest.mark.parametrize("kind", ["tdx-quote", "snp-report"])
async def test_where_there_is_no_collateral_evidence_stays_as_it_is(kind: str) -> None:
    alone = evidence(RAW).model_copy(update={"kind": kind})
    assert await keeper(None).endorsed(alone, AT) is alone
    broken = alone.model_copy(update={"quote": "AAAA"})
    assert await keeper(Source(GOOD)).endorsed(broken, AT) is broken
