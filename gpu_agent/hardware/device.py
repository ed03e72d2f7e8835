"""The GPU: what lies behind the MUX. Puts its engines together under one lock; trusts neither port nor platform. Knows no HTTP.

Doors: SPDM messages and command frames on the orchestrator's port; on holders' ports copy records, or staging for them, or stock firmware's
commands, as the travel mode has it. Which port a record came from is the platform's word; the keys decide.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpu_agent.hardware.command_processor import CommandProcessor
from gpu_agent.hardware.compute import Compute, News
from gpu_agent.hardware.doors import Doors
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.model_memory import ModelMemory
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.hardware.spdm import SpdmResponder
from gpu_agent.hardware.state import GpuState
from gpu_agent.hardware.stock_firmware import StockFirmware
from shared.crypto.schedule import resume_proof
from shared.errors import VerificationFailed
from shared.protocol.membership import HashLeaves, leaf_hashes
from shared.wire.copy import Copied, StagedAck
from shared.wire.spdm import VendorElement


class Device:
    """One GPU.

    Locks: `_orders` lets one SPDM message or frame run at a time; `_lock` guards the state and is let go while a poll waits for
    the compute engines, so that copies go on. An SPDM message ends such a wait: a new life need not queue behind a poll.

    Args:
        gpu_id: the operator's name for it; `root` knows the device's own.
        clock, timer, next_boot: see `Doors`; the boot counter advances durably.
        report: told of faults that are bugs, and of those that an SPDM message only hears of as an error.
        hash_leaves: how the leaves of a visit's records are computed.
    """

    def __init__(
        self,
        gpu_id: str,
        root: RootOfTrust,
        hbm: HBM,
        compute: Compute,
        *,
        entropy: Callable[[int], bytes],
        clock: Callable[[], float],
        timer: Callable[[], float],
        next_boot: Callable[[], int],
        report: Callable[[BaseException], None],
        hash_leaves: HashLeaves = leaf_hashes,
    ) -> None:
        self.gpu_id, self.backend = gpu_id, root.backend
        self._hbm, self._compute, self._clock, self._root = hbm, compute, clock, root
        doors = Doors(root.device, root.backend.value, entropy, clock, timer, next_boot, root.sign_statement)
        self._state = GpuState(doors, hbm, compute)
        self._state.wait = self._wait
        self._state.copies.hash_leaves = hash_leaves
        self._processor = CommandProcessor(self._state, report)
        self._stock = StockFirmware(hbm, compute, self._state.copies.grants)
        self._responder = SpdmResponder(root, entropy=entropy, hooks=self, report=report)
        self._orders, self._lock = threading.Lock(), threading.Lock()
        self._pressing = threading.Event()

    # ------------------------------------------------------------ doors

    def spdm(self, message: bytes) -> bytes:
        """One SPDM message or secured record; faults come back as SPDM ERROR messages."""
        self._pressing.set()
        self._compute.wake()
        try:
            with self._ordered():
                return self._responder.message(message)
        finally:
            self._pressing.clear()

    def commands(self, frame: bytes) -> bytes:
        """One command frame (CBOR); its answer frame.

        Raises:
            BadRequest, LimitExceeded, ProtocolViolation, VerificationFailed: not a frame of this life in order; nothing changed.
        """
        with self._ordered():
            return self._processor.frame(frame)

    def look_ahead(self) -> None:
        """What the GPU does between two frames: copy and hash what was just trained. Copies of records go on; the next frame waits for it.

        Where a key to all of memory was alive since it was last swept, nothing is done ahead: somebody might still write.
        """
        with self._orders:
            if (model := self._to_look_at()) is not None:
                model.look_ahead()

    @property
    def has_work_ahead(self) -> bool:
        """Whether `look_ahead` would do anything, seen without waiting for a lock; if it errs, a commit hashes for itself."""
        model = self._to_look_at()
        return model is not None and model.has_work_ahead

    def _to_look_at(self) -> ModelMemory | None:
        bound = self._state.bound
        return None if self._state.unswept or bound is None else bound.model

    def copy(self, port: str, record: bytes | memoryview) -> Copied:
        """One copy record from `port`.

        Raises:
            BadRequest, ProtocolViolation: no record of a living grant; nothing changed. Refused `copy-refused`: the grant is dead.
        """
        with self._lock:
            return self._state.copies.copy(port, record, self._clock())

    def copy_at_once(self, port: str, record: bytes | memoryview) -> Copied | None:
        """As `copy`, by who must not wait; None: the device is busy with something else, or it may take longer than one record's cipher."""
        if not self._hbm.at_once or not self._lock.acquire(blocking=False):
            return None
        try:
            copies = self._state.copies
            return copies.copy(port, record, self._clock()) if copies.soon(record) else None
        finally:
            self._lock.release()

    def stage(self, port: str, record: bytes | memoryview) -> StagedAck:
        """One copy record for staging, from the holder of `port` or whoever says so; no MUX has to be switched for it.

        Raises:
            BadRequest, ProtocolViolation, NotPermitted, Refused, LimitExceeded: nothing changed.
        """
        with self._lock:
            return self._state.copies.stage(port, record, self._clock())

    def stock(self, port: str, frame: bytes) -> bytes:
        """One command frame (CBOR) from a holder's port; its answer frame. Only a visit key of travel mode `paper` opens this door.

        Raises:
            NotPermitted `wrong-port`, `no-grant`; Refused: the grant expired; and as `commands`. Nothing changed.
        """
        with self._lock:
            return self._stock.frame(port, frame, self._clock())

    def require_stock(self, port: str) -> None:
        """Some living key opens `stock` on this port; looked at without waiting for whoever has the device now.

        Raises:
            NotPermitted `wrong-port`.
        """
        self._stock.require(port)

    @property
    def boot_counter(self) -> int:
        """Power-ons and wipes so far; public."""
        return self._state.boot_counter

    @property
    def memory_bytes(self) -> int:
        """What a session may allocate in all; public."""
        return self._hbm.backing

    def statement_certificate(self) -> bytes:
        """COSE_Sign1 by the leaf key over the statement key; public."""
        return self._root.statement_certificate

    def close(self) -> None:
        """Power off: end compute, wipe memory and keys; a poll that waits, or is about to, is let go first."""
        self._pressing.set()
        self._compute.wake()
        with self._ordered():
            self._compute.close()
            self._processor.erase()
            self._state.bound = None
            self._hbm.close()

    @contextmanager
    def _ordered(self) -> Iterator[None]:
        with self._orders, self._lock:
            yield

    def _wait(self, timeout_s: float) -> Sequence[News]:
        """Called with the lock held, from a poll; gives it to copies while it waits."""
        known = self._compute.wakes  # before the look: who presses from now on is heard by the wait
        if self._pressing.is_set():
            return []
        self._lock.release()
        try:
            return self._compute.news(timeout_s, known)
        finally:
            self._lock.acquire()

    # ------------------------------------------------------------ hooks of the SPDM responder

    def check_resume(self, vendor: VendorElement, request_random: bytes, public_key: bytes) -> None:
        """A resume proof must be that of the very next life of this very memory (attack V24).

        Raises:
            VerificationFailed: nothing changed.
        """
        if vendor.life == 0 and not vendor.resume:
            return  # no proof: memory is wiped when the handshake finishes
        self._require_next(vendor)
        secret = self._state.resume
        if secret is None:
            raise VerificationFailed("the GPU has no session to resume", code="resume-refused")
        proof = resume_proof(secret.reveal(), vendor.life, self._state.boot_counter, request_random, public_key)
        if not hmac.compare_digest(proof, vendor.resume):
            raise VerificationFailed("the resume proof does not verify", code="resume-refused")

    def session_opened(self, vendor: VendorElement, session_id: int, export_master_secret: bytes, th2: bytes) -> None:
        """A handshake stands: wipe, or begin the next life.

        Raises:
            VerificationFailed `resume-refused`: another life began between this KEY_EXCHANGE and its FINISH; and any fault of the device's.
        """
        try:
            if vendor.life:
                self._require_next(vendor)
                self._state.next_life(export_master_secret)
            else:
                self._state.first_life(export_master_secret)
        finally:
            if (
                not self._state.life
            ):  # a wipe that began and did not end: the life that it ended commands nothing any more
                self._processor.erase()
        self._processor.new_life(export_master_secret)

    def _require_next(self, vendor: VendorElement) -> None:
        if vendor.life != self._state.life + 1 or self._state.resume is None:
            raise VerificationFailed(
                "the resumed life is not the next one", code="resume-refused",
                expected=str(self._state.life + 1), got=str(vendor.life),
            )  # fmt: skip
