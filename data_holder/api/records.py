"""Routes of what happened: visits, receipts, links, identity. Reads only."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import APIRouter, Query, Response

from data_holder.api.access import HolderDep, Reader
from data_holder.api.models import (
    Identity,
    IndexPath,
    LinksView,
    Page,
    ReceiptDetail,
    ReceiptView,
    SessionPath,
    VisitDetail,
    VisitPath,
    VisitView,
)
from data_holder.api.shown import receipt_view, visit_view
from data_holder.receipts import explain
from data_holder.tables import rows
from shared.service.pagination import Paging

router = APIRouter(prefix="/v1", tags=["records"])
SessionQuery = Annotated[str | None, Query(pattern=r"^s_[0-9a-z]{16}$")]


@router.get("/identity", summary="Who this holder is")
async def identity(_: Reader, holder: HolderDep) -> Identity:
    settings, key = holder.foundation.settings, holder.foundation.key
    return Identity(
        name=settings.name, fingerprint=key.fingerprint, public_key=key.public_pem.decode(),
        orchestrator_url=settings.orchestrator_url, backend=settings.evidence.partition(":")[0],
        approve=settings.approve, connected=holder.runner.listening.connected, sessions=len(list(holder.ledger.states())),
        changes=holder.ledger.changes,
    )  # fmt: skip


@router.get("/visits", summary="Attempts of visits, oldest first within a session")
async def list_visits(_: Reader, holder: HolderDep, paging: Paging, session: SessionQuery = None) -> Page[VisitView]:
    listing = paging.of(f"visits/{session}")
    found = await holder.store.read(lambda connection: rows.visits(connection, session, listing.after, listing.ask))
    shown = listing.cut(found, lambda row: [row["session"], row["epoch"]])
    return Page(items=[visit_view(row) for row in shown], next=listing.next)


@router.get("/visits/{visit}", summary="One visit with all its attempts")
async def show_visit(visit: VisitPath, _: Reader, holder: HolderDep) -> VisitDetail:
    found = await holder.store.read(lambda connection: rows.attempts(connection, visit))
    attempts = [visit_view(row) for row in found]
    return VisitDetail(**attempts[-1].model_dump(), attempts=attempts)


@router.get("/receipts", summary="Receipts of this holder's visits, with every check")
async def list_receipts(
    _: Reader, holder: HolderDep, paging: Paging, session: SessionQuery = None
) -> Page[ReceiptView]:
    listing = paging.of(f"receipts/{session}")
    found = await holder.store.read(lambda connection: rows.receipts(connection, session, listing.after, listing.ask))
    shown = listing.cut(found, lambda row: [row["session"], row["index"]])
    return Page(items=[receipt_view(row) for row in shown], next=listing.next)


@router.get("/receipts/{session}/{index}", summary="One receipt: its bytes and what they say")
async def show_receipt(session: SessionPath, index: IndexPath, _: Reader, holder: HolderDep) -> ReceiptDetail:
    row = await holder.store.read(lambda connection: rows.receipt(connection, session, index))
    claims, statement = explain(row["cose"])
    encoded = base64.b64encode(row["cose"]).decode()
    return ReceiptDetail(**receipt_view(row).model_dump(), receipt=encoded, claims=claims, statement=statement)


@router.get(
    "/receipts/{session}/{index}/cose", summary="The receipt's bytes (COSE_Sign1)", response_class=Response,
    responses={200: {"content": {"application/cose": {"schema": {"type": "string", "format": "binary"}}}}},
)  # fmt: skip
async def raw_receipt(session: SessionPath, index: IndexPath, _: Reader, holder: HolderDep) -> Response:
    row = await holder.store.read(lambda connection: rows.receipt(connection, session, index))
    return Response(row["cose"], media_type="application/cose")


@router.get("/links", summary="Bytes per link since start")
async def links(_: Reader, holder: HolderDep) -> LinksView:
    gpu, orchestrator = holder.gpu, holder.orchestrator.counters
    return LinksView(
        dataset_bytes_to_gpu=gpu.dataset, proof_bytes_to_gpu=gpu.proofs,
        dataset_bytes_to_orchestrator=orchestrator.dataset, bytes_to_gpu=gpu.sent,
        bytes_to_orchestrator=orchestrator.sent, bytes_from_gpu=gpu.received,
        bytes_from_orchestrator=orchestrator.received,
    )  # fmt: skip
