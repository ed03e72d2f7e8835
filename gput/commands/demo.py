"""`gput demo`: a job on this machine, with real processes, data and training. Knows no protocol, and no demo in particular."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.manners import Commands
from gput.files import writable, written
from gput.local.demos.catalogue import DEMOS, STATE, kept, plan_of
from gput.local.demos.plan import Plan
from gput.local.demos.texts import ONE_STEP_A_ROUND, Texts
from gput.local.report import page, short, summary
from gput.output import Format, say, show
from gput.stop_signals import STOPPING
from gput.tours import Tours
from shared.errors import BadRequest, ConfigurationError, Conflict, JobFailed
from shared.names import TravelMode
from shared.service.data_dir import IN_USE, held

if TYPE_CHECKING:
    from gput.local.demo import Demo

app = Commands()
RUNS, LATEST = Path("runs"), "latest"
MOST = 1_000_000
"""Rounds, and steps of a visit, that a manifest may have."""


def _usual(field: str) -> str:
    usual = ", ".join(f"{name} {getattr(kind, field)}" for name, kind in DEMOS.items())
    return f"{usual}; text {ONE_STEP_A_ROUND[field]} with --tours accumulate"


AttackName = Annotated[
    str | None,
    typer.Option("--attack", metavar="NAME", help="run one attack instead and show what stops it; `list` names them"),
]


@app.command()
def demo(
    what: Annotated[
        str | None, typer.Argument(metavar="[DEMO]", help=f"which: {', '.join(DEMOS)}", show_default=Texts.name)
    ] = None,
    folder: Annotated[Path | None, typer.Option("--dir", help="where everything of this run goes")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --dir (default: the latest)")] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="passes over the holders", show_default=_usual("rounds"))
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="training steps per visit", show_default=_usual("steps"))
    ] = None,
    mode: Annotated[
        TravelMode | None, typer.Option("--mode", help="what a holder gets of the GPU", show_default=Plan.mode.value)
    ] = None,
    tours: Annotated[
        Tours | None,
        typer.Option(
            help="train once a round, on everybody's records mixed; or one step a round, with everybody's gradients"
        ),
    ] = None,
    attack: AttackName = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave all services running at the end, until Ctrl-C")] = False,
    output: Annotated[Format, typer.Option("--format", help="how to print the result")] = Format.TABLE,
    layers: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    width: Annotated[int | None, typer.Option(min=4, hidden=True)] = None,
    batch: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
) -> None:
    """Train one model on several holders' private data by sending the GPU round: unless another is named, GPT-2 on three corpora.

    Examples:  gput demo | gput demo hospitals | gput demo --tours collect | gput demo --resume | gput demo --attack list
    """
    wanted: dict[str, Any] = {
        "rounds": rounds, "steps": steps, "layers": layers, "width": width, "batch": batch, "mode": mode, "tours": tours,
    }  # fmt: skip
    given = {name: value for name, value in wanted.items() if value is not None}
    if attack is not None:
        _for_people(output)
        raise typer.Exit(_attack(attack, what or Texts.name, folder, resume or keep, given))
    demo = _resumed(what, folder, given) if resume else _new(what or Texts.name, folder, given)
    with _alone(demo.folder):
        raise typer.Exit(asyncio.run(_until_stopped(demo, _run(demo, output, keep=keep))))


def _new(what: str, folder: Path | None, given: dict[str, Any]) -> Demo:
    plan = plan_of(what, given)
    plan.ready()
    demo = _demo(_folder(folder, "demo" if what == Texts.name else what), plan)
    demo.options = "".join(f"--{name} {value} " for name, value in given.items())
    return demo


def _resumed(what: str | None, folder: Path | None, given: dict[str, Any]) -> Demo:
    if given:
        raise BadRequest(
            "a demo that is resumed goes on as it began", code="demo-option",
            remedy=f"Leave out: {', '.join(f'--{name}' for name in given)}.",
        )  # fmt: skip
    found = (folder or RUNS / LATEST).resolve()
    plan = kept(found)
    if plan is None:
        raise BadRequest(f"{found} holds no demo to resume.", remedy="Start one with `gput demo`.", code="no-demo")
    if what not in (None, plan.name):
        raise BadRequest(
            f"{found} holds the demo {plan.name!r}", code="demo-option",
            remedy=f"Leave {what!r} out, or name the folder of such a run by --dir.",
        )  # fmt: skip
    plan.ready()
    return _demo(found, plan)


def _demo(folder: Path, plan: Plan) -> Demo:
    from gput.local.demo import Demo  # only now: the command's help need not know how

    return Demo(folder, plan, say)


def _for_people(output: Format) -> None:
    if output is not Format.TABLE:
        raise BadRequest(
            "what becomes of an attack is told to people only", remedy="Leave --format out.", code="demo-option"
        )


def _attack(name: str, what: str, folder: Path | None, resume: bool, given: dict[str, Any]) -> int:
    from gput.local.attacks import tour  # hostile code: loaded for this and nothing else

    if name == "list":
        print(tour.table())
        return 0
    if what != Texts.name:
        raise BadRequest("attacks are played on the demo of texts", remedy=f"Leave {what!r} out.", code="demo-option")
    if "tours" in given:
        raise BadRequest("attacks are played visit by visit", remedy="Leave --tours out.", code="demo-option")
    if resume:
        raise BadRequest("an attack cannot be resumed or kept", remedy="Run it again without --resume or --keep.")
    attack = tour.find(name)
    plan = tour.plan_of(attack, given)
    stage = tour.stage_for(attack, _folder(folder, f"attack-{name}", latest=False), plan)
    with _alone(stage.folder):
        return asyncio.run(_until_stopped(stage, tour.play(attack, stage)))


def _folder(given: Path | None, kind: str, *, latest: bool = True) -> Path:
    if given is None:
        return _newest(kind) if latest else _of_now(kind)
    if (given / STATE).exists():
        remedy = f"Continue it with `gput demo --resume --dir {given}`, or name another folder."
        raise Conflict(f"{given} holds a demo already.", remedy=remedy, code="demo-exists")
    return writable(given)


def _of_now(kind: str) -> Path:
    """A folder of its own, also for the second run that begins within a second."""
    began = writable(RUNS) / f"{kind}-{datetime.now():%Y%m%d-%H%M%S}"
    target, others = began, count(2)
    while True:
        with written(target), suppress(FileExistsError):
            target.mkdir()
            return target
        target = began.with_name(f"{began.name}-{next(others)}")


def _newest(kind: str) -> Path:
    """A folder of its own, to which `runs/latest` leads from now on."""
    link = RUNS / LATEST
    if link.exists() and not link.is_symlink():
        raise BadRequest(
            f"{link} is no link, so it cannot lead to the latest run", code="cannot-write",
            remedy="Move it away, or name a folder by --dir.",
        )  # fmt: skip
    target = _of_now(kind)
    draft = RUNS / f".{target.name}"  # nobody else's; the link is never missing, and of two runs the later one has it
    with written(link):
        draft.symlink_to(target.name)
        draft.replace(link)
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other demo in this folder: a second one would write settings and policies over the first one's, which runs by them."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(writable(folder)))
        except ConfigurationError as error:
            if error.code != IN_USE:
                raise
            remedy = "Wait for its end or stop it (Ctrl-C, where it runs), or name another folder by --dir."
            raise Conflict(f"another demo runs in {folder}", remedy=remedy, code="demo-running") from None
        yield


async def _until_stopped(demo: Demo, doing: Coroutine[Any, Any, int]) -> int:
    """Do it until it is done or somebody stops it; every process is ended in any case."""
    stopping, came = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def stopped(number: int) -> None:
        came.append(number)
        stopping.set()

    for number in (signal.SIGINT, *STOPPING):
        # `nohup` has SIGHUP ignored. A script's background job has SIGINT ignored, too, and is still told by it to stop.
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopped, number)
    work = asyncio.create_task(doing)
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return 0 if demo.kept else 128 + came[0]
    finally:
        stop.cancel()
        work.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)  # the live panel ends before anything else is said
        try:
            if stopping.is_set():
                sealing = "" if demo.kept else "sealing a checkpoint, "
                say(f"\nstopping (another Ctrl-C changes nothing): {sealing}ending every process …")
        finally:  # the terminal may be gone, and with it who would hear of it; the processes are not
            await demo.stop()
        if stopping.is_set():
            goes_on = "" if demo.kept else f" Continue with:\n  {demo.continuing()}"
            say(f"\nstopped; nothing is left running.{goes_on}")


async def _run(demo: Demo, output: Format, *, keep: bool) -> int:
    from gput.local.view import watch

    began = time.monotonic()
    say(f"GPU Travelling demo  ·  backend EMULATED (not confidential)\nfolder {short(demo.folder)}")
    await demo.start()
    _say_addresses(demo)
    watching = asyncio.create_task(watch(demo.client, demo.session, demo.plan.holders, began))
    failing = asyncio.create_task(demo.installation.first_failure())
    try:
        await asyncio.wait({watching, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done() and not watching.done():
            raise failing.result().failure()
        view = watching.result()
    finally:
        watching.cancel()
        failing.cancel()
    if view["phase"] != "COMPLETED":
        why = (view.get("failure") or {}).get("detail") or ", ".join(view.get("waiting_for") or [])
        what = f"the session ended {view['phase']}" + (f": {why}" if why else "")
        raise JobFailed(what, code="session-" + view["phase"].lower(), remedy=f"Logs: {demo.folder}/services/logs.")
    found, seconds = await demo.collect(), time.monotonic() - began
    if output is Format.TABLE:
        print(page(found, demo.plan, demo.folder, seconds))
    else:
        show(summary(found, demo.plan, demo.folder, seconds), output)
    if keep:
        await _kept(demo)
    return 0


async def _kept(demo: Demo) -> None:
    """All stays as it is until somebody stops it, or a service ends by itself. Raises: GputError: one did."""
    demo.kept = True
    say(f"\nEverything goes on running until Ctrl-C.\n{_dashboard(demo)}")
    raise (await demo.installation.first_failure()).failure()


def _dashboard(demo: Demo) -> str:
    url, token = demo.installation.services["orchestrator"].url, demo.installation.reader_token
    holder = next(iter(demo.plan.holders))
    own = demo.installation.services[f"holder-{holder}"].url
    return (
        f"Dashboard: {url}/ui/\n  its token: cat {short(token)}\n"
        f"{holder}'s own page: {own}/ui/   (each holder has one)\n  its token: cat {short(demo.installation.operator_token(holder))}"
    )


def _say_addresses(demo: Demo) -> None:
    """Where everything is, and what makes the other commands work in a second terminal. No line is wider than 80 columns if it can."""
    services = demo.installation.services
    url = services["orchestrator"].url
    say(f"{len(services)} processes run, session {demo.session}")
    for name, at in [("orchestrator", url), *((name, services[f"holder-{name}"].url) for name in demo.plan.holders)]:
        say(f"  {name:<13} {at}" + ("   (API: /v1/openapi.json)" if at == url else ""))
    say(_dashboard(demo))
    say(f"in another terminal:\n  export GPUT_URL={url}\n  export GPUT_KEY={demo.installation.owner_key}")
    say(f"  gput session visits {demo.session}\n")
