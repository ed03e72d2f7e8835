"""`gput session export`, `receipts` and `export-metrics`: what a session leaves, as files here. Knows the API's views only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.connection import KeyOption, Session, UrlOption, with_session
from gput.commands.session_looks import past
from gput.files import distinct, place_for, writable, written
from gput.output import say
from shared.errors import BadRequest

if TYPE_CHECKING:
    from gput.client import AsyncClient


def export(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    output: Annotated[Path, typer.Option("-o", "--output")] = Path("model.safetensors"),
    receipts: Annotated[
        Path | None, typer.Option(help="folder of the session's receipts: verified, and the model must be theirs")
    ] = None,
) -> None:
    """Fetch the finished model, as its output policy allows.

    Without --receipts the file is compared with the orchestrator's own word for it, which with a trust folder (GPUT_TRUST) is signed; `gput
    receipts verify --model` can say more later.

    Example:  gput session export s_7f -o model.safetensors --receipts my-receipts
    """
    from gput.model_file import model_check

    place_for(output)
    distinct([output], [key, receipts])
    with written(output):
        with_session(session, url, key, lambda client, name: client.model(name, output, model_check(name, receipts)))
    say(f"wrote {output}")


def receipts(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    trust: Annotated[Path, typer.Option(envvar="GPUT_TRUST", help="the trust folder whose GPU roots count")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="a folder of this session's own; if none is named, receipts-SESSION"),
    ] = None,
) -> None:
    """Fetch all receipts and the log into a folder for `gput receipts verify`.

    Example:  gput session receipts s_7f --trust trust/ -o my-receipts
    """
    from gput.receipt_folder import TRUST
    from gput.receipts import save

    missing = [name for name in TRUST if not (trust / name).is_file()]
    if missing:
        remedy = "Name the folder that holds the roots you believe, for instance DEMO/services/trust."
        raise BadRequest(f"{trust} lacks {', '.join(missing)}", code="no-trust", remedy=remedy)

    async def fetch(client: AsyncClient, name: str) -> Path:
        folder = Path(f"receipts-{name}") if output is None else output  # a folder holds the receipts of one session
        distinct([folder / file for file in TRUST], [trust / file for file in TRUST])
        with written(writable(folder)):
            await save(client, name, folder, trust)
        return folder

    folder = with_session(session, url, key, fetch)
    say(f"wrote {folder}; verify with: gput receipts verify {folder}")


async def measured(client: AsyncClient, session: str) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """What `gput.tracking.curves` makes curves of. While the session runs its lists grow: events come before the visits they are about."""
    # Losses have a list of their own, and say among events no time.
    events = [event.data async for event in past(client, session) if event.event != "loss"]
    view, visits = await client.session(session), await client.items(f"sessions/{session}/visits")
    return view, visits, await client.items(f"sessions/{session}/losses"), events


def export_metrics(
    session: Session,
    url: UrlOption,
    key: KeyOption,
    tensorboard: Annotated[
        Path | None, typer.Option(help="folder for TensorBoard's event files (extra tensorboard)")
    ] = None,
    mlflow: Annotated[
        str | None, typer.Option(help="tracking address of MLflow, or a folder as file:///… (extra mlflow)")
    ] = None,
    experiment: Annotated[str, typer.Option(help="MLflow's experiment")] = "gpu-travelling",
) -> None:
    """Export losses by holder, held-out loss, seconds of visits and privacy spent, as far as you may see them.

    Example:  gput session export-metrics s_7f --tensorboard runs/tb && tensorboard --logdir runs/tb
    """
    from gput.tracking import curves, shown, to_mlflow, to_tensorboard

    if tensorboard is None and mlflow is None:
        raise BadRequest("nothing says where the curves go", code="no-tracker", remedy="Say --tensorboard or --mlflow.")
    if tensorboard is not None:
        writable(tensorboard)

    view, visits, losses, events = with_session(session, url, key, measured)
    points = curves(view, visits, losses, events)
    if tensorboard is not None:
        place = to_tensorboard(points, view["id"], tensorboard)
        say(f"wrote {len(points)} points to {place}")
    if mlflow is not None:
        say(f"telling MLflow at {shown(mlflow)} …")
        say(f"wrote {len(points)} points to run {to_mlflow(points, view, mlflow, experiment)} of {experiment}")
