"""`gput data mock`: it has the form of the dataset and fits the schema, and nothing of the dataset's content is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from data_holder.datasets import inspect_dataset
from data_holder.datasets.tokens import HEADER_INTS, MAGIC
from gput.__main__ import main
from gput.commands.reading import program_manifest

WINDOW = 6
"""Bytes of a run that would be a record's own: one in 10^14 by chance."""
CANARY = "patient_alice"
TABLE: list[dict[str, Any]] = [
    {"name": "x", "dtype": "float32", "shape": [3], "min": -4, "max": 0.1},
    {"name": "y", "dtype": "int64", "min": 0, "max": 9},
]
TOKENS: list[dict[str, Any]] = [{"name": "tokens", "dtype": "uint16", "shape": [17], "min": 0, "max": 60_000}]
BYTES: list[dict[str, Any]] = [{"name": "tokens", "dtype": "uint8", "shape": [17]}]
draws = np.random.default_rng(5)
REAL: dict[str, Any] = {"x": draws.uniform(-4, 0.1, (50, 3)).astype(np.float32), "y": draws.integers(0, 10, 50)}
STREAM = draws.integers(0, 60_000, 1700).astype("<u2")


def program(folder: Path, fields: list[dict[str, Any]], tokenizer: str = "none") -> str:
    made = {
        "format": "gput-program/1", "name": "p", "records": {"fields": fields}, "parameters": [{"name": "w", "dtype": "float32"}],
        "graphs": {"train": "0" * 96, "eval": "0" * 96}, "operators": [], "tokenizer": tokenizer,
        "initial_weights": {"kind": "seed", "seed": 0, "rules": []},
    }  # fmt: skip
    (folder / "program.json").write_text(json.dumps(made))
    return str(folder / "program.json")


def csv(path: Path) -> None:
    rows = [f"{a:.7f},{b:.7f},{c:.7f},{y}" for (a, b, c), y in zip(REAL["x"].tolist(), REAL["y"].tolist(), strict=True)]
    path.write_text(f"{CANARY},q,r,label\n" + "\n".join(rows))


def npy(path: Path) -> None:
    path.mkdir()
    for name, values in REAL.items():
        np.save(path / f"{name}.npy", values)


def text(path: Path) -> None:
    path.mkdir()
    (path / "a.txt").write_bytes(STREAM.tobytes())


def llmc(path: Path) -> None:
    header = np.zeros(HEADER_INTS, "<i4")
    header[:3] = MAGIC, 1, len(STREAM)
    path.write_bytes(header.tobytes() + STREAM.tobytes())


FORMS: dict[str, tuple[Callable[[Path], object], list[dict[str, Any]], str]] = {
    "d.csv": (csv, TABLE, "none"), "d.npz": (lambda path: np.savez(path, **REAL), TABLE, "none"), "d": (npy, TABLE, "none"),
    "d.safetensors": (lambda path: save_file(REAL, path), TABLE, "none"), "t": (text, BYTES, "bytes"),
    "t.txt": (lambda path: path.write_bytes(STREAM.tobytes()), BYTES, "bytes"), "t.bin": (llmc, TOKENS, "external"),
    "raw.bin": (lambda path: path.write_bytes(STREAM.tobytes()), TOKENS, "external"),
}  # fmt: skip


def contents(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


def runs(content: bytes) -> set[bytes]:
    return {content[at : at + WINDOW] for at in range(len(content) - WINDOW + 1)}


@pytest.mark.parametrize("name", FORMS)
def test_it_has_the_form_of_the_dataset_and_nothing_of_its_records(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write, fields, tokenizer = FORMS[name]
    write(tmp_path / name)
    manifest, out = program(tmp_path, fields, tokenizer), tmp_path / "out"
    words = ["data", "mock", str(tmp_path / name), "--program", manifest, "-o", str(out), "--count", "40"]
    assert main([*words, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    real = inspect_dataset(tmp_path / name, program_manifest(Path(manifest)))
    mock = inspect_dataset(Path(told["path"]), program_manifest(Path(manifest)))
    assert mock.fits, mock.findings
    assert (mock.kind, mock.records) == (real.kind, 40)
    assert Path(told["path"]).is_dir() == (tmp_path / name).is_dir()
    made = contents(out)
    private = runs(STREAM.tobytes())
    if fields is TABLE:  # as it lies in arrays, and as it stands in cells
        csv(tmp_path / "cells")
        cells = (tmp_path / "cells").read_bytes().replace(b"\n", b",").split(b",")
        private = runs(REAL["x"].tobytes()) | {cell for cell in cells if len(cell) > WINDOW}
    assert private
    assert any(run in contents(tmp_path) for run in private), "it would have been seen"
    assert not {run for run in private if run in made}
    assert CANARY.encode() not in made
    first = contents(out)
    assert main(words) == 0
    assert contents(out) == first, "the same seed makes the same records"


def test_its_values_are_the_declared_ranges_edges_and_between(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **REAL)
    assert (
        main(["data", "mock", str(tmp_path / "d.npz"), "--program", program(tmp_path, TABLE), "-o", str(tmp_path)]) == 0
    )
    made = np.load(tmp_path / "mock.npz")
    assert (made["x"][0] == -4).all()
    assert (made["x"][1] == np.float32(0.1)).all()
    assert set(made["y"].tolist()) == set(range(10))


def test_a_dataset_of_a_holders_settings_by_a_schema_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv(tmp_path / "d.csv")
    (tmp_path / "schema.json").write_text(json.dumps({"fields": TABLE}))
    (tmp_path / "holder.toml").write_text(
        f'name = "north"\ndata_dir = "{tmp_path}"\ntrust_dir = "{tmp_path}"\norchestrator_url = "http://127.0.0.1:1"\n'
        f'evidence = "configfs-tsm:"\ndatasets = {{patients = "{tmp_path / "d.csv"}"}}\n'
    )
    known = [
        "--config",
        str(tmp_path / "holder.toml"),
        "--fields",
        str(tmp_path / "schema.json"),
        "-o",
        str(tmp_path / "out"),
    ]
    assert main(["data", "mock", "patients", *known]) == 0
    assert json.loads((tmp_path / "out" / "schema.json").read_text())["fields"][0]["name"] == "x"
    header = (tmp_path / "out" / "mock.csv").read_text().splitlines()[0]
    assert header == "x_0,x_1,x_2,label"
    assert main(["data", "mock", "others", *known]) == 2
    assert "unknown-dataset" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "code"), [
    ((), "no-schema-named"), (("--fields", "absent"), "no-file"), (("--fields", "WRONG"), "invalid-schema"),
    (("--fields", "OTHER"), "data-wrong-shape"), (("--fields", "EMPTY"), "no-mock"),
])  # fmt: skip
def test_what_cannot_be_made_up_is_said_in_one_line(
    words: tuple[str, ...], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "d.npz", **REAL)
    files = {
        "WRONG": {"fields": [{"name": "x", "dtype": "complex64"}]}, "OTHER": {"fields": [TABLE[0] | {"shape": [4]}]},
        "EMPTY": {"fields": [TABLE[1] | {"min": 0.2, "max": 0.8}]},
    }  # fmt: skip
    for name, fields in files.items():
        (tmp_path / name).write_text(json.dumps(fields))
    named = [str(tmp_path / word) if word in files else word for word in words]
    assert main(["data", "mock", str(tmp_path / "d.npz"), *named, "-o", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"[{code}]" in line
