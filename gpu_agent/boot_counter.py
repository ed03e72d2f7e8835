"""The device's boot counter: survives power loss, never goes back by itself. Knows one file and nothing of what boots."""

from __future__ import annotations

import os
from pathlib import Path

from shared.errors import ConfigurationError


class BootCounter:
    """Stands for a counter in the GPU's own non-volatile memory. The file belongs to the emulation; a platform that sets it
    back is caught all the same, for memory and session keys are gone after every boot.

    Raises:
        ConfigurationError: the file holds no number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._value = int(path.read_text()) if path.exists() else 0
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the boot counter in {path.name} cannot be used: {error}", code="boot-counter"
            ) from None

    def advance(self) -> int:
        """The next number; on disk before it is returned."""
        self._value += 1
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(str(self._value))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._value
