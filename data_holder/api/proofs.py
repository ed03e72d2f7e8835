"""Routes of what this holder's receipts can be checked with by another program: keys, agreement, log. Reads only; decides nothing.

The keys are those of channels whose quotes this holder verified; the log is asked of the orchestrator anew and held to the one remembered.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from data_holder.api.access import HolderDep, Reader
from data_holder.api.models import Page, SessionPath
from data_holder.api.proof_models import AgreementView, HeadView, KeyView, LogView, ProvenReceipt, SignedView
from data_holder.assembly import Holder
from data_holder.log_reader import LogReader
from data_holder.requests import verify_manifest
from data_holder.tables import rows
from shared.service.pagination import Paging

router = APIRouter(prefix="/v1/requests/{session}", tags=["proofs"])
AT_ONCE = 16
"""Questions that the orchestrator is asked side by side."""
OF_SIZE = "Only receipts in the log's tree of this size, each with its `path`: the proof that it is in that tree."


@router.get(
    "/agreement", summary="What was agreed, as the bytes that count: the manifest, and this holder's newest signed word"
)
async def agreement(session: SessionPath, _: Reader, holder: HolderDep) -> AgreementView:
    state, own = holder.ledger.state(session), holder.approvals
    request = verify_manifest(state.manifest, own.name, own.keys)
    key = next(
        entry.key for entry in request.manifest.roster if entry.holder == own.name
    )  # the one of then signed both
    said = state.decision
    return AgreementView(
        holder=own.name, public_key=own.keys.publics[key].hex(), manifest=_b64(request.data), digest=request.digest,
        decision=None if said is None else SignedView(document=_b64(said.document), signature=_b64(said.signature)),
        dataset_root=state.dataset_root or None,
    )  # fmt: skip


@router.get(
    "/keys", summary="Keys that this holder attested, by channel or introduction: what its receipts must be signed with"
)
async def keys(session: SessionPath, _: Reader, holder: HolderDep, paging: Paging) -> Page[KeyView]:
    listing = paging.of(f"keys/{session}")
    known = holder.ledger.state(session).channels
    later = sorted(runtime for runtime in known if listing.after is None or runtime > listing.after)
    shown = listing.cut(later[: listing.ask], lambda runtime: runtime)
    items = [
        KeyView(
            orchestrator_runtime_data=one.orchestrator_runtime, holder_runtime_data=one.holder_runtime or None,
            gpu_evidence=one.gpu_evidence, device=one.device, signing_key=one.signing_key.hex(),
            statement_key=one.statement_key.hex() or None,
        )
        for one in map(known.__getitem__, shown)
    ]  # fmt: skip
    return Page(items=items, next=listing.next)


@router.get("/log", summary="The newest signed head of the session's log, and that it extends the one remembered here")
async def log(session: SessionPath, _: Reader, holder: HolderDep) -> LogView:
    state = holder.ledger.state(session)
    remembered = state.head
    found = await LogReader(holder.orchestrator, state).signed_head(holder.introductions.learn)
    return LogView(
        size=found.head.size, root=found.head.root.hex(), time=found.head.time, key=found.key.hex(),
        signature=_b64(found.signature), consistency=[node.hex() for node in found.consistency],
        remembered=None if remembered is None else HeadView(size=remembered.size, root=remembered.root.hex()),
    )  # fmt: skip


@router.get(
    "/log/receipts", summary="This holder's receipts as the bytes that count, with their ways to the log's root"
)
async def proven(
    session: SessionPath, _: Reader, holder: HolderDep, paging: Paging,
    size: Annotated[int | None, Query(ge=0, le=2**53, description=OF_SIZE)] = None,
) -> Page[ProvenReceipt]:  # fmt: skip
    holder.ledger.state(session)  # an unknown session is an error, not an empty list
    listing = paging.of(f"proofs/{session}/{size}")
    after = None if listing.after is None else (session, listing.after)
    found = await holder.store.read(partial(rows.receipts, session=session, after=after, limit=listing.ask))
    wanted = [row for row in found if size is None or row["index"] < size]
    shown = listing.cut(wanted, lambda row: row["index"])
    paths = await _paths(holder, session, [row["index"] for row in shown], size)
    return Page(items=[_proven(row, paths.get(row["index"])) for row in shown], next=listing.next)


async def _paths(holder: Holder, session: str, indexes: list[int], size: int | None) -> dict[int, list[bytes]]:
    if size is None:
        return {}
    reader = LogReader(holder.orchestrator, holder.ledger.state(session))
    found: dict[int, list[bytes]] = {}
    for at in range(0, len(indexes), AT_ONCE):
        some = indexes[at : at + AT_ONCE]
        found |= zip(some, await asyncio.gather(*(reader.path(index, size) for index in some)), strict=True)
    return found


def _proven(row: dict[str, Any], path: list[bytes] | None) -> ProvenReceipt:
    way = None if path is None else [node.hex() for node in path]
    return ProvenReceipt(index=row["index"], receipt=_b64(row["cose"]), path=way)


def _b64(data: bytes) -> str:
    return b64encode(data).decode()
