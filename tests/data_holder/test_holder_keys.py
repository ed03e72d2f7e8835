"""What a holder keeps outlives the code that kept it, by its operator's recovery key and by nothing that lies on its disk."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from data_holder.keyring import RecoveryKey
from shared.errors import ConfigurationError
from shared.service.key_file import key_id, make_key_file
from shared.service.logging import configure_logging
from shared.service.migrations import downgrade, upgrade
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION, make_manifest

OLD, NEW = b"", b"a new release"
PATIENCE_S = 60.0
Rows = list[tuple[Any, ...]]


@pytest.fixture
def recovery(tmp_path: Path) -> Path:
    make_key_file(tmp_path / "recovery.key")
    return tmp_path / "recovery.key"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    words = io.StringIO()
    configure_logging("debug", "json", words)
    yield words
    configure_logging("critical", "json")


def said(log: io.StringIO) -> str:
    """What was logged since it was last asked."""
    words = log.getvalue()
    log.seek(0)
    log.truncate()
    return words


def database(folder: Path) -> Path:
    return folder / "state" / "state.db"


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database(folder))) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def tables(folder: Path) -> dict[str, Rows]:
    """Everything that decisions are read from, and the keys."""
    with closing(sqlite3.connect(database(folder))) as connection, connection:
        found = {t: list(connection.execute(f"SELECT * FROM {t} ORDER BY 1, 2")) for t in ("holder_keys", "journal")}
    connection.close()
    return found


async def approved(start: Start, **options: Any) -> str:
    """One life of the holder, in which it approves a session; the root it approved with."""
    async with start(**options) as running:
        running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
        await running.until(lambda: running.orchestrator.approvals)
        return str(running.orchestrator.approvals[0].dataset_root)


async def root_now(running: Running) -> str:
    """As the holder would commit to its records again, without the tree that it kept."""
    await running.holder.visits._commitments.forget(SESSION)
    _, program = await running.holder.approvals.show(SESSION)
    assert program is not None
    committed = await running.holder.visits._commitments.open(SESSION, "ehr", program)
    committed.close()
    return committed.root


async def refused(start: Start, folder: Path, says: str, **options: Any) -> None:
    """The holder does not serve, `says` why, and leaves keys and journal as they were."""
    before = tables(folder)
    async with start(unlock=False, **options) as running:
        text = ""
        async with asyncio.timeout(PATIENCE_S):
            while "stopped serving" not in text:
                await asyncio.sleep(0.01)
                answer = await running.client.get("/readyz")
                assert answer.status_code == 503
                text = answer.text
        assert says in text
        assert not running.holder.ledger.is_open
    assert tables(folder) == before


async def test_other_code_goes_on_by_the_recovery_key_and_then_without(
    start: Start, tmp_path: Path, recovery: Path, log: io.StringIO
) -> None:
    root = await approved(start, recovery_key_file=recovery)
    [(path, key, *_), (second, named, *_)] = tables(tmp_path)["holder_keys"]
    assert (path, key, second) == ("platform", None, "recovery")
    assert named == key_id(RecoveryKey.read(recovery).key)
    async with start(code=NEW, recovery_key_file=recovery) as running:
        assert running.holder.ledger.state(SESSION).dataset_root == root == await root_now(running)
        assert "sealed for other code" in said(log)
    async with start(code=NEW) as running:  # sealed anew: the operator may lock its key away
        assert await root_now(running) == root
        assert "keys were sealed" not in said(log)
    await refused(start, tmp_path, "holder-keys-sealed", code=OLD)
    async with start(code=OLD, recovery_key_file=recovery) as running:
        assert await root_now(running) == root


async def test_keys_of_before_there_was_a_table_stay_the_keys(start: Start, tmp_path: Path, recovery: Path) -> None:
    root = await approved(start)
    change(tmp_path, "DELETE FROM holder_keys")  # as the release before left it
    await refused(start, tmp_path, "holder-keys-absent", code=NEW, recovery_key_file=recovery)
    async with start(recovery_key_file=recovery) as running:
        assert await root_now(running) == root
    async with start(code=NEW, recovery_key_file=recovery) as running:
        assert await root_now(running) == root


async def test_without_a_second_path_it_says_so_and_changes_nothing(
    start: Start, tmp_path: Path, recovery: Path, log: io.StringIO
) -> None:
    await approved(start)
    await refused(start, tmp_path, "holder-keys-sealed", code=NEW)
    assert "update again" in said(log)
    await refused(start, tmp_path, "holder-keys-sealed", code=NEW, recovery_key_file=recovery)
    async with start(recovery_key_file=recovery):
        """As it was told to: the release before, with a key."""
    await refused(start, tmp_path, "holder-keys-sealed", code=NEW)
    assert f"set it to the recovery key {key_id(RecoveryKey.read(recovery).key)}" in said(log)
    make_key_file(tmp_path / "wrong.key")
    await refused(start, tmp_path, "recovery-key", code=NEW, recovery_key_file=tmp_path / "wrong.key")
    async with start(code=NEW, recovery_key_file=recovery) as running:
        assert running.holder.ledger.knows(SESSION)


async def test_another_recovery_key_takes_the_place_of_the_first(start: Start, tmp_path: Path, recovery: Path) -> None:
    await approved(start, recovery_key_file=recovery)
    make_key_file(tmp_path / "second.key")
    async with start(recovery_key_file=tmp_path / "second.key"):
        """The platform's key opens them, so the operator may change its own."""
    await refused(start, tmp_path, "recovery-key", code=NEW, recovery_key_file=recovery)
    async with start(code=NEW, recovery_key_file=tmp_path / "second.key") as running:
        assert running.holder.ledger.knows(SESSION)


ELSEWHERE = "UPDATE holder_keys SET {} WHERE path = '{}'"
TURNED = "sealed = CAST(substr(sealed, 2) || x'00' AS BLOB)"
DEEDS: dict[str, tuple[tuple[str, ...], str]] = {
    "both rows are gone": (("DELETE FROM holder_keys",), "holder-keys-absent"),
    "the operator's row is gone": (("DELETE FROM holder_keys WHERE path = 'recovery'",), "holder-keys-sealed"),
    "the platform's row in the operator's place": (
        ("DELETE FROM holder_keys WHERE path = 'recovery'", ELSEWHERE.format("path = 'recovery'", "platform")), "recovery-key",
    ),
    "the operator's row in the platform's place": (
        ("DELETE FROM holder_keys WHERE path = 'platform'", ELSEWHERE.format("path = 'platform'", "recovery")), "holder-keys-sealed",
    ),
    "bytes of the operator's row": ((ELSEWHERE.format(TURNED, "recovery"),), "recovery-key"),
    "another salt": ((ELSEWHERE.format("salt = x'01'", "recovery"),), "recovery-key"),
    "a fact was changed as well": (("UPDATE journal SET at = at + 1 WHERE seq = 1",), "journal-tampered"),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
async def test_the_storages_owner_does_not_choose_the_keys(
    start: Start, tmp_path: Path, recovery: Path, deed: str
) -> None:
    await approved(start, recovery_key_file=recovery)
    statements, code = DEEDS[deed]
    change(tmp_path, *statements)
    await refused(start, tmp_path, code, code=NEW, recovery_key_file=recovery)


async def test_another_holders_row_does_not_open_under_the_same_operators_key(
    start: Start, tmp_path: Path, recovery: Path
) -> None:
    await approved(start, recovery_key_file=recovery)
    await refused(start, tmp_path, "recovery-key", code=NEW, recovery_key_file=recovery, name="south")


async def test_a_damaged_row_is_made_whole_from_the_other(start: Start, tmp_path: Path, recovery: Path) -> None:
    await approved(start, recovery_key_file=recovery)
    change(tmp_path, ELSEWHERE.format(TURNED, "platform"))
    async with start(recovery_key_file=recovery) as running:
        assert running.holder.ledger.knows(SESSION)
    async with start() as running:
        assert running.holder.ledger.knows(SESSION)


async def test_no_key_is_in_a_file_a_log_or_an_error(
    start: Start, tmp_path: Path, recovery: Path, log: io.StringIO
) -> None:
    await approved(start, recovery_key_file=recovery)
    async with start(code=NEW, recovery_key_file=recovery) as running:
        secrets = [running.holder.ledger._reveal(""), RecoveryKey.read(recovery).key.reveal()]
    make_key_file(tmp_path / "wrong.key")
    await refused(start, tmp_path, "recovery-key", code=OLD, recovery_key_file=tmp_path / "wrong.key")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    words = said(log)
    assert "does not open them" in words
    for secret in (*secrets, RecoveryKey.read(tmp_path / "wrong.key").key.reveal()):
        assert secret not in kept
        assert secret.hex() not in words


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.chmod(0o640), "open to other users"),
        (lambda file: file.write_bytes(b"k" * 31), "31 bytes"),
        (lambda file: file.unlink(), "cannot be read"),
    ],
)
def test_a_bad_recovery_key_file_is_refused(recovery: Path, spoil: Callable[[Path], Any], says: str) -> None:
    spoil(recovery)
    with pytest.raises(ConfigurationError, match=says) as caught:
        RecoveryKey.read(recovery)
    assert (caught.value.code, "kkk" in f"{caught.value.detail}{caught.value.remedy}") == ("recovery-key", False)


async def test_going_back_a_schema_loses_no_key(start: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    upgrade(url, "data_holder")
    downgrade(url, "data_holder", "0002")
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection, connection:
        assert not list(connection.execute("SELECT name FROM sqlite_master WHERE name = 'holder_keys'"))
    connection.close()
    await approved(start)
    before, url = tables(tmp_path), f"sqlite:///{database(tmp_path)}"
    for schema in ("0002", "0001"):
        downgrade(url, "data_holder", schema)
        assert tables(tmp_path) == before
        async with start() as running:
            assert running.holder.ledger.knows(SESSION)
        assert tables(tmp_path) == before
