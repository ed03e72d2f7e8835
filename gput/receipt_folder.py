"""A session's receipts as files in a folder, and the checksums that say which is as it was saved. Knows no signature, no service.

    session.json                  session, signed log head, manifest, approvals
    keys.jsonl                    one line per attested key: line n is key n
    leaves.jsonl                  one line per leaf of the log: line n is leaf n, with its own way to the signed root
    TRUST, rim/, collateral/            copies of the roots and reference values that were believed when it was saved
    SHA256SUMS                    of all of them, as `sha256sum -c` reads it; its last line is the checksum of the lines above

Every line is canonical JSON (RFC 8785). So one spoilt byte spoils one file, and in the line files one line.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shared.canonical import json_bytes, json_value, sha256
from shared.errors import BadRequest, VerificationFailed

SESSION, KEYS, LEAVES, SUMS = "session.json", "keys.jsonl", "leaves.jsonl", "SHA256SUMS"
TRUST = ("gpu-roots.pem", "rim-roots.pem", "cpu-roots.pem", "reference.json")
OPTIONAL_TRUST = ("snp-roots.pem",)
TRUST_FOLDERS = ("rim", "collateral")
PARTS = {"session": str, "head": dict, "manifest": dict, "approvals": list}
REMEDY = "Fetch the receipts again with `gput session receipts`."
_OWN_SUM = "# the lines above: "
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._/-]+)")


def write(folder: Path, bundle: Mapping[str, Any], trust: Path) -> None:
    """Write a bundle (`session`, `head`, `manifest`, `approvals`, `keys`, `leaves`) with a copy of the trust folder's public files.

    The checksums come last: a folder whose writing was interrupted does not pass for whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in trust_files(trust):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(trust / name, folder / name)
    write_parts(folder, bundle)


def trust_files(folder: Path) -> tuple[str, ...]:
    """Names of the public trust files in `folder`, those of its caches included; what a verdict offline rests on."""
    cached = (path for cache in TRUST_FOLDERS for path in (folder / cache).glob("[!.]*") if path.is_file())
    optional = (name for name in OPTIONAL_TRUST if (folder / name).is_file())
    return (*TRUST, *optional, *sorted(path.relative_to(folder).as_posix() for path in cached))


def write_parts(folder: Path, bundle: Mapping[str, Any]) -> None:
    """As `write`, in a folder that has its trust files."""
    session = {name: bundle[name] for name in PARTS}
    _replace(folder / SESSION, json.dumps(session, indent=1).encode() + b"\n")
    _replace(folder / KEYS, _lines(bundle["keys"]))
    _replace(folder / LEAVES, _lines(bundle["leaves"]))
    sums = "".join(
        f"{sha256((folder / name).read_bytes()).hex()}  {name}\n"
        for name in sorted((SESSION, KEYS, LEAVES, *trust_files(folder)))
    )
    _replace(folder / SUMS, (sums + _own_line(sums)).encode())


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(json_bytes(value) + b"\n" for value in values)


def _own_line(sums: str) -> str:
    return f"{_OWN_SUM}{sha256(sums.encode()).hex()}\n"


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    partial.replace(path)


def altered(folder: Path) -> list[str]:
    """Names of the files that are not as they were saved.

    Raises:
        BadRequest: a file is missing. VerificationFailed: the checksums themselves are not as they were saved.
    """
    sums = read_file(folder, SUMS).decode(errors="replace")
    body, _, own = sums.rstrip("\n").rpartition("\n")
    entries = [_LINE.fullmatch(line) for line in body.split("\n")]
    if f"{own}\n" != _own_line(body + "\n") or sums != f"{body}\n{own}\n" or not all(entries):
        raise VerificationFailed(f"{SUMS} was altered after it was saved", code="file-altered", remedy=REMEDY)
    expected = {entry[2]: entry[1] for entry in entries if entry is not None}
    for name in sorted({SESSION, KEYS, LEAVES, *TRUST} - expected.keys()):
        raise VerificationFailed(f"{SUMS} does not name {name}", code="file-altered", remedy=REMEDY)
    return [name for name, digest in expected.items() if sha256(read_file(folder, name)).hex() != digest]


def not_as_saved(name: str, why: str = "") -> VerificationFailed:
    """The error about a file that was altered, where nothing in it says more."""
    return VerificationFailed(f"{name} was altered after it was saved{why}", code="file-altered", remedy=REMEDY)


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
    lines = read_file(folder, name).split(b"\n")
    return lines if lines[-1] else lines[:-1]


def parse_line(line: bytes) -> Any:
    """The value of one line. Raises: BadRequest: no JSON; VerificationFailed: not in the one form that was written."""
    value = json_value(line)
    if json_bytes(value) != line:
        raise VerificationFailed("not in canonical form", code="not-canonical")
    return value


def read_file(folder: Path, name: str) -> bytes:
    """The file's bytes. Raises: BadRequest: it is not there."""
    try:
        return (folder / name).read_bytes()
    except OSError:
        raise BadRequest(f"{folder} holds no {name}", remedy=REMEDY, code="no-receipts") from None
