"""Routes of datasets: list, add, remove, inspect against a session's program. Knows no file format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response

from data_holder.api.access import HolderDep, Reader, Writer
from data_holder.api.models import DatasetBody, DatasetPath, DatasetView, Page, SessionBody
from data_holder.api.paging import CursorsDep
from data_holder.tables import rows
from shared.service.pagination import CursorParam, Limit

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])


@router.get("", summary="Datasets this holder knows")
async def list_datasets(
    _: Reader, holder: HolderDep, cursors: CursorsDep, cursor: CursorParam = None, limit: Limit = 50
) -> Page[DatasetView]:
    after = cursors.text("datasets", cursor)
    found = await holder.store.read(lambda connection: rows.datasets(connection, after, limit + 1))
    following = cursors.encode("datasets", found[limit - 1]["name"]) if len(found) > limit else None
    return Page(items=[_view(row) for row in found[:limit]], next=following)


@router.post("", status_code=201, summary="Add a dataset by path")
async def add_dataset(body: DatasetBody, response: Response, _: Writer, holder: HolderDep) -> DatasetView:
    row = await holder.catalogue.add(body.name, Path(body.path), body.options.model_dump(exclude_unset=True))
    response.headers["location"] = f"/v1/datasets/{body.name}"
    return _view(row)


@router.get("/{name}", summary="One dataset")
async def show_dataset(name: DatasetPath, _: Reader, holder: HolderDep) -> DatasetView:
    return _view(await holder.store.read(lambda connection: rows.dataset(connection, name)))


@router.delete("/{name}", status_code=204, summary="Forget a dataset (its files stay)")
async def remove_dataset(name: DatasetPath, _: Writer, holder: HolderDep) -> Response:
    await holder.store.write(lambda connection: rows.remove_dataset(connection, name))
    return Response(status_code=204)


@router.post("/{name}/inspect", summary="Whether the dataset fits a session's program, and why not")
async def inspect(name: DatasetPath, body: SessionBody, _: Writer, holder: HolderDep) -> dict[str, Any]:
    shown = await holder.approvals.show(body.session)
    report = await holder.catalogue.inspect(name, shown[1])
    return report.as_json()


def _view(row: dict[str, Any]) -> DatasetView:
    return DatasetView(**{**row, "options": json.loads(row["options"])})
