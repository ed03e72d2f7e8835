"""`gput smoke`: does it work? Here with services of its own, or on the installation that --url names. Knows no protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.manners import Commands, DryRunOption, FormatOption
from gput.files import fleeting
from gput.output import Format, say, show
from gput.stop_signals import run_in_order
from shared.errors import BadRequest, TimedOut

if TYPE_CHECKING:
    from gput.local.demo import Demo

app = Commands()


@app.command()
def smoke(
    program: Annotated[Path | None, typer.Argument(help="program archive that the holders' policies know; with --url")] = None,
    url: Annotated[str | None, typer.Option("--url", envvar="GPUT_URL", help="a running installation's orchestrator")] = None,
    key: Annotated[Path | None, typer.Option("--key", envvar="GPUT_KEY", help="its owner's private key")] = None,
    trust: Annotated[Path | None, typer.Option("--trust", envvar="GPUT_TRUST", help="whose roots count for its receipts")] = None,
    local: Annotated[bool, typer.Option("--local", help="with services of its own, whatever --url says")] = False,
    holder: Annotated[list[str] | None, typer.Option(help="only these holders (repeatable)")] = None,
    emulated: Annotated[bool, typer.Option(help="accept emulated hardware, which gives no confidentiality")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="seconds to wait at most; exit code 3 after them")] = 300.0,
    dry_run: DryRunOption = False,
    fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Run one tiny session from submission to verified receipts, and leave nothing behind; exit code 0 if everything holds.

    Without --url, real services run here for it on loopback, with emulated hardware, in a folder that goes with them.

    Examples:
      gput smoke                                     this machine
      gput smoke mymodel.gput --trust trust/ --url https://orchestrator.example --key owner.pem
    """
    there = url is not None and not local
    if there and (program is None or key is None or trust is None):
        raise BadRequest(
            "on a running installation a smoke test needs a program, --key and --trust", code="smoke-needs",
            remedy="Name a program that the holders' policies approve; or say --local.",
        )  # fmt: skip
    if dry_run:
        if fmt is not Format.TABLE:
            raise typer.BadParameter("a dry run has no result to print", param_hint="--format")
        say(f"would run one session {f'on {url}' if there else 'on services of its own here'}; nothing was done")
        return
    if url is not None and program is not None and key is not None and trust is not None and there:
        show(_there(url, key, program, trust, holder or [], emulated, timeout), fmt)
    else:
        show(run_in_order(_here(timeout)), fmt)


def _there(
    url: str, key: Path, program: Path, trust: Path, holders: list[str], emulated: bool, timeout: float
) -> dict[str, Any]:
    from gput.commands.connection import connect
    from gput.files import content
    from gput.smoke import Wanted, smoke

    wanted = Wanted(content(program, "no-program"), trust, holders, emulated, timeout)
    return connect(url, key, lambda client: smoke(client, wanted, say), run_in_order)


async def _here(seconds: float) -> dict[str, Any]:
    """The demo's services and data with the smallest model, in a folder that is removed."""
    from gput.local.demo import Demo
    from gput.local.demos.texts import Texts

    with fleeting("gput-smoke-") as folder:
        demo = Demo(folder, Texts(rounds=1, steps=1, batch=4, layers=1, heads=1, width=16, validation_records=16), say)
        try:
            return await _run(demo, seconds)
        finally:
            await demo.stop()


async def _run(demo: Demo, seconds: float) -> dict[str, Any]:
    from gput.smoke import completed, outcome, verified

    try:
        async with asyncio.timeout(seconds):
            await demo.start()
            view = await demo.client.wait(demo.session)
            completed(view)
            held = await verified(demo.client, demo.session, demo.folder / "receipts", demo.installation.trust)
            return outcome(view, held)
    except TimeoutError:
        raise TimedOut(
            f"it did not end within {seconds:g} s", code="smoke-timed-out", remedy="Say a longer --timeout."
        ) from None
