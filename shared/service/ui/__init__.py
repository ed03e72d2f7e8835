"""A page for people, served from package files under /ui: content types, ETags, strict headers. Knows no page and no API.

Nothing is built, fetched from elsewhere or put into a page by the service: what a page shows it reads from the public API, in the browser.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from shared.canonical import sha256
from shared.errors import NotFound

COMMON: Final = Path(__file__).parent / "static"
"""Modules and styles that every service's page uses, served under /ui/common/."""
FRAME: Final = Path(__file__).parent / "frame.html"
"""The one frame of all pages; filled in when a service starts."""
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'", "base-uri 'none'",
    "form-action 'none'", "frame-ancestors 'none'",
    "require-trusted-types-for 'script'", "trusted-types 'none'",  # no text ever becomes markup, whatever a script tries
))  # fmt: skip
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",  # asked for again each time, by ETag: a new release is seen at once
}


@dataclass(frozen=True)
class Frame:
    """What differs between the frames of two services: the title, the style sheet of its own, and what says the same without scripts."""

    title: str
    style: str
    instead: str

    def document(self) -> bytes:
        """The page's HTML."""
        told = {"title": self.title, "style": self.style, "instead": self.instead}
        filled = Template(FRAME.read_text()).substitute({name: escape(text) for name, text in told.items()})
        return filled.encode()


@dataclass(frozen=True)
class _File:
    body: bytes
    media_type: str
    etag: str


def pages(folder: Path, frame: Frame) -> APIRouter:
    """Routes of the page in `frame` whose files are in `folder`: `main.js`, which begins it, and the frame's style. Read here, once.

    Raises:
        FileNotFoundError: one of those two is missing. KeyError: a file of a kind that no page has.
    """
    files = {f"common/{name}": file for name, file in _read(COMMON).items()} | _read(folder)
    for needed in ("main.js", frame.style):
        if needed not in files:
            raise FileNotFoundError(folder / needed)
    files["index.html"] = _file(frame.document(), ".html")
    router = APIRouter(include_in_schema=False)

    @router.get("/ui")
    async def front(request: Request) -> Response:
        return RedirectResponse("ui/", status_code=308, headers=HEADERS)  # relative: it holds behind any proxy

    @router.get("/ui/")
    async def index(request: Request) -> Response:
        return _answer(files["index.html"], request)

    @router.get("/ui/{name}")
    async def own(name: str, request: Request) -> Response:
        return _answer(_found(files, name), request)

    @router.get("/ui/common/{name}")
    async def common(name: str, request: Request) -> Response:
        return _answer(_found(files, f"common/{name}"), request)

    return router


def _read(folder: Path) -> dict[str, _File]:
    return {path.name: _file(path.read_bytes(), path.suffix) for path in sorted(folder.iterdir())}


def _file(body: bytes, suffix: str) -> _File:
    return _File(body, TYPES[suffix], f'"{sha256(body).hex()[:32]}"')


def _found(files: dict[str, _File], name: str) -> _File:
    # By name in what was read at the start: no path of a request ever reaches the disk.
    file = files.get(name)
    if file is None:
        raise NotFound("there is no such file of this page", remedy="The page begins at /ui/.")
    return file


def _answer(file: _File, request: Request) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
