"""The MUX's select register as a file: what is read back, what reads as nobody, and a MUX that obeys it."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_agent.hardware.mux import NOBODY, Mux, Selected
from gpu_agent.mux_register import RECORD_BYTES, MuxRegister, SelectedPort, pack, register_of, unpack
from shared.errors import Conflict, NotFound

NORTH, SOUTH, HOME = "holder-north", "holder-south", "orchestrator"
PORTS = st.none() | st.from_regex(r"orchestrator|holder-[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
LONGEST = "holder-" + "z" * 63
RECORD = pack(Selected(NORTH, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return register_of(tmp_path / "mux", "gpu-0")


@pytest.fixture
def platform(path: Path) -> Iterator[MuxRegister]:
    with closing(MuxRegister(path)) as register:
        yield register


@pytest.fixture
def gpu(path: Path) -> Iterator[SelectedPort]:
    with closing(SelectedPort(path)) as selected:
        yield selected


def written(path: Path, record: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(record)


@given(st.lists(PORTS | st.sampled_from([None, HOME, NORTH]), max_size=8))
@example([None, HOME, HOME, LONGEST, LONGEST, None, None, "holder-0"])
def test_what_is_selected_is_read_back_and_the_same_port_again_is_no_switch(ports: list[str | None]) -> None:
    with TemporaryDirectory() as folder:
        path = register_of(Path(folder), "gpu-0")
        with closing(MuxRegister(path)) as platform, closing(SelectedPort(path)) as gpu:
            assert gpu() == NOBODY
            told, switches = None, 0
            for port in ports:
                switches += port != told
                told = port
                platform.select(port)
                assert gpu() == Selected(told, switches)


def test_both_ends_write_the_same_form_in_every_release() -> None:
    """Platform and agent may be of different releases."""
    fields = (3).to_bytes(8, "little") + bytes([len(NORTH)]) + NORTH.encode().ljust(80, b"\0")
    assert zlib.crc32(fields).to_bytes(4, "little") + fields == RECORD
    assert len(RECORD) == RECORD_BYTES == 93


@pytest.mark.parametrize("port", [None, HOME, LONGEST])
def test_a_record_with_any_byte_changed_is_none(port: str | None) -> None:
    record = pack(Selected(port, 300))
    assert unpack(record) == Selected(port, 300)
    for at in range(RECORD_BYTES):
        for change in range(1, 256):
            assert unpack(record[:at] + bytes([record[at] ^ change]) + record[at + 1 :]) is None, (at, change)


def test_a_name_that_is_no_ascii_is_none_although_its_sum_is_right() -> None:
    fields = bytes(8) + b"\x01" + b"\xff".ljust(80, b"\0")
    assert unpack(zlib.crc32(fields).to_bytes(4, "little") + fields) is None


WRONG = {
    "empty": b"",
    "zeros": bytes(RECORD_BYTES),
    "page of zeros": bytes(4096),
    "ones": b"\xff" * RECORD_BYTES,
    **{f"first {length}": RECORD[:length] for length in (1, 4, 12, RECORD_BYTES - 1)},
    **{f"byte {at} changed": RECORD[:at] + bytes([RECORD[at] ^ 1]) + RECORD[at + 1 :] for at in (0, 4, 12, 20)},
}


@pytest.mark.parametrize("record", WRONG.values(), ids=WRONG)
def test_where_no_record_lies_nobody_is_selected(record: bytes, path: Path, gpu: SelectedPort) -> None:
    written(path, record)
    assert gpu() == NOBODY
    written(path, RECORD)
    assert gpu() == Selected(NORTH, 3), "the same file, once there is sense in it"


def test_a_register_that_is_not_there_is_found_once_the_platform_has_made_it(path: Path, gpu: SelectedPort) -> None:
    assert gpu() == NOBODY
    with closing(MuxRegister(path)) as platform:
        assert gpu() == NOBODY
        platform.select(NORTH)
        assert gpu() == Selected(NORTH, 1)


def test_a_platform_that_starts_again_keeps_file_and_selection(path: Path, gpu: SelectedPort) -> None:
    with closing(MuxRegister(path)) as first:
        first.select(NORTH)
        assert gpu() == Selected(NORTH, 1)
    inode = path.stat().st_ino
    assert gpu() == Selected(NORTH, 1), "and while no platform runs"
    with closing(MuxRegister(path)) as second:
        assert gpu() == Selected(NORTH, 1)
        second.select(HOME)
        assert gpu() == Selected(HOME, 2)
    assert path.stat().st_ino == inode


def test_a_register_that_is_cut_short_while_it_is_open_ends_nobodys_process(path: Path, gpu: SelectedPort) -> None:
    with closing(MuxRegister(path)) as platform:
        platform.select(NORTH)
    assert gpu() == Selected(NORTH, 1)
    os.truncate(path, 0)
    assert gpu() == NOBODY
    with closing(MuxRegister(path)) as platform:
        platform.select(SOUTH)
    assert gpu() == Selected(SOUTH, 1)


def test_a_pipe_in_the_registers_place_holds_up_nobody(path: Path, gpu: SelectedPort) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    assert gpu() == NOBODY


def test_a_link_in_the_registers_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"somebody's")
    path.parent.mkdir()
    path.symlink_to(other)
    with pytest.raises(OSError) as refused:  # noqa: PT011  # its number says which
        MuxRegister(path)
    assert refused.value.errno == errno.ELOOP
    assert other.read_bytes() == b"somebody's"


class Reads:
    """In place of os.pread: `torn` times half of a new record over half of the old one, then what is there."""

    def __init__(self, torn: int) -> None:
        self._torn, self._pread = torn, os.pread
        self.count = 0

    def __call__(self, fd: int, length: int, offset: int) -> bytes:
        self.count += 1
        whole = self._pread(fd, length, offset)
        return whole[:20] + RECORD[20:] if self.count <= self._torn else whole


@pytest.mark.parametrize(("torn", "said", "looked"), [(2, Selected(SOUTH, 1), 3), (1000, NOBODY, 8)])
def test_a_record_half_written_is_looked_at_again_and_not_for_ever(
    platform: MuxRegister, gpu: SelectedPort, monkeypatch: pytest.MonkeyPatch, torn: int, said: Selected, looked: int
) -> None:
    platform.select(SOUTH)
    reads = Reads(torn)
    monkeypatch.setattr("gpu_agent.mux_register.os.pread", reads)
    assert (gpu(), reads.count) == (said, looked)


def refused(mux: Mux, port: str) -> bool:
    """Whether the MUX turns this port away."""
    try:
        mux.require(port)
    except Conflict as error:
        if error.code != "port-not-bound":
            raise
        return True
    return False


def test_a_mux_with_a_register_obeys_it_and_nobody_else(platform: MuxRegister, gpu: SelectedPort) -> None:
    mux = Mux((HOME, NORTH), gpu)
    for port in (HOME, None):
        with pytest.raises(Conflict) as told:
            mux.bind(port)
        assert told.value.code == "mux-by-register"
    assert refused(mux, HOME)
    for port, other in ((HOME, NORTH), (NORTH, HOME)):
        platform.select(port)
        assert not refused(mux, port)
        assert refused(mux, other)
    platform.select(None)
    assert refused(mux, NORTH)
    assert mux.selected == Selected(None, 3)


def test_a_port_that_does_not_exist_is_nobodys_although_it_is_selected(
    platform: MuxRegister, gpu: SelectedPort
) -> None:
    platform.select(SOUTH)
    some, any_port = Mux((HOME, NORTH), gpu), Mux((), gpu)
    assert some.selected == Selected(None, 1)
    assert refused(some, SOUTH)
    assert any_port.selected == Selected(SOUTH, 1)
    assert not refused(any_port, SOUTH)


def test_a_mux_without_a_register_is_told() -> None:
    mux = Mux((HOME, NORTH))
    assert mux.selected == NOBODY
    assert [mux.bind(port) for port in (NORTH, NORTH, HOME, None)] == [1, 1, 2, 3]
    mux.bind(NORTH)
    with pytest.raises(NotFound) as told:
        mux.bind(SOUTH)
    assert told.value.code == "unknown-port"
    assert mux.selected == Selected(NORTH, 4)
    assert (refused(mux, NORTH), refused(mux, HOME)) == (False, True)
