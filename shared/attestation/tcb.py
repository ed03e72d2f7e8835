"""How up to date a platform is: the walk through the levels of TCB info and QE identity. Knows no signature, no time and no policy.

Source: Intel quote verification library (EvaluateTcb, TcbLevelCheck, TDRelaunchCheck); reference cpu-tee.md 1.2 steps 5, 7, 8 and 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.attestation.pck import PlatformTcb
from shared.attestation.quote import QeReport, TdReport
from shared.attestation.tcb_info import EnclaveLevel, PlatformLevel, QeIdentity, TcbInfo, TdxModule
from shared.errors import VerificationFailed

QE_DEBUG = 0x2
MODULE_SVN, MODULE_VERSION = 0, 1  # bytes of TEE_TCB_SVN
CURRENT = ("UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded")
NOT_SUPPORTED = "NotSupported"
Level = PlatformLevel | EnclaveLevel


@dataclass(frozen=True)
class TcbVerdict:
    """What the collateral says of a platform, its TDX module and its quoting enclave together.

    `date`: that of the oldest matched level that is not UpToDate, or of the platform's; seconds since 1970; grace counts from it.
    """

    status: str
    advisories: tuple[str, ...]
    date: float


def check_module(info: TcbInfo, body: TdReport) -> None:
    """The TDX module is the one that TCB info knows. Raises: VerificationFailed `tdx-module`."""
    expected = _module(info, body.tee_tcb_svn)
    if body.mrsigner_seam != expected.mrsigner:
        raise VerificationFailed(
            "the TDX module is signed by somebody else",
            code="tdx-module",
            expected=expected.mrsigner.hex(),
            got=body.mrsigner_seam.hex(),
        )
    mask, wanted = _number(expected.attributes_mask), _number(expected.attributes)
    attributes = _number(body.seam_attributes)
    if attributes & mask != wanted & mask or attributes & ~mask:
        raise VerificationFailed(
            "the TDX module's attributes are not accepted",
            code="tdx-module",
            expected=f"{wanted:#018x} under {mask:#018x}",
            got=f"{attributes:#018x}",
        )


def check_qe(identity: QeIdentity, qe: QeReport) -> None:
    """The quoting enclave is Intel's (or whoever's the root is) and not in debug mode. Raises: VerificationFailed `quote-qe-…`."""
    if qe.attributes[0] & QE_DEBUG:
        raise VerificationFailed("the quoting enclave runs in debug mode", code="quote-qe-debug")
    masks = (_number(identity.miscselect_mask), _number(identity.attributes_mask))
    sides = (
        ("signer", identity.mrsigner.hex(), qe.mr_signer.hex()),
        ("product id", str(identity.isvprodid), str(qe.isv_prod_id)),
        ("MISCSELECT", f"{_number(identity.miscselect) & masks[0]:#x}", f"{qe.misc_select & masks[0]:#x}"),
        ("attributes", f"{_number(identity.attributes) & masks[1]:#x}", f"{_number(qe.attributes) & masks[1]:#x}"),
    )
    for name, expected, got in sides:
        if expected != got:
            raise VerificationFailed(
                f"the quoting enclave's {name} is not the one in the QE identity",
                code="quote-qe-identity",
                expected=expected,
                got=got,
            )
    _enclave_level(identity.tcb_levels, qe.isv_svn, "quoting enclave")


def evaluate(info: TcbInfo, identity: QeIdentity, tcb: PlatformTcb, body: TdReport, qe: QeReport) -> TcbVerdict:
    """The status of this machine under this collateral.

    A TD report 1.5 names the module's SVNs twice, as the TD was launched and as they are now: a TD launched under an old module that
    now runs a current one is to be relaunched. The advisories are then those of both.

    Raises:
        VerificationFailed: `tcb-unsupported`: below every level of platform, module or quoting enclave, or Revoked.
    """
    enclave = _enclave_level(identity.tcb_levels, qe.isv_svn, "quoting enclave")
    launch = _converged([*_levels(info, tcb, body.tee_tcb_svn), enclave])
    verdict = launch
    if body.tee_tcb_svn2:
        now = _converged([*_levels(info, tcb, body.tee_tcb_svn2), enclave])
        advisories = tuple(sorted({*launch.advisories, *now.advisories}))
        verdict = TcbVerdict(_relaunch(launch.status, now.status), advisories, launch.date)
    if verdict.status == "Revoked":
        raise VerificationFailed("the platform's TCB is revoked", code="tcb-revoked", got="Revoked")
    return verdict


def _levels(info: TcbInfo, tcb: PlatformTcb, svn: bytes) -> list[Level]:
    # From module version 1 on the module's own two bytes are judged by its identity, not by the platform's level.
    first = 2 if svn[MODULE_VERSION] else 0
    platform = next((level for level in info.tcb_levels if _reaches(level, tcb, svn, first)), None)
    if platform is None:
        raise _unsupported("platform", f"components {list(tcb.components)}, PCE {tcb.pce_svn}, TDX {list(svn)}")
    if not svn[MODULE_VERSION]:
        return [platform]
    module = next((m for m in info.tdx_module_identities if m.id.upper() == _module_id(svn)), None)
    if module is None:
        raise _unsupported("TDX module", _module_id(svn))
    return [platform, _enclave_level(module.tcb_levels, svn[MODULE_SVN], "TDX module")]


def _reaches(level: PlatformLevel, tcb: PlatformTcb, svn: bytes, first: int) -> bool:
    return (
        all(got >= least.svn for got, least in zip(tcb.components, level.tcb.sgx, strict=True))
        and tcb.pce_svn >= level.tcb.pce
        and all(got >= least.svn for got, least in zip(svn[first:], level.tcb.tdx[first:], strict=True))
    )


def _enclave_level(levels: Iterable[EnclaveLevel], svn: int, what: str) -> EnclaveLevel:
    level = next((level for level in levels if svn >= level.tcb.isvsvn), None)
    if level is None:
        raise _unsupported(what, f"SVN {svn}")
    return level


def _converged(levels: list[Level]) -> TcbVerdict:
    """The platform's status, worsened by an out-of-date or revoked part (Intel's convergence rule)."""
    statuses, status = {level.tcb_status for level in levels}, levels[0].tcb_status
    if "OutOfDate" in statuses or "OutOfDateConfigurationNeeded" in statuses:
        needed = status in ("ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded", "OutOfDateConfigurationNeeded")
        status = "OutOfDateConfigurationNeeded" if needed else "OutOfDate"
    elif status == "UpToDate":
        # No published rule joins these of a part into the platform's; the stricter reading is to pass them on.
        status = next((level.tcb_status for level in levels if level.tcb_status != "UpToDate"), status)
    if "Revoked" in statuses:
        status = "Revoked"
    dates = [level.tcb_date for level in levels if level.tcb_status != "UpToDate"]
    advisories = {advisory for level in levels for advisory in level.advisory_ids}
    return TcbVerdict(status, tuple(sorted(advisories)), min(dates, default=levels[0].tcb_date))


def _relaunch(launch: str, now: str) -> str:
    if launch not in ("OutOfDate", "OutOfDateConfigurationNeeded") or now not in CURRENT:
        return launch
    return "TDRelaunchAdvised" + ("ConfigurationNeeded" if "Configuration" in launch + now else "")


def _module(info: TcbInfo, svn: bytes) -> TdxModule:
    if not svn[MODULE_VERSION]:
        return info.tdx_module
    module = next((m for m in info.tdx_module_identities if m.id.upper() == _module_id(svn)), None)
    if module is None:
        known = ", ".join(m.id for m in info.tdx_module_identities) or "none"
        raise VerificationFailed(
            "TCB info does not know this TDX module", code="tdx-module", expected=known, got=_module_id(svn)
        )
    return module


def _module_id(svn: bytes) -> str:
    return f"TDX_{svn[MODULE_VERSION]:02X}"


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _unsupported(what: str, got: str) -> VerificationFailed:
    return VerificationFailed(
        f"the {what} is below every TCB level that is still supported",
        code="tcb-unsupported",
        expected="at least the lowest level of the collateral",
        got=got,
        remedy="update the machine's firmware and microcode",
    )
