"""`gput session export-metrics`: a session's curves for TensorBoard and MLflow. Knows the API's views only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gput.commands.connection import KeyOption, Session, UrlOption, with_session
from gput.commands.session_looks import past
from gput.files import writable
from gput.output import say
from shared.errors import BadRequest

if TYPE_CHECKING:
    from gput.client import AsyncClient


async def fetch(client: AsyncClient, session: str) -> tuple[Any, list[Any], list[Any], list[Any]]:
    """What `gput.tracking.curves` makes curves of. While the session runs its lists grow: events come before the visits they are about."""
    events = [event.data async for event in past(client, session)]
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

    view, visits, losses, events = with_session(session, url, key, fetch)
    points = curves(view, visits, losses, events)
    if tensorboard is not None:
        place = to_tensorboard(points, view["id"], tensorboard)
        say(f"wrote {len(points)} points to {place}")
    if mlflow is not None:
        say(f"telling MLflow at {shown(mlflow)} …")
        say(f"wrote {len(points)} points to run {to_mlflow(points, view, mlflow, experiment)} of {experiment}")
