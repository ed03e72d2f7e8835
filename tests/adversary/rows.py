"""The adversary table: every attack by its id, and the mark by which a test says what it proves of one. Knows no test and no service.

`docs/security.md` is made from the marks (`python -m docs.security`): a row is believed to be stopped only where a test runs that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from shared.names import TravelMode

MODES = tuple(mode.value for mode in (TravelMode.SCOPED, TravelMode.DIRECT, TravelMode.PAPER))
VERDICTS = ("stopped", "open", "out")
"""Stopped by something; open because the publication leaves it so, and the attack is shown to succeed; out of scope."""
NO_MUX = "the GPU goes to no holder's port in this mode"


@dataclass(frozen=True)
class Row:
    """One attack. `absent`: modes in which there is no such thing, and why."""

    attack: str
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What is expected of an attack. `how`: by what it is stopped, or why it is not."""

    verdict: str
    how: str

    @classmethod
    def parse(cls, text: str) -> Result:
        """Of `verdict: how`. Raises: ValueError: anything else."""
        verdict, _, how = text.partition(": ")
        if verdict not in VERDICTS or not how:
            raise ValueError(f"{text!r} is not one of {VERDICTS}, a colon and a reason")
        return cls(verdict, how)

    def __str__(self) -> str:
        return f"{self.verdict}: {self.how}"


def attack(rows: str, *, any: str | None = None, **modes: str) -> pytest.MarkDecorator:
    """The test proves these results of these rows (ids, separated by blanks), each in a mode in which it really runs.

    `any`: what is attacked is the same in every mode (evidence, HTTP, storage, archives).
    Raises: ValueError: an unknown row, mode or verdict, or no result at all.
    """
    unknown = [row for row in rows.split() if row not in ROWS] + [mode for mode in modes if mode not in MODES]
    if unknown or not rows or bool(any) == bool(modes):
        raise ValueError(f"attack({rows!r}): unknown {unknown}, or not exactly one of `any` and modes")
    stated = dict.fromkeys(MODES, any) if any else modes
    absent = [f"{row} in {mode}" for row in rows.split() for mode in modes if mode in ROWS[row].absent]
    if absent:
        raise ValueError(f"there is no {', '.join(absent)}")
    results = {mode: Result.parse(text or "") for mode, text in stated.items()}
    return pytest.mark.attack(tuple(rows.split()), results)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "H01": Row("a holder reads the previous holder's records"),
        "H02": Row("a holder reads activations, gradients or freed memory"),
        "H03": Row("a holder scans GPU memory for the model"),
        "H04": Row("a holder overwrites model weights"),
        "H05": Row("a holder patches the code to leak the next holder's records"),
        "H06": Row("a holder plants code in spare memory, or redirects a launch descriptor"),
        "H07": Row("a holder writes past its buffer"),
        "H08": Row("a holder writes after the GPU was taken back"),
        "H09": Row("a holder replays its earlier ciphertext in a later visit"),
        "H10": Row("a holder derives the next holder's key from its own"),
        "H11": Row("a holder returns a stale or forged IV state"),
        "H12": Row("a holder keeps the GPU"),
        "H13": Row("a holder returns a half-filled buffer or a wrong count"),
        "H14": Row("a holder swaps its data after committing to it"),
        "H15": Row("a holder poisons its data"),
        "H16": Row("a holder infers another's batch from what its visit did to the model"),
        "H17": Row("a holder tells from the final model who was in it"),
        "H18": Row("a holder poses as another"),
        "H19": Row("a holder runs an outdated or debuggable machine"),
        "H20": Row("a holder visits twice to gain weight"),
        "H21": Row("a holder sends records out of range, or not finite"),
        "H22": Row("a holder uses its key to read device memory"),
        "H23": Row("a malicious program archive runs code when loaded"),
        "H24": Row("released losses carry another holder's records"),
        "H25": Row("low-entropy records are guessed from commitments"),
        "V01": Row("the platform reads the link, staging and the disk"),
        "V02": Row("the platform flips bits"),
        "V03": Row("the platform replays under the same key"),
        "V04": Row("the platform reorders, duplicates, drops or cuts chunks"),
        "V05": Row("the platform reflects one direction's messages as the other's"),
        "V06": Row("the platform routes the MUX to the wrong machine", {"direct": NO_MUX}),
        "V07": Row("the platform routes to two machines, or changes the route in mid-visit", {"direct": NO_MUX}),
        "V08": Row("the platform offers a fake, revoked or modified GPU"),
        "V09": Row("the platform exchanges the GPU after attestation"),
        "V10": Row("the platform resets the GPU"),
        "V11": Row("the platform forges the completion of a scrub"),
        "V12": Row("the platform omits or reorders commands"),
        "V13": Row("the platform puts an old database back"),
        "V14": Row("the platform runs two orchestrators"),
        "V15": Row("a man in the middle between orchestrator and holder"),
        "V16": Row("the platform replays old evidence"),
        "V17": Row("the platform learns from sizes"),
        "V18": Row("the platform reads device memory through a host interface"),
        "V19": Row("the platform crashes a service to skip a step"),
        "V20": Row("the platform starves or drops everything"),
        "V21": Row("the platform opens an SPDM session of its own on a full GPU"),
        "V22": Row("the platform edits database rows"),
        "V23": Row("the platform seals a visit key of its own to the holder"),
        "V24": Row("a restored orchestrator encrypts again under a used IV"),
        "V25": Row("the platform swaps a share", dict.fromkeys(("scoped", "paper"), "no share is agreed in this mode")),
        "V26": Row("the platform replays a signed request after a restart, or with the clock put ahead and back"),
        "C01": Row("a holder and the platform read the next holder's transfer"),
        "C02": Row("two holders sandwich a third and compare the model"),
        "C03": Row("a holder and the platform bring its key's traffic into another's visit"),
        "C04": Row("all holders but one against the one"),
        "C05": Row("the platform uses a stolen holder's key on another machine"),
        "C06": Row("holders pool recovery shares with the platform"),
        "O01": Row("an outsider calls the REST interfaces, or replays requests"),
        "O02": Row("a curious operator runs another orchestrator"),
        "O03": Row("a faulty orchestrator skips the scrub"),
        "O04": Row("whoever ends TLS before the orchestrator answers its clients in its place"),
    }
)
