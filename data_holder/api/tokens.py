"""Route of the holder's bearer tokens: a new one in the place of the old. No answer and no log contains a token. Knows no session."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response

from data_holder.api.access import HolderDep, Writer
from data_holder.api.models import NewToken
from shared.names import Role
from shared.service.logging import get_logger

router = APIRouter(prefix="/v1", tags=["tokens"])
Whose = Annotated[Literal["operator", "auditor"], Path()]
ROLES = {"operator": Role.HOLDER, "auditor": Role.AUDITOR}
_log = get_logger("tokens")


@router.put(
    "/tokens/{whose}", status_code=204, response_class=Response,
    summary="Put a new token in the place of the operator's or the auditor's; the old one is refused from then on",
)  # fmt: skip
async def rotate(whose: Whose, body: NewToken, operator: Writer, holder: HolderDep) -> Response:
    # Its user makes the token, so that no answer carries a secret; and so that a repeat after a lost answer does no harm.
    await asyncio.to_thread(holder.foundation.tokens.replace, ROLES[whose], body.token)
    _log.info("a token was replaced", whose=whose, by=operator.name)
    return Response(status_code=204)
