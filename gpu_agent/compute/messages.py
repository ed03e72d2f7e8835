"""Messages between the agent and its compute processes, as JSON in one datagram each. Knows no process and no tensor.

Only digests, numbers and public error texts travel here; records stay in HBM.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final

from gpu_agent.hardware.compute import Destroyed, Failed, Finished, Launch, News, Part, StepDone
from gpu_agent.hardware.hbm import Extent

MAX_MESSAGE: Final = 64 * 1024


def pack(message: dict[str, Any]) -> bytes:
    """One datagram."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Inverse of `pack`; both ends are ours. Raises: ValueError, RecursionError: it is no message."""
    message: Any = json.loads(data)
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise ValueError("a message says what it is")
    return message


def launch_message(launch: Launch, number: int, beside: int, room: int) -> dict[str, Any]:
    """The launch as a message; `number` tells one launch's news from another's. `beside`: how many workers are
    to wait at its end, forked at once; 0: as the parent sees fit. `room`: so many bytes of a device each may take for a while."""
    return {"op": "run", "launch": number, "beside": beside, "room": room, **asdict(launch)}


def launch_of(message: dict[str, Any]) -> Launch:
    """Inverse of `launch_message`."""
    fields = {key: value for key, value in message.items() if key not in ("op", "launch", "beside", "room")}
    for name in ("code", "model", "gradients", "optimiser", "committed", "data"):
        fields[name] = Extent(**fields[name]) if fields[name] is not None else None
    fields["parts"] = tuple(Part(Extent(**part["data"]), part["records"]) for part in fields["parts"])
    return Launch(**fields)


def step_message(number: int, step: int, loss: float | None) -> dict[str, Any]:
    """News of one step."""
    return {"op": "step", "launch": number, "step": step, "loss": loss}


def finished_message(number: int, finished: Finished) -> dict[str, Any]:
    """News of the end. A loss that is no number does not travel."""
    return {
        "op": "finished",
        "launch": number,
        **asdict(finished),
        "loss": finished.loss if math.isfinite(finished.loss) else None,
    }


def failed_message(number: int, code: str, detail: str, part: int | None = None) -> dict[str, Any]:
    """News of an early end."""
    return {"op": "failed", "launch": number, "code": code, "detail": detail, "part": part}


def news_of(message: dict[str, Any]) -> News:
    """A launch's message as the device sees it."""
    match message["op"]:
        case "step":
            return StepDone(message["step"], message["loss"])
        case "finished":
            loss = math.nan if message["loss"] is None else message["loss"]
            rest = {
                key: message[key] for key in ("records", "steps", "seconds", "finite", "update_norm", "beside", "kept")
            }
            return Finished(loss=loss, **rest)
        case "failed":
            return Failed(message["code"], message["detail"], message["part"])
        case "destroyed":
            return Destroyed()
        case _:
            raise ValueError("no such news")
