"""Container health check: asks the service of this container whether it is ready. Usage: python -m gput.local.probe [URL]

Standard library only, so that a probe costs little.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request


def main(url: str) -> int:
    """0 when /readyz answers 200, else 1 with the reason on stderr."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:  # noqa: S310  # the URL is this container's own
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(
        main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("GPUT_PROBE_URL", "http://127.0.0.1:8000"))
    )
