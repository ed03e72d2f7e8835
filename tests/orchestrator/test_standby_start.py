"""Which orchestrator may stand in for which: the same deployment only, and no newer release changes the schema under a leader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from fastapi import FastAPI

from orchestrator import __main__ as main
from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from shared.canonical import sha256
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, Unavailable
from shared.service import server
from shared.service.migrations import downgrade
from tests.orchestrator.orchestrator_world import BASE, Enclave

NEWEST = max(path.name[:4] for path in (Path(main.__file__).parent / "migrations" / "versions").glob("0*.py"))


class Measured(Enclave):
    """An enclave of a CVM with this measurement."""

    def __init__(self, measurement: bytes) -> None:
        self._measurement = measurement

    async def derived_key(self, label: str) -> Secret:
        return Secret(sha256(self._measurement + label.encode()))


class House:
    """One database, one shared folder; orchestrators by name."""

    def __init__(self, folder: Path, installation: Path, url: str) -> None:
        self.folder, self._installation, self.url = folder, installation, url

    def app(self, name: str, *, measurement: bytes = b"same", recover: bool = False, **changes: Any) -> FastAPI:
        options: dict[str, Any] = {
            "data_dir": self.folder / name, "shared_dir": self.folder / "shared", "database_url": self.url, "lease_s": 30,
            "trust_dir": self._installation / "trust", "owner_keys": self._installation / "owners", "allow_emulated": True,
            "evidence": "emulated:unused", "evidence_token_file": self.folder / "t", "agent_url": "http://127.0.0.1:9",
            "platform_url": "http://127.0.0.1:9", "public_url": BASE,
        }  # fmt: skip
        settings = OrchestratorSettings(**(options | changes))
        return create_app(settings, evidence=Measured(measurement), recover=recover)

    @asynccontextmanager
    async def running(self, name: str, **changes: Any) -> AsyncIterator[str]:
        """What its readiness says of leading."""
        app = self.app(name, **changes)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as http,
        ):
            yield (await http.get("/readyz")).json()["checks"]["leading"]

    def execute(self, statement: str) -> None:
        engine = sa.create_engine(sa.make_url(self.url).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()


@pytest.fixture
def house(tmp_path: Path, installation: Path, postgres_url: str) -> House:
    return House(tmp_path, installation, postgres_url)


async def test_the_second_follows_and_leads_once_the_first_has_let_go(house: House) -> None:
    async with house.running("a") as first:
        assert first == "ok"
        async with house.running("b") as second:
            assert "stands by" in second
    async with house.running("b") as second:
        assert second == "ok"


async def test_a_folder_that_is_not_shared_is_said_at_the_start(house: House) -> None:
    async with house.running("a"):
        with pytest.raises(ConfigurationError, match="another identity") as caught:
            async with house.running("b", shared_dir=house.folder / "elsewhere"):
                pass
        assert caught.value.code == "standby-differs"
        assert "shared_dir" in str(caught.value.remedy)


async def test_another_measurement_leads_after_a_clean_stop_only(house: House) -> None:
    async with house.running("a"):
        pass
    # As if it had been killed, long ago.
    house.execute("UPDATE leases SET expires_at = clock_timestamp()")
    with pytest.raises(ConfigurationError, match="another measurement") as caught:
        async with house.running("b", measurement=b"other"):
            pass
    assert caught.value.code == "standby-differs"
    async with house.running("c") as third:  # nothing was taken from who may
        assert third == "ok"
    async with house.running("b", measurement=b"other") as second:
        assert second == "ok"


async def test_another_measurement_leads_after_a_crash_if_its_operator_says_so(house: House) -> None:
    async with house.running("a"):
        async with house.running("b", measurement=b"other", recover=True) as second:
            assert "stands by" in second, "never from one that lives"
        house.execute("UPDATE leases SET expires_at = clock_timestamp() + interval '1 hour'")
    house.execute("UPDATE leases SET expires_at = clock_timestamp()")
    with pytest.raises(ConfigurationError) as caught:
        async with house.running("b", measurement=b"other"):
            pass
    assert "--recover" in str(caught.value.remedy)
    async with house.running("b", measurement=b"other", recover=True) as second:
        assert second == "ok"
    house.execute("UPDATE leases SET expires_at = clock_timestamp()")
    with pytest.raises(ConfigurationError):  # the new one's seal counts from now on
        async with house.running("a"):
            pass
    async with house.running("b", measurement=b"other") as second:
        assert second == "ok"


async def test_its_own_lease_is_had_back_at_once(house: House) -> None:
    async with house.running("a"):
        pass
    house.execute("UPDATE leases SET expires_at = clock_timestamp() + interval '1 hour'")  # killed just now
    async with house.running("b") as second:
        assert "stands by" in second
    async with house.running("a") as first:
        assert first == "ok"


async def test_a_standby_changes_no_schema_under_a_leader(house: House) -> None:
    """The leader is of an older release: its database lacks what this one would bring."""
    async with house.running("a"):
        pass
    house.execute("UPDATE leases SET expires_at = clock_timestamp() + interval '1 hour'")
    house.execute("UPDATE orchestrator_schema SET version_num = '0002'")
    with pytest.raises(Unavailable) as caught:
        house.app("b")
    assert caught.value.code == "schema-outdated"
    house.execute(f"UPDATE orchestrator_schema SET version_num = '{NEWEST}'")
    house.execute("UPDATE leases SET expires_at = NULL")
    downgrade(house.url, "orchestrator")
    async with house.running("b") as second:  # a database that knows no lease yet
        assert second == "ok"


@pytest.mark.parametrize(("arguments", "recovers"), [([], False), (["--recover"], True)])
def test_it_is_an_argument_of_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], recovers: bool
) -> None:
    """And no setting, which would stay."""
    config = tmp_path / "o.toml"
    names = ("data_dir", "trust_dir", "owner_keys")
    config.write_text(
        'evidence = "emulated:unused"\nagent_url = "http://a"\nplatform_url = "http://p"\n'
        + "".join(f'{name} = "{tmp_path / name}"\n' for name in names)
    )
    served, asked = [], []
    monkeypatch.setattr(server, "serve", lambda factory, settings, ready: served.append(factory(settings, BASE)) or 0)
    monkeypatch.setattr(main, "create_app", lambda settings, base_url, *, recover=False: asked.append(recover))
    monkeypatch.setattr("sys.argv", ["orchestrator", "--config", str(config), *arguments])
    assert main.main() == 0
    assert asked == [recovers]
