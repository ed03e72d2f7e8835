"""Attestation results that this orchestrator relied on, kept as it signed them. Knows the book's rows, no HTTP and no verifier.

The signer is the session signing key: this very life's, for which the CPU's quote speaks (`GET /v1/sessions/{session}/keys`). A row is a
projection and decides nothing; what counts of it is the token's signature.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import Any, Final

from sqlalchemy import Connection, insert

from orchestrator.sessions.book import Row
from orchestrator.sessions.state import SessionState
from orchestrator.tables import ATTESTATIONS
from shared.attestation.appraisal import CHECKS, ROOT_SET, STATUS, VERDICT, Appraisal
from shared.attestation.ear import claims_set, sign_result
from shared.crypto.jws import parse_compact
from shared.crypto.signing import PartyKey

BUILD: Final = f"orchestrator {metadata.version('gpu-travelling')}"


def attestation_row(
    state: SessionState, subject: str, appraisal: Appraisal, key: PartyKey, *, life: int, at: float
) -> Row:
    """The row of one result, signed, to go with the commit of what rests on it.

    Args:
        subject: "gpu", or "cvm:HOLDER". life: in which it was relied on.
    """
    about = {"session": state.id, "manifest": state.manifest.digest().hex(), "life": str(life)}
    token = sign_result(claims_set([replace(appraisal, label=subject)], build=BUILD, at=int(at), about=about), key)
    values = {
        "session": state.id, "subject": subject, "life": life, "signing_key": key.public.hex(), "token": token,
    }  # fmt: skip

    def write(connection: Connection) -> None:
        connection.execute(insert(ATTESTATIONS).values(values))

    return write


def attestation_view(row: dict[str, Any]) -> dict[str, Any]:
    """What the API says of one: the token that counts, and its claims to read (not verified here)."""
    claims = parse_compact(row["token"])[1]
    part = claims["submods"][row["subject"]]
    return {
        "subject": row["subject"], "life": row["life"], "at": claims["iat"], "verdict": part[VERDICT], "status": part[STATUS],
        "root_set": part[ROOT_SET], "backend": part["gput.backend"], "kind": part["gput.kind"], "checks": part[CHECKS],
        "signing_key": row["signing_key"], "token": row["token"],
    }  # fmt: skip
