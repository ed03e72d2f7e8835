"""A session's receipts as files in a folder, and the checksums that say which is as it was saved. Knows no signature, no service.

    session.json                  session, signed log head, manifest
    approvals.jsonl               one line per decision of a holder: line n is approval n
    keys.jsonl                    one line per attested key: line n is key n
    leaves.jsonl                  one line per leaf of the log: line n is leaf n, with its own way to the signed root
    TRUST, rim/, collateral/, snp-crls/, ocsp/     copies of the roots, reference values and lists that were believed when it was saved
    SHA256SUMS                    of all of them, as `sha256sum -c` reads it; as comments those of single approvals and keys, and last that
                                  of the lines above

Every line is canonical JSON (RFC 8785). So one spoilt byte spoils one file, and in the line files one line.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from gput.whole import drafted
from shared.canonical import json_bytes, json_value, sha256
from shared.errors import BadRequest, Conflict, VerificationFailed

SESSION, APPROVALS, KEYS, LEAVES, SUMS = "session.json", "approvals.jsonl", "keys.jsonl", "leaves.jsonl", "SHA256SUMS"
ENTRIES = {APPROVALS: "approval", KEYS: "key"}
"""Files whose single lines have checksums; a leaf has its own way to the signed root."""
TRUST = ("gpu-roots.pem", "rim-roots.pem", "cpu-roots.pem", "reference.json")
OPTIONAL_TRUST = ("snp-roots.pem",)
TRUST_FOLDERS = ("rim", "collateral", "snp-crls", "ocsp")
"""A collateral service's answers lie in folders of their own in theirs."""
PARTS = {"session": str, "head": dict, "manifest": dict}
REMEDY = "Fetch the receipts again with `gput session receipts`."
NO_FOLDER = "Name a folder that `gput session receipts` wrote."
_OWN_SUM = "# the lines above: "
_NAME = r"[^/.\\\n\r][^/\\\n\r]*"
_LINE = re.compile(rf"([0-9a-f]{{64}})  ((?:{_NAME}/){{0,2}}{_NAME})")
"""Of a file in the folder, or in folders of it: whoever made the list reads nothing else here."""
_ENTRY = re.compile(r"# ([0-9a-f]{64})  ([a-z.]+) line ([0-9]{1,9})")


def write(folder: Path, bundle: Mapping[str, Any], trust: Path) -> None:
    """Write a bundle (`session`, `head`, `manifest`, `approvals`, `keys`, `leaves`) with a copy of the trust folder's public files.

    All of it is drafted before anything there is replaced, the checksums last: whoever saves again and is interrupted keeps what was good,
    and what was interrupted at first does not pass for whole. A folder that was empty is so again after an error. What an earlier saving
    left there of trust that is believed no more goes at the end.

    Raises:
        BadRequest: the trust folder has a file whose name no list of checksums can hold. Conflict `other-session`: receipts of another
            session lie there. OSError.
    """
    names = trust_files(trust)
    folder.mkdir(parents=True, exist_ok=True)
    empty = not any(folder.iterdir())
    _check_whose(folder, bundle["session"])
    try:
        before = set(trust_files(folder)) if (folder / SUMS).is_file() else set()
        _put(folder, {name: (trust / name).read_bytes() for name in names}, bundle)
        for name in before - {*names, *TRUST}:
            (folder / name).unlink()
    except OSError:
        for path in folder.iterdir() if empty else ():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _check_whose(folder: Path, session: str) -> None:
    """What lies there is of no other session, as far as it can be read."""
    with suppress(BadRequest):
        if (other := read_session(folder)["session"]) != session:
            raise Conflict(
                f"receipts of another session lie in {folder}", code="other-session", expected=session, got=other,
                remedy="Name another folder; a folder holds the receipts of one session.",
            )  # fmt: skip


def _put(folder: Path, trust: Mapping[str, bytes], bundle: Mapping[str, Any]) -> None:
    session = json.dumps({name: bundle[name] for name in PARTS}, indent=1).encode() + b"\n"
    lines = {
        name: _lines(bundle[part]) for name, part in ((APPROVALS, "approvals"), (KEYS, "keys"), (LEAVES, "leaves"))
    }
    files = {**trust, SESSION: session, **lines}
    files[SUMS] = _sums(files).encode()
    with ExitStack() as drafts:
        for name in reversed(files):  # what is drafted first is put in place last
            try:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                drafts.enter_context(drafted(folder / name)).write_bytes(files[name])
            except OSError as error:  # of the draft, whose name nobody knows
                raise OSError(error.errno, error.strerror, str(folder / name)) from error


def trust_files(folder: Path) -> tuple[str, ...]:
    """Names of the public trust files in `folder`, those of its caches included; what a verdict offline rests on. Raises: BadRequest."""
    optional = (name for name in OPTIONAL_TRUST if (folder / name).is_file())
    return (*TRUST, *optional, *sorted(_cached(folder)))


def _cached(folder: Path) -> Iterator[str]:
    for cache in TRUST_FOLDERS:
        for file in chain((folder / cache).glob("[!.]*"), (folder / cache).glob("[!.]*/[!.]*")):
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not (name.isprintable() and _LINE.fullmatch(f"{'0' * 64}  {name}")):
                raise BadRequest(f"{str(file)!r} has a name that no list of checksums can hold", code="bad-file-name",
                                 remedy="Rename it in the trust folder.")  # fmt: skip
            if file.is_file():
                yield name


def _sums(files: Mapping[str, bytes]) -> str:
    """What the checksums of a folder of these files would be."""
    sums = "".join(f"{sha256(files[name]).hex()}  {name}\n" for name in sorted(files))
    for name in ENTRIES:
        for number, line in enumerate(_split(files[name])):
            sums += f"# {sha256(line).hex()}  {name} line {number}\n"
    return sums + _own_line(sums)


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(json_bytes(value) + b"\n" for value in values)


def _own_line(sums: str) -> str:
    return f"{_OWN_SUM}{sha256(sums.encode()).hex()}\n"


def check_as_saved(folder: Path) -> bool:
    """Every file is as it was saved, but for the log, whose leaves say more themselves: whether that one was altered.

    Raises:
        BadRequest: a file is missing. VerificationFailed: naming the file, and in it the line where there are lines.
    """
    files, entries = _read_sums(folder)
    for name in sorted({SESSION, APPROVALS, KEYS, LEAVES, *TRUST} - files.keys()):
        raise VerificationFailed(f"{SUMS} does not name {name}", code="file-altered", remedy=REMEDY)
    changed = [name for name, digest in files.items() if sha256(read_file(folder, name)).hex() != digest]
    for name in (name for name in changed if name != LEAVES):
        found = [sha256(line).hex() for line in read_lines(folder, name)] if name in ENTRIES else []
        number = next((n for n, digest in enumerate(found) if entries.get((name, n)) != digest), None)
        raise not_as_saved(name if number is None else f"{name}: {ENTRIES[name]} {number}")
    return bool(changed)


def _read_sums(folder: Path) -> tuple[dict[str, str], dict[tuple[str, int], str]]:
    """Digests by file, and by file and number of its line. Raises: VerificationFailed: naming the line that was altered."""
    sums = read_file(folder, SUMS).decode(errors="replace")
    if not sums:
        raise VerificationFailed(f"{SUMS} is empty", code="file-altered", remedy=REMEDY)
    body, _, own = sums.rstrip("\n").rpartition("\n")
    lines = body.split("\n")
    files = [entry for line in lines if (entry := _LINE.fullmatch(line))]
    entries = [entry for line in lines if (entry := _ENTRY.fullmatch(line))]
    if sums != f"{body}\n{own}\n" or f"{own}\n" != _own_line(body + "\n") or len(files) + len(entries) != len(lines):
        there = {name: read_file(folder, name) for name in (SESSION, APPROVALS, KEYS, LEAVES, *trust_files(folder))}
        pairs = zip_longest(sums.split("\n"), _sums(there).split("\n"))
        number = next((n for n, (says, should) in enumerate(pairs) if says != should), None)
        raise not_as_saved(SUMS if number is None else f"{SUMS}: line {number + 1}")
    return {entry[2]: entry[1] for entry in files}, {(entry[2], int(entry[3])): entry[1] for entry in entries}


def not_as_saved(name: str) -> VerificationFailed:
    """The error about a file, or a line of one, that was altered, where nothing in it says more."""
    return VerificationFailed(f"{name} was altered after it was saved", code="file-altered", remedy=REMEDY)


def read_session(folder: Path) -> dict[str, Any]:
    """Session, head and manifest, unverified. Raises: BadRequest."""
    try:
        found = json_value(read_file(folder, SESSION))
    except BadRequest as error:
        raise BadRequest(f"{folder / SESSION}: {error.detail}", remedy=REMEDY, code="bad-receipts") from None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in PARTS.items()):
        raise BadRequest(f"{folder / SESSION} is incomplete", remedy=REMEDY, code="bad-receipts")
    return found


def read_lines(folder: Path, name: str) -> list[bytes]:
    """The lines of a line file, not parsed. Raises: BadRequest: it is missing."""
    return _split(read_file(folder, name))


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def parse_line(line: bytes) -> Any:
    """The value of one line. Raises: BadRequest: no JSON; VerificationFailed: not in the one form that was written."""
    value = json_value(line)
    if json_bytes(value) != line:
        raise VerificationFailed("not in canonical form", code="not-canonical")
    return value


def read_file(folder: Path, name: str) -> bytes:
    """The file's bytes. Raises: BadRequest: it is not there, or something else is."""
    with suppress(OSError):
        if (folder / name).is_file():  # no device, and no pipe
            return (folder / name).read_bytes()
    with suppress(OSError):
        if folder.is_dir():
            raise BadRequest(f"{folder} holds no {name}", remedy=REMEDY, code="no-receipts")
    raise BadRequest(f"there is no folder {folder}", remedy=NO_FOLDER, code="no-receipts")
