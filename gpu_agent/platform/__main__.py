"""`python -m gpu_agent.platform [serve options]` runs the untrusted host; `… manufacture` makes an installation. Wiring only."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shared.errors import ConfigurationError, GputError
from shared.turns import go_first


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or that of the error's family."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["manufacture"]:
        return _manufacture(arguments[1:])
    from gpu_agent.platform.api import create_platform_app
    from gpu_agent.platform.settings import PlatformSettings
    from shared.service.server import service_main

    return service_main(PlatformSettings, create_platform_app, arguments)


def _manufacture(arguments: Sequence[str]) -> int:
    # Imported here: serving does not need the device's manufacturing.
    from gpu_agent.platform.device_manufacture import manufacture_device
    from gpu_agent.platform.manufacture import manufacture

    parser = argparse.ArgumentParser(prog="python -m gpu_agent.platform manufacture")
    parser.add_argument("--dir", type=Path, required=True, help="installation folder")
    parser.add_argument("--gpus", type=_names, default=["gpu-0"], help="GPU names, separated by commas")
    parser.add_argument("--cvms", type=_names, required=True, help="CVM names: orchestrator, holder-X, …")
    options = parser.parse_args(arguments)
    try:
        report = manufacture(options.dir, options.gpus, options.cvms, make_device=manufacture_device, at=time.time())
    except GputError as error:
        remedy = f"\n{error.remedy}" if error.remedy else ""
        print(f"{error.title}: {error.detail}{remedy}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        print(
            "remedy: Name a folder that this user may write by --dir, and check the space on its volume.",
            file=sys.stderr,
        )
        return ConfigurationError.exit_code
    print(
        json.dumps(
            {
                "folder": str(report.folder),
                "backend": "EMULATED",
                "gpus": report.gpus,
                "cvms": report.cvms,
                "mr_td": report.mr_td,
                "made": report.made,
            }
        )
    )
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    go_first()
    raise SystemExit(main())
