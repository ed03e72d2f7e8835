"""What TDX and SEV-SNP evidence says, in the claim names of the Confidential Containers project. Knows no token, no policy.

Names as its attestation service gives them (reference cpu-tee.md 7), so that policies written for it can be carried over. Claims
describe; they accept nothing.
"""

from __future__ import annotations

from contextlib import suppress

from shared.attestation.quote import TdxQuote
from shared.attestation.snp_examination import ExaminedSnp
from shared.attestation.snp_report import GuestPolicy, SnpReport, parse_tcb
from shared.attestation.tdx_appraisal import TD_DEBUG, TD_MIGRATABLE, TD_SEPT_VE_DISABLE
from shared.attestation.tdx_verifier import TdxExamination
from shared.claims.snp_rules import Product
from shared.errors import BadRequest

_BODY = (
    "tee_tcb_svn", "mr_seam", "mrsigner_seam", "seam_attributes", "td_attributes", "xfam", "mr_td", "mr_config_id", "mr_owner",
    "mr_owner_config", "report_data",
)  # fmt: skip
_SNP_TEXT = (
    "family_id", "image_id", "report_data", "measurement", "host_data", "id_key_digest", "author_key_digest", "report_id", "chip_id",
)  # fmt: skip


def quote_claims(quote: TdxQuote) -> dict[str, object]:
    """Claim name -> hex, number or boolean, of one parsed quote."""
    body = quote.body
    attributes = int.from_bytes(body.td_attributes, "little")
    return {
        "tdx.quote.header.version": quote.version,
        "tdx.quote.type": quote.body_type,
        **{f"tdx.quote.body.{name}": getattr(body, name).hex() for name in _BODY},
        **{f"tdx.quote.body.rtmr_{index}": getattr(body, f"rtmr{index}").hex() for index in range(4)},
        "tdx.quote.body.mr_servicetd": body.mr_servicetd.hex(),
        "tdx.td_attributes.debug": bool(attributes & TD_DEBUG),
        "tdx.td_attributes.septve_disable": bool(attributes & TD_SEPT_VE_DISABLE),
        "tdx.td_attributes.migratable": bool(attributes & TD_MIGRATABLE),
    }


def tdx_claims(found: TdxExamination) -> dict[str, object]:
    """As `quote_claims`, with what the chain and the collateral say; empty where the quote could not be read."""
    if found.quote is None:
        return {}
    claims = quote_claims(found.quote)
    if found.pck is not None:
        claims |= {
            "tdx.platform_provider_id": found.pck.ppid,
            "tdx.platform_instance_id": found.pck.platform_id,
            "tdx.fmspc": found.pck.fmspc,
        }
    if found.tcb_status is not None:
        claims["tdx.tcb_status"] = found.tcb_status
    if found.tcb is not None:
        claims["tdx.advisory_ids"] = list(found.tcb.advisories)
    if found.collateral is not None:
        claims["tdx.tcb_eval_num"] = found.collateral.evaluation
    return claims


def report_claims(report: SnpReport, product: Product | None = None) -> dict[str, object]:
    """Claim name -> hex, number or boolean, of one parsed report. `product`: whose layout the patch levels have, if known."""
    known = product or report.product
    claims: dict[str, object] = {
        "snp.version": report.version,
        "snp.guest_svn": report.guest_svn,
        "snp.vmpl": report.vmpl,
        **{f"snp.{name}": getattr(report, name).hex() for name in _SNP_TEXT},
        "snp.policy_debug_allowed": bool(report.policy & GuestPolicy.DEBUG),
        "snp.policy_migrate_ma": bool(report.policy & GuestPolicy.MIGRATE_MA),
        "snp.policy_smt_allowed": bool(report.policy & GuestPolicy.SMT),
        "snp.policy_single_socket": bool(report.policy & GuestPolicy.SINGLE_SOCKET),
        "snp.platform_smt_enabled": bool(report.platform_info & 1),
        "snp.signing_key": report.signing_key.name,
        "snp.product": known,
        "snp.reported_tcb": report.reported_tcb.hex(),
    }
    if known is not None:
        with suppress(BadRequest):  # bytes that the layout has no meaning for: the check of the levels says so
            levels = vars(parse_tcb(report.reported_tcb, known))
            claims |= {f"snp.reported_tcb_{name}": level for name, level in levels.items() if level is not None}
    return claims


def snp_claims(found: ExaminedSnp) -> dict[str, object]:
    """As `report_claims`, in the layout of the leaf's product where the levels fit it; empty where the report could not be read."""
    if found.report is None:
        return {}
    fits = found.leaf is not None and any(c.name == "tcb" and c.status == "pass" for c in found.examination)
    return report_claims(found.report, found.leaf.product if fits and found.leaf is not None else None)
