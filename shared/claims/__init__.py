"""Frozen values that services state to one another: manifest, program, records, grant. Knows no wire and no crypto."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Claim(BaseModel):
    """A frozen value with no unknown fields: a field whose feature does not exist is refused, never ignored."""

    # Of JSON only the field names are worth keeping: pydantic would keep every text under 64 characters too, in a table of the process
    # that ids and numbers of visits fill with what never comes again.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, cache_strings="keys")


class Grown(Claim):
    """A claim that got fields (`later`) after the first of its kind were signed: what is absent is not written, so that older ones keep
    their bytes and digests."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _unchanged(self, dump: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        # No return type: with one, the JSON schema would lose the fields.
        return {name: value for name, value in dump(self).items() if value or name not in self.later}
