"""`gput session rehearse`: do program, manifest and the records' schema fit together, before any holder is asked? Knows no protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.agreed import agreed_manifest
from gput.commands.manners import FormatOption
from gput.files import content, fleeting
from gput.output import Format, emit, say, show
from gput.stop_signals import run_in_order
from shared.claims.archive import Archive, open_archive
from shared.claims.manifest import Manifest
from shared.errors import BadRequest, JobFailed

if TYPE_CHECKING:
    from gput.local.rehearsal import Played
    from gput.rehearsing import Remark

COLUMNS = (
    "holder", "visits", "records", "first_loss", "last_loss", "falling", "visit_ms", "buffer_needed", "buffer_asked", "passes", "epsilon",
)  # fmt: skip


def rehearse(
    manifest: Annotated[Path, typer.Argument(help="manifest.json, as for `gput session submit`")],
    program: Annotated[Path, typer.Option(help="the program's archive, its weights beside it if it has any", show_default=False)],
    weights: Annotated[Path | None, typer.Option(help="the weights that the manifest starts from, if it names any")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="HOLDER=PATH: that holder's mock data in place of made-up records (repeatable)")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="HOLDER=FILE: that holder's policy, to see what it would refuse (repeatable)")
    ] = None,
    records: Annotated[int | None, typer.Option(min=1, help="how many records each holder is expected to bring")] = None,
    visits: Annotated[int, typer.Option(min=1, max=1000, help="visits to each holder, at most")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="training steps of a visit, at most; default as the manifest says")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the made-up records")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="seconds to wait at most; exit code 3 after them")] = 600.0,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Run a manifest's first visits over made-up records, with services of its own here; say of each holder how it went.

    The records are drawn within the ranges that the program declares, least and greatest values among them. Nobody is asked, nothing is
    sent anywhere, and the folder goes with the services, but for a log that an error names. Exit code 0: all fits. 1: something does
    not; each remark says what to do.

    Example:  gput session rehearse manifest.json --program mymodel.gput
    """
    from gput.local.opening import weights_to_start
    from gput.local.rehearsal import Part
    from gput.local.rehearsal import rehearse as play

    agreed, archive = agreed_manifest(manifest), open_archive(content(program, "no-program"))
    _belong_together(agreed, archive, program)
    start = weights_to_start(agreed, archive, program, weights)
    places, policies = _by_holder(agreed, data or (), "--data"), _by_holder(agreed, policy or (), "--policy")
    before = [*_policies(agreed, archive, policies), *_data(archive, places)]
    if any(remark.level == "fault" for remark in before):  # a holder would refuse: no session could show more
        _end(agreed, before, None, records, fmt, archive)
    part = Part(agreed, program, start, places, visits, steps, seed)
    with fleeting("gput-rehearsal-") as folder:
        played = run_in_order(play(folder, part, timeout, say))
    _end(agreed, before, played, records, fmt, archive)


def _belong_together(manifest: Manifest, archive: Archive, program: Path) -> None:
    """Raises: BadRequest `other-program`."""
    if archive.digest.hex() != manifest.program:
        raise BadRequest(
            f"{program} is not the program that the manifest names", code="other-program", expected=manifest.program[:16],
            got=archive.digest.hex()[:16], remedy="Name the archive that was built for this manifest, or put its digest into the manifest.",
        )  # fmt: skip


def _by_holder(manifest: Manifest, words: Iterable[str], option: str) -> dict[str, Path]:
    """Raises: typer.BadParameter: not HOLDER=PATH, or no holder of the roster."""
    names, found = {entry.holder for entry in manifest.roster}, {}
    for word in words:
        holder, sign, path = word.partition("=")
        if not sign or not path or holder not in names:
            raise typer.BadParameter(f"write HOLDER=PATH; holders are {', '.join(sorted(names))}", param_hint=option)
        found[holder] = Path(path)
    return found


def _data(archive: Archive, places: Mapping[str, Path]) -> list[Remark]:
    """What speaks against the records that were given. How many they are says nothing: the holder's are others."""
    from data_holder.datasets import inspect_dataset
    from gput.rehearsing import Remark

    return [
        Remark(holder, "fault", str(finding), finding.remedy or "Correct the records.", finding.code)
        for holder, path in places.items()
        for finding in inspect_dataset(path, archive.manifest, limit=3).findings
    ]


def _policies(manifest: Manifest, archive: Archive, files: Mapping[str, Path]) -> list[Remark]:
    """What holders' policies say. Whose key will sign the manifest is not known yet: of that a rehearsal only reminds."""
    from data_holder.policy import load_policy
    from data_holder.policy_rules import OWNERS, evaluate
    from gput.rehearsing import Remark

    broken = [
        (holder, found)
        for holder, file in files.items()
        for found in evaluate(load_policy(file), manifest, archive.manifest, holder, None) if not found.ok
    ]  # fmt: skip
    return [
        Remark(holder, "note", f"its policy approves only what is signed by {found.expected}", "Sign the manifest with such a key.",
               "policy-names-owners")
        if found.rule == OWNERS else
        Remark(holder, "fault", f"its policy refuses by {found.rule}: expected {found.expected}, got {found.got}",
               "Change the manifest, or ask the holder to decide by hand.", "policy-refuses")
        for holder, found in broken
    ]  # fmt: skip


def _refused(refusals: Mapping[str, str]) -> list[Remark]:
    """What the rehearsal's holders say that would not take part. `refusals`: their reasons, by holder."""
    from gput.rehearsing import Remark

    return [
        Remark(holder, "fault", f"its service refused the session: {reason or 'no reason was given'}",
               "Change what the reason names, in the manifest or the records; then rehearse again.", "rehearsal-refused")
        for holder, reason in refusals.items()
    ]  # fmt: skip


def _end(
    manifest: Manifest, before: Sequence[Remark], played: Played | None, records: int | None, fmt: Format, archive: Archive
) -> None:  # fmt: skip
    """Print everything. `played`: None where it was not run at all. Raises: JobFailed `rehearsal-failed`: something does not fit."""
    from gput import rehearsing as r
    from gput.foreseeing import foreseen

    program = archive.manifest
    remarks, rows, memory = [*before, *foreseen(manifest, program, records)], [], r.memory(manifest, program)
    measured = r.measured(memory["total"], played.gpu if played is not None else {})
    remarks += r.too_little_memory(memory["total"], measured)
    if played is not None:
        remarks += _refused(played.refusals)
        for entry in manifest.roster:
            visits = [visit for visit in played.visits if visit["holder"] == entry.holder]
            remarks += r.happened(played.manifest, entry.holder, visits)
            rows.append(r.holder_row(manifest, played.manifest, program, entry.holder, visits, records))
    ended = played is not None and played.session["phase"] == "COMPLETED"
    fits = ended and not any(remark.level == "fault" for remark in remarks)
    found = {
        "fits": fits, "phase": played.session["phase"] if played else "not run", "differs": list(played.changes) if played else [],
        "memory": memory, "measured": measured.model_dump(), "holders": rows, "remarks": r.rows_of(remarks),
    }  # fmt: skip
    _print(found, fmt)
    if not fits:
        failure = (played.session.get("failure") or {}).get("detail") if played else None
        first = next(
            (remark.reason for remark in remarks if remark.level == "fault"), failure or "the session did not complete"
        )
        raise JobFailed(f"program, manifest and records do not fit together: {first}", code="rehearsal-failed",
                        remedy="Each remark says what to change.")  # fmt: skip


def _print(found: dict[str, Any], fmt: Format) -> None:
    if fmt is not Format.TABLE:
        show(found, fmt)
        return
    lists = {name: found.pop(name) for name in ("holders", "remarks")}
    show(found, fmt)
    for name, columns in (("holders", COLUMNS), ("remarks", ("about", "level", "reason", "remedy", "code"))):
        if lists[name]:
            print()
            emit(lists[name], columns, fmt)
