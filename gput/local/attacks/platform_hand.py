"""HOSTILE CODE (attack tour): the platform's own hand on the MUX, by its register or its own key. Knows no visit key and no plaintext.

The platform is untrusted, so it needs no flaw to do this: it may bind the GPU to any port whenever it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx2

from gpu_agent.mux_register import MuxRegister
from gput.local.attacks.result import Said
from shared.crypto.signing import PartyKey
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth

GPU_AGENT = "GPU agent"


class PlatformHand:
    """Binds the GPU to any port, and puts any bytes on a port. `agent()`: the agent's address; `register`: the MUX's, where it has one."""

    def __init__(self, key: Path, agent: Callable[[], str], gpu: str, register: Path | None = None) -> None:
        self._agent, self._gpu, self._register = agent, gpu, register
        auth = SignedAuth(PartyKey.load(key), system_clock, system_entropy)
        self._platform = httpx2.AsyncClient(auth=auth, trust_env=False)
        self._outsider = httpx2.AsyncClient(trust_env=False)

    async def bind(self, port: str | None) -> None:
        """Bind the GPU; in force when it returns. Raises: httpx2.HTTPStatusError; OSError: the register cannot be written."""
        if self._register is not None:
            with closing(MuxRegister(self._register)) as register:
                register.select(port)
            return
        answer = await self._platform.put(f"{self._agent()}/v1/platform/gpus/{self._gpu}/mux", json={"port": port})
        answer.raise_for_status()

    async def put(self, port: str, door: str, body: bytes) -> Said:
        """Put bytes on a door of a port; what the agent said."""
        url = f"{self._agent()}/v1/gpus/{self._gpu}/ports/{port}/{door}"
        answer = await self._outsider.post(url, content=body, headers={"content-type": "application/octet-stream"})
        if answer.is_success:
            return Said(GPU_AGENT, "accepted", "the bytes were taken")
        problem = answer.json()
        return Said(GPU_AGENT, str(problem["code"]), str(problem["detail"]))

    async def close(self) -> None:
        """Close both clients."""
        await self._platform.aclose()
        await self._outsider.aclose()
