"""The recipe by which GPU evidence is examined: independent checks, in order. Knows no session; accepts nothing by itself.

Steps (reference h100.md section 10), each judged on its own wherever its inputs could be read:

     1  layout            every field of the report            11  driver-rim, vbios-rim       found and well-formed
     2  certificates      five, leaf first                     12  …-rim-version               this product, this version
     3  root              pinned, by fingerprint               13  …-rim-chain                 to a pinned RIM root of the same set
     4  links             P-384, CA flags, key usage           14  …-rim-signature             by its first certificate
     5  device-id         DeviceID is the identity's key       15  rim-indices                 none active in both
     6  firmware-id       as the leaf certifies                16  measurements                as the believed manifests say
     7  nonce             the verifier's                       17  certificate-time, …-rim-time
     8  signature         by the leaf                          18  ocsp, …-rim-ocsp            what is stapled
     9  device-type       a GPU, no switch                     19  root-set, device, agreed-measurements
    10  feature-flag      a mode that the policy names

A manifest that fails 11 to 14 is not compared with; one that merely expired is, and its time is a check of its own.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from shared.attestation.gpu_chain import DeviceIdentity, certified_firmware, identity_of, parse_chain, public_key
from shared.attestation.gpu_measurements import Comparison, check_indices, compare, require_match
from shared.attestation.gpu_ocsp import NotGood, Revocation, check_revocation, parse_responses
from shared.attestation.gpu_policy import GpuPolicy, GpuTrust
from shared.attestation.gpu_report import NONCE_BYTES, GpuReport, parse_report
from shared.attestation.gpu_rim import Rim, RimKind, check_signature, parse_rim, rim_name
from shared.attestation.gpu_trust import GpuRootSet
from shared.attestation.p384_chain import Chain, anchored, check_links, check_validity
from shared.attestation.results import Absent, Examination, Recipe
from shared.crypto import ecc
from shared.errors import BadRequest, GputError, VerificationFailed

KINDS: tuple[RimKind, RimKind] = ("driver", "vbios")


@dataclass(frozen=True)
class RimFindings:
    """One manifest, its chain up to the pinned root, and what OCSP says of that; None where absent or not believed."""

    rim: Rim | None
    chain: Chain | None
    revocation: Revocation = field(default_factory=Revocation)


@dataclass(frozen=True)
class GpuFindings:
    """An examination, and what was read on the way; None where it could not be read. Nothing here is accepted yet."""

    examination: Examination
    report: GpuReport | None
    chain: Chain | None
    device: DeviceIdentity | None
    root_set: GpuRootSet | None
    driver: RimFindings
    vbios: RimFindings
    comparison: Comparison | None
    revocation: Revocation


def examine_gpu_evidence(
    report: bytes,
    chain_pem: str,
    *,
    nonce: bytes | None,
    trust: GpuTrust,
    policy: GpuPolicy,
    at: float,
    stapled: Sequence[bytes] = (),
) -> GpuFindings:
    """Judge everything that can be judged; bad evidence is a finding, no error.

    Args:
        report: request ‖ response.
        nonce: the 32 bytes that this verifier chose; None: nobody asked, which no policy accepts.
        at: the verifier's own time, seconds since 1970.
        stapled: OCSP responses, DER, that came with the evidence; those in the trust folder count as well.

    Raises:
        BadRequest: `bad-gpu-nonce`: the nonce has another length.
    """
    if nonce is not None and len(nonce) != NONCE_BYTES:
        raise BadRequest("a GPU nonce has 32 bytes", code="bad-gpu-nonce")
    recipe = Recipe()
    parsed = recipe.judge("layout", parse_report, report, says=lambda found: f"driver {found.driver_version}")
    chain = recipe.judge("certificates", parse_chain, chain_pem)
    root_set = recipe.judge("root", partial(_root_set, trust), chain, says=lambda found: f"root set {found}")
    recipe.judge("links", check_links, chain)
    firmware = recipe.judge("device-id", certified_firmware, chain)
    recipe.judge("firmware-id", _check_fwid, parsed, firmware)
    recipe.judge("nonce", partial(_check_nonce, nonce), parsed)
    recipe.judge("signature", _check_signature, parsed, chain)
    device = recipe.judge("device-type", identity_of, chain, says=lambda found: f"{found.product} {found.pdi}")
    recipe.judge("feature-flag", lambda read: policy.check_mode(read.mode), parsed)
    rims = {kind: _judge_rim(recipe, kind, trust, parsed, device, root_set) for kind in KINDS}
    comparison = _judge_measurements(recipe, parsed, {kind: found.rim for kind, found in rims.items()})
    _judge_times(recipe, at, chain, rims)
    ders = (*stapled, *trust.ocsp_responses())
    believed_chain = chain if recipe.passed("root", "links") else None
    revocation, rims = _judge_revocation(recipe, policy, at, believed_chain, rims, ders)
    _judge_policy(recipe, policy, root_set, device, parsed)
    return GpuFindings(
        recipe.done(), parsed, chain, device, root_set, rims["driver"], rims["vbios"], comparison, revocation
    )


# ------------------------------------------------------------------ 3 to 8


def _root_set(trust: GpuTrust, chain: Chain) -> GpuRootSet:
    _, fingerprint = anchored(chain, trust.roots.certificates)
    return trust.roots.sets[fingerprint]


def _check_fwid(report: GpuReport, certified: bytes) -> None:
    if report.fwid is None:
        raise Absent(
            "the report names no firmware id", code="gpu-fwid", expected=certified.hex(), got="no firmware id (older than 550)",
            remedy="update the GPU's firmware, or agree on firmware_without_id",
        )  # fmt: skip
    if not hmac.compare_digest(report.fwid, certified):
        raise VerificationFailed(
            "the firmware that made the report is not the one that the leaf certifies",
            code="gpu-fwid",
            expected=certified.hex(),
            got=report.fwid.hex(),
            remedy="a device whose firmware was changed needs its leaf issued anew",
        )


def _check_nonce(nonce: bytes | None, report: GpuReport) -> None:
    if nonce is None:
        raise Absent(
            "no nonce was given, so that nobody knows when the report was made", code="gpu-nonce", got=report.nonce.hex(),
            remedy="give the nonce that this verifier chose",
        )  # fmt: skip
    # The request's nonce only: the responder's own merely freshens the signature.
    if not hmac.compare_digest(report.nonce, nonce):
        raise VerificationFailed(
            "the report answers another challenge", code="gpu-nonce", expected=nonce.hex(), got=report.nonce.hex()
        )


def _check_signature(report: GpuReport, chain: Chain) -> None:
    key = public_key(chain.certificates[0])
    try:
        ecc.verify(key, report.signed, report.signature, "GPU report")
    except VerificationFailed:
        raise VerificationFailed("the report is not signed by the GPU's leaf key", code="gpu-signature") from None


# ------------------------------------------------------------------ 11 to 16


def _judge_rim(
    recipe: Recipe,
    kind: RimKind,
    trust: GpuTrust,
    report: GpuReport | None,
    device: DeviceIdentity | None,
    root_set: GpuRootSet | None,
) -> RimFindings:
    check = f"{kind}-rim"
    # A name out of a report that anybody may have written is no reason to ask anybody.
    genuine = recipe.passed("root", "links", "signature")
    rim = recipe.judge(
        check, partial(_find_rim, kind, trust, genuine), report, device, says=lambda found: found.version
    )
    recipe.judge(f"{check}-version", partial(_check_version, kind), rim, report, device)
    chain = recipe.judge(f"{check}-chain", partial(_rim_chain, trust), rim, root_set)
    recipe.judge(f"{check}-signature", partial(check_signature, kind), rim)
    steps = (check, f"{check}-version", f"{check}-chain", f"{check}-signature")
    return RimFindings(rim, chain) if recipe.passed(*steps) else RimFindings(None, chain)


def _find_rim(kind: RimKind, trust: GpuTrust, genuine: bool, report: GpuReport, device: DeviceIdentity) -> Rim:
    name = rim_name(kind, report, device.product)
    why = (
        "there is none"
        if genuine
        else "there is none, and nobody is asked on the word of a report that no known device signed"
    )
    try:
        data = trust.rims.find(kind, name, ask=genuine)
    except VerificationFailed:
        raise
    except GputError as error:  # a fetcher's: nothing was found, and people should read why
        data, why = None, error.detail
    if data is None:
        raise Absent(
            f"the reference values {name} are not at hand: {why}", code="gpu-rim-missing", expected=name,
            remedy=f"put {name}.xml into the trust folder's rim/",
        )  # fmt: skip
    return parse_rim(kind, data)


def _check_version(kind: RimKind, rim: Rim, report: GpuReport, device: DeviceIdentity) -> None:
    wanted = report.driver_version if kind == "driver" else report.vbios_version
    if (rim.product, rim.version.upper()) != (device.product, wanted):
        raise VerificationFailed(
            "the manifest is for another product or version than the report states", code="gpu-rim-version",
            expected=f"{device.product} {wanted}", got=f"{rim.product} {rim.version}",
            remedy="put the manifest for this version into the trust folder",
        )  # fmt: skip


def _rim_chain(trust: GpuTrust, rim: Rim, root_set: GpuRootSet) -> Chain:
    chain, fingerprint = anchored(rim.chain, trust.rim_roots.certificates, root_may_be_absent=True)
    check_links(chain)
    if trust.rim_roots.sets[fingerprint] != root_set:
        raise VerificationFailed(
            "the manifest was made by another maker than the device", code="gpu-rim-root-set", expected=root_set,
            got=trust.rim_roots.sets[fingerprint],
        )  # fmt: skip
    return chain


def _judge_measurements(
    recipe: Recipe, report: GpuReport | None, rims: Mapping[RimKind, Rim | None]
) -> Comparison | None:
    believed = {kind: rim for kind, rim in rims.items() if rim is not None}
    recipe.judge("rim-indices", check_indices, rims["driver"], rims["vbios"])
    comparison = compare(report, believed) if report is not None and believed else None
    recipe.judge("measurements", require_match, comparison, says=lambda _: _extent(comparison, believed))
    return comparison


def _extent(comparison: Comparison | None, believed: Mapping[RimKind, Rim]) -> str:
    return f"{comparison.compared if comparison else 0} blocks compared with {' and '.join(believed)} RIM"


# ------------------------------------------------------------------ 17 and 18


def _judge_times(recipe: Recipe, at: float, chain: Chain | None, rims: Mapping[RimKind, RimFindings]) -> None:
    recipe.judge("certificate-time", check_validity, chain, at)
    for kind, found in rims.items():
        recipe.judge(f"{kind}-rim-time", check_validity, found.chain, at)


def _judge_revocation(
    recipe: Recipe,
    policy: GpuPolicy,
    at: float,
    chain: Chain | None,
    rims: Mapping[RimKind, RimFindings],
    ders: Sequence[bytes],
) -> tuple[Revocation, dict[RimKind, RimFindings]]:
    def ask(name: str, about: Chain | None, first: int) -> Revocation:
        seen = Revocation()

        def check(known: Chain) -> None:
            nonlocal seen
            try:
                hold = policy.rules.certificate_hold
                seen = check_revocation(known, parse_responses(ders), at=at, first=first, allow_hold=hold)
            except NotGood as error:
                seen = error.revocation
                raise

        recipe.judge(name, check, about, says=lambda _: f"{seen.status} {seen.reason or ''}".strip())
        return seen

    own = ask("ocsp", chain, 1)  # a device's leaf is not asked for: there are millions
    return own, {
        kind: replace(found, revocation=ask(f"{kind}-rim-ocsp", found.chain, 0)) for kind, found in rims.items()
    }


# ------------------------------------------------------------------ 19


def _judge_policy(
    recipe: Recipe,
    policy: GpuPolicy,
    root_set: GpuRootSet | None,
    device: DeviceIdentity | None,
    report: GpuReport | None,
) -> None:
    recipe.judge("root-set", policy.check_root_set, root_set)
    recipe.judge(
        "device", lambda known: policy.check_device(known.pdi), device,
        says=lambda _: "the one asked for" if policy.device or policy.rules.devices else "any device was asked for",
    )  # fmt: skip
    recipe.judge(
        "agreed-measurements", lambda read: policy.check_agreed(read.measurements_digest), report,
        says=lambda _: "one of those agreed on" if policy.measurements else "no digest was agreed on",
    )  # fmt: skip
