"""The pages that problems' `type` leads to: GET /problems/{code} on every service, as HTML for people, as JSON for programs.

They need no other file and run no script: the style is in the page and allowed by its digest, everything else is forbidden.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from shared.errors import NotFound
from shared.explanations import Explanation, explain, explanations

PATH = "/problems"
_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "code{font-family:ui-monospace,monospace}dt{font-weight:600;margin-top:1rem}dd{margin:0}"
)
_HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "public, max-age=3600",
    "vary": "accept",
}


def problem_pages() -> APIRouter:
    """The routes. They are open to everybody, since who was refused must be able to read why."""
    router = APIRouter(tags=["problems"])

    @router.get(PATH, include_in_schema=False)
    async def index(request: Request) -> Response:
        known = explanations().values()
        if not _wants_html(request):
            return JSONResponse({"problems": [_document(each) for each in known]}, headers=_HEADERS)
        families = dict.fromkeys(each.family for each in known)
        parts = [_listed(name, [each for each in known if each.family == name]) for name in families]
        return _page("Problems", "".join(parts))

    @router.get(PATH + "/{code}", include_in_schema=False)
    async def page(code: str, request: Request) -> Response:
        found = explain(code)
        if found is None:
            raise NotFound(
                "no problem has this code here",
                remedy=f"GET {PATH} lists all; a newer service may have more.",
            )
        return _page(code, _told(found)) if _wants_html(request) else JSONResponse(_document(found), headers=_HEADERS)

    return router


def _wants_html(request: Request) -> bool:
    """Whether the caller likes HTML better than JSON (RFC 9110, 12.5.1); who says nothing is a program."""
    liking = {"text/html": 0.0, "application/json": 0.0}
    for part in request.headers.get("accept", "").lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
        if kind in liking:
            liking[kind] = float(quality) if quality.replace(".", "", 1).isdecimal() else 0.0
    return liking["text/html"] > liking["application/json"]


def _document(found: Explanation) -> dict[str, str]:
    return {
        "type": f"{PATH}/{found.code}", "code": found.code, "title": found.family,
        "means": found.means, "why": found.why, "do": found.do,
    }  # fmt: skip


def _told(found: Explanation) -> str:
    facts = (("What it means", found.means), ("Why", found.why), ("What to do", found.do))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f'<p>{escape(found.family)}</p><dl>{rows}</dl><p><a href="{PATH}">All problems</a></p>'


def _listed(family: str, codes: list[Explanation]) -> str:
    rows = "".join(
        f'<dt><a href="{PATH}/{each.code}"><code>{each.code}</code></a></dt><dd>{escape(each.means)}</dd>'
        for each in codes
    )
    return f"<h2>{escape(family)}</h2><p>{escape(codes[0].why)}</p><dl>{rows}</dl>"


def _page(title: str, body: str) -> HTMLResponse:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style>'
    text = f'<!doctype html><html lang="en"><head>{head}</head><body><main><h1>{title}</h1>{body}</main></body></html>'
    return HTMLResponse(text, headers=_HEADERS)
