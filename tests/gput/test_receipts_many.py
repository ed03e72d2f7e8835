"""`gput bench receipts` makes real receipts by the services' own code, and measures the very verification that refuses a spoilt one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gput.__main__ import main
from gput.bench.result import read
from gput.receipt_folder import KEYS, LEAVES, parse_line, read_lines
from gput.receipt_timing import times
from gput.receipts import verify
from shared.errors import VerificationFailed

COUNT = 41


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    command = [sys.executable, "-m", "gput.local.receipts_bench", str(folder / "work"), str(folder / "r"), str(COUNT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "r"


def test_they_are_a_sessions_receipts(many: Path) -> None:
    found = verify(many)
    assert (found.receipts, found.leaves) == (COUNT, COUNT)
    assert sorted(found.holders.values()) == [13, 14, 14]
    assert len(read_lines(many, KEYS)) == 3
    leaves = {parse_line(line)["leaf"] for line in read_lines(many, LEAVES)}
    assert len(leaves) == COUNT


def test_times_are_those_of_the_same_verification(many: Path) -> None:
    found = times(many, jobs=1)
    assert found["receipts"] == COUNT
    assert found["processor_s"] > found["signatures_s"] > 0


@pytest.mark.parametrize("number", [0, 20, COUNT - 1])
def test_one_flip_is_refused_by_its_number(many: Path, number: int) -> None:
    path = many / LEAVES
    good = path.read_bytes()
    begin = sum(len(line) + 1 for line in good.split(b"\n")[:number])
    at = begin + good[begin:].index(b'"leaf":"') + 700
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    try:
        with pytest.raises(VerificationFailed, match=rf"^leaves\.jsonl: leaf {number}: "):
            verify(many)
        with pytest.raises(VerificationFailed):
            times(many, jobs=1)
    finally:
        path.write_bytes(good)


def test_the_command_prints_its_figures_and_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--count", "7", "--jobs", "3", "--format", "json", "--save", str(tmp_path / "kept.json")]
    assert main(["bench", "receipts", *words]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["receipts"], row["jobs"]) == (7, 3)
    assert set(row) == {"receipts", "jobs", "seconds", "receipts_per_s", "processor_s", "signatures_s", "ratio"}
    assert re.fullmatch(r"\d+\.\d+", str(row["seconds"]))
    kept = read(tmp_path / "kept.json")
    assert kept.parameters == {"receipts": 7, "jobs": 3}
    assert {**kept.parameters, **{name: one.median for name, one in kept.figures.items()}} == row
