"""`gput plan`: how many steps a visit should have. Knows where costs and work are told; what follows from them is `gput.planning`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.manners import Commands, FormatOption
from gput.files import content, fleeting
from gput.output import Format, say, show
from gput.stop_signals import run_in_order
from gput.tours import Tours
from shared.errors import BadRequest

if TYPE_CHECKING:
    from gput.client import AsyncClient
    from gput.planning import Costs, Prediction, Work
    from shared.claims.archive import Archive
    from shared.claims.manifest import Manifest

app = Commands()
MEASURED_VISITS = 24
MOST = 2**53 - 1
"""As large as a number in JSON may be; what is multiplied of such stays finite."""


@dataclass(frozen=True)
class _Told:
    """What the command line names: files already read, sessions already looked up, and of which tours those are."""

    manifest: Manifest | None
    archive: Archive | None
    program: Path | None
    views: Sequence[Mapping[str, Any]]
    visits: Sequence[Mapping[str, Any]]
    toured: Tours | None
    saved: Path | None
    step_s: float | None


@app.command()
def plan(
    manifest: Annotated[Path | None, typer.Argument(help="manifest.json, as for `gput session submit`")] = None,
    session: Annotated[
        list[str] | None, typer.Option(help="take costs from this session's visits (repeatable: of other lengths)")
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--from", help="take costs from this result of `gput bench lengths`")
    ] = None,
    program: Annotated[Path | None, typer.Option(help="the program's archive; costs are measured with it here")] = None,
    step_ms: Annotated[float | None, typer.Option(min=1e-6, max=1e12, help="what a training step takes, where known")] = None,
    overhead: Annotated[float, typer.Option(min=0.01, max=99.9, help="largest share of a visit that may be overhead, in percent")] = 10,
    steps: Annotated[int | None, typer.Option(min=1, max=MOST, help="training steps of all visits together")] = None,
    holders: Annotated[int | None, typer.Option(min=1, max=256, help="how many holders")] = None,
    records_per_step: Annotated[int | None, typer.Option(min=1, max=MOST, help="the batch")] = None,
    record_bytes: Annotated[int | None, typer.Option(min=1, max=MOST, help="bytes of a record")] = None,
    tours: Annotated[Tours | None, typer.Option(help="how a round's visits belong together", show_default="the manifest's")] = None,
    url: Annotated[str | None, typer.Option("--url", envvar="GPUT_URL", help="the orchestrator's, for --session")] = None,
    key: Annotated[Path | None, typer.Option("--key", envvar="GPUT_KEY", help="your private key file, for --session")] = None,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Recommend steps per visit: the fewest whose overhead (all of a visit but its training steps) stays under --overhead percent.

    Costs come from --session, --from, or are measured here: with --program, or with --step-ms alone. What the manifest, the program or the
    session does not say of the work, options do. In a tour a round's visits are costed with its end; what had to be assumed is said.

    Example:  gput plan manifest.json --program mymodel.gput
    """
    views, visits, toured = _sessions(session or (), url, key)
    told = _Told(
        manifest=_manifest(manifest), archive=_archive(program), program=program, views=views, visits=visits, toured=toured,
        saved=saved, step_s=None if step_ms is None else step_ms / 1e3,
    )  # fmt: skip
    _belong_together(told)
    given = {"steps": steps, "holders": holders, "records_per_step": records_per_step, "record_bytes": record_bytes}
    work = _work(told, given, _tours(told, tours))
    costs = _costs(told)
    _warn(told, work, costs)
    own = told.manifest.steps_per_visit if told.manifest is not None else None
    show(_recommended(costs, work, overhead / 100, own), fmt)


def _warn(told: _Told, work: Work, costs: Costs) -> None:
    if work.every_visits and costs.check_s is None:
        say("warning: held-out checks are not counted: no visit that was looked at had one")
    if told.manifest is not None and told.manifest.privacy and not told.visits and told.step_s is None:
        say("warning: private training takes longer than the steps measured here: say --step-ms, or --session")


def _recommended(costs: Costs, work: Work, share: float, own: int | None) -> dict[str, Any]:
    """What is printed. `own`: the manifest's steps per visit, which get a line, too."""
    from gput import planning, planning_tours

    chosen = planning.fewest(costs, work, share)
    return {
        "steps_per_visit": chosen, "why": planning.reason(costs, work, share, chosen), "quality": planning_tours.quality(work),
        "assumed": "; ".join(planning_tours.assumed(costs, work, chosen)), "work": asdict(work), "costs": _shown(costs),
        "lengths": [_row(planning.predict(costs, work, length)) for length in planning.lengths(work, chosen, own)],
    }  # fmt: skip


def _row(found: Prediction) -> dict[str, Any]:
    row = asdict(found)
    return row | {"overhead": round(row["overhead"], 4), "wall_s": round(row["wall_s"], 3)}


def _shown(costs: Costs) -> dict[str, float | None]:
    others = {"check_ms": costs.check_s, "tour_ms": costs.tour_s}
    return {
        **costs.named(),
        **{name: None if value is None else round(value * 1e3, 4) for name, value in others.items()},
    }


# ------------------------------------------------------------------ what is told


def _manifest(path: Path | None) -> Manifest | None:
    from shared.claims.faults import judged

    return None if path is None else judged(content(path, "no-manifest"), f"{path}: ")


def _archive(path: Path | None) -> Archive | None:
    from shared.claims.archive import open_archive

    return None if path is None else open_archive(content(path, "no-program"))


def _sessions(
    sessions: Sequence[str], url: str | None, key: Path | None
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], Tours | None]:
    """The sessions, all their closed visits, and how those belong together. Raises: BadRequest: not in all of them alike."""
    if not sessions:
        return [], [], None
    if url is None or key is None:
        raise BadRequest(
            "a session is asked of an orchestrator",
            code="no-url",
            remedy="Say --url and --key, or set GPUT_URL and GPUT_KEY.",
        )
    from gput.commands.connection import connect

    async def ask(client: AsyncClient) -> tuple[list[Any], list[Any], list[Manifest]]:
        named = [await client.find(session) for session in sessions]
        views = [await client.session(session) for session in named]
        visits = [visit for session in named for visit in await client.items(f"sessions/{session}/visits")]
        manifests = [await client.manifest(session) for session in named]
        return views, [visit for visit in visits if visit["outcome"] == "closed"], manifests

    views, visits, manifests = connect(url, key, ask)
    kinds = {Tours.of(manifest) for manifest in manifests}
    if len(kinds) > 1:
        raise BadRequest(
            "visits of tours and others cost differently", code="other-tours", remedy="Name sessions of one kind."
        )
    return views, visits, kinds.pop()


def _belong_together(told: _Told) -> None:
    """Raises: BadRequest: `other-program`: manifest, archive and sessions are of different ones; `two-sources` of costs."""
    if told.views and told.saved is not None:
        raise BadRequest(
            "costs come from sessions or from a file", code="two-sources", remedy="Say --session or --from."
        )
    named = {view["program"]: f"session {view['id']}" for view in told.views}
    named |= {told.archive.digest.hex(): "the archive"} if told.archive is not None else {}
    named |= {told.manifest.program: "the manifest"} if told.manifest is not None else {}
    if len(named) > 1:
        listed = "; ".join(f"{where}: {digest[:16]}…" for digest, where in named.items())
        raise BadRequest(
            f"these are of different programs ({listed})",
            code="other-program",
            remedy="Plan for one program at a time.",
        )


def _tours(told: _Told, given: Tours | None) -> Tours | None:
    """By the option, else the manifest, else the sessions. Raises: BadRequest `other-tours`: the sessions' visits say nothing of such."""
    wanted = given or (Tours.of(told.manifest) if told.manifest is not None else told.toured)
    if told.toured not in (None, wanted):
        raise BadRequest(
            f"visits of a session with {told.toured} = tour do not say what others cost", code="other-tours",
            remedy="Name a session of visits that train when they come, or plan for such tours.",
        )  # fmt: skip
    return wanted


def _work(told: _Told, given: Mapping[str, int | None], tours: Tours | None) -> Work:
    """What is to be trained: by the options, else the manifest, else the program, else the sessions.

    Raises:
        BadRequest `incomplete-plan`: none of them says it all.
    """
    from gput.planning import Work

    known: dict[str, int | None] = {}
    for source in (given, _of_manifest(told.manifest), _of_program(told.archive), _of_sessions(told)):
        known = {**source, **{name: value for name, value in known.items() if value is not None}}
    missing = [f"--{name.replace('_', '-')}" for name in given if known.get(name) is None]
    if missing:
        raise BadRequest(
            f"nothing says how much work it is: {', '.join(missing)}", code="incomplete-plan",
            remedy="Give these options, or a manifest and --program, or --session.",
        )  # fmt: skip
    every = known.pop("every_visits", None)
    return Work(**{name: int(value or 0) for name, value in known.items()}, every_visits=every, tours=tours)


def _of_manifest(manifest: Manifest | None) -> dict[str, int | None]:
    if manifest is None:
        return {}
    return {
        "steps": manifest.rounds * sum(manifest.steps_for(entry.holder) for entry in manifest.roster),
        "holders": len(manifest.roster), "records_per_step": manifest.training.batch_size,
        "every_visits": manifest.validation.every_visits if manifest.validation is not None else None,
    }  # fmt: skip


def _of_program(archive: Archive | None) -> dict[str, int | None]:
    if archive is None:
        return {}
    manifest = archive.manifest
    return {"records_per_step": manifest.defaults.batch_size, "record_bytes": manifest.records.record_bytes}


def _of_sessions(told: _Told) -> dict[str, int | None]:
    if not told.views or not told.visits:
        return {}
    view, visit = told.views[0], told.visits[0]
    return {
        "steps": view["steps_total"], "holders": len(view["holders"]),
        "records_per_step": visit["records"] // visit["steps"], "record_bytes": visit["length"] // visit["records"],
    }  # fmt: skip


# ------------------------------------------------------------------ what it costs


def _costs(told: _Told) -> Costs:
    from gput.planning_tours import calibrate_tours

    if told.views:
        return calibrate_tours(told.visits, told.toured, told.step_s)
    if told.saved is not None:
        return _saved_costs(told.saved, told)
    return _measured(told)


def _saved_costs(path: Path, told: _Told) -> Costs:
    """Raises: BadRequest: no result of `gput bench lengths`, of another program, or nothing says what a step takes."""
    from gput.bench.result import read
    from gput.planning import Costs

    result = read(path)
    named = result.parameters.get("program")
    digest = told.manifest.program if told.manifest is not None else told.archive.digest.hex() if told.archive else None
    if isinstance(named, str) and digest is not None and not digest.startswith(named):
        raise BadRequest(f"{path} was measured with another program ({named[:16]}…)", code="other-program")
    figures = {name: figure.median for name, figure in result.figures.items()}
    step_s = told.step_s if told.step_s is not None or named is None else figures.get("train_step_ms", 0.0) / 1e3
    if not step_s:
        raise BadRequest(
            f"{path} was measured with a program of its own: nothing says what a step of yours takes", code="no-step",
            remedy="Say --step-ms, or measure with `gput bench lengths --program FILE --save …`.",
        )  # fmt: skip
    try:
        return Costs.measured(figures, step_s)
    except KeyError:
        raise BadRequest(
            f"{path} is a result of `gput bench {result.bench}`, which does not say what a visit costs", code="other-bench",
            remedy="`gput bench lengths --save FILE` writes one that does.",
        ) from None  # fmt: skip


def _measured(told: _Told) -> Costs:
    """Costs of visits made here and now. Raises: BadRequest `no-costs`: nothing says what a step takes."""
    import dataclasses

    if told.program is None and told.step_s is None:
        raise BadRequest(
            "nothing says what a visit and a step cost", code="no-costs",
            remedy="Say --program FILE to measure it here, --session, --from, or --step-ms.",
        )  # fmt: skip
    from gput.local.lengths_bench import lengths, load_of

    load = load_of(told.program, told.manifest.training if told.manifest is not None else None)
    say(f"measuring {MEASURED_VISITS} visits on this machine …")
    with fleeting("gput-plan-") as folder:
        found = run_in_order(lengths(folder, MEASURED_VISITS, say, load))
    return found if told.step_s is None else dataclasses.replace(found, step_s=told.step_s)
