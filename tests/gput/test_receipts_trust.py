"""By whose trust folder a saved log's keys are believed: the copy beside it is its maker's choice, the reader's own folder is not."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from gput import AsyncClient
from gput.__main__ import main
from gput.receipt_folder import KEYS, write
from gput.receipts import verify
from gput.trust import UNATTESTED, Trust, Unattested
from shared.errors import Conflict, VerificationFailed
from tests.gput.forged_logs import A, Forger, Visited


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trust folder of another installation."""
    return Forger(tmp_path_factory.mktemp("other")).installation.trust


def test_an_installation_of_ones_own_makes_a_log_that_only_its_own_copy_believes(theirs: Forger, other: Path) -> None:
    folder = theirs.log(Visited(1), Visited(2))
    assert verify(folder).receipts == verify(folder, trust=theirs.installation.trust).receipts == 2
    with pytest.raises(VerificationFailed, match=f"^{KEYS}: key 0: "):
        verify(folder, trust=other)


def test_a_predecessor_is_judged_by_the_same_folder(theirs: Forger, other: Path) -> None:
    folder = theirs.log(Visited(1))
    with pytest.raises(VerificationFailed, match=f"^{KEYS}: key 0: "):
        verify(folder, predecessor=folder, trust=other)


def test_the_command_says_whose_trust_it_was(
    theirs: Forger, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = theirs.log(Visited(1))

    def command(*words: Path | str) -> tuple[int, str, str]:
        code = main(["receipts", "verify", str(folder), "--format", "json", *map(str, words)])
        return code, *capsys.readouterr()

    assert json.loads(command()[1])["trust"] == f"{folder}, the copy saved there"
    mine = theirs.installation.trust
    assert json.loads(command("--trust", mine)[1])["trust"] == str(mine)
    code, _, said = command("--trust", other)
    assert (code, f"{KEYS}: key 0: " in said) == (4, True)
    code, _, said = command("--trust", tmp_path / "none")
    assert (code, "cpu-roots.pem" in said, "by --trust" in said, "trust_dir" in said) == (2, True, True, False)


async def test_the_client_judges_a_saved_folder_by_its_own_trust(theirs: Forger, other: Path) -> None:
    folder = theirs.log(Visited(1))

    async def judged(trust: Trust | Unattested, predecessor: Path | None = None) -> int:
        async with AsyncClient("http://nobody.invalid", theirs.keys[A], trust=trust) as client:
            return (await client.receipts.verify_folder(folder, predecessor)).receipts

    assert await judged(Trust(theirs.installation.trust, allow_emulated=True)) == 1
    assert await judged(UNATTESTED) == 1
    for before in (None, folder):
        with pytest.raises(VerificationFailed, match=f"^{KEYS}: key 0: "):
            await judged(Trust(other, allow_emulated=True), before)


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_saving_again_that_is_interrupted_leaves_the_good_folder(
    theirs: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any file: the disk is full. What is there holds as before, and nothing lies beside it."""
    folder, again = theirs.log(Visited(1)), theirs.bundle(Visited(1), Visited(2))
    before, honest = kept(folder), Path.write_bytes
    for room in range(len(before)):
        written: list[Path] = []

        def full(path: Path, data: bytes, room: int = room, written: list[Path] = written) -> int:
            written.append(path)
            if len(written) > room:
                raise OSError(errno.ENOSPC, "no space left")
            return honest(path, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space left"):
            write(folder, again, theirs.installation.trust)
        monkeypatch.undo()
        assert kept(folder) == before
    write(folder, again, theirs.installation.trust)
    assert verify(folder).receipts == 2


def test_a_folder_keeps_the_receipts_of_one_session(theirs: Forger) -> None:
    folder = theirs.log(Visited(1))
    before = kept(folder)
    with pytest.raises(Conflict, match="receipts of another session lie in") as caught:
        write(folder, theirs.bundle(Visited(1)) | {"session": "s_aaaaaaaaaaaaaaaa"}, theirs.installation.trust)
    assert (caught.value.code, kept(folder)) == ("other-session", before)
