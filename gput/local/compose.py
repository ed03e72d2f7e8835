"""The compose file's own steps: prepare the volumes once, submit the demo session.

Knows services by their settings and public API. Usage: python -m gput.local.compose prepare|demo
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from gpu_agent.hardware.root_of_trust import CHAIN_FILE, LEAF_FILE
from gput.client import UNATTESTED, AsyncClient
from gput.local import corpus
from gput.local.demos.texts import HOLDERS, Texts
from gput.local.installation import GPU, HolderSpec, Installation, to_toml
from gput.local.job import Job, policy_text
from gput.local.report import page
from gput.local.view import watch
from gput.output import say
from shared.claims.operators import GROUPS
from shared.crypto.signing import load_public
from shared.names import ORCHESTRATOR_PORT, holder_port
from shared.service.reader_tokens import write_readers

HOME = Path("/var/lib/gput")
INSTALLATION = Path("/installation")
VOLUMES = Path("/volumes")
SECRET = Path("/run/secrets/database_password")
SERVICE_UID = 10001
TRUST = "trust"
RECOVERY_KEY = "recovery.key"
READERS = "readers.json"
ORCHESTRATOR = "http://orchestrator:8000,http://standby:8000"
"""Both, whether or not the standby was started."""
LISTEN = {"host": "0.0.0.0", "port": 8000, "log_format": "json"}  # noqa: S104  # a container's own network namespace


def prepare() -> None:
    """Manufacture once, then hand every service just the files that are its own."""
    installation = Installation(INSTALLATION, [HolderSpec(name, {}) for name in HOLDERS])
    installation.prepare()
    folders = corpus.split(INSTALLATION / "data", HOLDERS)
    _fill("platform", ["platform", "cvms", "trust", "devices"], _platform())
    _copy(INSTALLATION / "orchestrator" / "orchestrator.pub", VOLUMES / "platform" / "orchestrator.pub")
    _fill("agent", [f"devices/{GPU}"], _agent())
    for file in (LEAF_FILE, CHAIN_FILE):  # issued anew for every release's firmware, under the identity that stays
        _put(INSTALLATION / "devices" / GPU / file, VOLUMES / "agent" / "devices" / GPU / file)
    _copy(INSTALLATION / "platform" / "mux.pub", VOLUMES / "agent" / "mux.pub")
    _fill("orchestrator", ["trust", "owners", "cvms/orchestrator.token"], _orchestrator())
    _copy(INSTALLATION / "orchestrator" / "identity.pem", VOLUMES / "orchestrator" / "state" / "identity.pem")
    _admit_nobody_yet(VOLUMES / "orchestrator" / READERS)
    for name in HOLDERS:
        _prepare_holder(installation, name, folders[name])
    _copy(INSTALLATION / "owner", VOLUMES / "client" / "owner")
    _copy(INSTALLATION / "trust", VOLUMES / "client" / "trust")
    _copy(folders["held-out"], VOLUMES / "client" / "held-out")
    say(f"each holder's recovery key is {HOME / RECOVERY_KEY} in its own volume: keep a copy elsewhere")
    for volume in VOLUMES.iterdir():  # the mount points; the folder that holds them belongs to the read-only image
        _own(volume)


def _prepare_holder(installation: Installation, name: str, corpus_folder: Path) -> None:
    volume, key = f"holder-{name}", installation.holder_key(name)
    _fill(volume, ["trust", f"cvms/{volume}.token"], _holder(name))
    (VOLUMES / volume / "policy.toml").write_text(policy_text(Texts(), f"operators = {json.dumps(sorted(GROUPS))}"))
    public = VOLUMES / "client" / "holders" / f"{name}.pub"
    public.parent.mkdir(exist_ok=True)
    public.write_bytes(key.public_pem)
    _copy(INSTALLATION / volume / "identity.pem", VOLUMES / volume / "state" / "identity.pem")
    _copy(installation.recovery_key(name), VOLUMES / volume / RECOVERY_KEY)
    _copy(corpus_folder, VOLUMES / volume / "corpus")


def _fill(volume: str, parts: list[str], settings: dict[str, object]) -> None:
    for part in parts:
        _copy(INSTALLATION / part, VOLUMES / volume / part)
    (VOLUMES / volume / "state").mkdir(exist_ok=True, mode=0o700)
    (VOLUMES / volume / "config.toml").write_text(to_toml(settings))


def _copy(source: Path, target: Path) -> None:
    if source.name == TRUST:  # public, and made anew with every release: code, configuration and collateral must fit it
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    if not target.exists():  # what a service has already must stay: its identity is enrolled
        _put(source, target)


def _put(source: Path, target: Path) -> None:
    """Copy a folder that is not there yet, or a file in the place of what is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: half a folder, or half a key, would be taken for a whole one.
    draft = target.with_name(f".{target.name}.partial")
    if source.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft)
    else:
        shutil.copy2(source, draft)
    draft.rename(target)


def _admit_nobody_yet(readers: Path) -> None:
    """The file that `gput token issue` adds people to; whoever is in it stays."""
    if not readers.exists():
        write_readers(readers, {})


def _own(folder: Path) -> None:
    for place, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            with suppress(FileNotFoundError):  # services run on through a second `up`, and their passing files pass
                os.chown(os.path.join(place, name), SERVICE_UID, SERVICE_UID, follow_symlinks=False)


def _agent() -> dict[str, object]:
    ports = [ORCHESTRATOR_PORT, *(holder_port(name) for name in HOLDERS)]
    return {
        **LISTEN,
        "data_dir": HOME / "state",
        "device_dir": HOME / "devices" / GPU,
        "platform_key": HOME / "mux.pub",
        "ports": ports,
        "public_url": "http://agent:8000",
    }


def _platform() -> dict[str, object]:
    return {
        **LISTEN,
        "data_dir": HOME,
        "agent_url": "http://agent:8000",
        "orchestrator_key": HOME / "orchestrator.pub",
        "public_url": "http://platform:8000",
    }


def _orchestrator() -> dict[str, object]:
    return {
        **LISTEN,
        "data_dir": HOME / "state",
        # In the file, so that every command of this service that an operator runs by it finds the database that the service has.
        "database_url": "postgresql+psycopg://gput@database:5432/gput",
        "database_password_file": SECRET,
        "trust_dir": HOME / "trust",
        "allow_emulated": True,
        "owner_keys": HOME / "owners",
        "reader_tokens": HOME / READERS,
        "agent_url": "http://agent:8000",
        "platform_url": "http://platform:8000",
        "evidence": "emulated:http://platform:8000/cvms/orchestrator",
        "evidence_token_file": HOME / "cvms" / "orchestrator.token",
        "public_url": "http://orchestrator:8000",
    }


def _holder(name: str) -> dict[str, object]:
    cvm = f"holder-{name}"
    return {
        **LISTEN,
        "name": name,
        "data_dir": HOME / "state",
        "trust_dir": HOME / "trust",
        "allow_emulated": True,
        "orchestrator_url": ORCHESTRATOR,
        "datasets": {"corpus": HOME / "corpus"},
        "recovery_key_file": HOME / RECOVERY_KEY,
        "evidence": f"emulated:http://platform:8000/cvms/{cvm}",
        "evidence_token_file": HOME / "cvms" / f"{cvm}.token",
        "policy": HOME / "policy.toml",
        "approve": "policy",
        "public_url": f"http://{name}:8000",
    }


def main(step: str) -> int:
    """Run one step; exit code."""
    if step == "prepare":
        prepare()
    elif step == "demo":
        return asyncio.run(client())
    else:
        print(f"no such step: {step}", file=sys.stderr)
        return 2
    return 0


async def client() -> int:
    """Build the program, submit the demo session with the owner's key, wait, fetch the model and verify the receipts."""
    began = time.monotonic()
    keys = {name: load_public((HOME / "holders" / f"{name}.pub").read_bytes()) for name in HOLDERS}
    folder = HOME / "run"
    folder.mkdir(exist_ok=True)
    job = Job(folder, Texts(), keys, say)
    archive = await job.build(HOME / "held-out")
    async with AsyncClient(ORCHESTRATOR, HOME / "owner" / "owner.pem", trust=UNATTESTED) as client:
        session = await job.submit_or_resume(client, archive)
        say(f"session {session} at {ORCHESTRATOR}")
        view = await watch(client, session, HOLDERS, began)
        if view["phase"] != "COMPLETED":
            say(f"the session ended {view['phase']}: {(view.get('failure') or {}).get('detail')}")
            return 1
        print(page(await job.collect(client, session, HOME / "trust"), job.plan, folder, time.monotonic() - began))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
