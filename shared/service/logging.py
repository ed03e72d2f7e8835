"""Logs to stderr, JSON or console, with the session, visit and party at hand on every line; secrets and bytes redacted. Knows no service.

What somebody's data might be is never printed: byte strings become their length, values under secret-sounding names become
"[redacted]", texts lose what looks like a key, a token or a password in an address, and what would steer a terminal; an exception becomes
its type and the lines it passed, without its message (which may quote what it choked on).
"""

from __future__ import annotations

import io
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.contextvars import (
    bind_contextvars,
    bound_contextvars,
    clear_contextvars,
    get_contextvars,
    merge_contextvars,
)
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from shared.errors import GputError
from shared.service.printable import printable

REDACTED = "[redacted]"
_SECRET_WORDS = (
    "key", "secret", "token", "body", "password", "authorization", "plaintext", "cookie", "entropy", "private", "database_url",
)  # fmt: skip
# Their messages hold names out of our own source, never data.
_NAMES_ONLY = (NameError, AttributeError, ImportError)
_SECRET_TEXTS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
    r"|(?i:(?<=\bbearer )|(?<=\bbasic ))[\w.~+/=-]{6,}",
    re.DOTALL,
)
# Looked at for every value of every line: a tuple is asked in a fifth of a union's time.
_NUMBERS, _BYTES = (bool, int, float), (bytes, bytearray, memoryview)
_MAPPINGS, _SEQUENCES = (MutableMapping, dict), (list, tuple, set, frozenset)
MAX_DEPTH = 4
MAX_FRAMES = 30

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class _StandardError(io.TextIOBase):
    """Today's sys.stderr, looked up at each write. Whoever replaces it, closes it, or lets its volume run full, must not make every
    request fail: lines that cannot be written are counted, and the count is said once there is room again."""

    def __init__(self) -> None:
        self._lost = 0

    def write(self, text: str) -> int:
        try:
            if self._lost:
                sys.stderr.write(f'{{"event": "log lines were lost", "lines": {self._lost}}}\n')
                sys.stderr.flush()
                self._lost = 0
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # ValueError: it is closed
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Every write is flushed."""

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def configure_logging(
    level: str,
    format: Literal["auto", "json", "console"],
    stream: TextIO | None = None,
    always: Mapping[str, str] | None = None,
) -> None:
    """Sets up structlog and the standard library's root logger, once per process.

    Args:
        format: auto means console on a terminal, else JSON.
        always: what stands on every line of this process that says nothing else under that name, for instance its party.
    """
    say_always = _said_always(always or {})
    out = stream or cast(TextIO, _StandardError())
    number = logging.getLevelNamesMapping()[level.upper()]
    pretty = format == "console" or (format == "auto" and out.isatty())
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty()) if pretty else structlog.processors.JSONRenderer()
    )
    shared: list[Processor] = [
        merge_contextvars,
        say_always,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        explain_exception,
        redact,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    named: list[Processor] = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name]
    foreign = [merge_contextvars, say_always, *named, *shared[3:]]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=foreign,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # libraries speak up only when something is wrong
    logging.captureWarnings(True)


def _said_always(always: Mapping[str, str]) -> Processor:
    said = dict(always)

    def processor(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**said, **event}

    return processor


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `component=name`."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name))


@contextmanager
def bind(**context: str) -> Iterator[None]:
    """Every line logged inside, in this task and its children, carries `context` (session, visit, party)."""
    with bound_contextvars(**context):
        yield


@contextmanager
def bind_afresh(**context: str) -> Iterator[None]:
    """As `bind`, and nothing else: for a task that outlives whatever request happened to start it."""
    before = get_contextvars()
    clear_contextvars()
    try:
        with bound_contextvars(**context):
            yield
    finally:
        clear_contextvars()
        bind_contextvars(**before)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor: secrets by name, bytes by type."""
    return {name: _shown(name, value, 0) for name, value in event.items()}


@lru_cache(1024)
def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def _shown(name: str, value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return REDACTED if _is_secret(name) else printable(_without_secrets(value), but="\n\t")
    if value is None or isinstance(value, _NUMBERS):
        return value
    if isinstance(value, _BYTES):
        return f"<{len(value)} bytes>"
    if _is_secret(name):
        return REDACTED
    if depth < MAX_DEPTH and isinstance(value, _MAPPINGS):
        return {str(inner): _shown(str(inner), item, depth + 1) for inner, item in value.items()}
    if depth < MAX_DEPTH and isinstance(value, _SEQUENCES):
        return [_shown("", item, depth + 1) for item in value]
    return f"<{type(value).__name__}>"  # an object's repr is not under our control


def _without_secrets(text: str) -> str:
    """The text without what looks like a secret. Nothing does in one without a space and without an address, as most are."""
    may_hold_one = " " in text or "://" in text or type(text) is not str
    return _SECRET_TEXTS.sub(REDACTED, text) if may_hold_one else text


def explain_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor: `exc_info` becomes the exception's type and frames; of our own family also the detail."""
    info = _exc_info(event.pop("exc_info", None))
    if info is None:
        return event
    kind, error, trace = info
    event["exception"] = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, GputError):
        event["detail"], event["code"] = error.detail, error.code
    elif isinstance(error, OSError) and error.strerror:
        event["detail"] = error.strerror
    elif isinstance(error, _NAMES_ONLY):
        event["detail"] = str(error)
    event["frames"] = [
        f"{frame.filename.rsplit('/site-packages/')[-1]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(trace)[-MAX_FRAMES:]
    ]
    return event


def _exc_info(value: Any) -> _ExcInfo | None:
    if isinstance(value, BaseException):
        return type(value), value, value.__traceback__
    if isinstance(value, tuple) and value[0] is not None:
        return value
    if value:
        current = sys.exc_info()
        return current if current[0] is not None else None
    return None
