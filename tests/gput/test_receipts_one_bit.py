"""One bit flipped anywhere in a saved folder: verification fails, and says in which file, and in the log's file at which leaf."""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gput.__main__ import main
from gput.receipt_folder import APPROVALS, KEYS, LEAVES, SESSION, SUMS, TRUST, trust_files
from gput.receipt_leaves import _parsed
from gput.receipts import verify
from shared.errors import VerificationFailed
from tests.gput.gput_samples import Bundle, Saved

FILES = (SESSION, APPROVALS, KEYS, LEAVES, SUMS, *TRUST)
LINED = (APPROVALS, KEYS, LEAVES, SUMS)
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
CACHED = 3
"""Two reference integrity manifests and one collateral bundle."""


@pytest.fixture(scope="module")
def folder(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the saved folder; each test leaves it as it was."""
    target = tmp_path_factory.mktemp("one-bit") / "receipts"
    shutil.copytree(saved.folder, target)
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    assert found == sorted((*FILES, *(name for name in trust_files(target) if name not in TRUST)))
    assert len(found) == len(FILES) + CACHED
    return target


def told(folder: Path, name: str, offset: int, bit: int) -> str:
    """What verification says with this bit of this file flipped."""
    path = folder / name
    good = path.read_bytes()
    spoilt = bytearray(good)
    spoilt[offset] ^= 1 << bit
    path.write_bytes(spoilt)
    try:
        with pytest.raises(VerificationFailed) as found:
            verify(folder)
    finally:
        path.write_bytes(good)
    return found.value.detail


def place(folder: Path, name: str, offset: int) -> str:
    """How the error must begin: the file, and in a list the number of the entry that the byte belongs to."""
    entry = {LEAVES: "leaf", KEYS: "key", APPROVALS: "approval", SUMS: "line"}.get(name)
    line = (folder / name).read_bytes()[:offset].count(b"\n") + (name == SUMS)  # lines count from 1, leaves from 0
    return re.escape(name) + (r"\b" if entry is None else f": {entry} {line}\\b")


@pytest.mark.parametrize("number", range(len(FILES) + CACHED))
def test_one_bit_of_every_file(folder: Path, number: int) -> None:
    """Every file, and in those with lines every line: its first and last byte, and some between, drawn by the file's name."""
    name = (*FILES, *trust_files(folder)[-CACHED:])[number]
    raw, draw = (folder / name).read_bytes(), random.Random(name)
    ends = [0, *(found.end() for found in re.finditer(rb"\n", raw))] if name in LINED else [0, len(raw)]
    for begin, end in itertools.pairwise(ends):
        for offset in (begin, end - 1, *(draw.randrange(begin, end) for _ in range(3))):
            said = told(folder, name, offset, draw.randrange(8))
            assert re.match(place(folder, name, offset), said), (offset, said)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_one_bit_anywhere(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from((*FILES, *trust_files(folder)[-CACHED:])))
    offset = data.draw(st.integers(0, (folder / name).stat().st_size - 1))
    said = told(folder, name, offset, data.draw(st.integers(0, 7)))
    assert re.match(place(folder, name, offset), said), said


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_one_bit_in_the_log(folder: Path, data: st.DataObject) -> None:
    raw = (folder / LEAVES).read_bytes()
    offset = data.draw(st.integers(0, len(raw) - 1))
    said = told(folder, LEAVES, offset, data.draw(st.integers(0, 7)))
    assert re.match(place(folder, LEAVES, offset), said), said


def test_the_bits_that_base64_json_and_hex_leave_free(folder: Path) -> None:
    """Flips that many parsers overlook: a path in upper case, the unused bits before padding, a line end."""
    lines = (folder / LEAVES).read_bytes().split(b"\n")
    seen = set()
    for number, line in enumerate(lines[:-1]):
        begin = sum(len(before) + 1 for before in lines[:number])
        free = {"line end": (len(line), 5)}
        if padded := re.search(rb"([A-Za-z0-9+/])=", line):
            free["padding"] = (padded.start(1), 0)
        if hexadecimal := re.search(rb'"path":\["[0-9a-f]*?([a-f])', line):
            free["upper case"] = (hexadecimal.start(1), 5)
        for kind, (at, bit) in free.items():
            seen.add(kind)
            assert told(folder, LEAVES, begin + at, bit).startswith(f"leaves.jsonl: leaf {number}: "), kind
    # Whether one is padded its length decides; now and then none of a session is.
    assert seen - {"padding"} == {"line end", "upper case"}


@pytest.mark.parametrize("leaf", [b"\xa0", b"\xa0\xa0"], ids=["four free bits", "two free bits"])
def test_the_bits_before_padding_say_nothing_else(leaf: bytes) -> None:
    whole, last = base64.b64encode(leaf).rstrip(b"=")[:-1], base64.b64encode(leaf).rstrip(b"=")[-1:]
    padding = b"=" * (3 - len(leaf))

    def line(character: bytes) -> bytes:
        return b'{"index":0,"kind":"event","leaf":"%s","path":[]}' % (whole + character + padding)

    assert _parsed(0, line(last)) == (leaf, [])
    others = [
        bytes([character])
        for character in ALPHABET
        if base64.b64decode(whole + bytes([character]) + padding) == leaf and bytes([character]) != last
    ]
    assert len(others) == 4 ** (3 - len(leaf)) - 1
    for other in others:
        with pytest.raises(VerificationFailed, match="leaf"):
            _parsed(0, line(other))


def test_the_command_says_it_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / LEAVES
    good = path.read_bytes()
    second = good.index(b"\n") + 1
    at = good.index(b'"leaf":"', second) + 200
    path.write_bytes(good[:at] + bytes([good[at] ^ 2]) + good[at + 1 :])
    try:
        assert main(["receipts", "verify", str(folder)]) == 4
    finally:
        path.write_bytes(good)
    told = capsys.readouterr()
    assert not told.out
    [line] = told.err.splitlines()
    assert line.startswith("gput: verification failed: leaves.jsonl: leaf 1: ")
    assert main(["receipts", "verify", str(folder)]) == 0


def test_checksums_that_leave_a_file_out(bundle: Bundle) -> None:
    path = bundle.folder / SUMS
    body = "".join(line + "\n" for line in path.read_text().splitlines()[:-1] if KEYS not in line)
    own = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(f"{body}# the lines above: {own}\n")
    with pytest.raises(VerificationFailed, match=f"SHA256SUMS does not name {KEYS}"):
        verify(bundle.folder)


def test_the_usual_tool_reads_the_checksums(bundle: Bundle) -> None:
    tool = ["sha256sum", "--check", "--strict", SUMS]
    done = subprocess.run(tool, cwd=bundle.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count(": OK")) == (0, len(FILES) + CACHED - 1), done.stderr
    (bundle.folder / LEAVES).write_bytes(b"")
    done = subprocess.run(tool, cwd=bundle.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("FAILED")) == (1, 1)
