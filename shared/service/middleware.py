"""What happens around every request: an id, a log line, two metrics, and the last net for our own faults. Knows no route.

Plain ASGI: Starlette's function middleware costs a task and a queue per request, this costs microseconds.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from shared.errors import GputError, TooManyRefused
from shared.service.clock import Entropy
from shared.service.direct import DirectRoutes
from shared.service.logging import get_logger
from shared.service.metrics import OTHER, REQUEST_BUCKETS_S, REQUEST_SECONDS
from shared.service.problems import TYPE_PREFIX, error_response, unexpected_response
from shared.service.refusals import Refusals
from shared.service.tracing import Tracing

QUIET_PATHS = frozenset({"/livez", "/readyz", "/metrics", "/version"})

_ABOUT = re.compile(r"/(sessions|requests|visits|ports)/([A-Za-z0-9._-]{1,64})(?=/|$)")
_NAMES = {"sessions": "session", "requests": "session", "visits": "visit", "ports": "port"}

SHOWN_PATH = 300
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

BELIEVED = "gput.believed"
"""In a request's scope: what it brought was authentic, though no caller signed it (frames and records of the GPU's ports)."""

UNASKED_BYTES = 64 * 1024
"""Of a body that are read before anybody knows whose it is."""

Admission = Callable[[Request], Awaitable[None]]
"""Asked before a request's long body is read. Raises `GputError` where it will not be."""

Gate = Callable[[str], None]
"""Asked for each request's path, but for probes'. Raises `GputError` while the service answers nobody; nothing is read or done then."""

_log = get_logger("request")


@dataclass
class BodyLimit:
    """How many bytes of one request's body may still be read; whoever spools a stream raises it first.

    (FastAPI's own limit answers in plain text, not as a problem.)
    """

    bytes: int
    stated: int = 0
    """Bytes of it that its head states; more than any where it states none and sends some."""

    def guard(self, scope: Scope, receive: Receive) -> Receive:
        """A `receive` that raises 413 beyond the limit, before reading anything when Content-Length says so."""
        chunked, read = False, 0
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self.stated = int(value)
            chunked = chunked or name == b"transfer-encoding"
        length = self.stated
        if chunked:
            self.stated = sys.maxsize

        async def guarded() -> Message:
            nonlocal read
            if length > self.bytes:
                raise HTTPException(413)
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.bytes:
                raise HTTPException(413)
            return message

        return guarded


def _about(path: str) -> dict[str, str]:
    """Which session and visit a path speaks of, for every line that the request leads to."""
    return {_NAMES[kind]: name for kind, name in _ABOUT.findall(path)} if path.startswith("/v1/") else {}


def _read_as_signed(scope: Scope) -> None:
    """A signed body that the framework reads is JSON, whatever Content-Type says: no signature covers that header, so whoever is on the
    way could have a sound request refused by it, in an answer that we sign. Who signs nothing states it: a page in somebody's browser may
    send text to any address unasked, and JSON to none."""
    if any(name == b"signature-input" for name, _ in scope["headers"]):
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


def _shown(path: str) -> str:
    """As much of a path as a log line holds; what our own routes are called by is shorter. Strangers' fill no disk."""
    return path if len(path) <= SHOWN_PATH else f"{path[:SHOWN_PATH]}…"


def _unheard(wait: int) -> TooManyRefused:
    error = TooManyRefused(
        "too many requests from your address were refused lately",
        remedy=f"Wait {wait} s; check key, role and address. The operator sets the limit by refusals_per_s and refusals_burst.",
    )
    error.retry_after_s = wait
    return error


class RequestMiddleware:
    """Wraps the whole application."""

    def __init__(
        self, app: ASGIApp, *, registry: CollectorRegistry, total: Counter, entropy: Entropy, max_body_bytes: int, refusals: Refusals,
        direct: DirectRoutes, gate: Gate | None = None, admit: Admission | None = None, tracing: Tracing | None = None,
    ) -> None:  # fmt: skip
        self._app, self._refusals, self._gate, self._direct = app, refusals, gate, direct
        self._max_body_bytes, self._tracing, self._admit = max_body_bytes, tracing, admit
        self._entropy = entropy
        self._total = total
        self._seconds = REQUEST_SECONDS.histogram(registry, REQUEST_BUCKETS_S)
        # Finding a time series by its labels costs more than adding to it; there are few, by what they are labelled with.
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req-{self._entropy(12).hex()}"  # hex: a tenth of the time of base32
        scope["gput.request_id"] = request_id
        limit = scope["gput.body_limit"] = BodyLimit(self._max_body_bytes)
        status, address = 0, (scope.get("client") or ("unknown", 0))[0]

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        began = time.perf_counter()  # how long, not when: no decision is taken from it
        with bound_contextvars(request_id=request_id, **_about(scope["path"])):
            try:
                unheard = self._unheard(address, scope["path"])
                if unheard is not None:
                    await error_response(unheard, Request(scope))(scope, receive, send_with_id)
                else:
                    await self._heard(limit, scope, receive, send_with_id)
                    self._refusals.answered(address, status)
            except Exception as error:
                _log.error("request failed", method=scope["method"], path=_shown(scope["path"]), exc_info=error)
                if status:  # the answer has begun and cannot become another; the server closes the connection
                    raise
                await unexpected_response(Request(scope))(scope, receive, send_with_id)
            finally:
                self._record(scope, status, time.perf_counter() - began)

    async def _heard(self, limit: BodyLimit, scope: Scope, receive: Receive, send: Send) -> None:
        receive = limit.guard(scope, receive)
        if self._admit is not None and limit.stated > UNASKED_BYTES:
            try:
                await self._admit(Request(scope))
            except GputError as error:
                await error_response(error, Request(scope))(scope, receive, send)
                return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._direct.find(scope)
        if found is None:
            _read_as_signed(scope)
            await self._app(scope, receive, send)
        else:
            route, parameters = found
            await route.serve(parameters, scope, receive, send)

    def _unheard(self, address: str, path: str) -> GputError | None:
        """Why this request is answered unheard, if it is."""
        if path in QUIET_PATHS:
            return None
        if wait := self._refusals.wait_s(address):
            return _unheard(wait)
        try:
            if self._gate is not None and not path.startswith(
                TYPE_PREFIX
            ):  # what an error means is no secret of the leader
                self._gate(path)
        except GputError as error:
            return error
        return None

    def _record(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        path = scope["path"]
        # The route's template, never the path: an id in a label would make a time series per session.
        route = getattr(scope.get("route"), "path", None) or "none"
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._count(method, route, status, seconds)
        # From anybody else it could fill the collector, and add to whatever trace it likes.
        if self._tracing is not None and scope.get("gput.caller", scope.get(BELIEVED)) is not None:
            header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
            self._tracing.request(header.decode("latin-1"), method, route, status, seconds)
        log = _log.debug if path in QUIET_PATHS else _log.info
        log(
            "request",
            method=scope["method"],
            path=_shown(path),
            status=status,
            ms=round(seconds * 1000, 2),
            caller=scope.get("gput.caller"),
        )

    def _count(self, method: str, route: str, status: int, seconds: float) -> None:
        series = self._series.get((method, route, status))
        if series is None:
            series = self._total.labels(method, route, str(status)), self._seconds.labels(route)
            self._series[method, route, status] = series
        series[0].inc()
        series[1].observe(seconds)
