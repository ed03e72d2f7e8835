"""Compute on a device: the same processes as on the host, with HBM where the fabric keeps it. Knows no tensor and no torch.

The parent never touches the device; each worker makes a CUDA context of its own, maps in it what of HBM its launch names, and dies with it.
What it had in the device's memory outside of HBM is swept before anybody else's records come (law L7). Making a context and loading kernels
take a third of a second, so the next workers do both while this one trains. They may: what they take of the device's memory was swept,
since a worker that trains gives nothing back before it is killed, and is not killed before those beside it have what they need. Where
either is in doubt all that wait are killed too, and the sweep finds the card as if nobody had been there.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from dataclasses import replace
from typing import Final

from gpu_agent.compute.environment import device_environment
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.compute.process import KILL_DEADLINE_S, LOAD_DEADLINE_S, ComputeProcess
from gpu_agent.compute.waiting import Waiting
from gpu_agent.hardware.compute import Finished, Launch, Loaded, News
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import Extent
from shared.claims.archive import MAX_ARCHIVE_BYTES
from shared.errors import Unavailable

_READINGS: Final = 100
_BETWEEN_S: Final = 0.05


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
        self._like = ""  # what the launch under way is of
        self._began = 0.0
        self._waiting = Waiting()  # of the program that was loaded last

    def load(self, code: Extent, code_digest: str) -> Loaded:
        """See `Compute.load`."""
        known = self._alive and self._digest == code_digest
        loaded = super().load(self._show(code), code_digest)
        self._digest = code_digest
        if not self._dirty:
            if not known:
                self._clear()
            self._prepare()
            self._learn()
        return loaded

    def _clear(self) -> None:
        """No worker is there any more, nor known."""
        self._send({"op": "drop"})
        self._reply("dropped", KILL_DEADLINE_S)
        self._waiting.forget()
        self._waiting.alone(self._settled())

    def _prepare(self) -> None:
        """Have the next worker forked and warmed up now, if none waits."""
        self._send({"op": "prepare", "code_digest": self._digest})

    def _learn(self) -> None:
        """What those that wait hold: it takes 50 ms to find out, and is the same of others that warm up as these did."""
        self._send({"op": "rest"})
        if not self._waiting.are(self._reply("resting", LOAD_DEADLINE_S)["waiting"]):
            self._waiting.learn(self._settled())

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
        known = not self._dirty and launch.code_digest == self._digest
        self._like = _like(launch)
        self._beside, self._room = self._waiting.beside(self._like) if known else (0, 0)
        self._dirty, self._digest = True, launch.code_digest
        self._began = time.monotonic()
        super().start(replace(launch, code=window))

    def _finished(self, news: Finished) -> None:
        super()._finished(news)
        if news.beside is not None:
            self._waiting.took(self._like, news.beside)

    def destroy(self) -> list[News]:
        """See `Compute.destroy`; and what the launch had outside of HBM is zeroed.

        Raises:
            VerificationFailed: memory that it used is not zero, or did not come back.
        """
        waiting = self._end_launch() if self._active and self._alive else 0
        news = super().destroy()
        if self._dirty:
            if not waiting:
                self._waiting.forget()  # with the next ones that wait it is found out anew
            if self._alive and not waiting:
                self._send({"op": "drop"})
                self._reply("dropped", KILL_DEADLINE_S)
            self._fabric.clear_free(self._waiting.free())
            self._dirty = False
            if self._alive and not waiting:
                self._prepare()
        return news

    def _end_launch(self) -> int:
        """Have its process killed; how many wait then."""
        ran, keep = time.monotonic() - self._began, self._beside > 0 and self._kept
        waiting, waited = self._quieten(keep=keep)
        self._waiting.ended(waiting, ran, waited if keep else None)
        return waiting

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
