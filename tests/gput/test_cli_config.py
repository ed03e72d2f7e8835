"""Where a setting comes from: flag, environment, file, default, in this order; for the client and for services. No secret is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gput.service_settings import HIDDEN, redacted
from tests.gput.test_gput_commands import NOBODY, run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GPUT_URL", "GPUT_KEY", "GPUT_TRUST", "GPUT_HOLDER_URL", "GPUT_HOLDER_TOKEN", "GPUT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gput").mkdir()
    return tmp_path / "gput" / "config.toml"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[object, str]]:
    code, out, err = run(capsys, "config", "show", *words, "--origin", "--format", "json")
    assert (code, err) == (0, "")
    return {row["setting"]: (row["value"], row["origin"]) for row in json.loads(out)}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(capsys)["url"] == (None, "default")
    file.write_text('url = "http://file"\nkey = "owner.pem"\nallow_emulated = true\ntrust = "/roots"\n')
    found = shown(capsys)
    assert found["url"] == ("http://file", f"file {file}")
    assert found["key"] == (str(file.parent / "owner.pem"), f"file {file}"), "meant from the file's folder"
    assert (found["allow_emulated"], found["holder_url"]) == ((True, f"file {file}"), (None, "default"))
    monkeypatch.setenv("GPUT_URL", "http://environment")
    assert shown(capsys)["url"] == ("http://environment", "environment GPUT_URL")
    assert shown(capsys, "--url", "http://flag")["url"] == ("http://flag", "flag")
    monkeypatch.setenv("GPUT_ALLOW_EMULATED", "0")
    assert shown(capsys)["allow_emulated"] == (False, "environment GPUT_ALLOW_EMULATED")


def test_commands_take_what_is_shown(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same precedence where it counts: whom a command calls."""
    run(capsys, "party", "init", str(file.parent / "k.pem"))
    file.write_text('url = "http://127.0.0.1:9"\nkey = "k.pem"\n')
    code, _, err = run(capsys, "session", "list")
    assert (code, "http://127.0.0.1:9" in err) == (6, True)
    monkeypatch.setenv("GPUT_URL", "ftp://environment")
    assert "ftp://environment" in run(capsys, "session", "list")[2]
    assert "ftp://flag" in run(capsys, "session", "list", "--url", "ftp://flag")[2]
    monkeypatch.setenv("GPUT_TRUST", str(file.parent / "nowhere"))
    code, _, err = run(capsys, "session", "list", "--url", NOBODY)
    assert (code, "/v1/attestation" in err) == (6, True), "with a trust folder it would attest first"


def test_an_empty_variable_is_as_good_as_none(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUT_CONFIG", "")
    assert shown(capsys)["url"] == (None, "default")
    file.write_text('allow_emulated = true\ntrust = "/roots"\n')
    monkeypatch.setenv("GPUT_ALLOW_EMULATED", "")
    assert shown(capsys)["allow_emulated"] == (True, f"file {file}")
    file.write_text("")  # shown without a trust folder, too: that may come by a flag
    for word, meant in {"t": True, "y": True, "f": False, "N": False}.items():
        monkeypatch.setenv("GPUT_ALLOW_EMULATED", word)
        assert shown(capsys)["allow_emulated"] == (meant, "environment GPUT_ALLOW_EMULATED")


@pytest.mark.parametrize(("text", "says"), [
    ("urll = 'x'\n", "sets urll, which is no setting"), ("url = 3\n", "not a str"), ("url = ", "is not TOML"),
    ("allow_emulated = 'yes'\n", "not a bool"),
])  # fmt: skip
def test_a_wrong_file_is_said(file: Path, capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    file.write_text(text)
    code, _, err = run(capsys, "session", "list", "--url", NOBODY, "--key", "k")
    assert (code, says in err, str(file) in err) == (2, True, True), err


def test_a_named_file_must_be_there(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUT_CONFIG", str(file.parent / "other.toml"))
    assert run(capsys, "config", "show")[0] == 2
    (file.parent / "other.toml").write_text('url = "http://other"\n')
    assert shown(capsys)["url"] == ("http://other", f"file {file.parent / 'other.toml'}")


def test_a_services_settings_and_their_origins(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "o.toml"
    config.write_text(
        'data_dir = "d"\nevidence = "configfs-tsm:"\nagent_url = "http://a"\nplatform_url = "http://p"\nowner_keys = "o"\nport = 1\n'
        'database_url = "postgresql+psycopg://me:hush@db/x"\n'
    )
    monkeypatch.setenv("GPUT_ORCHESTRATOR_PORT", "2")
    found = shown(capsys, "orchestrator", "--config", str(config))
    assert found["port"] == (2, "environment GPUT_ORCHESTRATOR_PORT")
    assert found["agent_url"] == ("http://a", f"file {config}")
    assert found["lease_s"] == (3.0, "default")
    assert found["database_url"] == (f"postgresql+psycopg://me:{HIDDEN}@db/x", f"file {config}")
    code, out, err = run(capsys, "config", "show", "platform", "--format", "json")
    assert (code, out, "agent_url" in err) == (2, "", True)


@pytest.mark.parametrize(("value", "shown_as"), [
    ("postgresql://a:b@h:5/d?x=1", "postgresql://a:***@h:5/d?x=1"), ("postgresql://h/d?user=a&password=b", "postgresql://h/d?***"),
    ("https://u:one@a, https://u:two@b:5/x", "https://u:***@a,https://u:***@b:5/x"), ("postgresql://u:p@h1,h2/d", "postgresql://u:***@h1,h2/d"),
    ("http://127.0.0.1:1", "http://127.0.0.1:1"), ("plain", "plain"), (3, 3), ("x://[broken", HIDDEN),
])  # fmt: skip
def test_a_password_is_not_shown(value: object, shown_as: object) -> None:
    assert redacted(value) == shown_as


def test_the_client_s_own_addresses_are_shown_without_passwords(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('url = "https://u:hush@a,https://u:hush@b"\nholder_url = "https://u:hush@h"\n')
    assert "hush" not in str(found := shown(capsys))
    assert (found["url"][0], found["holder_url"][0]) == ("https://u:***@a,https://u:***@b", "https://u:***@h")


def test_what_we_say_of_a_value_does_not_go_by_the_library_s_name_for_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "h.toml"
    config.write_text(f'database_url = "postgresql://h/d"\ndatasets = {{ {"a" * 300} = "/d" }}\n')
    code, _, err = run(capsys, "config", "show", "holder", "--config", str(config))
    assert (code, "setting datasets: this database keeps no" in err) == (2, True)
    (tmp_path / "fields.json").write_text('{"fields": []}')
    code, _, err = run(capsys, "data", "mock", "d", "--fields", str(tmp_path / "fields.json"), "-o", str(tmp_path))
    assert (code, "[invalid-schema]" in err, "Value error" in err) == (2, True, False)
