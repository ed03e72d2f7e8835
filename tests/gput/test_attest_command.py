"""`gput attest` over an emulated installation's evidence: formats, companions, verdicts, exit codes, and what stays unusable."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gput.__main__ import main
from gput.attest import table as table_of_checks
from gput.bench.result import read
from gput.commands.attest import moment
from shared.attestation.ear import read_result
from shared.crypto.signing import PartyKey
from tests.attestation.cpu_world import AT
from tests.attestation.gpu_evidence_world import NONCE
from tests.gput.attest_world import DATA, KEY, TIME, Files, make

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make(tmp_path_factory.mktemp("attest"))


@pytest.fixture
def gput(files: Files, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(verb, evidence by name, options) -> exit code, stdout, stderr; under the installation's own trust and time."""
    monkeypatch.delenv("GPUT_KEY", raising=False)

    def run(verb: str, names: str, *options: str, trusted: bool = True) -> tuple[int, str, str]:
        paths = [name if name.startswith("/") or name == "-" else files.path(name) for name in names.split()]
        own = ["--trust", str(files.trust), "--allow-emulated", "--at", TIME] if trusted and verb != "inspect" else []
        code = main(["attest", verb, *paths, *own, *options])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        assert len(told.err.splitlines()) == (0 if code == 0 else 1), told.err
        return code, told.out, told.err

    return run


def test_the_time_is_the_worlds() -> None:
    assert moment(TIME) == AT


GPU, CVM = ("--nonce", NONCE.hex()), ("--report-data", DATA.hex(), "--role", "orchestrator")
ACCEPTED = [
    ("quote.bin", CVM), ("quote.hex", CVM), ("quote.b64", CVM), ("cvm.json", CVM), ("quote.bin collateral.json", CVM),
    ("report.bin chain.pem", GPU), ("chain.pem report.txt", GPU), ("nvidia.json", GPU), ("gpu.json", GPU),
    ("snp.bin vcek.der", CVM), ("vcek.der ask.pem snp.bin", CVM), ("snp.bin table.bin", CVM), ("snp.json", CVM),
    ("quote.bin report.bin chain.pem snp.json", GPU + CVM), ("driver.xml vbios.xml", ()), ("chain.pem", ()), ("collateral.json", ()),
]  # fmt: skip


@pytest.mark.parametrize(("names", "options"), ACCEPTED, ids=lambda value: value if isinstance(value, str) else "")
def test_accepted(gput: Any, names: str, options: tuple[str, ...]) -> None:
    code, out, err = gput("verify", names, *options)
    assert (code, err) == (0, ""), out
    assert "FAIL" not in out
    assert len(re.findall(r"^accepted", out, re.MULTILINE)) >= 1
    assert "EMULATED" in out or "quote" not in names
    assert gput("explain", names, *options)[:2] == (0, out)


REFUSED = [
    ("quote.bin", ("--role", "orchestrator"), "report-data-unknown"), ("quote.bin", ("--report-data", DATA.hex()), "role-unknown"),
    ("quote.bin", ("--report-data", "00" * 64, "--role", "orchestrator"), "quote-report-data"),
    ("quote.bin", ("--report-data", DATA.hex(), "--role", "data_holder"), "cvm-measurement"),
    ("quote5.bin", CVM, "quote-root-unknown"), ("report.bin", GPU, "gpu-chain-malformed"), ("report.bin chain.pem", (), "gpu-nonce"),
    ("report.bin chain.pem", ("--nonce", "00" * 32), "gpu-nonce"), ("snp.bin", CVM, "snp-leaf-missing"),
    ("snp.bin vcek.der", ("--report-data", DATA.hex(), "--role", "data_holder"), "cvm-measurement"),
    ("quote.bin snp.json", ("--report-data", DATA.hex()), "role-unknown"), ("vcek.der", (), "not-checked"),
    ("table.bin", (), "no-evidence"),
    ("result.jwt", (), "no-verifier-key"), ("nvidia-eat.json", (), "no-verifier-key"), ("ask.pem", (), "gpu-chain-malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "options", "says"), REFUSED)
def test_refused_with_one_line_and_exit_code_4(gput: Any, names: str, options: tuple[str, ...], says: str) -> None:
    code, out, err = gput("verify", names, *options)
    assert (code, "\nrefused" in out) == (4, True), out
    assert f"[{says}]" in err or says == "not-checked"
    assert gput("explain", names, *options)[0] == 0


def test_without_trust_nothing_emulated_counts(gput: Any) -> None:
    for names, options in (
        ("quote.bin collateral.json", CVM),
        ("nvidia.json driver.xml vbios.xml", GPU),
        ("snp.json", CVM),
    ):
        for allowed in ((), ("--allow-emulated",)):
            code, out, _ = gput("verify", names, "--at", TIME, "--genuine-only", *options[:2], *allowed, trusted=False)
            assert (code, "root-unknown" in out or "chain-incomplete" in out) == (4, True), out


def test_emulation_must_be_allowed(gput: Any, files: Files) -> None:
    for names, options, says in (
        ("quote.bin", CVM, "quote-root-set"),
        ("nvidia.json", GPU, "gpu-root-set"),
        ("snp.json", CVM, "snp-root-set"),
    ):
        code, _, err = gput("verify", names, "--trust", str(files.trust), "--at", TIME, *options, trusted=False)
        assert (code, says in err) == (4, True), err


def test_genuine_only_leaves_open_what_there_is_nothing_to_compare_with(gput: Any) -> None:
    code, out, _ = gput("verify", "quote.bin nvidia.json snp.json", "--genuine-only")
    assert code == 0
    assert "left open by the policy: report-data, measurements" in out
    found = json.loads(gput("verify", "quote.bin nvidia.json snp.json", "--genuine-only", "--format", "json")[1])
    made = [one["ear.trustworthiness-vector"] for one in found]
    assert ["executables" in claims for claims in made] == [
        False,
        True,
        False,
    ]  # manifests were at hand for the GPU only
    assert gput("verify", "quote.bin", "--genuine-only", "--report-data", "00" * 64)[0] == 4


def test_a_policy_file(gput: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"roots": ["EMULATED"], "gpu": {"modes": ["mpt"]}}')
    assert gput("verify", "nvidia.json", *GPU, "--policy", str(policy))[2].count("[gpu-feature-flag]") == 1
    policy.write_text(json.dumps({"roots": ["EMULATED"], "measurements": ["00" * 48]}))
    assert "[cvm-measurement]" in gput("verify", "quote.bin", "--report-data", DATA.hex(), "--policy", str(policy))[2]
    for text, says in (('{"roots": []}', "roots: has 0 entries"), ('{"roots": ["AMS"]}', "AMS"), ("{", "JSON")):
        policy.write_text(text)
        code, out, err = gput("verify", "quote.bin", "--policy", str(policy))
        assert (code, out, says in err) == (2, "", True), err
    assert gput("verify", "quote.bin", "--policy", str(tmp_path / "absent"))[0] == 2


def test_formats(gput: Any, files: Files, tmp_path: Path) -> None:
    code, out, _ = gput("verify", "quote.bin snp.json", *CVM, "--format", "json")
    found = json.loads(out)
    assert (code, [one["verdict"] for one in found]) == (0, ["accepted"] * 2)
    assert found[0]["gput.root-set"] == "EMULATED"
    assert found[0]["ear.veraison.annotated-evidence"]["tdx.quote.body.report_data"] == DATA.hex()
    assert {check["status"] for check in found[1]["checks"]} == {"pass", "not-checked"}
    lines = gput("explain", "quote.bin snp.json", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line)["verdict"] for line in lines] == ["refused"] * 2
    KEY.save(tmp_path / "k.pem")
    (tmp_path / "k.pub").write_bytes(KEY.public_pem)
    code, out, _ = gput(
        "verify", "nvidia.json quote.bin", *GPU, *CVM, "--format", "ear", "--key", str(tmp_path / "k.pem")
    )
    result = read_result(out.strip(), KEY.public, at=9e9)
    assert (code, result.accepted, set(result.submodules)) == (0, True, {"gpu", "cvm"})
    assert result.about["verified-at"].startswith("2026-09-21T")
    (tmp_path / "token").write_text(out)
    read = ("--verifier-key", str(tmp_path / "k.pub"), "--allow-emulated")
    assert gput("verify", str(tmp_path / "token"), *read, trusted=False)[0] == 0
    assert "[result-emulated]" in gput("verify", str(tmp_path / "token"), *read[:2], trusted=False)[2]
    PartyKey.generate().save(tmp_path / "other.pem")
    code, out, _ = gput("verify", "nvidia.json", "--format", "ear", "--key", str(tmp_path / "k.pem"))
    assert (code, read_result(out.strip(), KEY.public, at=9e9).accepted) == (4, False)
    assert gput("verify", "nvidia.json", "--format", "ear")[0] == 2
    assert gput("explain", "chain.pem", "--format", "ear", "--key", str(tmp_path / "k.pem"))[0] == 2


def test_a_result_of_another_key_is_refused(gput: Any, tmp_path: Path) -> None:
    (tmp_path / "k.pub").write_bytes(PartyKey.generate().public_pem)
    assert "[token-key]" in gput("verify", "result.jwt", "--verifier-key", str(tmp_path / "k.pub"))[2]


def test_inspect_shows_fields_and_believes_nothing(gput: Any, files: Files) -> None:
    for name in sorted(os.listdir(files.folder)):
        code, out, _ = gput("inspect", name, "--format", "json")
        assert code == 0, name
        assert all(record["file"] == name and len(record) > 2 for record in json.loads(out))
        assert gput("inspect", name)[1]
    quote = json.loads(gput("inspect", "quote.b64", "--format", "json")[1])[0]
    assert (quote["is"], quote["tdx.quote.body.report_data"]) == ("TDX quote", DATA.hex())
    tampered = files.folder.parent / "tampered.bin"
    tampered.write_bytes(bytes(b ^ (i == 600) for i, b in enumerate((files.folder / "quote.bin").read_bytes())))
    assert gput("inspect", str(tampered))[0] == 0
    assert gput("verify", str(tampered), *CVM)[0] == 4


def test_the_table_has_a_line_per_check_in_a_pipe_and_fits_a_screen(gput: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = gput("explain", "quote.bin", "--role", "data_holder")
    rows = [line for line in out.splitlines() if line.startswith("  ")]
    assert len(rows) == 21
    wrong = next(line for line in rows if line.split()[0] == "measurements")
    assert re.search(
        r"FAIL .* expected [0-9a-f]{12}…[0-9a-f]{8}; got [0-9a-f]{12}…[0-9a-f]{8}; to do: compare the builds", wrong
    )
    monkeypatch.setattr(table_of_checks, "_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    _, folded, _ = gput("explain", "quote.bin", "--role", "data_holder")
    assert max(map(len, folded.splitlines())) <= 80
    assert [line.split()[0] for line in folded.splitlines() if re.match(r"  \S", line)] == [
        line.split()[0] for line in rows
    ]


# ------------------------------------------------------------------ what cannot be used


def test_unusable_input_is_one_line_and_exit_code_2(
    gput: Any, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b" \n\t\n")
    (tmp_path / "junk").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "text").write_text("To whom it may concern")
    (tmp_path / "huge").write_bytes(b"\x04\0\x02\0\x81\0\0\0" * (1 << 20) + b"x")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "object").write_text('{"quote": 3}')
    (tmp_path / "cut.json").write_bytes((files.folder / "nvidia.json").read_bytes()[:200])
    (tmp_path / "rim").write_text("<SoftwareIdentity/>")
    (tmp_path / "bomb").write_text('<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>')
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = sorted(path.name for path in tmp_path.iterdir())
    for verb in ("verify", "explain", "inspect"):
        for path in [*(str(tmp_path / name) for name in names), "/dev/zero", "/absent", "/dev/null", "/" + "x" * 300]:
            code, out, err = gput(verb, path)
            assert (code, out) == (2, ""), (verb, path, err)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert gput("verify", "-")[0] == 2


def test_cut_short_evidence_says_where_it_ends(gput: Any, files: Files, tmp_path: Path) -> None:
    for name, options in (("quote.bin", CVM), ("report.bin", GPU)):
        (tmp_path / name).write_bytes((files.folder / name).read_bytes()[:-100])
        code, out, err = gput("verify", str(tmp_path / name), *options)
        assert (code, "layout" in out, "malformed" in err) == (4, True, True), err
        assert gput("explain", str(tmp_path / name), *options)[0] == 2
        assert gput("inspect", str(tmp_path / name))[0] == 2


def test_nothing_that_was_named_is_passed_over(gput: Any, files: Files, tmp_path: Path) -> None:
    """The trust folder has collateral of its own, so the quote could do without the file; whoever named it should know."""
    document = json.loads((files.folder / "collateral.json").read_bytes())
    for name, content in (("chain.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
                          ("collateral.json", json.dumps({**document, "pck_crl": "zz"}).encode())):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        code, out, err = gput("verify", f"quote.bin {tmp_path / name}", *CVM)
        assert (code, out, "[malformed-evidence]" in err) == (2, "", True)
    forged = {**document, "tcb_info_signature": "00" * 64}
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    assert gput("verify", f"quote.bin {tmp_path / 'forged.json'}", *CVM)[0] == 4


@pytest.mark.parametrize("options", [
    ("--nonce", "xyz"), ("--nonce", "00"), ("--report-data", "00" * 63), ("--at", "yesterday"), ("--at", "2026-01-01"),
    ("--trust", "/absent"), ("--verifier-key", "/absent"), ("--role", "owner"),
    ("--at", "0001-01-01T00:00:00+14:00"), ("--at", "9999-12-31T23:59:59-14:00"), ("--at", "9999-12-31T23:59:59.999999Z"),
])  # fmt: skip
def test_wrong_options(files: Files, capsys: Capture, options: tuple[str, ...]) -> None:
    assert main(["attest", "verify", files.path("quote.bin"), *options]) == 2
    assert capsys.readouterr().out == ""


def test_standard_input(gput: Any, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((files.folder / "cvm.json").read_bytes())))
    assert gput("verify", "-", *CVM)[0] == 0


def test_bench_times_each_piece_of_evidence(files: Files, tmp_path: Path, capsys: Capture) -> None:
    names = [files.path(name) for name in ("quote.bin", "report.bin", "chain.pem", "snp.bin", "vcek.der", "ask.pem")]
    words = ["bench", "attest", *names, "--trust", str(files.trust), "--at", TIME, "--runs", "2", "--format", "json"]
    assert main([*words, "--save", str(tmp_path / "kept.json")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["evidence"], row["verdict"]) for row in rows] == [
        (n, "accepted") for n in ("quote.bin", "report.bin", "snp.bin")
    ]
    assert all(row[name] > 0 for row in rows for name in ("warm_ms", "met_first_ms", "cold_ms"))
    assert all(row["checks"] >= 20 for row in rows)
    kept = read(tmp_path / "kept.json")
    assert (kept.parameters["pieces"], kept.parameters["refused"]) == (6, 0)
    assert kept.figures["3-sev-snp-report.cold_ms"].runs == (rows[2]["cold_ms"],)
    assert main(["bench", "attest", files.path("chain.pem")]) == 2


def test_no_service_and_no_framework_is_imported(files: Files) -> None:
    heavy = ("torch", "fastapi", "sqlalchemy", "uvicorn", "orchestrator", "data_holder", "gpu_agent")
    words = ["attest", "explain", files.path("quote.bin"), files.path("nvidia.json"), files.path("snp.json")]
    code = f"import sys; from gput.__main__ import main; main({words!r}); print([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
