"""Whether a decision may be made now, was made before, says anything new, or can be held to the data. Reads the folded session; signs and
stores nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from data_holder.commitments import Committed
from data_holder.datasets import CONVERSION, Misfit
from data_holder.fitting import UNFIT, Chosen
from data_holder.identity import OwnKeys
from data_holder.protocol.state import SessionState
from data_holder.requests import Approved, verify_decision, verify_manifest
from shared.errors import Conflict, ProtocolViolation
from shared.protocol.membership import RULE
from shared.wire.visit import Approval, Decision


@dataclass(frozen=True)
class Word:
    """A decision as it is asked for; `manifest` is the digest of the one that was shown.

    Attributes:
        dataset: of an approval; None: what is named elsewhere for approvals.
        anew: whether an approval takes the place of the one before, with what the dataset declares now.
        keep_equal: whether this very decision, stored before, is taken for the one to be made; only its delivery is tried again.
    """

    manifest: str
    decision: Decision
    dataset: str | None = None
    reason: str = ""
    anew: bool = False
    keep_equal: bool = False


def says_news(state: SessionState, holder: str, keys: OwnKeys, word: Word) -> bool:
    """Whether this decision says anything that was not said, and may be made. Raises: as `_check_may_decide`."""
    if word.keep_equal and not word.anew and _is_decided(state, keys, word):
        return False
    _check_may_decide(state, holder, keys, word.manifest, word.decision, anew=word.anew)
    return True


def _is_decided(state: SessionState, keys: OwnKeys, word: Word) -> bool:
    """Whether the newest stored decision is this one."""
    last = verify_decision(state, keys)
    if last is None or state.decision is None or (word.dataset or state.decision.dataset) != state.decision.dataset:
        return False
    return (last.manifest, last.decision, last.reason) == (word.manifest, word.decision, word.reason)


def _check_may_decide(
    state: SessionState, holder: str, keys: OwnKeys, manifest: str, decision: Decision, *, anew: bool
) -> None:
    """Whether this decision may be made.

    Raises:
        Conflict: `manifest-changed`, `session-ended` (of no veto), `not-approved` (a veto and a new approval need an approval),
            `already-decided`.
    """
    request = verify_manifest(state.manifest, holder, keys)
    if manifest != request.digest:
        raise Conflict(
            "the decision names another manifest than the one shown", code="manifest-changed",
            expected=request.digest, got=manifest, remedy="Read the request again before deciding",
        )  # fmt: skip
    # A veto only narrows what is served, and an end is anybody's word until the session is proven to go on.
    if state.ended is not None and decision != "veto":
        raise Conflict(f"session {state.session} has ended ({state.ended})", code="session-ended")
    # A word of now is signed by the key of now.
    verify_manifest(state.manifest, holder, OwnKeys(keys.current))
    last = verify_decision(state, keys)
    if decision == "veto" or anew:
        if last is None or last.decision != "approve":
            what = "vetoed" if decision == "veto" else "approved anew"
            raise Conflict(f"only an approved session can be {what}", code="not-approved")
    elif last is not None:
        raise Conflict(f"session {state.session} was decided before: {last.decision}", code="already-decided")


def check_rule(state: SessionState) -> None:
    """Whether the root that was approved is made as this release makes it, so that it can be held to the dataset at all.

    Raises:
        Conflict: `approved-by-older-rule`.
    """
    if state.dataset_root and state.record_rule != RULE:
        raise Conflict(
            f"session {state.session} was approved by a release that made a dataset's root by another rule",
            code="approved-by-older-rule", expected=f"rule {RULE}", got=f"rule {state.record_rule}",
            remedy="Run that release until the session has ended, or have its owner end it and go on by a successor",
        )  # fmt: skip


@contextmanager
def read_as_approved(state: SessionState, name: str | None) -> Iterator[None]:
    """While a dataset is read. A table that does not fit any more may be as it was when it was approved, by a release that read some
    otherwise.

    Raises:
        Conflict: `approved-by-older-rule`. Misfit: it is no table, this release read it when it was approved, or it never was.
    """
    try:
        yield
    except Misfit as error:
        if error.code in UNFIT and _may_be_as_approved(state, name, error.conversion):
            raise _read_otherwise(state) from error
        raise


def _may_be_as_approved(state: SessionState, name: str | None, conversion: int | None) -> bool:
    """Whether the dataset of that name was approved, and is a table that the release which did so may have read otherwise."""
    approved = state.decision is not None and state.decision.dataset == name
    return approved and conversion is not None and state.conversion < conversion


def changed(state: SessionState, approved: Approved, known: Committed) -> Conflict:
    """What is to be said of a dataset that is not the approved one byte for byte."""
    if _may_be_as_approved(state, approved.dataset, known.dataset.conversion):
        return _read_otherwise(state)
    return ProtocolViolation(
        f"dataset {approved.dataset!r} changed since this holder approved the session", code="dataset-changed",
        expected=f"{approved.records} records under root {approved.dataset_root}",
        got=f"{known.dataset.records} records under root {known.root}",
        remedy="Put the approved files back; for other data veto, and approve a session of its own",
    )  # fmt: skip


def _read_otherwise(state: SessionState) -> Conflict:
    """Its detail is told to others: it names no dataset."""
    return Conflict(
        f"session {state.session} was approved by a release that read some tables (CSV) otherwise, and as this one reads the approved data "
        "they are others, or do not fit",
        code="approved-by-older-rule", expected=f"conversion {CONVERSION}", got=f"conversion {state.conversion}",
        remedy="If the files were changed, put them back; else run that release until the session has ended, or have its owner end it and "
        "go on by a successor",
    )  # fmt: skip


def corrects(state: SessionState, keys: OwnKeys, approval: Approval, chosen: Chosen | None) -> bool:
    """Whether an approval that is said anew, with the dataset `chosen`, says something else of it than the one before.

    Raises:
        Conflict: `dataset-changed`: it is about other records. `approved-by-older-rule`: as `check_rule`, or as `read_as_approved`.
    """
    check_rule(state)
    last = verify_decision(state, keys)
    if last is None or last.dataset_root != approval.dataset_root:
        if chosen is not None and _may_be_as_approved(state, chosen.name, chosen.conversion):
            raise _read_otherwise(state)
        raise Conflict(
            f"session {state.session} was approved with other records", code="dataset-changed",
            remedy="Put the approved data back, or veto and ask the owner for a new session",
            expected=str(last and last.dataset_root), got=str(approval.dataset_root),
        )  # fmt: skip
    return last.profile != approval.profile
