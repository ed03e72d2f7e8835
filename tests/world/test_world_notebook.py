"""docs/client.ipynb and the example of docs/client.md do what they say, run against a world; the notebook keeps nothing of a run."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import json
import re
import shutil
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from data_holder.policy import load_policy
from data_holder.policy_rules import allowed, evaluate
from gput.config import SETTINGS
from gput.local.demos.texts import Texts
from gput.local.installation import Installation
from gput.local.job import policy_text
from gput.models import Event, Party
from shared.canonical import sha256
from shared.claims.operators import GROUPS
from tests.built import built
from tests.world.world import World, url
from tests.world.world_hand import ORCH, across

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
NOTEBOOK = Path(__file__).parents[2] / "docs" / "client.ipynb"


def cells() -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text())
    assert (found["nbformat"], found["metadata"]["language_info"]["name"]) == (4, "python")
    return list(found["cells"])


def code_with(words: str) -> str:
    """The one cell of code that says so."""
    [found] = [code for cell in cells() if words in (code := "".join(cell["source"])) and cell["cell_type"] == "code"]
    return found


def test_no_run_is_kept_in_it() -> None:
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert len(code) >= 6
    assert [(cell["outputs"], cell["execution_count"], cell["metadata"]) for cell in code] == [([], None, {})] * len(
        code
    )
    assert len({cell["id"] for cell in cells()}) == len(cells())


def test_its_first_words_say_all_that_its_first_lines_ask_for() -> None:
    """And that the demo's services must stay: without `--keep` they end with it, before anybody could ask them."""
    words, code = ("".join(cell["source"]) for cell in cells()[:2])
    assert "`gput demo --keep`" in words
    asked = re.findall(r'os\.environ\["(\w+)"\]', code)
    assert len(asked) == 4
    assert [name for name in asked if name not in words] == []
    exported = dict(re.findall(r"^    export (\w+)=(\S+)$", words, re.MULTILINE))
    demo = Path("runs/latest")
    assert exported == {
        "GPUT_TRUST": str(Installation(demo / "services", ()).trust),
        "GPUT_PROGRAM": str(demo / Texts.program),
        # Else the commands that the demo prints are refused beside a trust folder.
        SETTINGS["allow_emulated"].variable: "1",
    }


def test_the_demo_that_it_names_approves_its_manifest(tmp_path: Path) -> None:
    """A refusal would stand: the notebook would wait for ever."""
    (tmp_path / "p.gput").write_bytes(built("gpt2", layers=1, heads=1, width=16)[0])
    (tmp_path / "policy.toml").write_text(policy_text(Texts(), f"operators = {json.dumps(sorted(GROUPS))}"))
    parties = [
        Party(name=name, role="holder", public_key="", key=sha256(name.encode()).hex()) for name in Texts.holders
    ]
    client = SimpleNamespace(parties=SimpleNamespace(list=lambda: parties))
    names: dict[str, Any] = {"client": client, "program": tmp_path / "p.gput"}
    exec(code_with("manifest = draft("), names)
    policy, program = load_policy(tmp_path / "policy.toml"), names["archive"].manifest
    for holder in Texts.holders:
        findings = evaluate(policy, names["manifest"], program, holder, None)
        assert allowed(findings), [finding for finding in findings if not finding.ok]


def run_all() -> dict[str, Any]:
    """Each cell as Jupyter would run it: one after another in one namespace, with `await` at its top."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells()):
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, names))
            else:
                exec(code, names)
    return names


async def test_every_cell_runs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.enrol()
    world.key("owner").save(tmp_path / "owner.pem")
    for name, content in {"p.gput": world.material.archive, "p.safetensors": world.material.weights}.items():
        (tmp_path / name).write_bytes(content)
    peers = [across(world), across(world)]
    monkeypatch.setattr("gput.api.Peers", lambda **_: peers.pop())
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "GPUT_URL": url(ORCH), "GPUT_KEY": tmp_path / "owner.pem", "GPUT_TRUST": world.folder / "trust",
        "GPUT_PROGRAM": tmp_path / "p.gput",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    names = await asyncio.to_thread(run_all)
    session = names["session"].id
    view = await world.owner.session(session)
    assert (view["phase"], names["done"].phase, names["held"].session) == ("COMPLETED", "COMPLETED", session)
    assert names["held"].receipts == view["visits_closed"] == 2 * len(world.holders)
    assert all(visit["mean_loss"] is not None for visit in await world.visits(session)), "the page prints them"
    assert sha256(names["model"].read_bytes()).hex() == view["model"]["sha256"]
    assert (names["facts"][0], names["facts"][-1]) == ("submitted", "completed")
    assert f"{2 * len(world.holders)} receipts hold" in capsys.readouterr().out
    assert peers == []


def test_a_refusal_ends_the_watching_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its stream of events would never end."""
    events = (
        Event(id=number, kind="session", fact=fact) for number, fact in enumerate(("submitted", "refused", "more"))
    )
    sessions = Mock(**{"submit.return_value.id": "s_1", "events.return_value": events})
    client = Mock(sessions=sessions, **{"items.return_value": [{"reason": "limits.max_rounds: expected <= 1, got 2"}]})
    exec(code_with("client.sessions.events("), {"client": client, "program": tmp_path / "p.gput", "manifest": None})
    client.items.assert_called_once_with("sessions/s_1/approvals")
    sessions.cancel.assert_called_once_with("s_1")
    assert [event.fact for event in events] == ["more"], "it was waited for"
    assert "limits.max_rounds: expected <= 1, got 2" in capsys.readouterr().out


def example() -> str:
    """The page's first example: what is indented under its title."""
    title, *lines = PAGE.read_text().splitlines()
    assert title == "# The Python client"
    return textwrap.dedent("\n".join(itertools.takewhile(lambda line: line.startswith("    ") or not line, lines)))


async def test_the_pages_example_runs_as_it_stands(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its address alone is a world's, and that the hardware is emulated may count."""
    await world.enrol()
    world.key("owner").save(tmp_path / "owner.pem")
    shutil.copytree(world.folder / "trust", tmp_path / "trust")
    (tmp_path / "mymodel.gput").write_bytes(world.material.archive)
    (tmp_path / "manifest.json").write_bytes(world.material.manifest().canonical())
    await world.owner.upload_weights(world.material.weights)
    peers = across(world)
    monkeypatch.setattr("gput.api.Peers", lambda **_: peers)
    monkeypatch.chdir(tmp_path)
    code = example().replace("https://orchestrator.example", url(ORCH)).replace("emulated=False", "emulated=True")
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, code, names)
    view = await world.owner.session(names["session"].id)
    assert view["phase"] == "COMPLETED"
    assert sha256((tmp_path / "model.safetensors").read_bytes()).hex() == view["model"]["sha256"]
    assert "session completed" in capsys.readouterr().out
