"""Differential privacy as the parties agree on it: the claim, what was spent of it, which programs it can hold for. Computes no epsilon.

What epsilon a plan spends is `shared.claims.accountant`'s; the noise itself is the GPU's.
"""

from __future__ import annotations

from pydantic import Field

from shared.claims import Claim
from shared.claims.graph import Arg, Graph, Ref
from shared.claims.operators import STATE_WRITERS

PER_SAMPLE = frozenset({"aten.instance_norm.default"})
"""Of the operators that keep running statistics, those whose statistics of the moment are each sample's own."""


class Privacy(Claim):
    """Differential privacy for every record of every holder: each record's gradient is clipped to `max_grad_norm`, and Gaussian noise of
    `noise_multiplier` × `max_grad_norm` is added to each step's sum, in the GPU. No loss over holders' records is released."""

    max_grad_norm: float = Field(
        ge=1e-9, le=1e6, description="Euclidean norm to which each record's gradient is clipped"
    )
    noise_multiplier: float = Field(
        ge=1e-3, le=1e6, description="standard deviation of each step's noise, in units of max_grad_norm"
    )
    delta: float = Field(
        gt=0, le=1e-3, description="the delta at which epsilon is stated; well below one in the number of records"
    )
    max_epsilon: float | None = Field(
        default=None, gt=0, le=1e6, description="the most that the plan may spend for any holder; no limit if null"
    )


class PrivacySpent(Claim):
    """What a holder's records have spent at most, up to and with one visit: (epsilon, delta) of one record's part in all of it."""

    epsilon: float = Field(ge=0)
    delta: float = Field(gt=0)


def mixes_samples(train: Graph) -> str:
    """Why a program cannot be trained privately; "" if it can.

    Each record's gradient is taken on its own, so the losses cannot mix samples; new values of state would carry records into the model
    past the noise, and statistics over a batch of one are none.
    """
    if train.state_outputs:
        return f"its train graph computes new state ({train.state_outputs[0][0]}) from the records"
    for node in train.nodes:
        places = STATE_WRITERS.get(node.op)
        if places is None or not _argument(node.args, places[2]):
            continue
        if node.op not in PER_SAMPLE or isinstance(_argument(node.args, places[0]), Ref):
            return f"{node.op} takes its statistics from the batch"
    return ""


def _argument(args: tuple[Arg, ...], place: int) -> Arg:
    return args[place] if place < len(args) else None
