"""Hostile bytes against every parser of GPU evidence: only the verifier's own errors, soon, and in bounded memory.

Seeded from the emulator's own evidence and, when present, from published samples; the long tier runs the same attack for longer.
"""

from __future__ import annotations

import base64
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.attestation.gpu_chain import certified_firmware, identity_of, parse_chain
from shared.attestation.gpu_examination import examine_gpu_evidence
from shared.attestation.gpu_ocsp import check_revocation, parse_responses
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_rim import check_signature, parse_rim
from shared.attestation.p384_chain import check_links, check_validity
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.given_rims import GivenRims
from tests.attestation.gpu_evidence_world import AT, EMULATED, NONCE, Factory
from tests.attestation.gpu_samples import H100, PRESENT, SAMPLES, content
from tests.attestation.test_gpu_ocsp import FACTORY as ANSWERED
from tests.attestation.test_gpu_ocsp import answers
from tests.cpu_time import cpu_seconds

QUICK, LONG = 250, 20_000
MAX_SECONDS, MAX_GROWTH = 2.0, 256 << 20
# Words of the formats: what a mutation by single bytes would never spell.
WORDS = [
    b"", b"\0", b"\xff" * 8, b"\x30\x84\xff\xff\xff\xff", b"\x30\x80", b"\x02\x01\x80", b"\x24\0\x02\0", b"\x14\0\x30\0",
    b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n", b"<!DOCTYPE a [<!ENTITY e 'x'>]>", b"&e;", b"<a>", b"</a>",
    b'"', b"'", b" xmlns='u'", b' index="7"', b' active="True"', b' alternatives="16"', b"<ns0:Resource/>", b"<ds:Signature/>",
    b"<ds:Object>", b"</ds:Signature>", b"</ns0:Payload>", b"<!--", b"-->", b"<![CDATA[", b"\xed\xa0\x80", b"%s" % (b"A" * 3000),
]  # fmt: skip


@cache
def factory() -> Factory:
    return Factory()


@cache
def genuine() -> tuple[bytes, str, GpuTrust]:
    """Report, chain and trust that belong together."""
    return factory().report(), factory().pem(), factory().trust


def published(*names: str) -> list[bytes]:
    return [content(name) for name in names] if PRESENT else []


def reports() -> list[bytes]:
    return [factory().report(), *published(f"{H100}/attestation_report.dat", "gb100-575.32/attestation_report.txt")]


def chains() -> list[bytes]:
    return [factory().pem().encode(), *published(f"{H100}/cert_chain.pem", "gb100-575.32/cert_chain.pem")]


def manifests() -> list[bytes]:
    names = sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*rim*.xml")) if PRESENT else []
    return [*factory().rims.both(factory().firmware), *published(*names)]


def responses() -> list[bytes]:
    ours = answers("ocsp")
    theirs = sorted((SAMPLES / H100 / "ocsp").glob("*.b64")) if PRESENT else []
    return [*ours, *(base64.b64decode(path.read_bytes()) for path in theirs)]


def attack_report(data: bytes) -> None:
    report = parse_report(data)
    _ = (report.driver_version, report.vbios_version, report.decoder_disabled, report.measurements_digest, report.mode)


def attack_chain(data: bytes) -> None:
    chain = parse_chain(data.decode("utf-8", "replace"))
    for stage in (check_links, identity_of, certified_firmware, lambda known: check_validity(known, AT)):
        tolerant(stage, chain)


def attack_manifest(data: bytes) -> None:
    rim = parse_rim("driver", data)
    tolerant(lambda known: check_signature("driver", known), rim)
    tolerant(check_links, rim.chain)


def attack_response(data: bytes) -> None:
    chain = parse_chain(ANSWERED.pem())
    check_revocation(chain, parse_responses([data]), at=AT, first=1)


def tolerant(act: Callable[..., object], *arguments: object) -> None:
    """All stages are tried, also those that an earlier refusal would have spared."""
    try:
        act(*arguments)
    except (BadRequest, VerificationFailed):
        return


def attack_all(data: bytes) -> None:
    """The same bytes as each part of the evidence in turn: an examination never raises for bad evidence."""
    report, chain, trust = genuine()
    text, manifests_too = data.decode("utf-8", "replace"), replace(trust, rims=GivenRims(data, data))
    for part in (
        {"report": data}, {"chain_pem": text}, {"trust": manifests_too}, {"stapled": [data]},
    ):  # fmt: skip
        arguments: dict[str, Any] = {"report": report, "chain_pem": chain, "trust": trust, **part}
        found = examine_gpu_evidence(**arguments, nonce=NONCE, policy=EMULATED, at=AT)
        assert len(found.examination.checks) == 29


TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "report": (attack_report, reports),
    "chain": (attack_chain, chains),
    "manifest": (attack_manifest, manifests),
    "response": (attack_response, responses),
    "everything": (attack_all, lambda: [*reports(), *chains(), *manifests(), *responses()]),
}


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed after a few flips, cuts, insertions, repeats and splices with another seed."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["flip", "flip", "word", "cut", "repeat", "splice", "number"]))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(1, 200))
        if kind == "flip" and data:
            data[at] ^= draw(st.integers(1, 255))
        elif kind == "word":
            data[at : at + draw(st.sampled_from([0, length]))] = draw(st.sampled_from(WORDS))
        elif kind == "cut":
            del data[at : at + length]
        elif kind == "repeat":
            data[at:at] = data[at : at + length] * draw(st.integers(1, 20))
        elif kind == "splice":
            data[at:] = draw(st.sampled_from(seeds))[at:]
        else:
            data[at : at + 2] = draw(st.integers(0, 0xFFFF)).to_bytes(2, "little")
    return bytes(data)


@pytest.mark.parametrize("examples", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(TARGETS))
def test_mutated_evidence(name: str, examples: int) -> None:
    target, seeds = TARGETS[name]
    count = examples // 6 if name == "everything" else examples
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(mutated(seeds()))
    def attack(data: bytes) -> None:
        assert cpu_seconds(lambda: tolerant(target, data), MAX_SECONDS) < MAX_SECONDS

    attack()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MAX_GROWTH


@pytest.mark.parametrize("name", list(TARGETS))
def test_seeds_themselves_pass_their_parser(name: str) -> None:
    """Otherwise the attack above would stop at the first byte and prove nothing."""
    target, seeds = TARGETS[name]
    for seed in seeds():
        try:
            target(seed)
        except VerificationFailed as error:
            assert error.code in ("gpu-ocsp-absent", "gpu-ocsp-expired"), error  # noqa: PT017 - the others must not raise


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes(data: bytes) -> None:
    for name, (target, _) in TARGETS.items():
        if name != "everything":
            with pytest.raises((BadRequest, VerificationFailed)):
                target(data)
