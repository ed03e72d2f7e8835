"""Frozen values that services state to one another: manifest, program, records, grant. Knows no wire and no crypto."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Claim(BaseModel):
    """A frozen value with no unknown fields: a field whose feature does not exist is refused, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
