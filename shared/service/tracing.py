"""One OpenTelemetry trace per visit, its spans by step, sent by OTLP over HTTP where an operator asks for it. Knows no step and no service.

Off unless `otlp_endpoint` is set. A trace's id follows from the visit's, so all services of a visit add to one trace though nobody passes
it on; W3C `traceparent` says the same to others, and counts only from callers that were believed. Attributes are those
of `ALLOWED` and no more: no holder, no detail, no text of anybody's.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shared.errors import ConfigurationError, installing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

ALLOWED: Final = frozenset({
    "gput.session", "gput.visit", "gput.round", "gput.attempt", "gput.outcome", "http.request.method", "http.route",
    "http.response.status_code",
})  # fmt: skip
TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
HEADER: Final = re.compile(r"([A-Za-z0-9-]{1,64}):[ \t]*([!-~](?:[ -~]*[!-~])?)[ \t]*")
QUEUE, BATCH, EXPORT_S = 2048, 256, 5.0
_SAMPLED: Final = 1


@dataclass(frozen=True)
class Place:
    """One span: of which trace, and itself."""

    trace: int
    span: int

    @classmethod
    def of_visit(cls, visit: str) -> Place:
        """The visit's own span, the root of its trace: the same to whoever knows the visit's id."""
        digest = sha256(b"gput/trace/1\0" + visit.encode()).digest()
        return cls(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1)

    def child(self, name: str) -> Place:
        """A part of it, by a name that is unique among its parts."""
        digest = sha256(b"gput/span/1\0" + self.trace.to_bytes(16) + self.span.to_bytes(8) + name.encode()).digest()
        return Place(self.trace, int.from_bytes(digest[:8]) or 1)

    @classmethod
    def of_header(cls, text: str) -> Place | None:
        """What a `traceparent` names, if it is one and its trace is recorded."""
        found = TRACEPARENT.fullmatch(text)
        if found is None or not int(found[3], 16) & _SAMPLED:
            return None
        return cls(int(found[1], 16), int(found[2], 16))

    @property
    def header(self) -> str:
        """As `traceparent`."""
        return f"00-{self.trace:032x}-{self.span:016x}-{_SAMPLED:02x}"


def outgoing() -> dict[str, str]:
    """The header for a request that this task makes on behalf of a visit."""
    # Importing structlog takes as long as half a command; a process that has not done it, as the command line, has bound no visit.
    bound = sys.modules.get("structlog.contextvars")
    visit = None if bound is None else bound.get_contextvars().get("visit")
    return {} if visit is None else {"traceparent": Place.of_visit(visit).header}


class Tracing:
    """Sends spans. They are made when what they tell of is over, so nothing waits for them and a broken collector stops nobody."""

    def __init__(self, service: str, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._resource, self._scope = Resource({"service.name": service}), InstrumentationScope("gpu-travelling")
        with _settings_only():
            self._sender: Any = BatchSpanProcessor(
                exporter, max_queue_size=QUEUE, schedule_delay_millis=1000, max_export_batch_size=BATCH,
                export_timeout_millis=EXPORT_S * 1000,
            )  # fmt: skip

    @classmethod
    def to(cls, endpoint: str | None, service: str, headers_file: Path | None = None) -> Tracing | None:
        """Spans by OTLP over HTTP to the collector at `endpoint`; None: nothing is traced. `headers_file`: as `read_headers`.

        Raises:
            ConfigurationError: code `no-opentelemetry`: the extra is not installed; `otlp-headers`.
        """
        if endpoint is None:
            return None
        headers = {} if headers_file is None else read_headers(headers_file)
        try:
            import requests
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            raise ConfigurationError(
                "otlp_endpoint is set, and OpenTelemetry is not installed", code="no-opentelemetry",
                remedy=f"Install the extra `tracing` ({installing('tracing')}), or unset otlp_endpoint.",
            ) from None  # fmt: skip
        session = requests.Session()
        session.trust_env = False  # no proxy, no password of somebody's ~/.netrc
        with _settings_only():
            address = f"{endpoint.rstrip('/')}/v1/traces"
            exporter = OTLPSpanExporter(address, headers=headers, timeout=EXPORT_S, session=session)
        return cls(service, exporter)

    def span(self, place: Place, parent: Place | None, name: str, began: float, ended: float, **about: Any) -> None:
        """One span that is over. `began`, `ended`: seconds since 1970. `about`: attributes by name; what is not allowed is left out."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanKind

        self._sender.on_end(
            ReadableSpan(
                name=name,
                context=_context(place),
                parent=None if parent is None else _context(parent),
                kind=SpanKind.INTERNAL,
                resource=self._resource,
                attributes=allowed(about),
                instrumentation_scope=self._scope,
                start_time=int(began * 1e9),
                end_time=int(max(began, ended) * 1e9),
            )
        )

    def steps(self, parent: Place, prefix: str, durations: Mapping[str, float], ended: float) -> None:
        """Spans one after the other that together end at `ended`."""
        began = ended - sum(durations.values())
        for name, seconds in durations.items():
            self.span(parent.child(prefix + name), parent, prefix + name, began, began + seconds)
            began += seconds

    def request(self, header: str, method: str, route: str, status: int, seconds: float) -> None:
        """A request that was made on behalf of a traced visit."""
        parent = Place.of_header(header)
        if parent is not None:
            now = time.time()
            about = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            place = parent.child(f"{method} {route} {time.perf_counter_ns()}")
            self.span(place, parent, f"{method} {route}", now - seconds, now, **about)

    def close(self) -> None:
        """Send what is left, for some seconds at most."""
        self._sender.shutdown()


@contextmanager
def _settings_only() -> Iterator[None]:
    """No `OTEL_*` variable inside the block. What it is not told the SDK takes from an environment that the platform controls, some of it
    (headers, certificates, metrics of its own) whatever it is told. At a service's start, before there is another thread."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("OTEL_")}
    try:
        yield
    finally:
        os.environ.update(taken)


def read_headers(path: Path) -> dict[str, str]:
    """Headers for the collector, a line `NAME: VALUE` each: its API key, as a rule.

    Raises:
        ConfigurationError: code `otlp-headers`; no value is repeated.
    """
    remedy = "Write one line NAME: VALUE for each header of the collector, or unset otlp_headers_file."
    try:
        lines = [line for line in path.read_text("ascii").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise ConfigurationError(
            f"otlp_headers_file {path} cannot be read: {why}", code="otlp-headers", remedy=remedy
        ) from None
    found = [HEADER.fullmatch(line) for line in lines]
    wrong = [number for number, each in enumerate(found, 1) if each is None]
    if wrong:
        detail = f"otlp_headers_file {path} has no header in its line {wrong[0]}"
        raise ConfigurationError(detail, code="otlp-headers", remedy=remedy)
    return {each[1]: each[2] for each in found if each is not None}


def allowed(about: Mapping[str, Any]) -> dict[str, str | int]:
    """The attributes that may leave: by name, and plain values only."""
    return {
        name: value[:128] if isinstance(value, str) else value
        for name, value in about.items()
        if name in ALLOWED and isinstance(value, str | int)
    }


def _context(place: Place) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(place.trace, place.span, is_remote=False, trace_flags=TraceFlags(_SAMPLED))
