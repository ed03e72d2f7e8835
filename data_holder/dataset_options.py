"""By what options a dataset is read, and which of them are no reader's but its operator's declaration. Knows no table and no file.

An option is said by the operator, over the API; what is refused here was never kept.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from data_holder.datasets import DatasetOptions
from shared.claims.shape import words_of
from shared.errors import BadRequest, ConfigurationError

DECLARED = ("units", "classes")
"""Options that the operator declares and no reader looks at."""
_OPTIONS: TypeAdapter[DatasetOptions] = TypeAdapter(DatasetOptions)


def read_options(given: dict[str, Any], cache_dir: Path | None) -> DatasetOptions:
    """Raises: BadRequest: `unknown-option`, `bad-option`."""
    known = {field.name for field in fields(DatasetOptions)} - {"cache_dir", "converting", "insist"}
    if unknown := sorted(set(given) - known):
        remedy = f"Known: {', '.join(sorted(known))}"
        raise BadRequest(f"unknown dataset options {', '.join(unknown)}", code="unknown-option", remedy=remedy)
    try:
        return replace(_OPTIONS.validate_python(given), cache_dir=cache_dir)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadRequest(f"dataset option {where}: {words_of(first)}", code="bad-option") from None
    except ConfigurationError as error:
        raise BadRequest(error.detail, code="bad-option", remedy=error.remedy) from None


def kept_options(text: str) -> dict[str, Any] | None:
    """What a row keeps of them, for the operator to see; None where that are no options any more."""
    try:
        options = json.loads(text)
        read_options(options, None)
        json.dumps(options, ensure_ascii=False).encode()  # half a character has no form in an answer
    except (BadRequest, ValueError, TypeError, RecursionError):
        return None
    return dict(options)


def declared_of(options: dict[str, Any]) -> dict[str, Any]:
    """What of these is declared."""
    return {name: said for name in DECLARED if (said := options.get(name))}
