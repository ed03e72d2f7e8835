"""`python -m gpu_agent` runs the GPU agent. Wiring only."""

from __future__ import annotations

from gpu_agent.api import create_app
from gpu_agent.settings import AgentSettings
from shared.service.heap import keep_freed_memory
from shared.service.server import service_main

if __name__ == "__main__":
    keep_freed_memory()
    raise SystemExit(service_main(AgentSettings, create_app))
