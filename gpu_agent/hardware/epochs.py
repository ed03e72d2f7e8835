"""Epochs: the root key's draws and which key generations are alive. Knows no region and no holder. Key schedule: design 4.5."""

from __future__ import annotations

from collections.abc import Iterable

from shared.crypto.schedule import draw_epoch
from shared.crypto.secret import Secret
from shared.errors import ProtocolViolation


class Epochs:
    """Numbers strictly increase until the GPU is wiped, over all lives; a dead epoch's secret is gone."""

    def __init__(self) -> None:
        self.highest = 0
        self._root: Secret | None = None
        self._open: dict[int, Secret] = {}

    @property
    def alive(self) -> list[int]:
        """Open epochs, ascending."""
        return sorted(self._open)

    def new_life(self, root: Secret) -> None:
        """A new life's root key; every epoch of older lives is dead."""
        self._root = root
        self._open.clear()

    def require_next(self, epoch: int) -> Secret:
        """The root key to draw from.

        Raises:
            ProtocolViolation: the number was used, or is below a used one; or there is no root key.
        """
        if epoch <= self.highest:
            raise ProtocolViolation(
                f"epoch {epoch} is not beyond epoch {self.highest}", code="epoch-not-next",
                expected=f"> {self.highest}", got=str(epoch),
            )  # fmt: skip
        if self._root is None:
            raise ProtocolViolation("the GPU has no root key", code="no-root-key")
        return self._root

    def draw(self, epoch: int, orchestrator_entropy: bytes, gpu_entropy: bytes, *, fence: bool = False) -> None:
        """Open `epoch`: VS_e ‖ RK' = HKDF(RK, ...); the old root key is dropped at once.

        A `fence`'s epoch only moves the root key on: it is never granted, so its secret would lie here until the life ends.
        """
        root = self.require_next(epoch)
        secret, following = draw_epoch(root.reveal(), epoch, orchestrator_entropy, gpu_entropy)
        self._root, self.highest = Secret(following), epoch
        if not fence:
            self._open[epoch] = Secret(secret)

    def require_alive(self, epoch: int) -> Secret:
        """The visit secret of an open epoch.

        Raises:
            ProtocolViolation `epoch-dead`.
        """
        if epoch not in self._open:
            raise ProtocolViolation(f"epoch {epoch} is not open", code="epoch-dead")
        return self._open[epoch]

    def kill(self, epochs: Iterable[int]) -> list[int]:
        """End epochs; those that were open. One that is already dead is no error: a fence may be repeated."""
        return [epoch for epoch in epochs if self._open.pop(epoch, None) is not None]

    def wipe(self) -> None:
        """Forget everything: the GPU has no life now."""
        self.highest, self._root = 0, None
        self._open.clear()
