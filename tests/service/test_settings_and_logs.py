"""Settings say which one is wrong without showing it; logs show neither secrets nor bytes."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from shared.errors import ConfigurationError, Refused
from shared.service import logging as logs
from shared.service.app import create_service_app
from shared.service.logging import bind, configure_logging, get_logger, redact
from shared.service.printable import printable
from shared.service.settings import ServiceSettings


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SAMPLE_", extra="forbid")

    name: str = "x"
    datasets: dict[str, Path] = Field(default_factory=dict)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "service.toml"
    path.write_text('data_dir = "/from/file"\nname = "file"\nport = 1000\n[datasets]\na = "/a"\n')
    return path


def test_arguments_over_environment_over_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_NAME", "environment")
    monkeypatch.setenv("SAMPLE_PORT", "2000")
    settings = Settings.load(config, port=3000)
    assert (settings.name, settings.port, settings.data_dir) == ("environment", 3000, Path("/from/file"))
    assert settings.datasets == {"a": Path("/a")}
    assert (settings.host, settings.allow_emulated) == ("127.0.0.1", False)
    with pytest.raises(ConfigurationError):
        Settings.load()  # the file of the call before is forgotten: data_dir is missing


def test_default_database_lies_in_data_dir_and_is_private(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path / "state")
    assert settings.store_url == f"sqlite:///{tmp_path}/state/state.db"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert Settings.load(data_dir=tmp_path, database_url="postgresql://h/x").store_url == "postgresql://h/x"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="data_dir"):
        _ = Settings.load(data_dir=tmp_path / "file" / "below").store_url
    with pytest.raises(ConfigurationError, match="database_url is not"):
        _ = Settings.load(data_dir=tmp_path, database_password_file=tmp_path / "file").store_url


@pytest.mark.parametrize(
    ("text", "named", "remedy"),
    [
        ("data_dir = '/d'\nport = 'hunter2'", "port", "SAMPLE_PORT"),
        ("data_dir = '/d'\nport = 70000", "port", "SAMPLE_PORT"),
        ("data_dir = '/d'\nnmae = 'hunter2'", "nmae", "the settings are host, port"),
        ("data_dir = '/d'\nlog_level = 'hunter2'", "log_level", "SAMPLE_LOG_LEVEL"),
        ("", "data_dir", "SAMPLE_DATA_DIR"),
        ("data_dir = '/d'\nhost = ''", "host", "SAMPLE_HOST"),
        ("data_dir = '/d'\nmetrics_host = ''", "metrics_host", "SAMPLE_METRICS_HOST"),
        *(
            (f"data_dir = '/d'\npublic_url = '{url}'", "public_url", "SAMPLE_PUBLIC_URL")
            for url in (
                "hunter2",
                "",
                "https://x/hunter2",
                "https://x?hunter2",
                "ftp://hunter2",
                "https://u:hunter2@x",
                "http://x y",
                "http://x,hunter2",
                "http://x,,http://y",
                "http://x,",
                "http://x http://y",
            )
        ),
        *(
            (f"data_dir = '/d'\nrim_service = '{url}'", "rim_service", "SAMPLE_RIM_SERVICE")
            for url in ("http://[", "hunter2:80", "https://x/v1?hunter2", "https://x:99999/v1")
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_to_do(tmp_path: Path, text: str, named: str, remedy: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"setting {named}") as caught:
        Settings.load(path)
    assert remedy in (caught.value.remedy or "")
    assert "hunter2" not in f"{caught.value} {caught.value.remedy}"


def test_a_service_answers_to_each_of_its_addresses(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path, public_url="http://a.within:8000 , https://a.example/")
    app = create_service_app("x", "0", settings=settings, base_url="http://127.0.0.1:1")
    assert app.state.service.base_urls == ("http://127.0.0.1:1", "http://a.within:8000", "https://a.example")
    alone = create_service_app("x", "0", settings=ServiceSettings(data_dir=tmp_path), base_url="http://127.0.0.1:1")
    assert alone.state.service.base_urls == ("http://127.0.0.1:1",)


def test_a_mistyped_variable_is_not_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_DATASETS__B", "/b")
    assert Settings.load(data_dir=tmp_path).datasets == {"b": Path("/b")}
    monkeypatch.setenv("SAMPLE_ALOW_EMULATED", "false")
    with pytest.raises(ConfigurationError, match="SAMPLE_ALOW_EMULATED"):
        Settings.load(data_dir=tmp_path)


def test_where_an_operators_command_line_finds_its_holder_is_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holder(ServiceSettings):
        model_config = SettingsConfigDict(env_prefix="GPUT_HOLDER_", extra="forbid")

    monkeypatch.setenv("GPUT_HOLDER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GPUT_HOLDER_TOKEN", "operator.token")
    assert Holder.load(data_dir=tmp_path).data_dir == tmp_path
    monkeypatch.setenv("GPUT_HOLDER_TOKENS", "operator.token")
    with pytest.raises(ConfigurationError, match="GPUT_HOLDER_TOKENS"):
        Holder.load(data_dir=tmp_path)


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        Settings.load(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(ConfigurationError, match="not TOML"):
        Settings.load(tmp_path / "bad.toml")
    monkeypatch.setenv("SAMPLE_DATASETS", "{not json")
    with pytest.raises(ConfigurationError, match="datasets"):
        Settings.load(data_dir=tmp_path)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    yield stream
    configure_logging("warning", "json")


def lines(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_context_is_on_every_line_inside_only(log: io.StringIO) -> None:
    logger = get_logger("test")
    with bind(session="ses-1", visit="vis-1", party="north"):
        logger.info("inside", steps=3)
    logger.info("outside")
    inside, outside = lines(log)
    assert (inside["session"], inside["visit"], inside["party"], inside["steps"]) == ("ses-1", "vis-1", "north", 3)
    assert (inside["component"], inside["level"]) == ("test", "info")
    assert "session" not in outside


SECRET = "hunter2"


def test_a_databases_password_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss/w:rd\n")
    url = "postgresql+psycopg://gput@database:5432/gput?sslmode=require"
    settings = Settings.load(data_dir=tmp_path, database_url=url, database_password_file=tmp_path / "password")
    assert settings.store_url == "postgresql+psycopg://gput:p%40ss%2Fw%3Ard@database:5432/gput?sslmode=require"
    assert "p@ss" not in repr(settings)
    absent = Settings.load(data_dir=tmp_path, database_url=url, database_password_file=tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="database_password_file"):
        absent.store_url  # noqa: B018


@pytest.mark.parametrize(
    "fields",
    [
        {"visit_key": SECRET},
        {"Token": SECRET},
        {"nested": {"client_secret": SECRET}},
        {"items": [{"password": SECRET}]},
        {"body": SECRET},
        {"data": SECRET.encode()},
        {"data": bytearray(SECRET.encode())},
        {"data": [memoryview(SECRET.encode())]},
        {"thing": Refused(SECRET)},
        {"deep": {"a": {"b": {"c": {"d": {"e": SECRET.encode()}}}}}},
    ],
    ids=["key", "token", "nested", "list", "body", "bytes", "bytearray", "memoryview", "error", "deep"],
)
def test_secrets_and_bytes_are_not_logged(log: io.StringIO, fields: dict[str, object]) -> None:
    get_logger("test").info("event", **fields)
    assert SECRET not in log.getvalue()
    assert lines(log)


@given(st.binary(min_size=8, max_size=64), st.text(max_size=12))
def test_no_bytes_under_any_name(data: bytes, name: str) -> None:
    shown = str(redact(None, "info", {name: data, "list": [data, {name: (data,)}]}))
    assert repr(data)[2:-1] not in shown


def test_exceptions_are_told_by_type_and_place(log: io.StringIO) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        get_logger("test").error("broke", exc_info=True)
        logging.getLogger("library").exception("broke too")
    get_logger("test").error("refused", exc_info=Refused("policy says no", code="c"))
    first, second, third = lines(log)
    assert first["exception"] == second["exception"] == "builtins.ValueError"
    assert "test_exceptions_are_told" in str(first["frames"])
    assert (third["detail"], third["code"]) == ("policy says no", "c")
    assert SECRET not in log.getvalue()


def test_console_and_level() -> None:
    stream = io.StringIO()
    configure_logging("warning", "console", stream)
    get_logger("x").info("quiet")
    get_logger("x").warning("loud", private_key="k")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    assert "[redacted]" in stream.getvalue()


def test_a_path_that_somebody_asked_for_does_not_steer_the_terminal() -> None:
    stream = io.StringIO()
    configure_logging("info", "console", stream)
    get_logger("request").info("request", path="/v1/\x1b[2J\u202e", seen=["\x9b31m"])
    assert "path=/v1/?[2J?" in stream.getvalue()
    assert all(letter.isprintable() or letter == "\n" for letter in stream.getvalue())


_PIECES = st.sampled_from(
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "://",
        ":",
        "@",
        "Bearer ",
        "basic ",
        "abcdef0123",
        " ",
        "\n",
        "/",
    ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=8).map("".join))
def test_no_text_passes_unread_that_the_pattern_would_change(text: str) -> None:
    expected = printable(logs._SECRET_TEXTS.sub(logs.REDACTED, text), but="\n\t")
    assert redact(None, "info", {"event": text}) == {"event": expected}
