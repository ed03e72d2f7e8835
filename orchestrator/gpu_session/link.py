"""The GPU's orchestrator port over HTTP: carries SPDM messages and command frames. Knows no key; nothing it says is trusted."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.in_clear import in_clear
from shared.errors import BadRequest, GputError, Unavailable
from shared.names import ORCHESTRATOR_PORT, PORT_PATTERN
from shared.service.http import PeerClient
from shared.wire.codec import decode, encode
from shared.wire.gpu import CommandFrame

SPDM_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 60.0
HINT_TIMEOUT_S = 2.0
MAX_NUMBER: Final = 2**53 - 1
"""The largest that has a canonical JSON form (RFC 7493 2.2)."""
MAX_CERTIFICATE_DIGITS: Final = 8192
"""Hex digits of a statement-key certificate; one has some 500."""


class PublicFacts(BaseModel):
    """What anybody may ask of a GPU: hints only, every one of them is proven elsewhere before it counts. Whatever else may stand there,
    nothing is kept that the journal could not write down.

    `boot_counter`: the next one is claimed, and has a form as well.
    """

    # Strict: a number is none where its text, or what a float stands for, can be taken for one.
    model_config = ConfigDict(frozen=True, strict=True)

    port: Annotated[str, Field(pattern=PORT_PATTERN)] | None
    boot_counter: Annotated[int, Field(ge=0, lt=MAX_NUMBER)]
    statement_certificate: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=MAX_CERTIFICATE_DIGITS)]

    @property
    def certificate(self) -> bytes:
        """COSE_Sign1 by the device's leaf over its statement key, if that is what it is."""
        return bytes.fromhex(self.statement_certificate)


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
            Unavailable; code `not-available`: this GPU cannot travel; `peer-malformed`: nobody's GPU says that. Conflict: as `in_clear`.
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
            return PublicFacts.model_validate(body)
        except ValidationError:  # which repeats what was said
            raise Unavailable("The GPU agent's answer makes no sense", code="peer-malformed") from None

    async def memory_bytes(self) -> int | None:
        """What the agent says a session may allocate on the GPU, where it answers at once: a hint for who submits; the GPU decides."""
        try:
            body: Any = await self._agent.get_json(self._base, attempts=1, timeout_s=HINT_TIMEOUT_S)
        except GputError:
            return None
        said = body.get("memory_bytes") if isinstance(body, dict) else None
        return said if type(said) is int and 0 <= said <= MAX_NUMBER else None

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
