"""Private training with one of its parts taken away at a time: what each patch leaves out, and which test must then fail.

Compute is a process of its own, so what it is told is changed, not what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import orchestrator.sessions.views
import orchestrator.visits.receipts
from gpu_agent.hardware import commands_work
from gpu_agent.hardware.compute import Launch
from gpu_agent.hardware.ledger import ReleaseRule
from gpu_agent.hardware.state import GpuState
from shared.claims.privacy import PrivacySpent
from tests.adversary.mutant import named

Patch = pytest.MonkeyPatch
LEAST = 1e-3
"""The least noise multiplier that a launch accepts."""


def _privacy_of_launches(patch: Patch, change: Callable[[float, float], dict[str, float]]) -> None:
    """`change` of (norm, noise multiplier) in every launch of a private training."""
    honest = commands_work.launch

    def launch(*args: Any, **kwargs: Any) -> Launch:
        made = honest(*args, **kwargs)
        if made.privacy is None:
            return made
        asked: Any = made.privacy
        return replace(made, privacy=asked | change(asked["max_grad_norm"], asked["noise_multiplier"]))

    patch.setattr(commands_work, "launch", launch)


def noise_is_next_to_nothing(patch: Patch) -> None:
    _privacy_of_launches(patch, lambda norm, multiplier: {"noise_multiplier": LEAST})


def gradients_are_not_clipped(patch: Patch) -> None:
    """But at a norm far beyond any usual gradient's, with the very same noise."""
    _privacy_of_launches(
        patch, lambda norm, multiplier: {"max_grad_norm": norm * multiplier / LEAST, "noise_multiplier": LEAST}
    )


def losses_are_released_all_the_same(patch: Patch) -> None:
    rule = property(lambda self: ReleaseRule(self.config.loss_decimals, self.config.privacy_floor))
    patch.setattr(GpuState, "release", rule)


def nothing_counts_as_spent(patch: Patch) -> None:
    nothing = PrivacySpent(epsilon=0.0, delta=1e-5)
    patch.setattr(orchestrator.sessions.views, "spent_in", lambda *_: nothing)
    patch.setattr(orchestrator.visits.receipts, "spent", lambda *_: nothing)


AT = "tests/adversary/test_"
TABLE = (
    named(
        "H17",
        "hardly any noise is added",
        AT + "released_models.py::test_membership_shows_in_the_losses_unless_noise_hides_it",
        noise_is_next_to_nothing,
        {},
    ),
    named(
        "C04",
        "gradients are not clipped, the noise is as it was",
        AT + "released_models.py::test_all_others_together_tell_one_record_no_better_than_epsilon_allows",
        gradients_are_not_clipped,
        {},
    ),
    named(
        "H24",
        "losses are released under privacy as without",
        AT + "losses_as_a_channel.py::test_a_crafted_programs_losses_carry_bits_and_under_privacy_none",
        losses_are_released_all_the_same,
        {},
    ),
    named(
        "C04",
        "a session and its receipts say that nothing is spent",
        "tests/world/test_world_private.py::test_what_is_spent_is_told_everywhere_alike",
        nothing_counts_as_spent,
        "[scoped]",
    ),
)
