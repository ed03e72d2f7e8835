"""What a policy and the reference values say of a TDX guest and its machine. Knows no signature: it appraises what was read.

Attribute bits as Intel's own verifier and dcap-qvl treat them, XFAM as google/go-tdx-guest does (reference cpu-tee.md 1.2 step 10).
"""

from __future__ import annotations

from shared.attestation.ccel import parse_ccel, replay_ccel
from shared.attestation.certificates import moment
from shared.attestation.cpu_trust import CpuPolicy, CvmProfile
from shared.attestation.pck import PckIdentity
from shared.attestation.quote import TdReport
from shared.attestation.root_sets import check_set
from shared.attestation.tcb import TcbVerdict
from shared.canonical import json_bytes
from shared.claims.event_log import RUNTIME, EventLog, parse_log, replay
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import VerificationFailed

TD_DEBUG, TD_SEPT_VE_DISABLE, TD_MIGRATABLE = 1 << 0, 1 << 28, 1 << 29
# Bits a TD may have: 16, 18-22, 27 (module features), 28 SEPT_VE_DISABLE, 30 PKS, 31 KL, 62-63 PERFMON. Debug, profiling,
# service TD, migration and reserved bits are refused.
TD_ALLOWED = sum(1 << bit for bit in (16, *range(18, 23), 27, 28, 30, 31, 62, 63))
XFAM_REQUIRED, XFAM_ALLOWED = 0x3, 0x6DBE7
DAY_S = 86_400
MAX_SAID = 400


def check_root_set(root_set: str, policy: CpuPolicy) -> None:
    """The root is of a set that counts, and emulation is allowed where it is one. Raises: VerificationFailed `quote-root-set` …"""
    check_set(root_set, policy.roots, allow_emulated=policy.allow_emulated, what="the quote", code="quote")


def check_tcb(verdict: TcbVerdict, policy: TdxPolicy, at: float) -> None:
    """The status is accepted, recent enough, and no advisory refuses it. Raises: VerificationFailed `tcb-…`."""
    accepted = {str(status): days for status, days in policy.tcb_statuses.items()}
    if verdict.status not in accepted:
        raise VerificationFailed(
            "the platform's TCB status is not accepted",
            code="tcb-status",
            expected=", ".join(accepted),
            got=", ".join((verdict.status, *verdict.advisories)),
            remedy="update the machine's firmware and microcode, or let the parties agree to accept this status",
        )
    days = accepted[verdict.status]
    if days is not None and at > verdict.date + days * DAY_S:
        raise VerificationFailed(
            f"the platform's TCB has been {verdict.status} for longer than its days of grace",
            code="tcb-grace",
            expected=f"at most {days} days after {moment(verdict.date)}",
            got=moment(at),
            remedy="update the machine's firmware and microcode",
        )
    rejected = sorted({*verdict.advisories} & {*policy.rejected_advisories})
    if rejected:
        raise VerificationFailed(
            "the platform is open to advisories that the policy rejects", code="tcb-advisory", got=", ".join(rejected)
        )


def check_attributes(body: TdReport) -> None:
    """The TD's attributes, each offending bit by number. Raises: VerificationFailed `cvm-…`."""
    attributes = int.from_bytes(body.td_attributes, "little")
    shown = f"{attributes:#018x}"
    if attributes & TD_DEBUG:
        raise VerificationFailed(
            "the confidential VM is debuggable (attribute bit 0)", code="cvm-debug", expected="DEBUG clear", got=shown
        )
    if not attributes & TD_SEPT_VE_DISABLE:
        raise VerificationFailed(
            "the confidential VM lacks SEPT_VE_DISABLE (attribute bit 28)",
            code="cvm-sept-ve",
            expected="SEPT_VE_DISABLE set",
            got=shown,
        )
    if attributes & TD_MIGRATABLE:
        raise VerificationFailed(
            "the confidential VM can be migrated (attribute bit 29)", code="cvm-migration", expected="clear", got=shown
        )
    extra = [bit for bit in range(64) if attributes & ~TD_ALLOWED & 1 << bit]
    if extra:
        raise VerificationFailed(
            f"the confidential VM has attribute bits that are not accepted: {', '.join(map(str, extra))}",
            code="cvm-attributes",
            expected=f"within {TD_ALLOWED:#018x}",
            got=shown,
        )


def check_xfam(body: TdReport) -> None:
    """The TD's extended features. Raises: VerificationFailed `cvm-xfam`."""
    xfam = int.from_bytes(body.xfam, "little")
    if xfam & XFAM_REQUIRED != XFAM_REQUIRED or xfam & ~XFAM_ALLOWED:
        raise VerificationFailed(
            "the confidential VM's XFAM is not accepted",
            code="cvm-xfam",
            expected=f"{XFAM_REQUIRED:#x} within {XFAM_ALLOWED:#x}",
            got=f"{xfam:#x}",
        )


def check_service_td(body: TdReport, policy: TdxPolicy) -> None:
    """No service TD is or was bound, unless the policy names it. Raises: VerificationFailed `cvm-service-td`."""
    bound = (body.mr_servicetd, *(body.extension.get(f"{when}_servicetd_hash", b"") for when in ("init", "cur")))
    for measurement in bound:
        if any(measurement) and measurement.hex() not in policy.service_tds:
            raise VerificationFailed(
                "a service TD is bound to the confidential VM",
                code="cvm-service-td",
                expected=", ".join(policy.service_tds) or "none",
                got=measurement.hex(),
                remedy="a service TD can read or move the VM; name its measurement in the policy only if you trust it",
            )


def check_machine(pck: PckIdentity, policy: CpuPolicy) -> None:
    """The machine is on every allow-list that is not empty. Raises: VerificationFailed `cvm-platform`."""
    for allowed in (policy.platforms, frozenset(policy.tdx.machines)):
        if allowed and not allowed & {pck.platform_id, pck.ppid}:
            raise VerificationFailed(
                "the machine is not on the allow-list",
                code="cvm-platform",
                expected=", ".join(sorted(allowed)),
                got=f"{pck.platform_id} (PPID {pck.ppid})",
            )


def check_configuration(pck: PckIdentity, policy: TdxPolicy) -> None:
    """SMT, dynamic platform and cached keys, where not allowed, are stated absent. Raises: VerificationFailed `cvm-configuration`."""
    sides = (
        ("hyper-threading", policy.allow_smt, pck.smt),
        ("a dynamic platform", policy.allow_dynamic_platform, pck.dynamic_platform),
        ("cached keys", policy.allow_cached_keys, pck.cached_keys),
    )
    for name, allowed, stated in sides:
        if not allowed and stated is not False:
            raise VerificationFailed(
                f"the machine has {name}, or does not say that it has not",
                code="cvm-configuration",
                expected=f"without {name}",
                got="unstated" if stated is None else f"with {name}",
            )


def registers(body: TdReport) -> tuple[bytes, bytes, bytes, bytes]:
    """RTMR 0 to 3."""
    return body.rtmr0, body.rtmr1, body.rtmr2, body.rtmr3


def check_event_log(sent: bytes, boot: bytes, body: TdReport) -> EventLog:
    """The logs give the quote's registers: every one that they name, and always RTMR3. Either log may be empty.

    Raises:
        BadRequest: a log is malformed. VerificationFailed: `event-log`.
    """
    before = replay_ccel(parse_ccel(boot)) if boot else {}
    log = parse_log(sent) if sent else EventLog(entries=())
    replayed, quoted = replay(log, before), registers(body)
    for index in sorted({*before, *log.touched(), RUNTIME}):
        if replayed[index] != quoted[index]:
            raise VerificationFailed(
                f"the event log does not give RTMR{index}",
                code="event-log",
                expected=quoted[index].hex(),
                got=replayed[index].hex(),
                remedy="the log was cut, reordered or changed on its way, or the guest measured what it did not log",
            )
    return log


def check_measurements(body: TdReport, profiles: tuple[CvmProfile, ...], role: str, log: EventLog | None) -> None:
    """Code and configuration are those of one profile as a whole.

    Raises:
        VerificationFailed: `cvm-measurement`, `cvm-measured-configuration`.
    """
    mr_td, (r0, r1, r2, r3) = body.mr_td.hex(), registers(body)
    rtmrs = (r0.hex(), r1.hex(), r2.hex(), r3.hex())
    if any(profile.matches(mr_td, rtmrs) for profile in profiles):
        return
    same_code = [profile for profile in profiles if profile.mr_td == mr_td]
    if not same_code:
        raise VerificationFailed(
            f"the measured code is not what is accepted as {role}",
            code="cvm-measurement",
            expected=" | ".join(profile.mr_td for profile in profiles) or "no reference value is configured",
            got=mr_td,
            remedy="compare the builds; take over new reference values only after reviewing them",
        )
    differing = min((_differing(profile, rtmrs) for profile in same_code), key=len)[0]
    raise VerificationFailed(
        f"the code is what is accepted as {role}, its measured configuration is not (RTMR{differing})",
        code="cvm-measured-configuration",
        expected=" | ".join(sorted({str(profile.registers[differing]) for profile in same_code})),
        got=_said(rtmrs[differing], differing, log),
        remedy="compare the settings with those the reference values were made for; after a wanted change make them anew",
    )


def _differing(profile: CvmProfile, rtmrs: tuple[str, ...]) -> list[int]:
    return [i for i, want in enumerate(profile.registers) if want not in (None, rtmrs[i])]


def _said(value: str, register: int, log: EventLog | None) -> str:
    events = [event for event in (log.events if log else ()) if event.register_index == register]
    said = "; ".join(f"{event.type} {json_bytes(event.content).decode()}" for event in events)
    return f"{value} ({said[:MAX_SAID]})" if said else value
