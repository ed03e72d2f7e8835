"""Brings up the production compose files as their page says, kills the leading orchestrator in mid-session, and verifies the receipts.

    python -m tests.production        (`make smoke-production` runs it; needs Docker with compose)

Each party is a project of its own from deploy/compose; evidence alone is emulated. Everything is removed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gput.local.demos.texts import HOLDERS
from tests.production.deployment import Deployment
from tests.production.engine import Client, Project, build, run

PATIENCE_S = 600.0
PAIR = ("orchestrator-a", "orchestrator-b")
VISITS_BEFORE = 6
OPERATOR = ("--holder-url", "http://127.0.0.1:8000", "--token", "/var/lib/gput/state/operator.token")
IDENTITY = """
from urllib.request import Request, urlopen
token = open("/var/lib/gput/state/operator.token").read().strip()
print(urlopen(Request("http://127.0.0.1:8000/v1/identity", headers={"authorization": f"Bearer {token}"})).read().decode())
"""
EDIT = """
import json
manifest = json.load(open("draft.json")) | {"name": "production", "rounds": 60, "steps_per_visit": 1}
json.dump(manifest, open("manifest.json", "w"))
"""


def say(text: str) -> None:
    """A line at once, also into a file."""
    print(text, flush=True)


def main() -> int:
    """Exit code: 0 only with a complete session whose receipts verify, though its leader was killed; 2 without Docker."""
    if shutil.which("docker") is None:
        print("error: docker is not here. This runs real containers: install Docker with compose.", file=sys.stderr)
        return 2
    say("building the images")
    nginx = build(os.environ.get("WHEELS", "docker/no-wheels"))
    with tempfile.TemporaryDirectory(prefix="gput-production-") as folder:
        deployment = Deployment(Path(folder), nginx)
        try:
            _session(deployment)
        except RuntimeError as error:
            print(
                f"production smoke test FAILED: {error}\nthe services' last words:\n{deployment.words()}",
                file=sys.stderr,
            )
            return 1
        finally:
            deployment.down()
    say("production smoke test: the session reached its verified end with its leader killed")
    return 0


def _session(deployment: Deployment) -> None:
    """From nothing to verified receipts. Raises: RuntimeError."""
    deployment.manufacture()
    site = deployment.orchestrator()
    say(f"the orchestrator's site is up: {site.compose('ps', '--format', '{{.Service}} {{.Status}}').strip()!r}")
    holders = {name: deployment.holder(name) for name in HOLDERS}
    say(f"{len(holders)} holders are up")
    client = deployment.client()
    session = _submitted(client, holders)
    say(f"session {session} is submitted and approved by everybody")
    _until("visits", lambda: _view(client, session)["visits_closed"] >= VISITS_BEFORE)
    leader = _leader(site)
    other = next(name for name in PAIR if name != leader)
    run("docker", "kill", "--signal", "KILL", site.container(leader))  # by hand: the engine does not start it again
    say(f"killed {leader} after {_view(client, session)['visits_closed']} visits")
    _until(f"{other} to lead", lambda: _leader(site) == other)
    client.gput("session", "wait", session, "--timeout", str(PATIENCE_S))
    _verified(client, holders, session)
    if not _alive(site, "tls"):
        raise RuntimeError("the TLS front is unhealthy because one of the two behind it is away")
    run("docker", "start", site.container(leader))
    _until(f"{leader} to stand by", lambda: _alive(site, leader))
    if (leads := _leader(site)) != other:
        raise RuntimeError(f"{leads or 'nobody'} leads after {leader} came back, not {other}")
    say(f"{leader} came back and stands by")


def _submitted(client: Client, holders: dict[str, Project]) -> str:
    """Holders enrolled, a session submitted by its owner and approved by each operator, by the commands of the docs. Its id."""
    for name, project in holders.items():
        identity = json.loads(project.compose("exec", "-T", "holder", "python", "-c", IDENTITY))
        client.write(f"{name}.pub", identity["public_key"])
        client.gput("party", "enrol", name, f"{name}.pub")
    client.gput("program", "build", "classifier", "-o", "p.gput", "--option", "features=3", "--option", "classes=2")
    client.write("draft.json", client.gput("session", "draft", "p.gput", "--emulated"))
    client.write("edit.py", EDIT)
    client.run("python", "edit.py")
    uploads = [part for file in client.run("sh", "-c", "ls p.*").split() for part in ("--upload", file)]
    session = str(json.loads(client.gput("session", "submit", "manifest.json", *uploads, "--format", "json"))["id"])
    for name, project in holders.items():
        request = _until(f"the request at {name}", lambda project=project: _asked(project, session))
        _operator(project, "approve", session, "--manifest", request["manifest"], "--dataset", "records")
    return session


def _asked(holder: Project, session: str) -> Any:
    try:
        return json.loads(_operator(holder, "request", session))
    except RuntimeError:
        return None  # it did not come yet


def _operator(holder: Project, *arguments: str) -> str:
    """`gput party …` on the holder's own machine."""
    return holder.compose("exec", "-T", "holder", "gput", "party", *arguments, *OPERATOR)


def _view(client: Client, session: str) -> Any:
    return json.loads(client.gput("session", "show", session, "--format", "json"))


def _verified(client: Client, holders: dict[str, Project], session: str) -> None:
    """The receipts hold, and the log extends what each holder remembers."""
    view = _view(client, session)
    client.gput("session", "receipts", session, "--trust", "trust", "-o", "receipts")
    heads = [part for project in holders.values() for part in ("--head", _asked(project, session)["log_head"])]
    said = client.gput("receipts", "verify", "receipts", *heads)
    say(f"{view['phase']} after {view['visits_closed']} visits; {said.strip().splitlines()[-1]}")


def _leader(site: Project) -> str:
    """Which of the two is ready. Empty: neither."""
    return next((name for name in PAIR if _probe(site, name, "gput.local.probe")), "")


def _alive(site: Project, service: str) -> bool:
    return run("docker", "inspect", "-f", "{{.State.Health.Status}}", site.container(service)).strip() == "healthy"


def _probe(site: Project, service: str, module: str) -> bool:
    try:
        site.compose("exec", "-T", service, "python", "-m", module)
    except RuntimeError:
        return False
    return True


def _until(what: str, condition: Callable[[], Any]) -> Any:
    """What it says, once it says something. Raises: RuntimeError: never."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        if found := condition():
            return found
        time.sleep(0.5)
    raise RuntimeError(f"waited {PATIENCE_S:.0f} s for {what}")


if __name__ == "__main__":
    raise SystemExit(main())
