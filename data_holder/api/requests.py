"""Routes of approvals: list, show, approve, refuse, veto, policy. Knows no key and no SQL beyond its projections."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from data_holder.api.access import HolderDep, Once, Reader, Writer
from data_holder.api.models import (
    ApproveBody,
    CheckResult,
    Page,
    PolicyView,
    RefuseBody,
    RequestDetail,
    RequestState,
    RequestView,
    SessionBody,
    SessionPath,
)
from data_holder.api.shown import request_view
from data_holder.assembly import Holder
from data_holder.deciding import Word
from data_holder.estimate import expected
from data_holder.policy_rules import allowed
from data_holder.requests import verify_decision, verify_manifest, verify_signer
from data_holder.tables import rows
from shared.canonical import json_value
from shared.claims.accountant import spent
from shared.claims.free_text import unseen
from shared.claims.program import ProgramManifest
from shared.errors import BadRequest, Conflict
from shared.service.idempotency import HEADER as KEY_HEADER
from shared.service.idempotency import KEY_HONOURED
from shared.service.pagination import Paging
from shared.wire.dry_run import Verdict
from shared.wire.visit import Decision

B = TypeVar("B", ApproveBody, RefuseBody)
router = APIRouter(prefix="/v1", tags=["approvals"])


@router.get("/requests", summary="Sessions that ask this holder")
async def list_requests(
    _: Reader, holder: HolderDep, paging: Paging, state: Annotated[RequestState | None, Query()] = None
) -> Page[RequestView]:
    listing = paging.of(f"requests/{state}")
    found = await holder.store.read(lambda connection: rows.requests(connection, state, listing.after, listing.ask))
    shown = listing.cut(found, lambda row: row["session"])
    return Page(items=[request_view(holder, row) for row in shown], next=listing.next)


@router.get("/requests/{session}", summary="One request in full: manifest, program, policy findings")
async def show_request(session: SessionPath, _: Reader, holder: HolderDep) -> RequestDetail:
    return await _detail(holder, session)


def _legible(body: B) -> B:
    """Raises: BadRequest `unseen-text`: the orchestrator would not take it, and it would be signed by then."""
    if found := unseen(body.reason, but="\n\t"):
        raise BadRequest(f"the reason holds what cannot be seen: {found}", code="unseen-text")
    return body


def _word(verb: Decision, body: ApproveBody | RefuseBody, *, keyed: bool) -> Word:
    said = body if isinstance(body, ApproveBody) else ApproveBody(manifest=body.manifest)
    return Word(body.manifest, verb, said.dataset, body.reason, said.anew, keep_equal=keyed)


async def _decided(
    holder: Holder, once: Once, session: str, verb: Decision, body: ApproveBody | RefuseBody
) -> Response:
    measure = not isinstance(body, ApproveBody) or body.statistics

    async def act(keyed: bool) -> Response:
        await holder.approvals.decide(session, _word(verb, body, keyed=keyed), by="operator", measure=measure)
        return JSONResponse((await _detail(holder, session)).model_dump(mode="json"))

    return await once(act)


async def _judged(
    holder: Holder, request: Request, session: str, verb: Decision, body: ApproveBody | RefuseBody
) -> Verdict:
    """With an Idempotency-Key as the act with one: the same again is no mistake. Nothing is kept under it."""
    return await holder.approvals.judging.verdict(session, _word(verb, body, keyed=KEY_HEADER in request.headers))


@router.post(
    "/requests/{session}/approve", summary="Approve the manifest shown, with one of this holder's datasets",
    response_model=RequestDetail, openapi_extra=KEY_HONOURED,
)  # fmt: skip
async def approve(session: SessionPath, body: ApproveBody, _: Writer, holder: HolderDep, once: Once) -> Response:
    return await _decided(holder, once, session, "approve", _legible(body))


@router.post(
    "/dry-run/requests/{session}/approve", summary="Whether it could be approved, as far as that is known before its dataset is read"
)  # fmt: skip
async def ask_approve(
    session: SessionPath, body: ApproveBody, _: Writer, holder: HolderDep, request: Request
) -> Verdict:
    return await _judged(holder, request, session, "approve", _legible(body))


@router.post(
    "/requests/{session}/refuse", summary="Refuse the manifest shown", response_model=RequestDetail,
    openapi_extra=KEY_HONOURED,
)  # fmt: skip
async def refuse(session: SessionPath, body: RefuseBody, _: Writer, holder: HolderDep, once: Once) -> Response:
    return await _decided(holder, once, session, "refuse", _legible(body))


@router.post("/dry-run/requests/{session}/refuse", summary="Whether it could be refused; nothing is done")
async def ask_refuse(session: SessionPath, body: RefuseBody, _: Writer, holder: HolderDep, request: Request) -> Verdict:
    return await _judged(holder, request, session, "refuse", _legible(body))


@router.post(
    "/requests/{session}/veto", summary="Withdraw an approval: no visit follows, a running one is recalled",
    response_model=RequestDetail, openapi_extra=KEY_HONOURED,
)  # fmt: skip
async def veto(session: SessionPath, body: RefuseBody, _: Writer, holder: HolderDep, once: Once) -> Response:
    return await _decided(holder, once, session, "veto", _legible(body))


@router.post("/dry-run/requests/{session}/veto", summary="Whether an approval could be withdrawn; nothing is done")
async def ask_veto(session: SessionPath, body: RefuseBody, _: Writer, holder: HolderDep, request: Request) -> Verdict:
    return await _judged(holder, request, session, "veto", _legible(body))


@router.get("/policy", summary="The local policy as loaded")
async def show_policy(_: Reader, holder: HolderDep) -> PolicyView:
    settings, policy = holder.foundation.settings, holder.foundation.policy
    problems = [] if policy is not None else ["no policy file is named: nothing is approved without a person"]
    return PolicyView(
        mode=settings.approve, path=str(settings.policy) if settings.policy else None,
        policy=policy.model_dump(mode="json") if policy else None, problems=problems,
    )  # fmt: skip


@router.post("/policy/check", summary="What the policy says of one request, without deciding")
async def check_policy(body: SessionBody, _: Writer, holder: HolderDep) -> CheckResult:
    if holder.foundation.policy is None:
        raise Conflict("this holder has no policy file", code="no-policy", remedy="Set policy to a TOML file")
    request, program = await holder.approvals.show(body.session)
    findings = [*holder.approvals.findings(body.session, request, program), *holder.approvals.once.found(body.session)]
    return CheckResult.model_validate(
        {"allowed": allowed(findings), "findings": [finding.as_json() for finding in findings]}
    )


async def _detail(holder: Holder, session: str) -> RequestDetail:
    """The request as verified again from its bytes, not as the row tells it."""
    row = await holder.store.read(lambda connection: rows.request(connection, session))
    state, shown = holder.ledger.state(session), request_view(holder, row)
    request = verify_manifest(state.manifest, holder.approvals.name, holder.approvals.keys)
    program = await holder.approvals.programs.to_show(session, request.manifest.program)
    manifest = request.manifest
    said, owner = verify_decision(state, holder.approvals.keys), verify_signer(state)
    estimate = await expected(
        holder.orchestrator.unhurried, session, manifest, program, holder.approvals.name, records=state.records or None,
        ask=shown.state == "waiting",
    )  # fmt: skip
    planned = spent(manifest, holder.approvals.name, manifest.rounds, state.records or None)
    view = {
        **shown.model_dump(), "manifest": request.digest, "document": json_value(request.data),
        "dataset_root": state.dataset_root or None,
        "decision": said and said.decision,
        "owner": None if owner is None else owner.fingerprint,
        "privacy": planned and planned.model_dump(mode="json"),
        "estimate": estimate,
        "profile": said and said.profile and said.profile.model_dump(mode="json"),
        "share_released_to": state.released,
        "log_head": state.head and f"{state.head.size}:{state.head.root.hex()}",
    }  # fmt: skip
    return RequestDetail.model_validate({**view, "program": program and _program(program, request.manifest.program)})


def _program(program: ProgramManifest, digest: str) -> dict[str, Any]:
    return {
        "digest": digest, "name": program.name, "description": program.description, "operators": list(program.operators),
        "records": program.records.model_dump(mode="json"), "parameters": sum(math.prod(spec.shape) for spec in program.parameters),
        "parameter_tensors": len(program.parameters),
        "tokenizer": program.tokenizer,
    }  # fmt: skip
