"""A bench's figures are kept with a description of the machine that names nobody; the page shows what the files say."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docs.performance import KEPT, WIDTH, bars, results
from gput.bench import machine as describing
from gput.bench.figures import BENCHES
from gput.bench.machine import machine, program
from gput.bench.result import Figure, encoded, read, write
from gput.commands.bench import app
from gput.commands.keeping import Keeping, Table
from gput.output import Format
from shared.errors import BadRequest
from tests.gput.bench_samples import result

HOSTILE = "ward-7.example.org/home/alice"


def proc(folder: Path, model: str) -> Path:
    (folder / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu\n\nmodel name\t: another\n")
    (folder / "meminfo").write_text("MemTotal:        8000000 kB\nMemFree:          1 kB\n")
    return folder


@pytest.mark.parametrize(("model", "cpu"), [
    ("AMD EPYC 7B12", "AMD EPYC 7B12"),
    ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) CPU @ 2.20GHz"),
    ("\x1b[2J<b>Chip</b>", "2J b Chip b"),
    ("  Chip\u202e  ⁉ 9000 ", "Chip 9000"),
    ("/", "unknown"),
    ("x" * 500, "x" * 80),
])  # fmt: skip
def test_a_processor_is_told_in_plain_words(model: str, cpu: str, tmp_path: Path) -> None:
    found = machine(False, proc(tmp_path, model))
    assert (found.cpu, found.memory_bytes, found.pytorch) == (cpu, 8_000_000 * 1024, None)


def test_a_machine_that_says_nothing_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing.metadata, "version", _none)
    found = machine(True, tmp_path)
    assert (found.cpu, found.memory_bytes, found.pytorch) == ("unknown", 0, None)


def _none(name: str) -> str:
    raise describing.metadata.PackageNotFoundError(name)


def test_the_description_names_no_host_person_or_file(monkeypatch: pytest.MonkeyPatch) -> None:
    names = SimpleNamespace(release=f"6.1.0-{HOSTILE}", nodename=HOSTILE, version=HOSTILE, sysname="Linux", machine="x")
    monkeypatch.setattr(os, "uname", lambda: names)
    found = result(seconds=(1.0,)).model_copy(update={"machine": machine(True), "program": program()})
    text = encoded(found).decode()
    assert found.machine.kernel == "6.1.0"
    assert not [part for part in HOSTILE.split("/") if part in text]
    assert "/" not in text.replace('"format": "gput-bench/1"', "")
    own = {socket.gethostname(), Path.home().name} - set(found.machine.cpu.lower().split())
    words = set(text.replace('"', " ").replace(",", " ").split())
    assert not own & words


def test_the_programs_commit_is_the_checkouts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "repository" / "gput"
    package.mkdir(parents=True)
    monkeypatch.setattr(describing, "PACKAGE", package)
    assert program().commit is None  # no checkout

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", "-C", str(package), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet", "..")
    (package / "other.py").write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "somebody else's")
    (package / "__init__.py").write_text("1")
    assert program().commit is None  # lies in a checkout that does not know it
    git("add", ".")
    git("commit", "--quiet", "-m", "ours")
    assert (program().commit, program().modified) == (git("rev-parse", "HEAD"), False)
    (package / "__init__.py").write_text("2")
    assert program().modified
    monkeypatch.setattr(describing.shutil, "which", lambda name: None)
    assert program().commit is None


def test_the_machine_is_described_without_pytorch_and_services() -> None:
    code = (
        "import sys; from gput.bench.machine import machine; import gput.commands.bench; machine(True);"
        "print([n for n in ('torch', 'httpx2', 'numpy', 'fastapi', 'gpu_agent', 'orchestrator') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_runs_are_put_together_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = iter([1.0, 3.0, 2.0])

    def once() -> tuple[list[Table], dict[str, float]]:
        return [Table([{"tables": "are one run's"}], ("tables",))], {"seconds": next(found)}

    file = tmp_path / "new" / "r.json"
    Keeping("receipts", {"receipts": 7}, file).measure(once, 3, Format.JSON)
    told = capsys.readouterr()
    assert json.loads(told.out) == [
        {"figure": "seconds", "unit": "s", "median": 2.0, "least": 1.0, "most": 3.0, "runs": [1.0, 3.0, 2.0]}
    ]
    kept = read(file)
    assert (kept.bench, kept.parameters, kept.figures["seconds"].runs) == ("receipts", {"receipts": 7}, (1.0, 3.0, 2.0))


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="folder"):
        Keeping("receipts", {}, tmp_path)


# -------------------------------------------------------------------- the page


def test_every_kept_file_is_a_section() -> None:
    made, kept = results(), [read(path).bench for path in sorted(KEPT.glob("*.json"))]
    assert kept
    assert [line.split("`")[1] for line in made.splitlines() if line.startswith("### ")] == [
        BENCHES[bench].command or f"gput bench {bench}" for bench in kept
    ]


def test_every_bench_stands_in_the_pages_table_and_is_shown_at_work_somewhere() -> None:
    docs = KEPT.parent
    page = (docs / "performance.md").read_text()
    table = dict(re.findall(r"^\| `gput bench (\w+)` \| (.+) \|$", page, re.MULTILINE))
    assert set(table) == {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    for name, says in table.items():
        assert set(re.findall(r"\]\(#([\w-]+)\)", says)) <= anchors, name
        others = [(docs / other).read_text() for other in re.findall(r"\]\(([\w.]+\.md)\)", says)]
        shown = re.search(rf"^ +gput bench {name}\b", page, re.MULTILINE) or any(
            re.search(rf"gput bench {name}\b", one) for one in others
        )
        assert shown or name == "cuda", name


def test_a_bench_that_is_no_command_of_gput_is_called_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "peers.json", result("peers", **{"ours.wall_s": (1.0,)}))
    assert results(tmp_path).startswith("### `make bench-peers`: ")


def test_a_section_says_machine_spread_and_that_other_work_ran(tmp_path: Path) -> None:
    runs: dict[str, Any] = {"seconds": (1.0, 2.0, 4.0), "processor_s": (8.0,), "ratio": (1.5,)}
    write(tmp_path / "receipts.json", result(**runs, machine={"load_average": 1.5}))
    text = results(tmp_path)
    assert "`gput bench receipts`" in text
    assert "receipts 200" in text
    assert "2 cores of Some CPU @ 2.00GHz, 8 GiB" in text
    assert "load average at the start 1.5: **other work ran beside it**" in text
    assert "| `seconds` | 2 s | 1 – 4 | 3 | lower |" in text
    assert "| `processor_s` | 8 s | one run | 1 | lower |" in text
    assert text.count("█") == round(WIDTH / 8) + WIDTH
    write(tmp_path / "receipts.json", result(**runs, machine={"load_average": 1.0}))
    assert "other work" not in results(tmp_path)


def test_bars_are_on_one_scale() -> None:
    found = {
        "a": Figure(unit="s", runs=(10.0,)),
        "bb": Figure(unit="s", runs=(2.5, 5.0)),
        "c": Figure(unit="s", runs=(0.0,)),
    }
    assert list(bars(found, "s", width=8)) == ["a   ████████  10 s", "bb  ██▒▒      3.75 s", "c             0 s"]
    assert list(bars({"c": found["c"]}, "s", width=2)) == ["c      0 s"]


def test_a_file_that_is_no_result_makes_no_page(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(BadRequest):
        results(tmp_path)
