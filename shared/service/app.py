"""A service application with everything every service has: probes, metrics, problems, ids, limits, OpenAPI. Knows no service's routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, GCCollector, ProcessCollector, generate_latest

from shared.errors import ConfigurationError, GputError, NotFound
from shared.service.changes import Stopping
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.direct import DirectRoutes
from shared.service.idempotency import document_replies
from shared.service.logging import get_logger
from shared.service.metrics import OTHER, REQUESTS, StoreCollector
from shared.service.metrics_port import served_apart
from shared.service.middleware import Admission, Gate, RequestMiddleware
from shared.service.pagination import document_pages
from shared.service.problem_pages import problem_pages
from shared.service.problems import MEDIA_TYPE, PROBLEM_SCHEMA, install_problems, problem, problem_response
from shared.service.refusals import Refusals
from shared.service.replay import ReplayWindow
from shared.service.settings import ServiceSettings
from shared.service.signatures import KeyResolver
from shared.service.state import BearerResolver, Check, ServiceState, service_state
from shared.service.store import Store
from shared.service.tracing import Tracing

CHECK_S = 5.0
"""How long one readiness check may take: who asks must hear something while a database or a disk hangs."""
SHORT_BODY = 16 * 1024
"""The longest body of a service whose JSON says no more than a port, a nonce or a key."""
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_log = get_logger("service")


def create_service_app(
    title: str,
    version: str,
    *,
    settings: ServiceSettings,
    store: Store | None = None,
    checks: Mapping[str, Check] | None = None,
    lifespan: Lifespan | None = None,
    keys: KeyResolver | None = None,
    replay: ReplayWindow | None = None,
    bearer: BearerResolver | None = None,
    base_url: str | None = None,
    clock: Clock = system_clock,
    entropy: Entropy = system_entropy,
    gate: Gate | None = None,
    admit: Admission | None = None,
    longest_body: int | None = None,
) -> FastAPI:
    """An application to add routers to. Its lifespan opens store and replay window, runs `lifespan`, then stops and closes.

    Args:
        checks: name -> what must hold for the service to be ready; the store's own check is added.
        keys, replay: verify signed requests; needed by `signed_caller` and what builds on it.
        base_url: scheme://host:port under which callers reach this service and for which they sign.
        gate: says when nobody but the probes is answered.
        admit: says by a long body's head whether it will be read (`admit_body` where all of them are signed).
        longest_body: bytes of the longest that any route takes, unless it raises the limit itself, where that is less than the setting:
            JSON is taken apart before anybody looks at who sent it.

    Raises:
        ConfigurationError: keys without a replay window or an address, which would accept requests meant for others.
    """
    state = ServiceState(
        settings=settings,
        stopping=Stopping(),
        registry=_registry(store),
        clock=clock,
        entropy=entropy,
        store=store,
        checks={**({"database": store.check} if store is not None else {}), **(checks or {})},
        keys=keys,
        replay=replay,
        bearer=bearer,
        base_urls=_base_urls(keys, replay, base_url, settings),
        tracing=Tracing.to(settings.otlp_endpoint, title, settings.otlp_headers_file),
    )
    return _furnished(_bare_app(title, version, _lifespan(state, lifespan)), state, gate, admit, longest_body)


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """The router's routes, as they were made: ours have no prefix and inherit nothing.

    `include_router` would make each of them anew for every application (3 ms a route, a quarter of a second of a service's start) and
    match every request twice.
    """
    app.router.routes.extend(router.routes)
    direct: DirectRoutes = app.state.direct
    direct.add(router.routes)


def _furnished(
    app: FastAPI, state: ServiceState, gate: Gate | None, admit: Admission | None, longest_body: int | None
) -> FastAPI:
    app.state.service, app.state.direct = state, DirectRoutes()
    most = min(state.settings.max_body_bytes, longest_body or state.settings.max_body_bytes)
    refusals = Refusals(state.settings.refusals_per_s, state.settings.refusals_burst, state.clock)
    total = REQUESTS.counter(state.registry)

    def unparsed(address: str, status: int) -> None:
        refusals.answered(address, status)
        total.labels(OTHER, "none", str(status)).inc()

    state.unparsed = unparsed
    app.add_middleware(
        RequestMiddleware, registry=state.registry, entropy=state.entropy, max_body_bytes=most,
        total=total, refusals=refusals, direct=app.state.direct, gate=gate, admit=admit, tracing=state.tracing,
    )  # fmt: skip
    install_problems(app)
    add_routes(app, _probes(state, app.title, app.version))
    add_routes(app, problem_pages())
    _install_openapi(app)
    return app


def _bare_app(title: str, version: str, lifespan: Lifespan) -> FastAPI:
    return FastAPI(
        title=title,
        version=version,
        lifespan=lifespan,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from the internet
        redoc_url=None,
        redirect_slashes=False,  # it would send the caller to whatever host it named, by plain http
        # Exporters could be turned on by an environment that the untrusted platform controls, and carry exception texts away.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )


def _base_urls(
    keys: KeyResolver | None, replay: ReplayWindow | None, base_url: str | None, settings: ServiceSettings
) -> tuple[str, ...]:
    urls = tuple(url.rstrip("/") for url in (base_url, *settings.public_urls) if url)
    if keys is not None and (replay is None or not urls):
        raise ConfigurationError(
            "a service that verifies signed requests needs a replay window and its own address",
            remedy="Set public_url, or build the application through serve().",
        )
    return urls


def _registry(store: Store | None) -> CollectorRegistry:
    """A registry of the application's own, so that several applications can live in one process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    if store is not None:
        registry.register(StoreCollector(store))
    return registry


def _lifespan(state: ServiceState, inner: Lifespan | None) -> Lifespan:
    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            settings = state.settings
            stack.enter_context(served_apart(state.registry, settings.metrics_host, settings.metrics_port))
            if state.tracing is not None:
                stack.push_async_callback(asyncio.to_thread, state.tracing.close)
            if state.store is not None:
                await state.store.open()
                stack.push_async_callback(state.store.close)
            if state.replay is not None:
                await state.replay.open()
            if inner is not None:
                await stack.enter_async_context(inner(app))
            # Last in, first out: waiting requests are told to end before anything is closed.
            stack.callback(state.stopping.set)
            yield

    return run


def _probes(state: ServiceState, title: str, version: str) -> APIRouter:
    router = APIRouter(tags=["probes"])

    @router.get("/livez", summary="The process runs")
    async def livez() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/readyz", summary="The service can do its work now")
    async def readyz(request: Request) -> Response:
        words = await asyncio.gather(*(_result(name, check) for name, check in state.checks.items()))
        results = dict(zip(state.checks, words, strict=True))
        if state.stopping.is_set:
            results["running"] = "the service is stopping"
        failed = sorted(name for name, result in results.items() if result != "ok")
        if not failed:
            return JSONResponse({"status": "ready", "checks": results})
        detail = f"not ready: {', '.join(failed)}"
        return problem_response(problem(503, "not-ready", "Unavailable", detail, request, checks=results))

    @router.get("/version", summary="Name and version of the service")
    async def version_() -> dict[str, str]:
        return {"service": title, "version": version}

    @router.get("/metrics", summary="Prometheus metrics", include_in_schema=False)
    async def metrics() -> Response:
        if state.settings.metrics_port is not None:
            raise NotFound("the metrics are served at a port of their own", remedy="Ask there: setting metrics_port.")
        return Response(generate_latest(state.registry), media_type=CONTENT_TYPE_LATEST)

    return router


async def _result(name: str, check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_S:.0f} s"
    except GputError as error:
        return error.advice
    except Exception as error:  # a check that breaks is a check that fails; why stands in the log
        _log.error("readiness check broke", check=name, exc_info=error)
        return "the check itself failed; see the log"
    return "ok"


def _install_openapi(app: FastAPI) -> None:
    """Documents what every service answers alike: problems (in place of FastAPI's own validation shape), pages, repeated keys."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_manners(
                get_openapi(
                    title=app.title, version=app.version, routes=app.routes, openapi_version=app.openapi_version
                )
            )
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to change the schema


def _with_manners(schema: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "Problem", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path in schema.get("paths", {}).values():
        for operation in path.values():
            responses = operation["responses"]
            responses.pop("422", None)
            responses["4XX"] = responses["5XX"] = answer
            document_pages(operation)
            document_replies(operation, answer)
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas["Problem"] = PROBLEM_SCHEMA
    return schema


__all__ = ["SHORT_BODY", "Lifespan", "ServiceState", "create_service_app", "service_state"]
