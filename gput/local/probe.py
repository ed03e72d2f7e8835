"""Container health check: asks the service of this container whether it is ready. Usage: python -m gput.local.probe [URL] [/livez]

Standard library only, so that a probe costs little.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

READY, ALIVE = "/readyz", "/livez"

# Docker gives every container the proxies of its client's settings, by the environment; none of them reaches the container itself.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def main(url: str, path: str = READY) -> int:
    """0 when `path` answers 200, else 1 with the reason on stderr."""
    try:
        with _open(f"{url}{path}", timeout=2) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        print(f"not {'alive' if path == ALIVE else 'ready'}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != ALIVE]
    place = given[0] if given else os.environ.get("GPUT_PROBE_URL", "http://127.0.0.1:8000")
    raise SystemExit(main(place, ALIVE if ALIVE in sys.argv[1:] else READY))
