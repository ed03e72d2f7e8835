"""HOSTILE CODE (attack tour): starts the real GPU agent with memory whose clearing engine does nothing but says it is done. Own process."""

from __future__ import annotations

import gpu_agent.hardware.hbm
from gpu_agent.api import create_app
from gpu_agent.settings import AgentSettings
from shared.service.server import service_main


def _pretend(self: gpu_agent.hardware.hbm.HBM, address: int, length: int) -> None:
    """Report success; clear nothing."""


if __name__ == "__main__":
    gpu_agent.hardware.hbm.HBM._clear = _pretend  # type: ignore[method-assign]  # that is the attack
    raise SystemExit(service_main(AgentSettings, create_app))
