"""Every command's manners: one line per failure, documented exit codes, data alone on stdout, no traceback."""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import pytest
import typer

from data_holder.keyring import RecoveryKey
from gput.__main__ import COMMANDS, main
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.service.key_file import key_id

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def key(tmp_path: Path) -> str:
    PartyKey.generate().save(tmp_path / "k.pem")
    return str(tmp_path / "k.pem")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return code, told.out, told.err


@pytest.mark.parametrize("noun", COMMANDS)
def test_no_command_shows_typers_traceback(noun: str) -> None:
    app = importlib.import_module(COMMANDS[noun][0]).app
    assert isinstance(app, typer.Typer)
    assert app.pretty_exceptions_enable is False


@pytest.mark.parametrize("noun", COMMANDS)
def test_every_command_explains_itself(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, noun, "--help")
    assert run(capsys, noun, "-h") == (code, out, err)
    assert (code, err) == (0, "")
    assert f"Usage: gput {noun}" in out


@pytest.mark.parametrize(("words", "code", "says"), [
    (["nonsense"], 2, "[usage]"),
    (["session", "nonsense"], 2, "No such command 'nonsense'. `gput session --help` says what it takes. [usage]"),
    (["session", "submit"], 2, "`gput session submit --help` says what it takes. [usage]"),
    (["demo", "--rounds", "many"], 2, "Invalid value for '--rounds'"),
    (["demo", "--ruonds", "3"], 2, "No such option: --ruonds"),
    (["smoke", "--dry-run", "--format", "json"], 2, "a dry run has no result to print. `gput smoke --help` says what it takes. [usage]"),
    (["config", "show", "--config", "orchestrator.toml"], 2, "no service is named. Name the service"),
    (["session", "list", "--url", NOBODY, "--key", "absent.pem"], 2, "[key-file]"),
    (["session", "list", "--url", "ftp:x", "--key", "KEY"], 2, "not an http address"),
    (["session", "submit", "absent.json", "--url", NOBODY, "--key", "KEY"], 2, "[no-manifest]"),
    (["session", "list", "--url", NOBODY, "--key", "KEY"], 6, "[peer-unreachable]"),
    (["session", "cancel", "s_x", "--url", NOBODY, "--key", "KEY"], 2, "[needs-confirmation]"),
    (["session", "receipts", "s_x", "--url", NOBODY, "--key", "KEY", "--trust", "absent"], 2, "[no-trust]"),
    (["session", "export", "s_x", "--url", NOBODY, "--key", "KEY", "-o", "/proc/x/m"], 2, "[cannot-write]"),
    (["party", "init", "KEY"], 1, "[key-exists]"),
    (["party", "recovery-key", "KEY"], 1, "[key-exists]"),
    (["party", "recovery-key", "/proc/x/k.key"], 2, "[cannot-write]"),
    (["party", "init", "/proc/x/k.pem"], 2, "[cannot-write]"),
    (["party", "init", "/proc/x.pem"], 2, "cannot write /proc/x.pem"),
    (["party", "recovery-key", "/proc/x.key"], 2, "cannot write /proc/x.key"),
    (["session", "list", "--url", NOBODY, "--key", "PUB"], 2, "is the public half of a key"),
    (["token", "issue", "", "--file", "readers.json"], 2, "the name is empty. Name the person whom the token is for. [bad-name]"),
    (["token", "issue", "m\u200bia", "--file", "readers.json"], 2, "what cannot be seen"),
    (["party", "init", "."], 2, ". is a folder"),
    (["party", "init", "owner.pub"], 2, "Name the private key owner.pem"),
    (["session", "export", "s_x", "--url", NOBODY, "--key", "KEY", "-o", "."], 2, ". is a folder"),
    (["party", "enrol", "a", "KEY", "--url", NOBODY, "--key", "KEY"], 2, "[bad-public-key]"),
    (["party", "requests", "--holder-url", NOBODY, "--token", "absent"], 2, "[no-token]"),
    (["party", "requests", "--holder-url", NOBODY, "--token", "KEY"], 2, "is no token file"),
    (["party", "requests", "--holder-url", "foo", "--token", "TOKEN"], 2, "not an http address"),
    (["party", "requests", "--holder-url", NOBODY, "--token", "TOKEN"], 6, "[peer-unreachable]"),
    (["party", "veto", "s_x", "--manifest", "00", "--holder-url", NOBODY, "--token", "TOKEN"], 2, "[needs-confirmation]"),
    (["program", "inspect", "absent.gput"], 2, "absent.gput"),
    (["program", "inspect", "KEY"], 2, "[invalid-program]"),
    (["receipts", "show", "absent"], 2, "[no-receipts]"),
    (["session", "list", "--url", NOBODY, "--key", ""], 2, "is a folder, and a key file is needed. Name the file"),
    (["receipts", "verify", "absent"], 2, "there is no folder absent. Name a folder"),
    (["receipts", "verify", "/dev/null"], 2, "there is no folder /dev/null"),
    (["receipts", "verify", "."], 2, ". holds no SHA256SUMS"),
    (["receipts", "verify", "EMPTY"], 4, "SHA256SUMS is empty"),
    (["program", "inspect", "absent.gput"], 2, "Build one with `gput program build`. [no-program]"),
    (["plan", "absent.json"], 2, "Name a file that is there"),
    (["session", "submit", ".", "--url", NOBODY, "--key", "KEY"], 2, "Is a directory. Name a file that is there"),
    (["token", "list", "--file", "absent"], 2, "Name the file of the orchestrator's setting reader_tokens. [no-token]"),
    (["attest", "session", "s_x", "--url", NOBODY, "--key", "KEY"], 6, "[peer-unreachable]"),
    (["attest", "verify", "absent"], 2, "[no-file]"),
    (["attest", "inspect", "TOKEN"], 2, "[unknown-evidence]"),
    (["receipts", "verify", "absent"], 2, "[no-receipts]"),
    (["demo", "--dir", "/proc/x"], 2, "[cannot-write]"),
    (["demo", "--resume", "--dir", "absent"], 2, "[no-demo]"),
    (["demo", "--resume", "--rounds", "9", "--mode", "direct", "--dir", "absent"], 2, "Leave out: --rounds, --mode. [demo-option]"),
    (["demo", "--tours", "collect", "--mode", "paper"], 2, "[tours-mode]"),
    (["demo", "--tours", "accumulate", "--attack", "stale-key"], 2, "[demo-option]"),
])  # fmt: skip
def test_a_failure_is_one_line_and_an_exit_code(
    words: list[str], code: int, says: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "k.pub").write_bytes(PartyKey.load(Path(key)).public_pem)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "SHA256SUMS").touch()
    places = {
        "EMPTY": str(tmp_path / "empty"),
        "KEY": key,
        "PUB": str(tmp_path / "k.pub"),
        "TOKEN": str(tmp_path / "token"),
    }
    found, out, err = run(capsys, *(places.get(word, word) for word in words))
    assert (found, out, len(err.splitlines())) == (code, "", 1), err
    assert says in err
    assert "secret-token" not in err


def test_a_fault_of_ours_is_one_line_and_exit_code_5(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_arguments: object) -> None:
        secret = "hush"  # noqa: F841  # must not be shown
        raise RuntimeError("a\nb")

    monkeypatch.setattr("gput.receipts.verify", broken)
    code, out, err = run(capsys, "receipts", "verify", str(tmp_path))
    assert (code, out) == (5, "")
    assert err == "gput: internal error: RuntimeError: a b. Set GPUT_TRACEBACK=1 to see where. [internal]\n"
    monkeypatch.setenv("GPUT_TRACEBACK", "1")
    assert main(["receipts", "verify", str(tmp_path)]) == 5
    assert "in broken" in capsys.readouterr().err


def test_ctrl_c_is_exit_code_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gput.receipts.verify", interrupted)
    assert run(capsys, "receipts", "verify", str(tmp_path)) == (130, "", "gput: interrupted\n")


def test_doctor_names_the_dead_hop(capsys: pytest.CaptureFixture[str], key: str) -> None:
    code, out, err = run(capsys, "doctor", "--url", NOBODY, "--holder-url", "nowhere", "--key", key, "--format", "json")
    assert code == 6
    assert "failing: orchestrator: reachable, holder 1: reachable" in err
    assert "nothing answers" in out
    assert "is not an http address" in out


def test_a_key_is_made_with_its_folder_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "party", "init", "keys/mine/owner.pem")
    assert (code, err.splitlines()) == (0, [
        "made the folder keys/mine", "wrote keys/mine/owner.pem (keep it secret) and keys/mine/owner.pub",
    ])  # fmt: skip
    private, public = tmp_path / "keys/mine/owner.pem", tmp_path / "keys/mine/owner.pub"
    assert [path.stat().st_mode & 0o777 for path in (private.parent, private)] == [0o700, 0o600]
    assert PartyKey.load(private).fingerprint == out.strip() == fingerprint(load_public(public.read_bytes()))
    # Neither half is ever overwritten, not by the key of another name either.
    kept = private.read_bytes(), public.read_bytes()
    for again in ("keys/mine/owner.pem", "keys/mine/owner.key"):
        code, out, err = run(capsys, "party", "init", again)
        assert (code, out) == (1, "")
        assert "exists already and is kept" in err
    assert (private.read_bytes(), public.read_bytes()) == kept
    assert sorted(path.name for path in private.parent.iterdir()) == ["owner.pem", "owner.pub"]
    assert run(capsys, "party", "init", "second.pem")[2].startswith("wrote second.pem")


def test_a_recovery_key_is_made_for_its_owner_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "keys" / "recovery.key"
    code, out, err = run(capsys, "party", "recovery-key", str(file))
    assert (code, f"wrote {file}" in err, file.stat().st_mode & 0o777) == (0, True, 0o600)
    assert RecoveryKey.read(file).key.reveal() == (kept := file.read_bytes())
    assert (out.strip(), kept.hex() in out + err) == (key_id(Secret(kept)), False)
    assert run(capsys, "party", "recovery-key", str(file))[0] == 1
    assert file.read_bytes() == kept


def test_a_seed_that_no_cursor_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "pack", "absent.csv", "--program", "absent", "-o", str(tmp_path / "x"), "--seed", str(2**53)]
    assert main(words) == 2
    assert "--seed" in capsys.readouterr().err


def test_a_key_whose_public_half_cannot_be_written_does_not_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the next try would find its name taken."""
    key, public = tmp_path / "k.pem", tmp_path / "k.pub"
    public.symlink_to(tmp_path / "nowhere" / "k.pub")
    assert main(["party", "init", str(key)]) == 2
    assert "[cannot-write]" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["k.pub"]
    public.unlink()
    assert main(["party", "init", str(key)]) == 0
    assert load_public(public.read_bytes()) == PartyKey.load(key).public
