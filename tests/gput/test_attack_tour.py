"""The attack tour: its table is whole, its screens fit, and attacks run for real against real services; the cheapest in the quick tier."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.hardware.mux import Selected
from gpu_agent.mux_register import SelectedPort, register_of
from gput.__main__ import main
from gput.local.attacks import tour
from gput.local.attacks.attack import Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.screen import COLUMNS, LINES, screen
from gput.local.attacks.stage import Stage
from gput.local.attacks.table import ATTACKS
from gput.local.attacks.tour import SMALL, plan_of
from gput.local.attacks.wrong_vm import leaked
from gput.local.demos.texts import Texts
from gput.local.installation import GPU
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, Unavailable
from shared.names import TravelMode
from tests.built import built
from tests.gput.test_gput_demo_process import left_running

ASKED_FOR = {
    "lazy-scrub", "stale-key", "replayed-evidence", "fake-gpu", "wrong-vm", "trojan-code", "model-overwrite", "late-write", "rollback",
    "poisoned-visit",
}  # fmt: skip
DEADLINE_S = 500.0
# What each screen must name: the check's own code, and words of its own message.
STOPPED_BY = {
    "fake-gpu": ("gpu-root-unknown", "does not end in a configured root"),
    "lazy-scrub": ("scrub-failed", "not zero after its scrub"),
    "stale-key": ("no-grant", "copy-refused"),
    "replayed-evidence": ("channel-nonce", "the proof is for another nonce"),
    "wrong-vm": ("port-not-bound", "no-grant"),
    "trojan-code": ("fenced, verified, trained", "aten.relu for aten.gelu"),
    # The search finds model or committed copy first, as they happen to lie: the one is rolled back, for the other the GPU is wiped.
    "model-overwrite": (
        "quarantined “[^”]*not (the committed one|what was put there)[^”]*”.* from the GPU's committed copy"
        "|lost “the GPU was reset”.* from the newest checkpoint",
    ),
    "late-write": ("no-grant", "consumed the grant"),
    "rollback": ("log-rolled-back", "remembers a log of"),
    "poisoned-visit": ("rejected", "the held-out loss rose from"),
}
QUICK = {"fake-gpu"}


def test_the_table_is_whole() -> None:
    assert set(ATTACKS) >= ASKED_FOR
    assert set(ATTACKS) == set(STOPPED_BY)
    for name, attack in ATTACKS.items():
        assert attack.name == name
        assert attack.rows
        assert all(re.fullmatch(r"[HVCO]\d\d", row) for row in attack.rows)
        assert attack.modes
        assert any(row in attack.defence for row in attack.rows)


def test_the_list_names_every_attack_within_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--attack", "list"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^{name} .*{attack.rows[0]}", out, re.MULTILINE) for name, attack in ATTACKS.items())
    assert max(map(len, out.splitlines())) <= COLUMNS


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing-like-it"], "there is no attack 'nothing-like-it'"),
        (["trojan-code", "--mode", "direct"], "is played in mode paper or scoped, not direct"),
        (["fake-gpu", "--resume"], "cannot be resumed"),
    ],
)
def test_what_cannot_be_played_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["demo", "--attack", *words, "--dir", str(tmp_path / "run")]) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_plan_is_small_unless_asked_otherwise() -> None:
    attack = ATTACKS["stale-key"]
    assert (plan_of(attack, {}).layers, plan_of(attack, {}).rounds) == (1, attack.rounds)
    assert plan_of(attack, {"layers": 3, "mode": TravelMode.PAPER}).layers == 3
    assert plan_of(ATTACKS["trojan-code"], {}).mode is TravelMode.PAPER
    with pytest.raises(BadRequest, match="played in mode"):
        plan_of(ATTACKS["trojan-code"], {"mode": TravelMode.DIRECT})


@pytest.mark.parametrize("holds", [True, False])
def test_a_screen_fits_and_keeps_its_verdict_whatever_services_say(holds: bool) -> None:
    long = "word " * 300
    result = Result(long, "STOPPED", (Said(long, "code", long),) * 3, (Fact(long, True), Fact(long, holds)) * 3, long)
    fake: Attack = ATTACKS["fake-gpu"]
    lines = screen(fake, TravelMode.SCOPED, result, 3.2).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-1] == (
        "verdict   STOPPED, as expected · 3 s" if holds else "verdict   NOT AS EXPECTED (STOPPED) · 3 s"
    )
    assert result.as_expected is holds


def test_a_record_on_the_wire_would_be_seen(tmp_path: Path) -> None:
    """The search that `wrong-vm` relies on finds plaintext, one window and more, anywhere in a body."""
    (tmp_path / "a.txt").write_bytes(b"nothing else than these words")
    assert leaked([b"..these wo.."], tmp_path) == 1
    assert leaked([b"--", b"zzz nothing else"], tmp_path) == 5
    assert leaked([b"these w", b"unrelated bytes"], tmp_path) == 0


def play(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and what was printed, once every process of the run has ended. The program is there already: each would build the same."""
    folder.mkdir()
    sizes = {name: int(value) for name, value in Texts(**SMALL).program_options.items()}
    (folder / "gpt2.gput").write_bytes(built("gpt2", **sizes)[0])
    done = subprocess.run(
        [sys.executable, "-m", "gput", "demo", "--dir", str(folder), "--attack", *words],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert not left_running(folder)
    return done.returncode, done.stdout + done.stderr * (done.returncode not in (0, 1))


@pytest.mark.processes
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in STOPPED_BY])
def test_an_attack_ends_as_expected(name: str, tmp_path: Path) -> None:
    code, out = play(tmp_path / "run", name)
    assert code == 0, out
    _shows(out, name)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", ["trojan-code", "model-overwrite"])
def test_outside_of_paper_there_is_no_way_to_memory(name: str, tmp_path: Path) -> None:
    code, out = play(tmp_path / "run", name, "--mode", "scoped")
    assert code == 0, out
    assert "wrong-port" in out
    assert "no-grant" in out
    assert out.splitlines()[0].endswith("mode scoped · EMULATED")


class Seen(Stage):
    """A session that has ended so: what the attack's screen is made from, without a process."""

    seen: list[dict[str, str]]

    async def start(self) -> None:
        return None

    async def ended(self, session: str | None = None) -> Any:
        return {"phase": "COMPLETED", "position": 3, "visits_closed": 3, "visits_total": 3}

    async def visits(self) -> list[Any]:
        return [{"holder": "north", **visit} for visit in self.seen]

    def deeds(self, holder: str) -> list[dict[str, Any]]:
        return [{"code": "accepted", "message": "zeroed", "reads": 2}]

    async def same_model(self, view: Any) -> Fact:
        return Fact("model aa…, undisturbed session aa…", True)


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("quarantined", "After the fence the GPU's model is not the committed one", True),
        ("lost", "the GPU was reset", True),
        ("recalled", "the orchestrator restarted", False),
    ],
)
async def test_either_end_of_an_overwritten_model_is_told(
    outcome: str, reason: str, expected: bool, tmp_path: Path
) -> None:
    attack = ATTACKS["model-overwrite"]
    stage = Seen(tmp_path / "run", plan_of(attack, {}), lambda text: None, again="")
    stage.seen = [{"outcome": outcome, "reason": reason}, {"outcome": "closed", "reason": ""}]
    result = await attack.run(stage)
    assert result.as_expected is expected
    if expected:
        _shows(screen(attack, stage.plan.mode, result, 1.0), attack.name)


async def test_records_that_somebody_is_to_snoop_travel_over_http(tmp_path: Path) -> None:
    """In memory that agent and holder share nothing would come by the relay in front of the agent."""
    attack = ATTACKS["wrong-vm"]

    class Looked(Seen):
        async def relay(self, service: str, hook: Any) -> str:
            return f"http://{service}"

        async def ended(self, session: str | None = None) -> Any:
            assert not self.installation.bounce
            raise Unavailable("seen", code="seen")

    stage = Looked(tmp_path / "run", plan_of(attack, {}), lambda text: None, again="")
    assert stage.installation.bounce
    with pytest.raises(Unavailable, match="seen"):
        await attack.run(stage)


async def test_the_platforms_hand_is_on_the_register_that_the_agent_obeys(tmp_path: Path) -> None:
    stage = Seen(tmp_path / "run", plan_of(ATTACKS["wrong-vm"], {}), lambda text: None, again="")
    key = stage.installation.folder / "platform" / "mux.pem"
    key.parent.mkdir(parents=True)
    PartyKey.generate().save(key)
    with closing(SelectedPort(register_of(stage.installation.registers, GPU))) as gpu:
        await stage.hand.bind("holder-harbour")
        assert gpu().port == "holder-harbour"
        await stage.hand.bind(None)
        assert gpu() == Selected(None, 2)
    await stage.hand.close()


class Unarmed(Stage):
    """A stage on which nobody attacks, although an attack is played."""

    def turn(self, holder: str, deed: str) -> None:
        return None

    def poison(self, holder: str, write: Callable[[Path], None]) -> None:
        return None


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", ["stale-key", "late-write", "trojan-code", "model-overwrite", "poisoned-visit"])
def test_an_attack_that_did_not_take_place_is_not_called_stopped(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen comes from what is seen outside: without the attacker there is nothing to see, and it says so."""
    attack = ATTACKS[name]
    stage = Unarmed(tmp_path / "run", plan_of(attack, {}), lambda text: None, again="")

    async def played() -> int:
        try:
            return await tour.play(attack, stage)
        finally:
            await stage.stop()

    assert asyncio.run(played()) == 1
    out = capsys.readouterr().out
    assert "✗" in out
    assert out.splitlines()[-1].startswith("verdict   NOT AS EXPECTED")
    assert not left_running(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.processes
def test_ctrl_c_ends_every_process_of_an_attack(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = subprocess.Popen(
        [sys.executable, "-m", "gput", "demo", "--dir", str(folder), "--attack", "fake-gpu"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + DEADLINE_S
    while not (folder / "services" / "logs" / "agent.log").exists():
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 130
    assert "gput demo --attack fake-gpu" in told
    assert not left_running(folder)


def _shows(out: str, name: str) -> None:
    lines = out.splitlines()
    assert len(lines) <= LINES, out
    assert max(map(len, lines)) <= COLUMNS, out
    assert lines[0].startswith(f"Attack {name} · rows {', '.join(ATTACKS[name].rows)} · mode ")
    text = " ".join(" ".join(lines).split())
    for words in STOPPED_BY[name]:
        assert re.search(words, text), out
    assert "✗" not in out
    assert re.search(r"^verdict   (STOPPED|UNDONE), as expected", lines[-1]), out
