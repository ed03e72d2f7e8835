"""MUX: routes the one physical GPU to one port at a time. Belongs to the untrusted platform; decides nothing that must be secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.errors import Conflict, NotFound


@dataclass(frozen=True)
class Selected:
    """The port that the GPU is routed to, None: to nobody; and how often that has changed."""

    port: str | None
    switches: int


NOBODY: Final = Selected(None, 0)


class Mux:
    """Which port is bound now. The device behind it does not rely on the answer (attacks V06, V07).

    Args:
        ports: that exist; empty: any.
        register: where the platform selects a port by itself; without one it has to say so (`bind`).
    """

    def __init__(self, ports: tuple[str, ...], register: Callable[[], Selected] | None = None) -> None:
        self.ports = ports
        self._register = register
        self._told = NOBODY

    @property
    def selected(self) -> Selected:
        """What is selected now; a port that does not exist is nobody's."""
        selected = self._told if self._register is None else self._register()
        return selected if self._exists(selected.port) else Selected(None, selected.switches)

    def bind(self, port: str | None) -> int:
        """Route the GPU to `port`, or to none; the number of switches so far. Binding the bound port again is no switch.

        Raises:
            NotFound: no such port. Conflict: the platform has a register for that.
        """
        if self._register is not None:
            raise Conflict(
                "this MUX is switched by its select register",
                code="mux-by-register",
                remedy="Set mux_registers of the platform to the same folder as the agent's, or unset both.",
            )
        if not self._exists(port):
            raise NotFound(f"the GPU has no port {port!r}", code="unknown-port")
        if port != self._told.port:
            self._told = Selected(port, self._told.switches + 1)
        return self._told.switches

    def require(self, port: str) -> None:
        """Raises: Conflict `port-not-bound`."""
        if port != self.selected.port:
            raise Conflict(
                f"port {port!r} is not bound to the GPU now",
                code="port-not-bound",
                retry_after_s=0,
                remedy="Wait until the platform has switched the MUX, then send the same bytes again.",
            )

    def _exists(self, port: str | None) -> bool:
        return port is None or not self.ports or port in self.ports
