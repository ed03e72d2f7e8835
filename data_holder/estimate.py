"""What a session would take of this holder: visits and bytes from the manifest it verified itself, seconds by the orchestrator's word."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import ValidationError

from data_holder.links import OrchestratorLink
from shared.claims.manifest import Manifest
from shared.claims.program import ProgramManifest
from shared.errors import GputError
from shared.protocol.work import work_of
from shared.wire.estimate import Estimate

PATIENCE_S = 3.0
OWN = "visits, steps, records and bytes are the manifest's, as this holder read it"


async def expected(
    link: OrchestratorLink, session: str, manifest: Manifest, program: ProgramManifest | None, holder: str, *,
    records: int | None, ask: bool,
) -> dict[str, Any]:  # fmt: skip
    """The estimate as the operator's API shows it.

    Args:
        program: None until it was fetched; then no bytes are known.
        records: of the approved dataset; None before.
        ask: whether the orchestrator is asked for seconds: while somebody still has to decide.
    """
    work = work_of(manifest, holder, program.records.record_bytes if program else 0)
    told, why = (
        await _told(link, session) if ask else (None, "seconds: asked of the orchestrator only before a decision")
    )
    part = next((each for each in told.holders if each.holder == holder), None) if told else None
    unknown = [*(told.unknown if told else [why])]
    if program is None:
        unknown.insert(0, "bytes: the program was not fetched from the orchestrator yet; wait a moment")
    return {
        "visits": work.visits, "steps": work.steps, "records": work.records, "bytes": work.bytes if program else None,
        "passes": work.records / records if records else None,
        "seconds_per_visit": part and part.seconds_per_visit, "seconds": part and part.seconds,
        "session_seconds": told and told.seconds, "unknown": unknown,
        "basis": f"{OWN}; the orchestrator says: {told.basis}" if told else OWN,
    }  # fmt: skip


async def _told(link: OrchestratorLink, session: str) -> tuple[Estimate | None, str]:
    """The orchestrator's estimate, or why there is none. It is unsigned, shown as what it is, and decides nothing."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await link.get_json(f"/v1/sessions/{session}/estimate", timeout_s=PATIENCE_S, attempts=1)
        return Estimate.model_validate(answer), ""
    except (GputError, TimeoutError, ValidationError):
        return None, "seconds: the orchestrator did not say; ask again when it answers"
