"""Routes of datasets: list, add, remove, inspect against a session's program. Knows no file format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from data_holder.api.access import HolderDep, Once, Reader, Writer
from data_holder.api.dataset_models import DatasetBody, DatasetPath, DatasetView, DeclarationBody
from data_holder.api.models import Page, SessionBody
from data_holder.api.shown import dataset_view
from data_holder.tables import rows
from shared.service.idempotency import KEY_HONOURED
from shared.service.pagination import Paging

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])


@router.get("", summary="Datasets this holder knows")
async def list_datasets(_: Reader, holder: HolderDep, paging: Paging) -> Page[DatasetView]:
    listing = paging.of("datasets")
    found = await holder.store.read(lambda connection: rows.datasets(connection, listing.after, listing.ask))
    items = [dataset_view(holder, row) for row in listing.cut(found, lambda row: row["name"])]
    return Page(items=items, next=listing.next)


@router.post(
    "", status_code=201, summary="Add a dataset by path", response_model=DatasetView, openapi_extra=KEY_HONOURED
)
async def add_dataset(body: DatasetBody, _: Writer, holder: HolderDep, once: Once) -> Response:
    async def act(keyed: bool) -> Response:
        options = body.options.model_dump(exclude_unset=True)
        row = await holder.catalogue.add(body.name, Path(body.path), options, keep_equal=keyed)
        headers = {"location": f"/v1/datasets/{body.name}"}
        return JSONResponse(dataset_view(holder, row).model_dump(mode="json"), status_code=201, headers=headers)

    return await once(act)


@router.get("/{name}", summary="One dataset")
async def show_dataset(name: DatasetPath, _: Reader, holder: HolderDep) -> DatasetView:
    return dataset_view(holder, await holder.store.read(lambda connection: rows.dataset(connection, name)))


@router.delete("/{name}", status_code=204, summary="Forget a dataset (its files stay, what was converted of them goes)")
async def remove_dataset(name: DatasetPath, _: Writer, holder: HolderDep) -> Response:
    await holder.catalogue.remove(name)
    return Response(status_code=204)


@router.put("/{name}/declaration", summary="Declare units and classes of its fields, in place of what was declared")
async def declare(name: DatasetPath, body: DeclarationBody, _: Writer, holder: HolderDep) -> DatasetView:
    return dataset_view(holder, await holder.catalogue.declare(name, body.model_dump()))


@router.post(
    "/{name}/inspect", summary="Whether the dataset fits a session's program, and what an approval would say of it"
)
async def inspect(name: DatasetPath, body: SessionBody, _: Writer, holder: HolderDep) -> dict[str, Any]:
    request, program = await holder.approvals.show(body.session)
    report = await holder.catalogue.inspect(name, program)
    profile = None
    if report.fits:
        about = {"session": body.session, "manifest": request.digest}
        measure = holder.approvals.may_measure
        profile = await holder.catalogue.profile(name, program, report, **about, measure=measure)
    return {**report.as_json(), "profile": profile and profile.model_dump(mode="json")}
