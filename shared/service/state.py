"""What one running service application consists of, kept at `app.state.service`. Knows no route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry

from shared.service.changes import Stopping
from shared.service.clock import Clock, Entropy
from shared.service.crowd import Unparsed
from shared.service.cursors import Cursors
from shared.service.replay import ReplayWindow
from shared.service.settings import ServiceSettings
from shared.service.signatures import Caller, KeyResolver
from shared.service.store import Store
from shared.service.tracing import Tracing
from shared.service.waits import Waits

BearerResolver = Callable[[str], Awaitable[Caller | None]]
"""A bearer token -> the person it was given to; such a caller may only read."""

Check = Callable[[], Awaitable[None]]
"""Raises `Unavailable` when the service could not do its work now."""


@dataclass
class ServiceState:
    """The parts that handlers and dependencies reach for. `cursors` come once their key is there; only a service with lists has them."""

    settings: ServiceSettings
    stopping: Stopping
    registry: CollectorRegistry
    clock: Clock
    entropy: Entropy
    store: Store | None
    checks: Mapping[str, Check]
    keys: KeyResolver | None
    replay: ReplayWindow | None
    bearer: BearerResolver | None
    base_urls: tuple[str, ...]
    cursors: Cursors | None = None
    tracing: Tracing | None = None
    unparsed: Unparsed | None = None
    waits: Waits = field(default_factory=Waits)


def service_state(source: Request | FastAPI) -> ServiceState:
    """The state of the application that serves `source`."""
    app = source if isinstance(source, FastAPI) else source.app
    state: ServiceState = app.state.service
    return state
