"""What --dry-run asks of a service, and says of its answer: the service judges, by the act's own code (docs/adr/0052). Knows no terminal.

Here is no rule of an act, but what only the client knows: the files that it would bring first.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gput.files import content as content_of
from gput.trust import NotBelieved
from gput.uploads import (
    check_key,
    named_as,
    not_named,
    program_in,
    programs_weights,
    starts_from,
    unfit,
    with_weights,
)
from shared.canonical import sha256
from shared.errors import BadRequest, Conflict, GputError, LimitExceeded, NotFound, NotPermitted, Refused
from shared.wire.dry_run import UnsignedManifest

if TYPE_CHECKING:
    from gput.api import Api
    from shared.claims.manifest import Manifest

REFUSALS: Final = (BadRequest, NotPermitted, NotFound, Conflict, Refused, LimitExceeded)
"""What a service says of an act. Any other error says that it was not judged: who calls is unknown there, or it does not answer now, or
knows no dry runs (`gput.answers.only_asked`)."""
UNKNOWN_PROGRAM: Final = "unknown-program"
UNJUDGED: Final = {
    UNKNOWN_PROGRAM: "what depends on the program (weights, buffer, memory, privacy, predecessor)",
    "unknown-weights": "whether the weights are finite and the program's",
    "unknown-validation-dataset": "whether the held-out records are as many as the manifest says",
}
"""Of a file that is brought and not stored: what the orchestrator cannot say before it has it, by the code of its finding."""


@dataclass(frozen=True)
class _File:
    """A file that would be uploaded first. `program`: the digest of the archive that it is; `starts_from`: weights that this one names;
    `unfit`: why it is none that may be stored now."""

    path: Path
    sha256: str
    program: str | None
    starts_from: str | None
    unfit: GputError | None


@contextmanager
def judged() -> Iterator[None]:
    """Around asking: a refusal is told as one of what was not done. Raises: BadRequest `would-be-refused`, with the service's reason, code
    and remedy."""
    try:
        yield
    except NotBelieved:  # whoever answered has judged nothing
        raise
    except REFUSALS as error:
        said = refused("nothing was done", _sentences(error))
        said.expected, said.got = error.expected, error.got
        raise said from error


def refused(so_far: str, sentences: Sequence[str]) -> BadRequest:
    """What is said where the act would be refused, for each of these reasons."""
    return BadRequest(f"{so_far}, and it would be refused: {'; '.join(sentences)}", code="would-be-refused")


def would_do(what: str, changes: bool) -> str:
    """The beginning of a sentence on an act that would be taken."""
    return f"would {what}" if changes else f"would change nothing, for the same was said before: {what}"


def _sentences(error: GputError, but: Collection[str] = ()) -> list[str]:
    """A refusal's findings, or its one reason, each with what to do and its code; `but` those with these."""
    if not error.errors:
        return [f"{error.advice} [{error.code}]"]
    return [_finding({"code": error.code, **entry}) for entry in error.errors if entry.get("code") not in but]


def _finding(entry: Mapping[str, str]) -> str:
    remedy = entry.get("remedy")
    return f"{entry.get('field')}: {entry.get('message')}" + (f" ({remedy})" if remedy else "") + f" [{entry['code']}]"


# ------------------------------------------------------------------ a submission, after its files


async def would(client: Api, manifest: Manifest, paths: Sequence[Path], idempotency_key: str | None) -> dict[str, Any]:
    """`missing` has a sentence for each reason why the submission would be refused, `unjudged` one for all that nobody could say.
    `changes`: whether it would change anything; None where the orchestrator did not say that it would be taken.

    Args:
        paths: files that would be uploaded first, and weights beside them (`with_weights`).
    Raises:
        BadRequest: `no-file`: one of them cannot be read; `idempotency-key-malformed`. ConfigurationError: `no-dry-run`.
    """
    check_key(idempotency_key)
    me, files = await client.whoami(), await asyncio.to_thread(_files, manifest, paths)
    unsigned = UnsignedManifest(document=b64encode(manifest.canonical()).decode(), idempotency_key=idempotency_key)
    own = next((file for file in files if file.program == manifest.program), None)
    starting = own.starts_from if own is not None else await programs_weights(client, manifest.program)
    missing: list[str] = []
    unjudged: list[str] = []
    changes: bool | None = None
    try:
        verdict = await client.would("sessions", body=unsigned.model_dump(mode="json", exclude_none=True))
        unjudged, changes = [*verdict.unjudged], verdict.changes
    except NotBelieved:
        raise
    except REFUSALS as error:
        met = _brought(manifest, starting, files) & {entry.get("code", "") for entry in error.errors or ()}
        missing += _sentences(error, but=met)
        if UNKNOWN_PROGRAM in met and own is not None:
            missing += [f"{own.path}: {own.unfit.advice} [{own.unfit.code}]"] if own.unfit is not None else []
            missing += await _lacking(client, manifest, starting, files)
        unjudged += [f"{UNJUDGED[code]}: the file is uploaded first, and not stored yet" for code in sorted(met)]
    return {
        "name": manifest.name, "owner": me["name"], "manifest_digest": manifest.digest().hex(), "rounds": manifest.rounds,
        "visits": manifest.rounds * len(manifest.roster), "holders": [entry.holder for entry in manifest.roster],
        "missing": missing + _for_nothing(manifest, starting, files), "unjudged": unjudged, "changes": changes,
    }  # fmt: skip


def _files(manifest: Manifest, paths: Sequence[Path]) -> list[_File]:
    return [_file(path) for path in with_weights(manifest, paths)]


def _file(path: Path) -> _File:
    content = content_of(path, "no-file")
    return _File(path, sha256(content).hex(), program_in(content), starts_from(content), unfit(content))


def _brought(manifest: Manifest, starting: str | None, files: Sequence[_File]) -> set[str]:
    """Codes of findings that speak of nothing but a file which is uploaded first. `starting`: weights that the program names."""
    named: dict[str, tuple[str | None, set[str | None]]] = {
        UNKNOWN_PROGRAM: (manifest.program, {file.program for file in files}),
        "unknown-weights": (manifest.initial_weights or starting, {file.sha256 for file in files}),
        "unknown-validation-dataset": (manifest.validation.dataset if manifest.validation else None, {file.sha256 for file in files}),
    }  # fmt: skip
    return {code for code, (digest, there) in named.items() if digest is not None and digest in there}


async def _lacking(client: Api, manifest: Manifest, starting: str | None, files: Sequence[_File]) -> list[str]:
    """The weights that a program which is brought starts from, where they are neither stored nor brought: who has not the program cannot
    say that they are missing."""
    if manifest.predecessor is not None or manifest.initial_weights is not None or starting is None:
        return []
    stored = {item["digest"] for item in await client.items("weights")}
    if starting in stored | {file.sha256 for file in files}:
        return []
    return [
        f"initial_weights: no weights with digest {starting[:16]}… are stored (say --upload FILE) [unknown-weights]"
    ]


def _for_nothing(manifest: Manifest, starting: str | None, files: Sequence[_File]) -> list[str]:
    """Files whose upload would be refused for it."""
    rest = [file for file in files if file.program != manifest.program]
    strange = [file for file in rest if named_as(manifest, {manifest.initial_weights, starting}, file.sha256) is None]
    return [f"{not_named(file.path, file.sha256, file.program).detail} [not-named]" for file in strange]


__all__ = ["judged", "refused", "would", "would_do"]
