"""A sealed file gives back what was written, any part of it, and nothing that was changed on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import sealed_file
from orchestrator.sealed_file import SealedWriter, open_sealed
from shared.crypto.aead import TAG_BYTES, AtRestStream
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed

KEY, NAME, SMALL = Secret(bytes(range(32))), "model/s_a", 64
HEAD = 32


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_file, "PIECE", SMALL)
    monkeypatch.setattr(sealed_file, "_SEALED_PIECE", SMALL + TAG_BYTES)


def sealed(path: Path, *parts: bytes, key: Secret = KEY, name: str = NAME) -> Path:
    with path.open("wb") as file:
        writer = SealedWriter(file, key, name, os.urandom)
        for part in parts:
            assert writer.write(part) == len(part)
        writer.finish()
    return path


def plain(path: Path, key: Secret = KEY, name: str = NAME) -> bytes:
    found = open_sealed(path, key, name)
    with found.file as file:
        data = file.read()
    assert len(data) == found.size
    return data


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=3 * SMALL), max_size=6), st.integers(0, 8 * SMALL), st.integers(0, 4 * SMALL))
def test_any_part_of_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], at: int, count: int
) -> None:
    path, whole = sealed(tmp_path_factory.mktemp("sealed") / "f", *parts), b"".join(parts)
    assert plain(path) == whole
    with open_sealed(path, KEY, NAME).file as file:
        file.seek(at)
        assert file.read(count) == whole[at : at + count]
        assert file.seek(-min(count, len(whole)), os.SEEK_END) == len(whole) - min(count, len(whole))
        assert file.read() == whole[len(whole) - min(count, len(whole)) :]


@pytest.mark.parametrize("length", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL])
def test_nothing_of_it_lies_on_the_disk(tmp_path: Path, length: int) -> None:
    whole = b"record" * length
    path = sealed(tmp_path / "f", whole)
    assert b"record" not in path.read_bytes()
    assert path.stat().st_size == HEAD + len(whole) + TAG_BYTES * max(1, -(-len(whole) // SMALL))


def test_the_same_twice_is_sealed_differently(tmp_path: Path) -> None:
    first, second = (sealed(tmp_path / name, b"model").read_bytes() for name in "ab")
    assert first[HEAD:] != second[HEAD:]


@pytest.mark.parametrize("length", [0, 10, SMALL, 2 * SMALL + 10])
def test_every_changed_byte_is_found(tmp_path: Path, length: int) -> None:
    path = sealed(tmp_path / "f", bytes(length))
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(VerificationFailed) as caught:
            plain(path)
        assert caught.value.code == "stored-file-changed"


PIECES = [b"a" * SMALL, b"b" * SMALL, b"c" * SMALL]


def _pieces(data: bytes) -> list[bytes]:
    step = SMALL + TAG_BYTES
    return [data[at : at + step] for at in range(HEAD, len(data), step)]


@pytest.mark.parametrize(
    "changed",
    [
        lambda head, pieces: head + b"".join(pieces[:2]),  # at a piece's end
        lambda head, pieces: head + b"".join(pieces)[:-1],
        lambda head, pieces: head + b"".join(pieces[:2]) + bytes(TAG_BYTES),  # an empty end
        lambda head, pieces: head + b"".join(pieces[:2]) + bytes(5),  # an end too short for a tag
        lambda head, pieces: head + pieces[1] + pieces[0] + pieces[2],
        lambda head, pieces: head + pieces[0] + pieces[0] + pieces[2],
        lambda head, pieces: head + b"".join(pieces) + pieces[2],
        lambda head, pieces: head,
        lambda head, pieces: head[:-1],
        lambda head, pieces: b"",
    ],
)
def test_no_piece_is_left_out_moved_or_added(tmp_path: Path, changed: Callable[[bytes, list[bytes]], bytes]) -> None:
    path = sealed(tmp_path / "f", *PIECES)
    data = path.read_bytes()
    path.write_bytes(changed(data[:HEAD], _pieces(data)))
    with pytest.raises(VerificationFailed) as caught:
        plain(path)
    assert caught.value.code == "stored-file-changed"


def test_one_cut_short_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """Whoever reads only its beginning must not take what is left for the whole."""
    path = sealed(tmp_path / "f", *PIECES)
    path.write_bytes(path.read_bytes()[: HEAD + 2 * (SMALL + TAG_BYTES)])
    with pytest.raises(VerificationFailed):
        open_sealed(path, KEY, NAME)


def test_another_key_or_name_opens_nothing(tmp_path: Path) -> None:
    path = sealed(tmp_path / "f", b"model")
    for key, name in ((Secret(bytes(32)), NAME), (KEY, "model/s_b")):
        with pytest.raises(VerificationFailed):
            plain(path, key, name)


def test_one_that_was_not_finished_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        SealedWriter(file, KEY, NAME, os.urandom).write(b"".join(PIECES))
    with pytest.raises(VerificationFailed):
        open_sealed(path, KEY, NAME)


def test_numbers_and_ends_have_nonces_of_their_own() -> None:
    stream = AtRestStream(KEY, NAME)
    made = {stream.seal(number, b"", last=last) for number in (0, 1, 2**32, 2**32 + 1) for last in (False, True)}
    assert len(made) == 8
