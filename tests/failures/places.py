"""Places on disk that are bad in a real way: a small volume, a read-only one, another user's folder. Knows no service."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

NOBODY = 65534
_VERSION_3 = 0x20080522  # linux/capability.h: _LINUX_CAPABILITY_VERSION_3, two words of 32 capabilities each
_FILE_RIGHTS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 3)  # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
_libc = ctypes.CDLL(None, use_errno=True)


@cache
def can_mount() -> bool:
    """Whether this process may mount a file system."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def volume(at: Path, size: int | None = None, *, read_only: bool = False) -> Iterator[Path]:
    """A file system of its own of `size` bytes at `at`, a new empty folder."""
    if not can_mount():
        pytest.skip("mounting a file system needs root and CAP_SYS_ADMIN")
    at.mkdir(parents=True, exist_ok=True)
    options = ",".join(([f"size={size}"] if size else []) + (["ro"] if read_only else [])) or "rw"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Take all room of the volume but `leave` bytes; delete the file that is answered to give it back."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        block = 4096
        while os.statvfs(folder).f_bavail * block > leave:
            try:
                file.write(bytes(block))
            except OSError:  # somebody else took the last of it
                break
    return ballast


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Words(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _capabilities(act: Callable[..., int], words: ctypes.Array[_Words]) -> None:
    header = _Header(_VERSION_3, 0)
    if act(ctypes.byref(header), words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def without_override() -> Iterator[None]:
    """This thread as an ordinary user sees the disk: file modes and owners count for root as well."""
    words = (_Words * 2)()
    _capabilities(_libc.capget, words)
    before = words[0].effective
    words[0].effective = before & ~_FILE_RIGHTS
    _capabilities(_libc.capset, words)
    try:
        yield
    finally:
        words[0].effective = before
        _capabilities(_libc.capset, words)
