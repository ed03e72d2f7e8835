"""Routes of programs, weights and validation datasets: uploads by digest, and what is stored. Knows no session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from orchestrator.api import examples as ex
from orchestrator.api.deps import Anybody, Orchestrator, Parts
from orchestrator.damaged import shown, whole
from orchestrator.files import reading
from orchestrator.tables import FILES, PROGRAMS
from shared.claims.archive import MAX_ARCHIVE_BYTES
from shared.claims.program import HexSha256, HexSha384
from shared.errors import NotFound
from shared.names import Role
from shared.service.callers import SignedStream, require_stream
from shared.service.data_dir import unwritable
from shared.service.pagination import Paging

router = APIRouter(tags=["programs and data"])
Upload = Annotated[SignedStream, Depends(require_stream(Role.OWNER))]
UPLOAD_LIMIT = 1 << 40
"""No route-wide limit: each upload is spooled under its own, before which nothing is buffered."""
OCTETS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "(bytes)"}
        },
    }
}


@router.put(
    "/v1/programs/{digest}/archive", summary="Upload a program archive", status_code=201, openapi_extra=OCTETS,
    responses=ex.shows(ex.PROGRAM, 200, 201), max_body_size=UPLOAD_LIMIT,
)  # fmt: skip
async def put_program(digest: HexSha384, upload: Upload, parts: Parts) -> Response:
    spooled = await upload.spool(_spool(parts), MAX_ARCHIVE_BYTES)
    try:
        with reading(spooled):
            data = spooled.read_bytes()
        summary, created = await parts.library.add_program(digest, data)
    finally:
        spooled.unlink(missing_ok=True)
    return JSONResponse(summary, status_code=201 if created else 200)


def _spool(parts: Orchestrator) -> Path:
    """Where uploads lie until they are checked. Raises: Unavailable: codes `disk-full`, `disk-unusable`."""
    folder = parts.house.settings.files_dir / "uploads"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


@router.get("/v1/programs", summary="Stored programs", responses=ex.shows(ex.listed(ex.PROGRAM)))
async def programs(caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
    listing = paging.of("programs")
    found = await parts.library.page(PROGRAMS, "digest", listing.after, listing.ask)
    return listing.page(await parts.library.summaries(listing.cut(found, lambda row: row["digest"])))


@router.get("/v1/programs/{digest}", summary="One program", responses=ex.shows(ex.PROGRAM))
async def program(digest: HexSha384, caller: Anybody, parts: Parts) -> dict[str, Any]:
    found = await parts.library.page(PROGRAMS, "digest", None, 1, digest=digest)
    if not found:
        raise NotFound(f"There is no program {digest}", code="unknown-program", remedy="Upload the archive first.")
    return await parts.library.summary(found[0])


@router.get(
    "/v1/programs/{digest}/archive", summary="A program's archive, to inspect before approving", response_class=Response,
    responses=ex.binary("application/octet-stream", "The archive, as uploaded."),
)  # fmt: skip
async def archive(digest: HexSha384, caller: Anybody, parts: Parts) -> Response:
    return Response(await parts.library.archive_bytes(digest), media_type="application/octet-stream")


def _routes(path: str, kind: Literal["weights", "validation"], what: str) -> None:
    @router.put(
        f"/v1/{path}/{{digest}}", summary=f"Upload {what}", status_code=201, openapi_extra=OCTETS, name=f"put_{kind}",
        responses=ex.shows(ex.FILE, 200, 201), max_body_size=UPLOAD_LIMIT,
    )  # fmt: skip
    async def put(digest: HexSha256, upload: Upload, parts: Parts) -> Response:
        spooled = await upload.spool(_spool(parts), parts.house.settings.max_upload_bytes)
        try:
            view, created = await parts.library.add_file(kind, digest, spooled)
        finally:
            spooled.unlink(missing_ok=True)
        return JSONResponse(view, status_code=201 if created else 200)

    @router.get(f"/v1/{path}", summary=f"Stored {what}", name=f"list_{kind}", responses=ex.shows(ex.listed(ex.FILE)))
    async def files(caller: Anybody, parts: Parts, paging: Paging) -> dict[str, Any]:
        listing = paging.of(path)
        found = await parts.library.page(FILES, "digest", listing.after, listing.ask, kind=kind)
        return listing.page(shown(listing.cut(found, lambda row: row["digest"]), _file, path))

    @router.get(
        f"/v1/{path}/{{digest}}", summary=f"One entry of {what}", name=f"get_{kind}", responses=ex.shows(ex.FILE)
    )
    async def one(digest: HexSha256, caller: Anybody, parts: Parts) -> dict[str, Any]:
        rows = await parts.library.page(FILES, "digest", None, 1, kind=kind, digest=digest)
        if not rows:
            raise NotFound(
                f"No {what} with digest {digest} are stored here", code=f"unknown-{path}", remedy="Upload first."
            )
        with whole(f"file {digest[:16]}…"):
            return _file(rows[0])


def _file(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("digest", "size_bytes", "stored_at")}


_routes("weights", "weights", "weights")
_routes("validation-datasets", "validation", "validation datasets")
