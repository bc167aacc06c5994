"""`sweep`: the cost of a program over the values of one or two settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from mithril_nb.analysis.measure import profile
from mithril_nb.analysis.whatif.change import Peak, quiet_queue
from mithril_nb.analysis.whatif.cost_oracle import CostOracle
from mithril_nb.analysis.whatif.subjects import Settings, by_name, plain, values_of
from mithril_nb.analysis.whatif.what_if import peak as peak_of
from mithril_nb.analysis.whatif.what_if import peak_compiled, reason_of, subject_of
from mithril_nb.cost import Cost
from mithril_nb.display import Shown
from mithril_nb.errors import UnknownOptionError, installed, nearest
from mithril_nb.figures import FIGURES, OVERVIEW, with_fields
from mithril_nb.graph.spec import Dim

SOURCES = ("analytic", "compiled", "measured")
"""Sources of the costs of a sweep."""
FIELDS = tuple(key for key in OVERVIEW if FIGURES[key].source in ("", *SOURCES))
_NOT_RUN = 'the program is not run; source="measured" runs it'
ESTIMATE = 'peak_bytes: estimated from the equations; source="compiled" shows XLA\'s own value'
_NOT_ASKED = Peak(None, "not computed; peak=True computes it")


@dataclass(frozen=True)
@with_fields(dict.fromkeys(FIELDS))
class Point:
    """The cost of a program at one value of each setting. `Point` has other figures of `mithril_nb.figures`, too.

    Attributes:
        settings: Values of the swept settings.
        flops: Arithmetic operations; `None` if unknown.
        bytes_accessed: Bytes read and written; `None` if unknown.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...; `None` if unknown.
        params: Number of parameters; `None` if unknown.
        peak_bytes: Peak memory in bytes; `None` if unknown. It is an estimate in an `"analytic"` sweep, else the peak
            of one device.
        time_s: Seconds of one run; `None` if unknown.
        way: How the costs were found: a value of `Change.way`, or `"measured"`; `""` if all costs are unknown.
        reasons: The reason for each unknown cost, by its name, such as `"flops"`.
        at_least: Names of costs that are lower bounds, because part of them is unknown.
    """

    settings: Mapping[str, Any]
    flops: int | None = None
    bytes_accessed: int | None = None
    transcendentals: int | None = None
    params: int | None = None
    peak_bytes: int | None = None
    time_s: float | None = None
    way: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    at_least: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep(Shown):
    """The costs of a program over the values of one or two settings.

    Attributes:
        program: Name of the program.
        source: `"analytic"`, `"compiled"` or `"measured"`.
        settings: The values of each swept setting.
        points: A point for each combination of values; the last setting varies fastest.
        notes: Notes on the costs.
    """

    program: str
    source: str
    settings: Mapping[str, tuple[Any, ...]]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={list(values)!r}" for name, values in self.settings.items())
        return f"Sweep({self.program!r}, {settings}; {self.source})"

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain data."""
        return {
            "program": self.program,
            "source": self.source,
            "settings": {name: [plain(value) for value in values] for name, values in self.settings.items()},
            "fields": _known_somewhere(self.points),
            "points": [
                {
                    **asdict(point),
                    "settings": {name: plain(value) for name, value in point.settings.items()},
                    "reasons": dict(point.reasons),
                }
                for point in self.points
            ],
            "notes": [*self.notes],
        }

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each point; unknown costs are missing."""
        pandas = installed("pandas", "Sweep.to_pandas")
        rows = [{**point["settings"], **{name: point[name] for name in FIELDS}} for point in self.to_dict()["points"]]
        return pandas.DataFrame(rows)


def sweep(
    target: Any,
    *args: Any,
    source: str = "analytic",
    peak: bool = True,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    changes: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Sweep:
    """Compute the cost of a program over all values of one or two settings.

    If the program cannot be made, traced, compiled or run with some values, the costs of this point are `None`, and its
    `reasons` have the error.

    Args:
        target: A function that makes the program, or the program, as for `ml.what_if`.
        *args: Arguments of the program, as for `ml.what_if`.
        source: `"analytic"` counts equations, `"compiled"` counts the compiled program, `"measured"` runs it.
        peak: True to compute the peak memory too, which takes longer.
        shapes: Shapes of a model's inputs, instead of arguments.
        changes: Settings whose names are not Python names: `{"linear_0.dimension": [256, 512]}`.
        **settings: Settings by name. The values of a list, a range or an array are swept: `batch=[8, 16, 32]`. Other
            values apply to all points.

    Returns:
        The points. A notebook shows them as a picture, and `print` as a table.

    Raises:
        UnknownOptionError: No setting or more than two are swept, a setting does not exist, or a value or `source` is
            not valid.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def make(batch=8, width=16):
        ...     x = jax.ShapeDtypeStruct((batch, width), "float32")
        ...     return jnp.matmul, (x, jax.ShapeDtypeStruct((width, 4), "float32"))
        >>> found = sweep(make, batch=[8, 16], width=[16, 32])
        >>> [(point.settings["batch"], point.settings["width"], point.flops) for point in found.points]
        [(8, 16, 1024), (8, 32, 2048), (16, 16, 2048), (16, 32, 4096)]
    """
    requested = {**settings, **by_name(changes)}
    # A tuple is a value, such as the sizes of layers.
    swept = {name: values for name, values in requested.items() if isinstance(values, list | range | np.ndarray)}
    others = {name: value for name, value in requested.items() if name not in swept}
    starts = {name: values_of(name, listed)[0] for name, listed in swept.items()}
    subject = subject_of(target, args, shapes, others, starts)
    # Not started, so it learns nothing: each point is needed once.
    oracle = CostOracle(subject, quiet_queue())
    if source not in SOURCES:
        raise UnknownOptionError(
            f"unknown source {source!r} for a sweep of {subject.name!r}.",
            (("sources", ", ".join(SOURCES)),),
            f'source="{nearest(source, SOURCES) or "compiled"}"',
        )
    if len(swept) not in (1, 2):
        raise UnknownOptionError(
            f"a sweep needs one or two settings given as lists, got {', '.join(map(repr, swept)) or 'none'}.",
            (("settings", ", ".join(subject.base) or "none"),),
            f"{next(iter(swept), next(iter(subject.base), 'batch'))}=[8, 16, 32]",
        )
    values = {name: values_of(name, listed) for name, listed in swept.items()}
    combinations = [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]
    # All values are checked before the first point, which may take minutes, is computed.
    settled = [subject.with_changes(point) for point in combinations]
    points = tuple(
        _point(oracle, point, settings, source, peak) for point, settings in zip(combinations, settled, strict=True)
    )
    is_estimate = source == "analytic" and any(point.peak_bytes is not None for point in points)
    return Sweep(subject.name, source, values, points, (*((ESTIMATE,) if is_estimate else ()), *_notes(points)))


def _point(oracle: CostOracle, point: Settings, settings: Settings, source: str, peak: bool) -> Point:
    try:
        if source == "analytic":
            answer = oracle.at(settings)
            return _of(answer.cost, point, peak_of(oracle, settings) if peak else _NOT_ASKED, answer.way)
        inspection = oracle.traced(settings)[0]
        with oracle.context():
            held = peak_compiled(inspection) if peak else _NOT_ASKED
            return _of(profile(inspection) if source == "measured" else inspection.cost(source), point, held, source)
    except Exception as error:  # the other points are still valid
        return Point(point, reasons=dict.fromkeys(FIELDS, reason_of(error)))


def _of(cost: Cost, point: Settings, held: Peak, origin: str) -> Point:
    total = cost.total
    time_s, no_time = None, _NOT_RUN
    if origin == "measured":
        time_s, no_time = total.time_s, "; ".join(cost.notes) or "no reason given"
    figures = {name: getattr(total, name) for name in FIELDS if name not in ("peak_bytes", "time_s")}
    reasons = {name: _reason(cost.notes, name) for name, value in figures.items() if value is None}
    reasons |= {"peak_bytes": held.reason} if held.bytes is None else {}
    reasons |= {"time_s": no_time} if time_s is None else {}
    at_least = tuple(name for name, value in figures.items() if value and total.unknown_in(name))
    return Point(point, **figures, peak_bytes=held.bytes, time_s=time_s, way=origin, reasons=reasons, at_least=at_least)


def _reason(notes: Sequence[str], figure: str) -> str:
    own = [note.removeprefix(f"{figure}: ") for note in notes if figure in note.partition(":")[0]]
    return "; ".join(own or notes) or "no reason given"


def _known_somewhere(points: Sequence[Point]) -> list[str]:
    return [name for name in FIELDS if any(getattr(point, name) is not None for point in points)]


def _notes(points: Sequence[Point]) -> tuple[str, ...]:
    # Only for costs that are unknown at all points: other points show their own reasons.
    available = _known_somewhere(points)
    by_reason: dict[str, list[str]] = {}
    for point in points:
        for name, reason in point.reasons.items():
            if name not in available and name not in by_reason.setdefault(reason, []):
                by_reason[reason].append(name)
    # A point that failed has one reason for all costs, which does not explain why a cost of another point is unknown.
    only = {reason for point in points if len(point.reasons) == len(FIELDS) for reason in point.reasons.values()}
    return tuple(
        f"{', '.join(names)}: {reason}"
        for reason, names in by_reason.items()
        if names and not (available and reason in only)
    )
