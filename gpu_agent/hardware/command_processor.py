"""Command processor: opens frames of the orchestrator's channel, runs their commands in order, seals the answers.

What each command needs is the table at the foot; handlers live one family to a file. Knows no HTTP, no SPDM message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_agent.hardware import commands_mixture as mixture
from gpu_agent.hardware import commands_setup as setup
from gpu_agent.hardware import commands_tour as tour
from gpu_agent.hardware import commands_transfer as transfer
from gpu_agent.hardware import commands_visit as visit
from gpu_agent.hardware import commands_work as work
from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.key_store import KeyStore
from gpu_agent.hardware.state import GpuState, Need
from gpu_agent.hardware.sweep import sweep
from shared.canonical import sha256
from shared.crypto.command_channel import CommandChannel
from shared.errors import BadRequest, GputError, LimitExceeded, ProtocolViolation
from shared.wire import gpu, gpu_answers
from shared.wire.codec import decode, decode_all, encode, encode_all

H2D_BULK, D2H_BULK = "Lce00_h2d_kernel", "Lce00_d2h_kernel"


class CommandProcessor:
    """One life's channel at a time.

    Args:
        report: told of faults that are bugs, not refusals; the peer sees only their type.
    """

    def __init__(self, state: GpuState, report: Callable[[BaseException], None]) -> None:
        self._state, self._report = state, report
        self._channel: CommandChannel | None = None
        self._keys: KeyStore | None = None
        self._last: tuple[bytes, bytes] | None = None

    def new_life(self, export_master_secret: bytes) -> None:
        """Take the keys of the life that `state` has just begun; those of the older one are gone."""
        self.erase()
        self._keys = KeyStore(export_master_secret, self._state.entropy)
        self._channel = CommandChannel(export_master_secret, self._state.life, "gpu")

    def erase(self) -> None:
        """Forget all keys, and the last answer."""
        self._erase_keys()
        self._last = None

    def _erase_keys(self) -> None:
        if self._channel is not None:
            self._channel.erase()
        if self._keys is not None:
            self._keys.erase()
        self._channel = self._keys = None

    def frame(self, data: bytes) -> bytes:
        """A frame's answer. A byte-identical repeat of the last frame gets the very same bytes.

        Raises:
            BadRequest, LimitExceeded, ProtocolViolation, VerificationFailed: no frame of this life in order. Nothing changed.
        """
        if len(data) > gpu.MAX_FRAME_BYTES:
            raise LimitExceeded(f"a frame has at most {gpu.MAX_FRAME_BYTES} bytes", code="frame-too-large")
        fingerprint = sha256(data)
        if self._last is not None and self._last[0] == fingerprint:
            return self._last[1]
        frame, channel = decode(gpu.CommandFrame, data), self._channel
        if channel is None:
            raise ProtocolViolation("the GPU has no life: open an SPDM session first", code="no-life")
        payload, records = channel.open(frame.life, frame.n, frame.ct, frame.bulk)
        bulk = Bulk(records)
        answers = self._batch(payload, bulk)
        n, ct, sealed = channel.seal(encode_all(answers), bulk.answer)
        answer = encode(gpu.CommandFrame(life=channel.life, n=n, ct=ct, bulk=sealed))
        self._last = (fingerprint, answer)
        if self._state.life == 0:  # the session ended in this batch; its last answer may still be repeated
            self._erase_keys()
        return answer

    def _batch(self, payload: bytes, bulk: Bulk) -> list[Any]:
        """Answers in order; the first failure is the last answer."""
        try:
            commands = decode_all(gpu.COMMANDS, payload)
        except BadRequest as error:
            return [gpu_answers.Failure(code=error.code, detail=error.detail)]
        answers: list[Any] = []
        for command in commands:
            try:
                answers.append(self._run(command, bulk))
            except GputError as error:
                answers.append(gpu_answers.Failure(code=error.code, detail=_explained(error)))
                break
            except Exception as error:  # a bug: the channel must stay in step, so the peer gets an answer all the same
                self._report(error)
                answers.append(gpu_answers.Failure(code="internal", detail=f"the GPU failed ({type(error).__name__})"))
                break
        return answers

    def _run(self, command: Any, bulk: Bulk) -> Any:
        entry = COMMANDS[type(command)]
        self._state.take_news(self._state.compute.news(0))
        facts = self._state.facts()
        for need in sorted(entry.needs - facts):
            raise ProtocolViolation(f"{command.op} is out of order: it needs that {need.value}", code="out-of-order")
        for need in sorted(entry.forbids & facts):
            raise ProtocolViolation(f"{command.op} is out of order: {need.value}", code="out-of-order")
        if isinstance(command, gpu.OpenLife):
            return self._open_life()
        return entry.handler(self._state, command, bulk)

    def _open_life(self) -> gpu_answers.LifeOpened:
        if self._channel is None or self._keys is None:
            raise ProtocolViolation("the GPU has no life", code="no-life")
        state, h2d, d2h = self._state, self._keys.iv_mask(H2D_BULK), self._keys.iv_mask(D2H_BULK)
        self._channel.set_masks(h2d, d2h)
        state.life_open = True
        return gpu_answers.LifeOpened(
            life=state.life, boot_counter=state.boot_counter, device=state.device,
            session=state.bound.session if state.bound is not None else None, h2d_iv_mask=h2d, d2h_iv_mask=d2h,
        )  # fmt: skip


def _explained(error: GputError) -> str:
    sides = f" (expected {error.expected}, got {error.got})" if error.expected is not None else ""
    return error.detail + sides


def _never(state: GpuState, command: Any, bulk: Bulk) -> Any:
    raise ProtocolViolation("open_life is the processor's own", code="out-of-order")


@dataclass(frozen=True)
class Entry:
    """A command's handler and what must and must not hold before it runs."""

    handler: Callable[[GpuState, Any, Bulk], Any]
    needs: frozenset[Need]
    forbids: frozenset[Need] = field(default_factory=frozenset)


N = Need
_LIFE = frozenset({N.LIFE})
_BOUND = _LIFE | {N.SESSION}
_CONFIGURED = _BOUND | {N.CONFIGURED}
_MODEL = _CONFIGURED | {N.MODEL}
_READY = _MODEL | {N.READY, N.PROGRAM, N.SWEPT}

COMMANDS: dict[type[Any], Entry] = {
    gpu.OpenLife: Entry(_never, frozenset(), frozenset({N.LIFE})),
    gpu.InitSession: Entry(setup.init_session, _LIFE, frozenset({N.SESSION})),
    gpu.UploadProgram: Entry(setup.upload_program, _BOUND, frozenset({N.RUNNING})),
    gpu.Configure: Entry(setup.configure, _BOUND | {N.PROGRAM}, frozenset({N.CONFIGURED})),
    gpu.Upload: Entry(setup.upload, _CONFIGURED, frozenset({N.RUNNING})),
    gpu.InitModel: Entry(setup.init_model, _CONFIGURED | {N.PROGRAM}, frozenset({N.MODEL, N.RUNNING})),
    gpu.SetReady: Entry(setup.set_ready, _MODEL),
    gpu.OpenEpoch: Entry(visit.open_epoch, _CONFIGURED),
    gpu.DrawShare: Entry(visit.draw_share, _READY),
    gpu.InstallGrant: Entry(visit.install_grant, _READY),
    gpu.Fetch: Entry(visit.fetch, _READY),
    gpu.Drain: Entry(visit.drain, _BOUND),
    gpu.Sweep: Entry(sweep, _MODEL, frozenset({N.RUNNING})),
    gpu.Measure: Entry(setup.measure, _CONFIGURED | {N.PROGRAM}, frozenset({N.RUNNING})),
    gpu.Train: Entry(work.train, _READY),
    gpu.TrainTour: Entry(mixture.train_tour, _READY),
    gpu.Evaluate: Entry(work.evaluate, _READY),
    gpu.EndTour: Entry(tour.end_tour, _READY),
    gpu.Poll: Entry(work.poll, _BOUND),
    gpu.Commit: Entry(work.commit, _MODEL | {N.SWEPT}),
    gpu.RollBack: Entry(work.roll_back, _MODEL),
    gpu.Scrub: Entry(visit.scrub, _CONFIGURED, frozenset({N.RUNNING})),
    gpu.CloseVisit: Entry(visit.close_visit, _CONFIGURED | {N.PROGRAM}),
    gpu.Checkpoint: Entry(transfer.checkpoint, _MODEL | {N.SWEPT}),
    gpu.Restore: Entry(transfer.restore, _CONFIGURED, frozenset({N.RUNNING})),
    gpu.Export: Entry(transfer.export, _MODEL | {N.SWEPT}),
    gpu.Status: Entry(setup.status, _LIFE),
    gpu.EndSession: Entry(setup.end_session, _LIFE),
}
