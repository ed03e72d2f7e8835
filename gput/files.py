"""Files that a command was named: read, or found to be writable before any work is done. Knows no service and no client."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gput.output import say
from shared.errors import BadRequest, GputError


def content(path: Path, code: str) -> bytes:
    """The whole file. Raises: BadRequest with this `code`: it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadRequest(
            f"cannot read {path}: {error.strerror}",
            code=code,
            remedy="Name a file that is there and that you may read.",
        ) from None


def place_for(file: Path, mode: int = 0o777) -> None:
    """See that a file can be written: its folder is made where it is missing (with `mode`), and that is said.

    Raises:
        BadRequest: the folder cannot be made or written to, or the name is a folder's.
    """
    folder = file.absolute().parent
    with written(file):  # a name may be too long even to be asked after
        is_folder = file.is_dir()
    if is_folder:
        raise BadRequest(
            f"{file} is a folder", code="cannot-write", remedy=f"Name a file in it, for instance {file / 'NAME'}."
        )
    missing = not folder.exists()
    writable(folder, mode)
    if missing:
        say(f"made the folder {file.parent}")


def writable(folder: Path, mode: int = 0o777) -> Path:
    """The folder, made if it is not there.

    Raises:
        BadRequest: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise BadRequest(f"cannot write to {folder}: {error.strerror}", code="cannot-write") from None
    if not os.access(folder, os.W_OK):
        raise BadRequest(f"cannot write to {folder}: permission denied", code="cannot-write")
    return folder


def distinct(outputs: Sequence[Path], inputs: Sequence[Path | None]) -> None:
    """See that nothing is written over what the command reads, nor over another of its own results. What is no file (a pipe, a terminal)
    loses nothing by it.

    Args:
        inputs: files, or folders that are read whole; None for one that was not named.

    Raises:
        BadRequest `same-file`: an output is an input, lies in one, or is another output.
    """
    for number, output in enumerate(outputs):
        with written(output):
            if output.exists() and not (output.is_file() or output.is_dir()):
                continue
            place = output.resolve()
            for read in filter(None, inputs):
                if _one(output, read) or (read.is_dir() and place.is_relative_to(read.resolve())):
                    raise _same(output, f"what is read from {read}")
            if any(_one(output, other) for other in outputs[:number]):
                raise _same(output, "another result of this command")


def _one(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.resolve() == other.resolve()


def _same(output: Path, what: str) -> BadRequest:
    return BadRequest(f"{output} would be written over {what}", code="same-file", remedy="Name another place for it.")


@contextmanager
def fleeting(prefix: str) -> Iterator[Path]:
    """A folder that is removed in the end. Where an error sends its reader to a log in it, the logs stay, and nothing else."""
    folder, told = Path(tempfile.mkdtemp(prefix=prefix)), False
    try:
        yield folder
    except GputError as error:
        told = str(folder) in (error.remedy or "")
        raise
    finally:
        if told:
            _all_but_logs(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _all_but_logs(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):  # what lies in a folder before the folder
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()  # where nothing stayed
            elif path.suffix != ".log":
                path.unlink()


@contextmanager
def written(target: Path | str) -> Iterator[None]:
    """Around the writing of `target`. Raises: BadRequest `cannot-write`: the system refused, a full disk for instance."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise BadRequest(f"cannot write {target}: {error.strerror or error}", code="cannot-write") from error
