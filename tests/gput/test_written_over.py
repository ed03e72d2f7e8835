"""No command writes over what it reads, over another of its own results, or over a file of weights that may be somebody's model."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu_agent.workload.llmc import write_llmc_model
from gpu_agent.workload.programs.gpt2 import GPT2Config
from gput.__main__ import main
from shared.crypto.signing import PartyKey
from shared.service.reader_tokens import token_digest
from tests.gput.test_mock_data import TABLE, csv, npy, program

SESSION = "s_abcdefghijklmnop"
SIZES = GPT2Config(context=8, vocab=130, layers=1, heads=1, width=8)
CLASSIFIER = [
    "program",
    "build",
    "classifier",
    "--option",
    "features=3",
    "--option",
    "classes=2",
    "--option",
    "hidden=4",
]


def refused(capsys: pytest.CaptureFixture[str], code: str, *words: str) -> None:
    assert main(words) == (1 if code == "weights-exist" else 2)
    [line] = capsys.readouterr().err.splitlines()
    assert f"[{code}]" in line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def llmc_file(path: Path) -> None:
    widths = {"": 8, "attn.c_attn": 24, "mlp.c_fc": 32}
    made = {"wte.weight": (130, 8), "wpe.weight": (8, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    for name in ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
        out, narrow = widths.get(name, 8), 32 if name == "mlp.c_proj" else 8
        made |= {f"h.0.{name}.bias": (out,), f"h.0.{name}.weight": (out,) if name.startswith("ln") else (out, narrow)}
    write_llmc_model(path, SIZES, {name: np.ones(shape, np.float32) for name, shape in made.items()})


@pytest.mark.parametrize(("name", "make"), [("mock.csv", csv), ("mock", npy), ("elsewhere.csv", csv)])
def test_mock_data_never_takes_the_dataset_s_place(
    name: str, make: object, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    make(here / name)
    if name == "elsewhere.csv":  # another name of the very file
        os.link(name, "mock.csv")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    manifest = program(here, TABLE)
    refused(capsys, "same-file", "data", "mock", name, "--program", manifest, "-o", ".")
    assert {path: path.read_bytes() for path in before} == before
    assert set(here.iterdir()) == {here / path.relative_to(here).parts[0] for path in before} | {here / "program.json"}


def test_mock_data_does_not_go_into_the_dataset(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npy(here / "d")
    before = sorted((here / "d").iterdir())
    refused(capsys, "same-file", "data", "mock", "d", "--program", program(here, TABLE), "-o", "d")
    assert sorted((here / "d").iterdir()) == before


def test_mock_data_where_a_folder_is_in_its_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv(here / "d.csv")
    (here / "out" / "mock.csv").mkdir(parents=True)
    refused(capsys, "cannot-write", "data", "mock", "d.csv", "--program", program(here, TABLE), "-o", "out")


def test_held_out_records_never_take_the_dataset_s_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv(here / "d.csv")
    npy(here / "d")
    before, manifest = (here / "d.csv").read_bytes(), program(here, TABLE)
    (here / "link.csv").symlink_to("d.csv")
    for output in ("d.csv", "link.csv", manifest):
        refused(capsys, "same-file", "data", "pack", "d.csv", "--program", manifest, "-o", output)
    refused(capsys, "same-file", "data", "pack", "d", "--program", manifest, "-o", "d/x.npy")
    assert (here / "d.csv").read_bytes() == before
    assert (
        main(["data", "pack", "d.csv", "--program", manifest, "-o", "/dev/null"]) == 0
    )  # what is no file loses nothing


def test_a_program_s_weights_take_no_other_file_s_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "same-file", *CLASSIFIER, "-o", "x.safetensors")
    assert list(here.iterdir()) == []
    (here / "model.safetensors").write_bytes(b"a released model")
    refused(capsys, "weights-exist", *CLASSIFIER, "-o", "model.gput")
    assert (here / "model.safetensors").read_bytes() == b"a released model"
    assert list(here.iterdir()) == [here / "model.safetensors"]
    for more in ([], [], ["--option", "seed=5"]):  # its own it writes anew, the same and others
        assert main([*CLASSIFIER, "-o", "mine.gput", *more]) == 0


def test_no_conversion_takes_the_place_of_what_it_converts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llmc_file(here / "f.bin")
    before = (here / "f.bin").read_bytes()
    for words in (["-o", "s.gput", "--program", "s.gput"], ["-o", "f.bin"], ["-o", "s", "--program", "f.bin"]):
        refused(capsys, "same-file", "program", "llmc-import", "f.bin", *words)
    assert list(here.iterdir()) == [here / "f.bin"]
    assert main(["program", "llmc-import", "f.bin", "-o", "m", "--program", "p.gput"]) == 0
    capsys.readouterr()
    for output in ("m", "p.gput"):
        refused(capsys, "same-file", "program", "llmc-export", "m", "--program", "p.gput", "-o", output)
    refused(capsys, "cannot-write", "program", "llmc-export", "m", "--program", "p.gput", "-o", "absent/x.bin")
    assert main(["program", "llmc-export", "m", "--program", "p.gput", "-o", "again.bin"]) == 0
    assert (here / "again.bin").read_bytes() == before == (here / "f.bin").read_bytes()


def test_an_export_that_does_not_fit_leaves_what_was_there(here: Path) -> None:
    llmc_file(here / "f.bin")
    assert main(["program", "llmc-import", "f.bin", "-o", "m", "--program", "p.gput"]) == 0
    (here / "out.bin").write_bytes(b"before")
    code = "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from gput.__main__ import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", code, "program", "llmc-export", "m", "--program", "p.gput", "-o", "out.bin"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, "[cannot-write]" in ended.stderr) == (2, True), ended.stderr
    assert (here / "out.bin").read_bytes() == b"before"
    assert {path.name for path in here.iterdir()} == {"f.bin", "m", "p.gput", "out.bin"}


def test_a_bench_does_not_keep_its_figures_in_what_it_reads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CLASSIFIER, "-o", "x.gput"]) == 0
    before = Path("x.gput").read_bytes()
    capsys.readouterr()
    refused(capsys, "same-file", "bench", "lengths", "--program", "x.gput", "--save", "x.gput")
    assert Path("x.gput").read_bytes() == before


def test_a_program_does_not_take_its_own_source_s_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own_parts.py").write_text("from gpu_agent.workload.programs.classifier import source as program\n")
    (here / "own_model.py").write_text("from own_parts import program as program\n")
    before = {path: path.read_bytes() for path in here.glob("*.py")}
    options = [word.replace("classifier", "own_model:program") for word in CLASSIFIER]
    for output in ("own_model.py", "own_parts.py"):
        refused(capsys, "same-file", *options, "-o", output)
    assert {path: path.read_bytes() for path in here.glob("*.py")} == before
    assert list(here.glob("*.safetensors")) == []


@pytest.mark.parametrize("words", [
    ["session", "export", SESSION, "-o", "k.pem"], ["session", "export", SESSION, "--receipts", "r", "-o", "r/leaves.jsonl"],
    ["session", "succeed", SESSION, "-o", "k.pem"],
], ids=" ".join)  # fmt: skip
def test_nothing_from_the_orchestrator_takes_the_place_of_a_key_or_of_receipts(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PartyKey.generate().save(here / "k.pem")
    (here / "r").mkdir()
    (here / "r" / "leaves.jsonl").write_text("{}")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    refused(capsys, "same-file", *words, "--url", "http://127.0.0.1:9", "--key", "k.pem")
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


READERS = json.dumps({token_digest("carl's"): "carl", token_digest("maria's"): "maria"})
ISSUE = ["token", "issue", "carl", "--file", "n.json", "--replace"]
ROTATE = ["token", "rotate", "--holder-url", "http://127.0.0.1:9", "--token", "operator.token"]
HOLDS = {
    "n.json": READERS,
    "k.pem": "a private key",
    "carls": "carl's\n",
    "marias": "maria's\n",
    "operator.token": "a" * 64,
}


@pytest.mark.parametrize(("words", "code"), [
    ([*ISSUE, "-o", "k.pem"], "token-exists"), ([*ISSUE, "-o", "marias"], "token-exists"), ([*ISSUE, "-o", "n.json"], "same-file"),
    ([*ISSUE[:-1], "-o", "carls"], "token-exists"), ([*ISSUE, "-o", "n"], "same-file"),
    ([*ROTATE, "-o", "k.pem"], "token-exists"), ([*ROTATE, "--of", "auditor", "-o", "operator.token"], "same-file"),
    ([*ROTATE, "-o", "operator"], "same-file"),
], ids=str)  # fmt: skip
def test_a_token_takes_the_place_of_its_forerunner_alone(
    words: list[str], code: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in HOLDS.items():
        (here / name).write_text(content)
    for name, other in (("n.next", "n.json"), ("operator.next", "operator.token")):  # where the next token would wait
        os.link(here / other, here / name)
    before = {path: path.read_bytes() for path in here.iterdir()}
    assert main(words) == (1 if code == "token-exists" else 2)
    assert f"[{code}]" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in here.iterdir() if not path.name.endswith(".lock")} == before


def test_that_an_old_token_is_refused_is_said_where_there_was_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in HOLDS.items():
        (here / name).write_text(content)
    assert main([*ISSUE, "-o", "carls"]) == 0
    assert "the old one is refused" in capsys.readouterr().err
    assert main(["token", "issue", "paul", "--file", "n.json", "--replace"]) == 0
    assert "refused" not in capsys.readouterr().err
    assert token_digest((here / "carls").read_text().strip()) in json.loads((here / "n.json").read_text())
