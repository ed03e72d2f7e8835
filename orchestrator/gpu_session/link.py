"""The GPU's orchestrator port over HTTP: carries SPDM messages and command frames. Knows no key; nothing it says is trusted."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.in_clear import in_clear
from shared.errors import BadRequest, GputError, Unavailable
from shared.names import ORCHESTRATOR_PORT
from shared.service.http import PeerClient
from shared.wire.codec import decode, encode
from shared.wire.gpu import CommandFrame

SPDM_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 60.0
HINT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class PublicFacts:
    """What anybody may ask of a GPU: hints only, every one of them is proven elsewhere before it counts."""

    port: str | None
    boot_counter: int
    statement_certificate: bytes


class AgentLink:
    """One GPU's orchestrator port at its agent."""

    def __init__(self, agent: PeerClient, gpu: str) -> None:
        self._agent = agent
        self._base = f"/v1/gpus/{gpu}"
        self._port = f"{self._base}/ports/{ORCHESTRATOR_PORT}"
        self.bytes_out = 0
        self.bytes_in = 0

    async def facts(self) -> PublicFacts:
        """Selected port, boot counter and statement-key certificate.

        Raises:
            Unavailable; code `not-available`: this GPU cannot travel. Conflict: as `in_clear`.
        """
        with in_clear("Who answers for the GPU agent refused"):
            body = await self._agent.get_json(self._base)
        if isinstance(body, dict) and body.get("boot_counter", 0) is None:
            raise Unavailable(
                "The agent serves this GPU's evidence only: its firmware has no travelling command processor",
                code="not-available",
                remedy="Name the agent of a GPU that can travel by the setting agent_url.",
            )
        try:
            port = None if body["port"] is None else str(body["port"])
            return PublicFacts(port, int(body["boot_counter"]), bytes.fromhex(body["statement_certificate"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable("The GPU agent's answer makes no sense", code="peer-malformed") from error

    async def memory_bytes(self) -> int | None:
        """What the agent says a session may allocate on the GPU, where it answers at once: a hint for who submits; the GPU decides."""
        try:
            return int((await self._agent.get_json(self._base, attempts=1, timeout_s=HINT_TIMEOUT_S))["memory_bytes"])
        except (GputError, KeyError, TypeError, ValueError):
            return None

    async def spdm(self, message: bytes) -> bytes:
        """One SPDM message and its answer. Never repeated: SPDM has state. Raises: Unavailable. BadRequest. Conflict: as `in_clear`."""
        with in_clear("Who answers for the GPU agent refused", counts=(BadRequest,)):
            return await self._agent.post_bytes(
                f"{self._port}/spdm", message, "application/octet-stream", timeout_s=SPDM_TIMEOUT_S
            )

    async def commands(self, frame: CommandFrame) -> CommandFrame:
        """One batch and its answer. A lost connection is met with the same bytes again (the GPU answers them as before)."""
        body = encode(frame)
        self.bytes_out += len(body)
        answer = await self._agent.post_bytes(
            f"{self._port}/commands", body, "application/cbor", timeout_s=COMMAND_TIMEOUT_S,
            idempotency_key=f"frame-{frame.life}-{frame.n}",
        )  # fmt: skip
        self.bytes_in += len(answer)
        return decode(CommandFrame, answer)
