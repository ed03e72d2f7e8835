"""Stock firmware's command path on a holder's port: what a visit key of travel mode `paper` opens. Knows no session and no region.

It obeys as a stock GPU does: any address, either direction, any code. What holds a holder back is none of its business: random addresses,
the fence, the sweep and the read-back after it are.
"""

from __future__ import annotations

from typing import Any

from gpu_agent.hardware.compute import Compute, Launch
from gpu_agent.hardware.grants import GrantTable, LiveGrant
from gpu_agent.hardware.hbm import HBM, Extent
from shared.canonical import blake3_256
from shared.claims.archive import MAX_ARCHIVE_BYTES
from shared.errors import BadRequest, GputError, LimitExceeded, NotPermitted, Refused
from shared.wire.codec import decode, decode_all, encode
from shared.wire.stock import (
    MAX_STOCK_FRAME,
    STOCK,
    CopyMemory,
    LaunchProgram,
    ReadMemory,
    StockAnswer,
    StockFrame,
    WriteMemory,
)


class StockFirmware:
    """All of memory and compute, for whoever holds a living key to them."""

    def __init__(self, hbm: HBM, compute: Compute, grants: GrantTable) -> None:
        self._hbm, self._compute, self._grants = hbm, compute, grants
        # Whose key spoke last, and what its last launch may yet touch for the first time.
        self._epoch, self._launched = 0, list[Extent]()

    def frame(self, port: str, data: bytes, now: float) -> bytes:
        """The answer frame to one command frame. `now`: seconds since 1970.

        Raises:
            NotPermitted `wrong-port`: this port has no command path. Refused: the grant expired.
            BadRequest, LimitExceeded, ProtocolViolation, VerificationFailed: no frame of the living key in order. Nothing changed.
            Whatever is wrong with what a frame in order says is answered, sealed: both sides count frames.
        """
        if len(data) > MAX_STOCK_FRAME:
            raise LimitExceeded(f"a frame has at most {MAX_STOCK_FRAME} bytes", code="frame-too-large")
        self.require(port)
        frame = decode(StockFrame, data)
        live, channel = self._living(port, frame.epoch, now)
        payload = channel.open(frame.n, frame.ct)
        if live.grant.epoch != self._epoch:  # what an older key launched died at its fence
            self._epoch, self._launched = live.grant.epoch, []
        n, ct = channel.seal(encode(self._answer(payload)))
        return encode(StockFrame(epoch=live.grant.epoch, n=n, ct=ct))

    def require(self, port: str) -> None:
        """This port has a command path now. Raises: NotPermitted `wrong-port`."""
        if not any(live.stock is not None and live.grant.port == port for live in self._grants.all()):
            raise NotPermitted("commands come on the orchestrator's port only", code="wrong-port")

    def _living(self, port: str, epoch: int, now: float) -> tuple[LiveGrant, Any]:
        live = self._grants.of_epoch(epoch)
        if live is None or live.stock is None or live.grant.port != port:
            raise NotPermitted(f"epoch {epoch} commands nothing on port {port!r}", code="no-grant")
        if now >= live.grant.expires_at:
            raise Refused("the grant has expired", code="grant-expired")
        return live, live.stock

    def _answer(self, payload: bytes) -> StockAnswer:
        try:
            commands = decode_all(STOCK, payload)
            if len(commands) != 1:
                raise BadRequest(
                    "a frame of stock firmware's carries one command", expected="1", got=str(len(commands))
                )
            return StockAnswer(data=self._obey(commands[0]))
        except GputError as error:
            return StockAnswer(code=error.code, detail=error.detail)

    def _obey(self, command: Any) -> bytes:
        match command:
            case WriteMemory():
                self._write(command.address, command.data)
            case ReadMemory():
                return self._hbm.peek(command.address, command.length)
            case CopyMemory():
                self._write(command.target, self._hbm.peek(command.source, command.length))
            case LaunchProgram():
                self._compute.start(self._launch(command))
        return b""

    def _write(self, address: int, data: bytes) -> None:
        self._hbm.require_backed([*self._launched, Extent(address, len(data))])
        self._hbm.poke(address, data)

    def _launch(self, command: LaunchProgram) -> Launch:
        spans = (command.code, command.model, command.gradients, command.optimiser, command.committed, command.data)
        extents = [Extent(span.address, span.length) for span in spans]
        code, model, gradients, optimiser, committed, records = extents
        if code.length > MAX_ARCHIVE_BYTES:
            raise LimitExceeded(f"an archive has at most {MAX_ARCHIVE_BYTES} bytes", code="archive-too-large")
        # All together, and with what an older launch may still be about to touch: compute touches every page of them, and asks nobody.
        self._hbm.require_backed([*self._launched, *extents])
        self._launched = extents
        # The digest names the code to the compute engines; here it is of whatever lies there.
        digest = blake3_256(self._hbm.peek(code.address, code.length)).hex()
        return Launch(
            kind=command.kind, code=code, code_digest=digest, model=model, gradients=gradients, optimiser=optimiser,
            committed=committed, data=records, records=command.records, first_step=command.first_step, steps=command.steps,
            total_steps=command.total_steps, options=command.options.model_dump(mode="json"),
        )  # fmt: skip
