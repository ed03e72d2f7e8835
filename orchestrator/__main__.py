"""`python -m orchestrator`: start the service. Knows nothing else."""

from __future__ import annotations

import sys

from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from shared.service.server import service_main


def main() -> int:
    """Run until told to stop; the exit code says how it ended."""
    return service_main(OrchestratorSettings, create_app)


if __name__ == "__main__":
    sys.exit(main())
