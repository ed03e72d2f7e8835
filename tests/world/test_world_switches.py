"""When the GPU is sent on and called back: before what nobody waits for is done."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Request, Response

from orchestrator.api import holders
from orchestrator.platform_link import Mux
from orchestrator.visits import epilogue
from shared.names import ORCHESTRATOR_PORT
from tests.world.test_world_order import RARELY, VISITS, all_ready
from tests.world.world import NewWorld

pytestmark = pytest.mark.usefixtures(all_ready.__name__)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Switches as they are asked for, holders' words as they are answered, visits as what came of them is looked at."""
    heard: list[str] = []
    bind, deliver, settle = Mux._bind, holders._deliver, epilogue.settle_closed

    async def asked(mux: Mux, port: str) -> None:
        heard.append("called back" if port == ORCHESTRATOR_PORT else "sent on")
        await bind(mux, port)

    async def answered(request: Request, visit: str, kind: Any) -> Response:
        response = await deliver(request, visit, kind)
        heard.append("answered")
        return response

    def settled(*arguments: Any) -> None:
        heard.append("settled")
        settle(*arguments)

    monkeypatch.setattr(Mux, "_bind", asked)
    monkeypatch.setattr(holders, "_deliver", answered)
    monkeypatch.setattr(epilogue, "settle_closed", settled)
    return heard


async def test_the_gpu_is_called_back_before_its_holder_is_answered_and_sent_on_before_the_visit_is_settled(
    new_world: NewWorld, heard: list[str]
) -> None:
    async with new_world(settings=RARELY) as world:
        await world.completed(await world.submit())
    # A life begins with the GPU at home, wherever it was.
    back, on = ["called back", "answered"], ["sent on", "settled"]
    assert heard == ["called back", "sent on", *(back + on) * (VISITS - 1), *back, "settled"]
