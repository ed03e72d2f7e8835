"""What a command was told to write is there whole, or what was there before is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gput.whole import replace_whole


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_who_is_interrupted_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException, step: str
) -> None:
    target = tmp_path / "held-out.records"
    target.write_bytes(b"before")
    write = Path.write_bytes

    def half(self: Path, data: bytes) -> None:
        write(self, data[: len(data) // 2])
        raise fault

    def none(self: Path, place: Path) -> None:
        raise fault

    monkeypatch.setattr(Path, step, half if step == "write_bytes" else none)
    with pytest.raises(type(fault)):
        replace_whole(target, b"afterwards")
    monkeypatch.undo()
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_one_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "model.gput", tmp_path / "latest"
    target.write_bytes(b"before")
    target.chmod(0o640)
    link.symlink_to(target)
    replace_whole(link, b"afterwards")
    assert link.is_symlink()
    assert target.read_bytes() == b"afterwards"
    assert target.stat().st_mode & 0o777 == 0o640
    replace_whole(tmp_path / "new", b"new")
    assert (tmp_path / "new").read_bytes() == b"new"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    replace_whole(pipe, b"records")
    reader.join(20)
    assert heard == [b"records"]
    assert pipe.is_fifo()
