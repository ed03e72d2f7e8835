"""Metrics at a port of their own, for who scrapes and may not reach the API. Knows no metric.

On a thread and a loop of its own, so that a scrape holds up no request, and behind the same guard as the API (`connection`) with fewer
places: whoever opens connections here and says nothing takes none of the descriptors that the service needs.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app

from shared.errors import ConfigurationError
from shared.service.connection import guarded
from shared.service.logging import get_logger

MAX_CONNECTIONS: Final = 32
GRACEFUL_S: Final = 1

_log = get_logger("metrics")


@contextmanager
def served_apart(registry: CollectorRegistry, host: str, port: int | None) -> Iterator[None]:
    """While inside, the metrics are served at a port of their own, if there is one (0: a free one, which the log names).

    Raises:
        ConfigurationError: code `port-in-use`.
    """
    if port is None:
        yield
        return
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        raise ConfigurationError(
            f"the metrics cannot be served at {host}:{port}: {error.strerror}", code="port-in-use",
            remedy="Choose another metrics_port, or unset it.",
        ) from None  # fmt: skip
    with listener:
        server = uvicorn.Server(_config(registry))
        thread = threading.Thread(target=_serve, args=(server, listener), name="metrics", daemon=True)
        thread.start()
        shown = f"[{host}]" if ":" in host else host
        _log.info("metrics are served apart", address=f"http://{shown}:{listener.getsockname()[1]}/metrics")
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _config(registry: CollectorRegistry) -> uvicorn.Config:
    return uvicorn.Config(
        make_asgi_app(registry),
        http=guarded(MAX_CONNECTIONS),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACEFUL_S,
    )


def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))
