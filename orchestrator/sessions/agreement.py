"""Whether the datasets that holders approved a session with can be trained on as one: their profiles, compared. Pure: knows no state.

A *mismatch* holds the session before its set-up; a *warning* is shown and holds nothing. A profile is its holder's word: comparing finds
mistakes of the honest, and who lies in one gains what a refusal would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from shared.claims.profile import DatasetProfile, FieldProfile, Scale

DECADES_APART = 2
"""Sizes that differ 100-fold are so many decades apart at least, sizes that differ less than 10-fold never are."""
CORRECT = "Whoever declared wrongly corrects its dataset's declaration and says `gput party approve SESSION --manifest DIGEST --anew`; "
ELSE = "where the records themselves differ, that holder vetoes, and the owner submits a session for data that were made alike."
WATCH = "Ask the holders; what is right may stay so."
MOST_NAMED = 4
"""Of what goes into a sentence: profiles come from outside, and a page of thousands of columns would be nobody's."""
Profiles = Mapping[str, DatasetProfile | None]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Finding:
    """One thing in which datasets differ. `holders`: those that say so; `field` is empty where it is about the whole dataset."""

    severity: Literal["mismatch", "warning"]
    code: str
    field: str
    holders: tuple[str, ...]
    detail: str
    remedy: str

    @property
    def holds(self) -> bool:
        """Whether it keeps a session from beginning."""
        return self.severity == "mismatch"

    def as_json(self) -> dict[str, Any]:
        """JSON form, stable names."""
        return {**asdict(self), "holders": list(self.holders)}


def compare(profiles: Profiles) -> list[Finding]:
    """Everything in which the holders' datasets differ, mismatches first.

    Args:
        profiles: by holder, of those that take part; None: its approval states none.
    """
    told = {holder: profile for holder, profile in profiles.items() if profile is not None}
    silent = tuple(holder for holder in profiles if holder not in told)
    found = [*_names(told)]
    for name in dict.fromkeys(field.name for profile in told.values() for field in profile.fields):
        same = {h: f for h, p in told.items() for f in p.fields if f.name == name}
        found += [*_declared(name, same), *_measured(name, same)]
    if silent and told:
        found.append(Finding("warning", "dataset-not-profiled", "", silent,
                             f"{some(silent)}: the approval states no profile, so nothing of it was compared",
                             "Approve with a data holder of this version."))  # fmt: skip
    return sorted(found, key=lambda finding: not finding.holds)


def mismatches(profiles: Profiles) -> list[Finding]:
    """Those findings that hold a session."""
    return [finding for finding in compare(profiles) if finding.holds]


def _names(told: Mapping[str, DatasetProfile]) -> Iterator[Finding]:
    groups = _groups({holder: tuple(field.name for field in profile.fields) for holder, profile in told.items()})
    if len(groups) > 1:
        yield _mismatch("dataset-fields-differ", "", groups, lambda names: f"the fields {some(names)}")


def _declared(name: str, same: Mapping[str, FieldProfile]) -> Iterator[Finding]:
    """What each holder says a field is."""
    dtypes = _groups({holder: field.dtype for holder, field in same.items()})
    shapes = _groups({holder: field.shape for holder, field in same.items()})
    if len(dtypes) > 1:
        yield _mismatch("dataset-dtype-differs", name, dtypes, str)
    if len(shapes) > 1:
        yield _mismatch("dataset-shape-differs", name, shapes, lambda shape: f"shape {list(shape)}")
        return  # what is said of columns cannot be laid side by side
    yield from _units(name, {holder: _each(field.units, field.columns) for holder, field in same.items()})
    yield from _classes(name, {holder: field.classes for holder, field in same.items()})


def _units(name: str, units: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    groups = _groups({holder: said for holder, said in units.items() if said})
    if len(groups) > 1:
        apart = _apart(list(groups))
        yield _mismatch("dataset-units-differ", name, groups, lambda said: some(dict.fromkeys(said[i] for i in apart)),
                        _columns(apart, len(next(iter(groups)))))  # fmt: skip
    yield from _half_declared(name, "unit", units)


def _classes(name: str, classes: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    groups = _groups({holder: tags for holder, tags in classes.items() if tags})
    if len(groups) > 1:
        order = len({frozenset(tags) for tags in groups}) == 1
        what = ", the same classes under other numbers" if order else ""
        kinds = {tags: f"list {number} of {len(tags)} classes" for number, tags in enumerate(groups, 1)}
        yield _mismatch("dataset-classes-differ", name, groups, lambda tags: kinds[tags], what)
    yield from _half_declared(name, "classes", classes)


def _half_declared(name: str, what: str, said: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    silent = tuple(holder for holder, value in said.items() if not value)
    if silent and len(silent) < len(said):
        yield Finding("warning", "dataset-undeclared", name, silent,
                      f"field {name}: {some(silent)} declares no {what}, others do, so it was not compared",
                      "Declare it with the dataset, as the others did.")  # fmt: skip


def _measured(name: str, same: Mapping[str, FieldProfile]) -> Iterator[Finding]:
    """What each holder measured of a field."""
    if len({field.shape for field in same.values()}) > 1:
        return
    scales = {holder: field.scales for holder, field in same.items() if field.scales}
    yield from _scales(name, _decades(scales, lambda scale: scale.size), "dataset-size-differs",
                       "the usual size of values differs about 100-fold or more", lambda n: f"about 10^{n}")  # fmt: skip
    yield from _scales(name, _decades(scales, lambda scale: scale.spread), "dataset-spread-differs",
                       "values spread over two powers of ten more or fewer", lambda n: f"{n} decades")  # fmt: skip
    yield from _absent(name, {h: f for h, f in same.items() if f.present is not None})


def _decades(scales: Mapping[str, tuple[Scale | None, ...]], of: Callable[[Scale], int]) -> dict[str, list[int | None]]:
    return {holder: [None if scale is None else of(scale) for scale in each] for holder, each in scales.items()}


def _scales(
    name: str, decades: Mapping[str, Sequence[int | None]], code: str, what: str, word: Callable[[int], str]
) -> Iterator[Finding]:
    width = len(next(iter(decades.values()), ()))
    apart: dict[int, dict[str, int]] = {}
    for column in range(width):
        said = {holder: decade for holder, each in decades.items() if (decade := each[column]) is not None}
        if said and max(said.values()) - min(said.values()) >= DECADES_APART:
            apart[column] = said
    if apart:
        column, said = max(apart.items(), key=lambda one: max(one[1].values()) - min(one[1].values()))
        most = f", most in element {column}" if len(apart) > 1 else ""
        yield Finding("warning", code, name, tuple(dict.fromkeys(holder for one in apart.values() for holder in one)),
                      f"field {name}{_columns(list(apart), width)}: {what}{most}: {_told(_groups(said), word)}",
                      f"It smells of another unit, or of data prepared in another way. {WATCH}")  # fmt: skip


def _absent(name: str, marked: Mapping[str, FieldProfile]) -> Iterator[Finding]:
    """Classes that some have and others do not. Only of one and the same list: other lists are a mismatch."""
    if len({field.classes for field in marked.values()}) != 1:
        return
    lacked: dict[int, tuple[str, ...]] = {}
    for code in range(len(next(iter(marked.values())).classes)):
        without = tuple(h for h, field in marked.items() if field.present is not None and not field.present[code])
        if without and len(without) < len(marked):
            lacked[code] = without
    if lacked:
        told = some((f"class {code} at {some(holders)}" for code, holders in lacked.items()), "; ")
        yield Finding("warning", "dataset-class-absent", name, tuple(dict.fromkeys(h for one in lacked.values() for h in one)),
                      f"field {name}: absent or next to absent, though others have it: {told}",
                      f"A model visited by classes in turn forgets; short visits or a tour help. {WATCH}")  # fmt: skip


def some(words: Iterable[str], between: str = ", ") -> str:
    """The first few, and how many more."""
    named = list(words)
    rest = len(named) - MOST_NAMED
    return between.join(named[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _each(units: tuple[str, ...], columns: int) -> tuple[str, ...]:
    return units * columns if len(units) == 1 else units


def _apart(said: Sequence[Sequence[str]]) -> list[int]:
    return [i for i in range(len(said[0])) if len({units[i] for units in said}) > 1]


def _columns(apart: Sequence[int], columns: int) -> str:
    """Which elements of a field are meant, where it is not all of them."""
    if len(apart) == columns:
        return ""
    return f" (element{'s' if len(apart) > 1 else ''} {some(map(str, apart))})"


def _groups(said: Mapping[str, T]) -> dict[T, tuple[str, ...]]:
    """Who says what, the largest group first."""
    found: dict[T, tuple[str, ...]] = {}
    for holder, value in said.items():
        found[value] = (*found.get(value, ()), holder)
    return dict(sorted(found.items(), key=lambda group: -len(group[1])))


def _told(groups: Mapping[T, tuple[str, ...]], word: Callable[[T], str]) -> str:
    return some((f"{some(holders)}: {word(value)}" for value, holders in groups.items()), "; ")


def _mismatch(
    code: str, field: str, groups: Mapping[T, tuple[str, ...]], word: Callable[[T], str], more: str = ""
) -> Finding:
    about = f"field {field}{more}" if field else "the dataset"
    holders = tuple(holder for group in groups.values() for holder in group)
    return Finding("mismatch", code, field, holders, f"{about}: {_told(groups, word)}", CORRECT + ELSE)
