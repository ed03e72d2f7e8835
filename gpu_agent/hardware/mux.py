"""MUX: routes the one physical GPU to one port at a time. Belongs to the untrusted platform; decides nothing that must be secret."""

from __future__ import annotations

from shared.errors import Conflict, NotFound


class Mux:
    """Which port is bound now. The device behind it does not rely on the answer (attacks V06, V07)."""

    def __init__(self, ports: tuple[str, ...], bound: str | None = None) -> None:
        self.ports = ports
        self.bound: str | None = None
        self.switches = 0
        self.bind(bound)

    def bind(self, port: str | None) -> int:
        """Route the GPU to `port`, or to none; the number of switches so far. Binding the bound port again is no switch.

        Raises:
            NotFound: no such port.
        """
        if port is not None and self.ports and port not in self.ports:
            raise NotFound(f"the GPU has no port {port!r}", code="unknown-port")
        if port != self.bound:
            self.bound = port
            self.switches += 1
        return self.switches

    def require(self, port: str) -> None:
        """Raises: Conflict `port-not-bound`."""
        if port != self.bound:
            raise Conflict(
                f"port {port!r} is not bound to the GPU now",
                code="port-not-bound",
                retry_after_s=0,
                remedy="Wait until the platform has switched the MUX, then send the same bytes again.",
            )
