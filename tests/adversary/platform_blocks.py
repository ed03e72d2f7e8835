"""The hostile platform's building blocks by name: what each does, where there is such a thing, and in what it must end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shared.names import TravelMode
from tests.adversary import platform_flags, platform_links, platform_power
from tests.adversary.platform import HostilePlatform

TRAVELS = (TravelMode.SCOPED, TravelMode.PAPER)
"""Modes in which the MUX leads to holders' ports."""


@dataclass(frozen=True)
class Block:
    """`rows`: of the adversary table; `how`: by what it comes to nothing. `refusals`: all that may be answered to the platform's own
    messages; `least`: how many acts make it the attack that is meant. `failure`: the code by which the session ends; None: it goes on to
    the very model of an undisturbed one."""

    arm: Callable[[HostilePlatform], None]
    rows: str
    how: str
    refusals: frozenset[str] = frozenset()
    least: int = 1
    modes: tuple[TravelMode, ...] = tuple(TravelMode)
    failure: str | None = None


_ALL = (
    Block(
        platform_links.reflect, "V05", "each direction has a key of its own; whose life broke opens another",
        frozenset({"frame-out-of-order", "tag-mismatch", "malformed-copy-record"}), least=12,
    ),
    Block(
        platform_links.truncate, "V04", "a record without its end is none; its holder sends it again",
        frozenset({"malformed-copy-record"}),
    ),
    Block(
        platform_power.bind_two_ports, "V07", "a grant is for one port, and every frame has its number",
        frozenset({"no-grant", "frame-out-of-order"}), least=8, modes=TRAVELS,
    ),
    Block(platform_power.exchange_once, "V09", "another GPU has neither the life's keys nor the visit's", least=2),
    Block(platform_power.exchange_for_good, "V09", "the session is bound to the device it began with", failure="gpu-device"),
    Block(platform_power.reset, "V10", "boot counter, sealed checkpoint; visits since are repeated", least=2),
    Block(platform_flags.forge_copies, "V04", "the buffer is published by the GPU's own word, inside the session"),
    Block(platform_flags.forge_commands, "V11 V12", "an answer counts only under the life's key and its number", least=2),
    Block(platform_flags.forge_zeroing, "V11", "a scrub is proven by reading back", failure="scrub-failed"),
)  # fmt: skip
BLOCKS: Mapping[str, Block] = MappingProxyType({block.arm.__name__: block for block in _ALL})


def cases() -> Iterator[tuple[str, Block, TravelMode]]:
    """Every block in every mode in which there is such a thing."""
    for name, block in BLOCKS.items():
        for mode in block.modes:
            yield name, block, mode
