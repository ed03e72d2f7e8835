"""The device's boot counter: survives power loss, never goes back by itself. Knows one file and nothing of what boots."""

from __future__ import annotations

import os
import re
from pathlib import Path

from shared.errors import ConfigurationError


class BootCounter:
    """Stands for a counter in the GPU's own non-volatile memory. The file belongs to the emulation; a platform that sets it
    back is caught all the same, for memory and session keys are gone after every boot.

    Raises:
        ConfigurationError `boot-counter`: the file holds no number, or the folder is not ours.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._value = _number(path.read_text()) if path.exists() else 0
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None

    def advance(self) -> int:
        """The next number; on disk before it is returned. Raises: ConfigurationError: it could not be put there; it is not counted."""
        try:
            self._keep(self._value + 1)
        except OSError as error:
            raise self._unusable(error) from error
        self._value += 1
        return self._value

    def _unusable(self, error: Exception) -> ConfigurationError:
        return ConfigurationError(
            f"the boot counter in {self._path} cannot be used: {error}", code="boot-counter",
            remedy="Give this service's user room and rights in that folder. A file that holds no number is damaged: restore it, or "
            "remove it: the GPU counts its boots from 1 again, and sessions that run on it fail as `unexplained-life`.",
        )  # fmt: skip

    def _keep(self, value: int) -> None:
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(str(value))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _number(text: str) -> int:
    """As `_keep` writes it. Raises: ValueError: what Python would take beside that is damage."""
    if not re.fullmatch(r"[0-9]{1,15}\n?", text):
        raise ValueError("it holds no number")
    return int(text)
