"""Asks the orchestrator by a dry run, then does the same in earnest, and holds one against the other. Knows no act."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import Connection, text

from shared.crypto.signing import PartyKey
from tests.orchestrator.orchestrator_world import OWNER, World

OWN_PACE = ("replay_nonces", "leases", "alembic_version")
"""Tables that any signed request, or time alone, changes."""
SAID = ("type", "title", "status", "code", "detail", "remedy", "expected", "got", "errors")


@dataclass(frozen=True)
class Act:
    """An act by its path under /v1, and what a dry run of it sends in its body's place."""

    path: str
    body: Any = None
    dry: Any = None
    method: str = "POST"
    who: PartyKey = OWNER
    headers: dict[str, str] = field(default_factory=dict)


async def kept(world: World) -> dict[str, Any]:
    """All that the orchestrator keeps: rows, files, what it has for holders, and who works on what."""
    parts = world.app.state.orchestrator

    def tables(connection: Connection) -> dict[str, Any]:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        return {name: _rows(connection, name) for name in names if name not in OWN_PACE}

    inboxes = parts.house.inboxes
    told = (inboxes._seq, {holder: list(box.items) for holder, box in inboxes._boxes.items()})
    files = {path: path.read_bytes() for path in _files(world.folder / "data")}
    said = [(b.state.seq, b.state.phase, b.durable.seq, b._facts) for b in parts.catalogue._books.values()]
    at_work = (dict(parts.supervisor._leases), list(parts.supervisor._runners), said, told)
    return {**await parts.store.read(tables), "files": files, "memory": str(at_work)}


def _rows(connection: Connection, table: str) -> list[Any]:
    return sorted(map(tuple, connection.execute(text(f'SELECT * FROM "{table}"'))), key=repr)


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and ".db" not in path.name]


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is kept otherwise by now."""
    return {name: (before.get(name), after.get(name)) for name in before | after if before.get(name) != after.get(name)}


async def both(world: World, act: Act) -> tuple[int, str]:
    """The status of both, and the code of a refusal, which must be the same in every word. Of an act that is taken: whether it changed
    what the dry run said it would."""
    client, before = world.client(act.who), await kept(world)
    body = act.body if act.dry is None else act.dry
    dry = await client.post(f"/v1/dry-run{act.path}", json=body)
    assert changed(before, await kept(world)) == {}, "a dry run changes nothing"
    real = await client.request(act.method, f"/v1{act.path}", json=act.body, headers=act.headers)
    after = await kept(world)
    if dry.status_code == 200:
        assert real.status_code < 300, real.text
        assert dry.json()["unjudged"] == []
        assert dry.json()["changes"] is bool(changed(before, after).keys() - {"idempotent_replies", "memory"})
        return 200, "changes" if dry.json()["changes"] else "said before"
    assert changed(before, after).keys() <= {"memory"}, (dry.text, real.text)
    assert told(dry) == told(real)
    return dry.status_code, str(dry.json()["code"])


def told(answer: httpx2.Response) -> dict[str, Any]:
    return {name: answer.json().get(name) for name in SAID}
