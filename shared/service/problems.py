"""The one door where errors become RFC 9457 problem details; the way back is `problem_reader`. Knows no service.

Fields: `type` (path of this service's page about the code), `title`, `status`, `detail`, `instance`, `code`, `request_id`, and some have
`remedy`, `expected`, `got`, `errors` (one entry per wrong field: its path and what is wrong, never the value sent).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from shared.claims.shape import MAX_FIELDS, path_of, words_of
from shared.errors import ConfigurationError, GputError, NotAuthenticated
from shared.service.logging import get_logger
from shared.service.problem_pages import PATH
from shared.service.signatures import ACCEPT_SIGNATURE

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = f"{PATH}/"
_log = get_logger("problems")

PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "Problem details (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {
            "type": "string",
            "format": "uri-reference",
            "description": "Page of this service about the kind of problem.",
        },
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened to which named thing."},
        "instance": {"type": "string", "description": "Path of the request."},
        "code": {"type": "string", "description": "Stable machine-readable code, kebab-case."},
        "request_id": {"type": "string", "description": "The same id stands in the service's log."},
        "remedy": {"type": "string", "description": "What the reader can do about it."},
        "expected": {"type": "string"},
        "got": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
        "checks": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "examples": [
        {
            "type": f"{TYPE_PREFIX}not-found",
            "title": "Not found",
            "status": 404,
            "detail": "there is no session ses-x",
            "instance": "/v1/sessions/ses-x",
            "code": "not-found",
            "request_id": "req-2cvqzl7q5cq4kqmybzwqv3m3bi",
            "remedy": "List the sessions with GET /v1/sessions.",
        }
    ],
}

_FRAMEWORK_CODES = {
    404: ("not-found", "Not found", "there is nothing at this path"),
    405: ("method-not-allowed", "Method not allowed", "this path does not take this method"),
    413: ("body-too-large", "Limit exceeded", "the request body is larger than this path takes"),
    415: ("unsupported-media-type", "Unsupported media type", "this path does not take this content type"),
}


def problem(status: int, code: str, title: str, detail: str, request: Request, **extra: Any) -> dict[str, Any]:
    """One problem document; absent (None) members are left out."""
    more = {"instance": request.url.path, "request_id": request_id(request), **extra}
    return bare_problem(status, code, title, detail) | {
        name: value for name, value in more.items() if value is not None
    }


def bare_problem(status: int, code: str, title: str, detail: str) -> dict[str, Any]:
    """The problem of what never became a request."""
    return {
        "type": TYPE_PREFIX + quote(code, safe=""),
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": "none",
    }


def request_id(request: Request) -> str:
    """Id of this request, as in its log lines."""
    return str(request.scope.get("gput.request_id", "none"))


def problem_of(error: GputError, request: Request) -> dict[str, Any]:
    """An error of the family as a problem document."""
    found = {"remedy": error.remedy, "expected": error.expected, "got": error.got, "errors": error.errors}
    return problem(error.status, error.code, error.title, error.detail, request, **found)


def problem_response(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A problem document as an answer."""
    return JSONResponse(document, status_code=document["status"], headers=dict(headers or {}), media_type=MEDIA_TYPE)


def error_response(error: GputError, request: Request) -> JSONResponse:
    """The answer to a request that ended in an error of the family."""
    if isinstance(error, ConfigurationError):
        # Whoever asked can do nothing about it, and the operator would read of a status only.
        _log.error("this service is not fit to answer", code=error.code, detail=error.detail, remedy=error.remedy)
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = f"{error.retry_after_s:.0f}"
    if isinstance(error, NotAuthenticated):
        headers["www-authenticate"] = "Signature"
        headers["accept-signature"] = ACCEPT_SIGNATURE
    return problem_response(problem_of(error, request), headers)


def unexpected_response(request: Request) -> JSONResponse:
    """The answer to a request that met a fault of ours: says which log line to look for, and nothing else."""
    detail = "the service met an unexpected fault; nothing more is said here"
    remedy = "Ask the operator to look for this request_id in the service's log."
    return problem_response(problem(500, "internal", "Internal error", detail, request, remedy=remedy))


def install_problems(app: FastAPI) -> None:
    """Every error answer of `app` is a problem document. Unexpected exceptions are the request middleware's."""
    app.add_exception_handler(GputError, _gput_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _framework_error)


async def _gput_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, GputError)
    return error_response(error, request)


async def _invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return invalid_request(error, request)


def invalid_request(error: RequestValidationError, request: Request) -> JSONResponse:
    """The answer to a request whose parts do not have the shape that they must have."""
    errors = [
        # `input` and `ctx` are left out: they hold what the caller sent, which may be somebody's data.
        {"field": path_of(item["loc"]), "message": words_of(item)}
        for item in error.errors()[:MAX_FIELDS]
    ]
    fields = ", ".join(item["field"] for item in errors[:5])
    remedy = "Correct the named fields; the schema is at /v1/openapi.json."
    document = problem(
        422, "invalid-request", "Invalid request", f"wrong: {fields}", request, remedy=remedy, errors=errors
    )
    return problem_response(document)


async def _framework_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return framework_problem(error, request)


def framework_problem(error: HTTPException, request: Request) -> JSONResponse:
    """The answer to a request that the framework refused."""
    code, title, detail = _FRAMEWORK_CODES.get(error.status_code, ("http-error", "Request failed", str(error.detail)))
    return problem_response(problem(error.status_code, code, title, detail, request), error.headers)
