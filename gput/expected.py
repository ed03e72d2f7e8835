"""A session together with what it is expected to take and to cost. A price is a number in any currency; knows no command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared.errors import NotFound

if TYPE_CHECKING:
    from gput.client import AsyncClient

PriceOption = Annotated[
    float | None,
    typer.Option(min=0, envvar="GPUT_GPU_HOUR_PRICE", help="what an hour of the GPU costs you, in any currency: for a cost"),
]  # fmt: skip


async def in_full(client: AsyncClient, session: str, price: float | None) -> dict[str, Any]:
    """The session's view with its estimate under `estimate`; None there where the orchestrator is older than estimates."""
    view = await client.session(session)
    try:
        told = await client.get(f"sessions/{session}/estimate")
    except NotFound:
        return {**view, "estimate": None}
    return {**view, "estimate": priced(told, price)}


def priced(estimate: dict[str, Any], price: float | None) -> dict[str, Any]:
    """The estimate with `cost`, GPU hours times the price of one; none is said where either is not known."""
    hours = estimate["gpu_hours"]
    cost = None if price is None or hours is None else hours * price
    return {**estimate, "gpu_hour_price": price, "cost": cost}
