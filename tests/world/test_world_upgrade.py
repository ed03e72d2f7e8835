"""A database with a session in it goes to each older schema and comes back; a session begun under an older one ends with the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from shared.errors import ConfigurationError
from shared.service.engine import create_engine, parse_url
from shared.service.migrations import check_schema, downgrade, upgrade
from tests.orchestrator.orchestrator_samples import no_own_keys
from tests.world.world import NewWorld, World
from tests.world.world_recording import Recording

ORCH, PACKAGE = "orchestrator", "orchestrator"
OF_0003, OF_0005, OF_0006 = {"leases", "session_secrets"}, {"purges"}, {"session_keys"}
OF_0007, OF_0008, OF_0009 = {"model_fetches"}, {"party_keys"}, {"removals", "ends_heard"}
Contents = dict[str, list[tuple[Any, ...]]]


def contents(url: str) -> Contents:
    """Every row of every table but the schema's own."""
    engine = create_engine(parse_url(url), "read")
    try:
        with engine.connect() as connection:
            names = [name for name in sa.inspect(connection).get_table_names() if not name.endswith("_schema")]
            tables = {name: sa.Table(name, sa.MetaData(), autoload_with=connection) for name in names}
            return {
                name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=repr)
                for name, table in tables.items()
            }
    finally:
        engine.dispose()


def without(found: Contents, *names: str) -> Contents:
    return {name: rows for name, rows in found.items() if name not in names}


def told(found: Contents) -> Contents:
    """Without what the keys' history alone tells: the order of enrolments, and who enrolled."""
    keys = sorted(row[1:7] + row[8:] for row in found["party_keys"]) if "party_keys" in found else []
    return found | {"party_keys": keys}


async def running(world: World) -> str:
    """In mid-session, as submitted under a schema that knew no keys of sessions: with one nothing older would read it."""
    with no_own_keys():
        session = await world.submit()
    await world.until(session, lambda view: view["visits_closed"] >= 2)
    return session


async def same_end(world: World, session: str, recorded: Recording) -> Any:
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    return view


def not_let_go(url: str) -> None:
    """The lease as a killed process leaves it, once it is over."""
    engine = create_engine(parse_url(url), "write")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET expires_at = clock_timestamp()")
    engine.dispose()


def sealed(world: World, session: str) -> Path:
    return world.folder / "orchestrator" / "sessions" / session / "secrets.sealed"


async def test_a_session_begun_under_the_previous_schema_goes_on_in_its_gpu(
    new_world: NewWorld, recorded: Recording, sqlite_url: str
) -> None:
    """Back to schema 0002, whose sealed secrets lay in files: without them the next life could not resume the GPU's."""
    async with new_world(settings={"orchestrator": {"database_url": sqlite_url}}) as world:
        session = await running(world)
        await world[ORCH].kill()
        before = contents(sqlite_url)
        downgrade(sqlite_url, PACKAGE, "0002", world.folder / "orchestrator")
        assert contents(sqlite_url) == without(before, *OF_0003, *OF_0005, *OF_0006, *OF_0007, *OF_0008, *OF_0009)
        assert [(session, sealed(world, session).read_bytes())] == before["session_secrets"]
        await world[ORCH].start()
        check_schema(sqlite_url, PACKAGE)
        await same_end(world, session, recorded)
        assert not [event for event in await world.events(session) if "'restored'" in event], "the GPU was not wiped"


@pytest.mark.slow
async def test_every_schema_there_and_back(new_world: NewWorld, recorded: Recording, database_url: str) -> None:
    async with new_world(settings={"orchestrator": {"database_url": database_url}}) as world:
        files = world.folder / "orchestrator"
        session = await running(world)
        await world[ORCH].kill()
        if database_url.startswith("postgresql"):
            not_let_go(database_url)
            with pytest.raises(ConfigurationError, match="did not let go of its lease"):
                downgrade(database_url, PACKAGE, "0002", files)
            await world[ORCH].start()
            await world[ORCH].stop()
        before = contents(database_url)
        assert before["session_secrets"]
        assert before["attestations"]
        for schema, gone in (
            ("0008", OF_0009),
            ("0007", OF_0008 | OF_0009),
            ("0006", OF_0007 | OF_0008 | OF_0009),
            ("0005", OF_0006 | OF_0007 | OF_0008 | OF_0009),
            ("0004", OF_0005 | OF_0006 | OF_0007 | OF_0008 | OF_0009),
            ("0003", OF_0005 | OF_0006 | OF_0007 | OF_0008 | OF_0009),
            ("0002", OF_0003 | OF_0005 | OF_0006 | OF_0007 | OF_0008 | OF_0009),
        ):
            downgrade(database_url, PACKAGE, schema, files)
            assert told(contents(database_url)) == told(without(before, *gone))
            upgrade(database_url, PACKAGE, files)
            # Who led under a schema that the older one did not know is nobody's memory any more.
            assert told(without(contents(database_url), "leases")) == told(without(before, "leases"))
        kept = contents(database_url)
        for schema, what in (("0001", "attestation results"), ("base", "attestation results")):
            with pytest.raises(ConfigurationError, match=what) as caught:
                downgrade(database_url, PACKAGE, schema, files)
            assert (caught.value.code, contents(database_url)) == ("downgrade-loses", kept)
        with pytest.raises(ConfigurationError, match="sealed secrets") as caught:
            downgrade(database_url, PACKAGE, "0002")
        assert contents(database_url) == kept
        with pytest.raises(ConfigurationError, match="there is no schema"):
            downgrade(database_url, PACKAGE, "0000")
        await world[ORCH].start()
        await same_end(world, session, recorded)


async def test_a_holder_does_not_forget_its_sessions(world: World) -> None:
    session = await running(world)
    await world.completed(session)
    await world["holder-north"].stop()
    url = f"sqlite:///{next((world.folder / 'holder-north').glob('*.db'))}"
    before = contents(url)
    with pytest.raises(ConfigurationError, match="all sessions") as caught:
        downgrade(url, "data_holder")
    assert (caught.value.code, contents(url)) == ("downgrade-loses", before)
