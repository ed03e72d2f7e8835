"""What is asked of a decision before anything is read for it: for who decides, and for who only asks. Signs and stores nothing.

An approval reads and hashes its dataset, gigabytes maybe. Who only asks is told what an approval would still look at in its place
(docs/adr/0052).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from data_holder.catalogue import Catalogue
from data_holder.deciding import Word, check_rule, says_news
from data_holder.fitting import require_named, size_of
from data_holder.identity import OwnKeys
from data_holder.ledger import Ledger
from data_holder.programs import Programs
from data_holder.requests import verify_manifest
from data_holder.succession import Predecessors
from shared.claims.manifest import Manifest
from shared.wire.dry_run import Verdict


class Judging:
    """One holder's. `keys`: as they are now. `defaults`: datasets for approvals that name none, the first that is one counts."""

    def __init__(
        self, name: str, keys: Callable[[], OwnKeys], ledger: Ledger, catalogue: Catalogue, programs: Programs,
        predecessors: Predecessors, defaults: tuple[str | None, ...],
    ) -> None:  # fmt: skip
        self._name, self._keys, self._ledger, self._catalogue = name, keys, ledger, catalogue
        self._programs, self._predecessors, self._defaults = programs, predecessors, defaults

    def news(self, session: str, word: Word) -> bool:
        """Whether a decision says anything that was not said. Raises: NotFound; as `deciding.says_news`."""
        return says_news(self._ledger.state(session), self._name, self._keys(), word)

    def dataset(self, session: str, named: str | None) -> str | None:
        """What an approval means by the dataset that it names, or does not name."""
        before = self._ledger.state(session).decision
        return next((name for name in (named, before and before.dataset, *self._defaults) if name), None)

    async def verdict(self, session: str, word: Word) -> Verdict:
        """What the decision would come to. Raises: what it would raise, as far as that is known without reading a dataset."""
        if not self.news(session, word):
            return Verdict(changes=False)
        if word.decision != "approve":
            return Verdict(changes=True)
        state = self._ledger.state(session)
        manifest = verify_manifest(state.manifest, self._name, self._keys()).manifest
        fetched = await self._programs.kept(session, manifest.program) is not None
        await self._predecessors.judge(session, manifest)
        name = require_named(self.dataset(session, word.dataset))
        path = await self._catalogue.for_new(name)
        size = await asyncio.to_thread(size_of, name, path)
        if word.anew:
            check_rule(state)
        program = (
            []
            if fetched
            else ["the program, which is not fetched from the orchestrator yet: that it is the manifest's, and sound"]
        )
        return Verdict(changes=True, unjudged=(*program, _reading(name, size, manifest, word)))


def _reading(name: str, size: int | None, manifest: Manifest, word: Word) -> str:
    """What only reading the dataset tells, as a sentence."""
    what = [f"that its records fit the program {manifest.program[:16]}…"]
    what += [] if manifest.privacy is None else ["that they are enough for the privacy that the manifest states"]
    what += (
        ["that they are the records that were approved, and whether anything else is said of them"] if word.anew else []
    )
    bytes_ = "" if size is None else f" ({size} bytes)"
    return f"dataset {name!r}{bytes_}, which an approval reads whole, and hashes: {', '.join(what)}"


__all__ = ["Judging"]
