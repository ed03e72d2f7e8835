"""Asking the platform to switch the MUX. Nothing secret depends on the platform doing it right. Knows no GPU command."""

from __future__ import annotations

from orchestrator.in_clear import in_clear
from shared.names import ORCHESTRATOR_PORT, holder_port
from shared.service.http import PeerClient


class Mux:
    """One GPU's multiplexer, switched by signed requests."""

    def __init__(self, platform: PeerClient, gpu: str) -> None:
        self._platform, self._gpu = platform, gpu

    async def to_holder(self, holder: str) -> None:
        """The GPU appears at the holder's port. Raises: Unavailable, Conflict."""
        await self._bind(holder_port(holder))

    async def home(self) -> None:
        """The GPU appears at the orchestrator's port again. Raises: Unavailable, Conflict."""
        await self._bind(ORCHESTRATOR_PORT)

    async def _bind(self, port: str) -> None:
        with in_clear("Who answers for the platform did not switch"):
            await self._platform.put_json(f"/v1/gpus/{self._gpu}/mux", {"port": port})
