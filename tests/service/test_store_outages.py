"""What was acknowledged survives a killed process; a lost connection heals by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from shared.errors import Unavailable
from shared.service.journal import Journal
from shared.service.statements import insert_rows
from shared.service.store import Store

WRITER = """
import asyncio, sys
from shared.service.journal import Journal, NewFact
from shared.service.store import Store
from shared.service.tables import METADATA

async def main():
    store, journal = Store(sys.argv[1]), Journal(lambda _: b"k" * 32)
    await store.open()
    await store.write(METADATA.create_all)
    for seq in range(10**6):
        fact = NewFact("step", {"seq": seq, "filling": "x" * 500})
        head = await store.write(lambda c: journal.append(c, "s", [fact], expected_seq=seq, at=1.0))
        print(head.seq, flush=True)

asyncio.run(main())
"""


def killed_writer(url: str) -> int:
    """How many facts a writer had acknowledged when it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, url],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    acknowledged = 0
    while acknowledged < 100:
        acknowledged = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    # By the same reader: `communicate` asks the pipe, and lines that came along with the hundredth are in the reader already.
    rest = child.stdout.read()
    child.stdout.close()
    child.wait(timeout=60)
    return max([acknowledged, *(int(line) for line in rest.split("\n")[:-1])])


@pytest.mark.processes
async def test_acknowledged_facts_survive_a_kill(database_url: str) -> None:
    acknowledged = killed_writer(database_url)
    store = Store(database_url)
    await store.open()
    facts = await store.read(lambda c: Journal(lambda _: b"k" * 32).load(c, "s"))
    assert len(facts) in (acknowledged, acknowledged + 1)  # one may be durable and not yet acknowledged
    await store.close()


async def test_a_lost_connection_heals(postgres_url: str) -> None:
    store = Store(postgres_url)
    await store.open()
    engine = sa.create_engine(
        sa.make_url(postgres_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        ours = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.exec_driver_sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
    engine.dispose()
    assert await store.write(lambda c: c.execute(sa.text("SELECT 1")).scalar()) == 1
    assert await store.read(lambda c: c.execute(sa.text("SELECT 2")).scalar()) == 2
    await store.close()


async def test_a_connection_lost_inside_a_write_writes_nothing(postgres_url: str) -> None:
    store = Store(postgres_url)
    await store.open()
    await store.write(lambda c: c.exec_driver_sql("CREATE TABLE t (n int)"))

    def cut(connection: sa.Connection) -> None:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Unavailable) as caught:
        await store.write(cut)
    assert caught.value.code == "database-unreachable"
    assert await store.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM t").scalar()) == 0
    await store.write(lambda c: c.exec_driver_sql("INSERT INTO t VALUES (2)"))
    await store.close()


ROWS = sa.Table("rows", sa.MetaData(), sa.Column("a", sa.Integer), sa.Column("b", sa.Text))
RENAME = sa.update(ROWS).where(ROWS.c.a == sa.bindparam("x")).values(b=sa.bindparam("y"))
SEVERAL = [{"a": number, "b": "b"} for number in range(3)]


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda c: insert_rows(c, ROWS, SEVERAL[:1]), id="a row"),
        pytest.param(lambda c: insert_rows(c, ROWS, SEVERAL), id="rows"),
        pytest.param(lambda c: c.execute(sa.insert(ROWS), SEVERAL), id="SQLAlchemy's executemany"),
        pytest.param(lambda c: c.execute(RENAME, [{"x": 1, "y": "c"}, {"x": 2, "y": "d"}]), id="updates"),
    ],
)  # fmt: skip
async def test_who_stands_still_behind_any_kind_of_write_bars_nobodys_way_for_long(
    postgres_url: str, act: Callable[[sa.Connection], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had, behind rows: psycopg ends them with a Flush, which stops PostgreSQL's clock, and a standby waited for a leader that
    stood still until that went on."""
    monkeypatch.setattr("shared.service.engine.STALLED_S", 0.1)
    store = Store(postgres_url)
    await store.open()
    await store.write(ROWS.create)

    def stands_still(connection: sa.Connection) -> None:
        connection.execute(sa.insert(ROWS).values(a=1, b="x"))
        act(connection)
        time.sleep(1)
        connection.execute(sa.text("SELECT 1"))

    with pytest.raises(Unavailable, match="idle-in-transaction"):
        await store.write(stands_still)
    await store.close()
