"""The second verifier: the dcap-qvl library judges the whole quote once more, under our root and our time. Knows no policy of ours.

Its shape and traps: reference cpu-tee.md 2.2 and 2.3. It is asked for claims only; it refuses by itself debug guests, a missing
SEPT_VE_DISABLE, migration, reserved attributes, every service TD, and a revoked TCB. It is asked after our own steps have passed, so
whatever it says against a quote is news: it is then refused in its words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dcap_qvl

from shared.attestation.collateral import Collateral
from shared.canonical import json_value
from shared.errors import BadRequest, VerificationFailed

MAX_REASON = 200
MAX_CLAIMS_BYTES = 256 * 1024


@dataclass(frozen=True)
class EngineClaims:
    """What it read and found; ids and digests in hex. `report`: the TD report's fields by its own names."""

    status: str
    advisories: tuple[str, ...]
    evaluation: int
    fmspc: str
    ppid: str
    report: dict[str, str]


def judge(quote: bytes, collateral: Collateral, root_der: bytes, at: float) -> EngineClaims:
    """Verify a quote (without padding) under this root at this time, seconds since 1970.

    Raises:
        VerificationFailed: `engine-refused`, in the library's words; `engine-failed`, when it broke down or answered nonsense.
    """
    try:
        now = int(at)
        prepared = dcap_qvl.QuoteCollateralV3(
            collateral.pck_crl_issuer_chain,
            collateral.root_ca_crl,
            collateral.pck_crl,
            collateral.tcb_info_issuer_chain,
            collateral.tcb_info,
            collateral.tcb_info_signature,
            collateral.qe_identity_issuer_chain,
            collateral.qe_identity,
            collateral.qe_identity_signature,
        )
        policy = dcap_qvl.QuotePolicy.claims_only(now)
        found = dcap_qvl.QuoteVerifier(root_der).verify_with_policy(quote, prepared, now, policy)
        return _claims(json_value(found.to_json().encode(), MAX_CLAIMS_BYTES))
    except (ValueError, OverflowError) as error:
        raise VerificationFailed(
            "the second verifier (dcap-qvl) refuses the quote", code="engine-refused", got=str(error)[:MAX_REASON]
        ) from None
    except (BadRequest, KeyError, TypeError, AttributeError) as error:
        raise _failed(type(error).__name__) from None
    except BaseException as error:
        # A panic of the library reaches Python as a BaseException of its own; hostile input must not end a service.
        if type(error).__name__ != "PanicException":
            raise
        raise _failed("it panicked") from None


def _claims(value: Any) -> EngineClaims:
    tcb, pck = value["tcb"], value["platform"]["pck"]
    ((_kind, report),) = value["report"].items()
    while "base" in report:  # later TD reports wrap the earlier ones
        report = report["base"]
    return EngineClaims(
        status=str(tcb["status"]),
        advisories=tuple(str(advisory) for advisory in tcb["advisory_ids"]),
        evaluation=int(tcb["eval_data_number"]),
        fmspc=bytes(pck["fmspc"]).hex(),
        ppid=bytes(pck["ppid"]).hex(),
        report={str(name): str(field) for name, field in report.items() if isinstance(field, str)},
    )


def _failed(why: str) -> VerificationFailed:
    return VerificationFailed("the second verifier (dcap-qvl) could not judge the quote", code="engine-failed", got=why)
