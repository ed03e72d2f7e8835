"""`python -m gput.local.transfer.plain`: the agent's server without an agent, for `gput bench transfer`: it takes bodies and looks at none.

The same server, application and settings as every service, and a route like the port's: what it moves is what that server can.
"""

from __future__ import annotations

import sys

from fastapi import APIRouter, FastAPI
from pydantic_settings import SettingsConfigDict
from starlette.requests import Request
from starlette.responses import Response

from gpu_agent.bodies import taken
from shared.service.app import add_routes, create_service_app
from shared.service.heap import keep_freed_memory
from shared.service.server import service_main
from shared.service.settings import ServiceSettings
from shared.wire.codec import encode
from shared.wire.copy import CopyAck


class PlainSettings(ServiceSettings):
    """The bench's server that takes bytes."""

    model_config = SettingsConfigDict(env_prefix="GPUT_BENCH_PLAIN_", extra="forbid")


def create_app(settings: PlainSettings, base_url: str) -> FastAPI:
    """One route."""
    app = create_service_app("bench server", "1", settings=settings, base_url=base_url)
    router = APIRouter(prefix="/v1/gpus/{gpu}/ports/{port}")

    @router.post("/copy", response_class=Response)
    async def copy(gpu: str, port: str, request: Request) -> Response:
        """What looks like copy records, taken as the port takes them and forgotten."""
        received = await taken(request, _length)
        return Response(encode(CopyAck(index=0, received=received, published=False)), media_type="application/cbor")

    add_routes(app, router)
    return app


async def _length(record: bytes | memoryview) -> int:
    return len(record)


if __name__ == "__main__":
    keep_freed_memory()
    sys.exit(service_main(PlainSettings, create_app))
