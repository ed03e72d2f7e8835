"""Compute on a device: the same processes as on the host, with HBM where the fabric keeps it. Knows no tensor and no torch.

The parent never touches the device; each worker makes a CUDA context of its own, maps in it what of HBM its launch names, and dies with it.
What it had in the device's memory outside of HBM is swept before anybody else's records come (law L7). Making a context and loading kernels
take a third of a second, so the next worker does both while this one trains. It may: what it takes of the device's memory was swept, since
a worker that trains gives nothing back before it is killed, and is not killed before the next one has what it needs. Where either is in
doubt the one that waits is killed too, and the sweep finds the card as if nobody had been there.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from dataclasses import replace
from typing import Final

from gpu_agent.compute.fabric import DeviceFabric, device_environment
from gpu_agent.compute.process import KILL_DEADLINE_S, LOAD_DEADLINE_S, ComputeProcess
from gpu_agent.hardware.compute import Finished, Launch, Loaded, News
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import Extent
from shared.claims.archive import MAX_ARCHIVE_BYTES
from shared.errors import Unavailable

_READINGS: Final = 100
_BETWEEN_S: Final = 0.05
_SPARED: Final = 2
"""Of what a training took before; PyTorch keeps more than its tensors take (1.3 times, for GPT-2 124M)."""


class DeviceCompute(ComputeProcess):
    """Compute engines of a device.

    The parent builds programs and may not have a CUDA context, so the measured bytes are read back from the device into a window that
    it has mapped; it checks their digest there.
    """

    def __init__(self, fabric: DeviceFabric, hbm: DeviceHBM) -> None:
        self._window_fd = os.memfd_create("gpu-code", os.MFD_CLOEXEC)
        os.ftruncate(self._window_fd, MAX_ARCHIVE_BYTES)
        self._window = mmap.mmap(self._window_fd, MAX_ARCHIVE_BYTES)
        super().__init__(self._window_fd, MAX_ARCHIVE_BYTES)
        self._fabric, self._hbm = fabric, hbm
        self._place = fabric.place
        self._environment = device_environment()
        self._fds = (self._window_fd, *fabric.files)
        self._digest = ""  # of the program that was loaded or launched last
        self._dirty = False  # since the last sweep a launch was begun
        self._taken: dict[str, int] = {}  # most bytes that a training took beside HBM, by what it was of
        self._like = ""  # what the launch under way is of
        self._free: dict[str, int] = {}
        """What the device has free beside a worker that waits, by its program: that much a sweep has to cover. It takes 50 ms to find out,
        and is the same beside the next one that warms up as this one did."""
        self._learned = "", False
        """Beside which kind of worker that was: for what it had warmed up, and whether it had room for a batch."""

    def load(self, code: Extent, code_digest: str) -> Loaded:
        """See `Compute.load`."""
        loaded = super().load(self._show(code), code_digest)
        self._digest = code_digest
        if not self._dirty:
            self._prepare()
            self._learn()
        return loaded

    def _prepare(self) -> None:
        """Have the next worker forked and warmed up now."""
        self._send({"op": "prepare", "code_digest": self._digest})

    def _learn(self) -> None:
        self._send({"op": "rest"})
        if not self._reply("resting", LOAD_DEADLINE_S)["waiting"]:
            self._free.pop(self._digest, None)
        elif self._digest not in self._free or self._learned != (self._like, self._room > 0):
            self._learned = self._like, self._room > 0
            self._free[self._digest] = self._settled()

    def _settled(self) -> int:
        """What is free once that no longer changes: too little would let a sweep pass by what a dead process had and is not back yet.

        Raises:
            Unavailable `gpu-memory-busy`: it does not come to rest, so somebody else uses the device.
        """
        found = self._fabric.free()
        for _ in range(_READINGS):
            time.sleep(_BETWEEN_S)
            before, found = found, self._fabric.free()
            if found == before:
                return found
        raise Unavailable(
            "free memory of the GPU's device does not come to rest", code="gpu-memory-busy",
            remedy="Let no other program use the device.",
        )  # fmt: skip

    def start(self, launch: Launch) -> None:
        """See `Compute.start`."""
        window = self._show(launch.code)
        self._beside = not self._dirty and launch.code_digest in self._free
        self._like = _like(launch)
        self._room = self._left_over() if self._beside else 0
        self._dirty, self._digest = True, launch.code_digest
        super().start(replace(launch, code=window))

    def _left_over(self) -> int:
        """Bytes that no launch like this one will want; 0 where there was none.

        The next worker may warm up with them: where it cannot have a whole batch, the first step of its launch loads the kernels for
        that (0.3 s for GPT-2 124M).
        """
        taken = self._taken.get(self._like)
        return 0 if taken is None else max(0, self._free[self._digest] - _SPARED * taken)

    def _finished(self, news: Finished) -> None:
        super()._finished(news)
        if news.beside is not None:
            self._taken[self._like] = max(news.beside, self._taken.get(self._like, 0))

    def destroy(self) -> list[News]:
        """See `Compute.destroy`; and what the launch had outside of HBM is zeroed.

        Raises:
            VerificationFailed: memory that it used is not zero, or did not come back.
        """
        waiting = self._active and self._alive and self._quieten(keep=self._beside and self._kept)
        news = super().destroy()
        if self._dirty:
            if not waiting:
                self._free.clear()  # with the next one that waits it is found out anew
            if self._alive and not waiting:
                self._send({"op": "drop"})
                self._reply("dropped", KILL_DEADLINE_S)
            self._fabric.clear_free(self._free.get(self._digest) if waiting else None)
            self._dirty = False
            if self._alive and not waiting:
                self._prepare()
        return news

    def close(self) -> None:
        """See `Compute.close`."""
        super().close()
        if self._window_fd >= 0:
            os.close(self._window_fd)
            self._window_fd = -1

    def _show(self, code: Extent) -> Extent:
        self._window[: code.length] = self._hbm.peek(code.address, code.length)
        return Extent(0, code.length)


def _like(launch: Launch) -> str:
    """Launches of which this is the same take the same memory."""
    of = [launch.kind, launch.code_digest, launch.options, launch.accumulate, launch.privacy is not None]
    return json.dumps([*of, bool(launch.parts)], sort_keys=True)
