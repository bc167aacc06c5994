"""`sweep`: what a program costs at all values of one setting, or of two."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from mithril_nb.cost import Cost
from mithril_nb.display import Shown
from mithril_nb.errors import UnavailableBackendError, UnknownOptionError, nearest
from mithril_nb.graph.spec import Dim
from mithril_nb.measure import profile
from mithril_nb.stages import Inspection
from mithril_nb.targets.doors import called_as
from mithril_nb.whatif.answers import Answers
from mithril_nb.whatif.behind import Behind
from mithril_nb.whatif.change import Peak
from mithril_nb.whatif.settings import Settings, by_name, plain, values_of
from mithril_nb.whatif.what_if import peak as peak_of
from mithril_nb.whatif.what_if import peak_compiled, reason_of, subject_of

SOURCES = ("analytic", "compiled", "measured")
"""Where the figures of a sweep come from."""
FIELDS = ("flops", "bytes_accessed", "transcendentals", "params", "peak_bytes", "time_s")
_NOT_RUN = 'nothing is run; source="measured" does'
ESTIMATE = 'peak_bytes: estimated from the equations; source="compiled" has XLA\'s'
_NOT_ASKED = Peak(None, "not asked for: peak=True")


@dataclass(frozen=True)
class Point:
    """What a program costs at one value of each setting.

    Attributes:
        settings: Values of the settings that vary.
        flops: Arithmetic operations; `None` if unknown.
        bytes_accessed: Bytes read and written.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        params: Number of parameters.
        peak_bytes: The most bytes that are held at once; of one device, if XLA tells.
        time_s: Seconds of one run.
        way: How the figures came about, as in `Change.way`; `""` if there are none.
        reasons: For each figure that is not known, why.
        at_least: Figures that are lower bounds: costs of some of the program are not known.
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
    """What a program costs at all values of one setting, or of two.

    Attributes:
        program: Name of the program.
        source: `"analytic"`, `"compiled"` or `"measured"`.
        settings: The values of each setting that varies.
        points: One for each combination; the last setting varies first.
        notes: What is to be known besides.
    """

    program: str
    source: str
    settings: Mapping[str, tuple[Any, ...]]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={list(values)!r}" for name, values in self.settings.items())
        return f"Sweep({self.program!r}, {told}; {self.source})"

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data."""
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
        """Return a `pandas.DataFrame` with a row for each point; what is not known is missing.

        Raises:
            UnavailableBackendError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise UnavailableBackendError(
                "a table of a sweep needs pandas.", (("because", str(error)),), "pip install pandas"
            ) from error
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
    """Return what a program costs at all values of one setting, or of two.

    A point at which the program cannot be made, traced, compiled or run is unknown, and says why; the others stand.

    Args:
        target: What `ml.what_if` takes.
        *args: The same.
        source: `"analytic"` counts equations, `"compiled"` asks XLA, `"measured"` runs the program.
        peak: Whether to find out the most memory that is held at once, which takes longer.
        shapes: Shapes of the inputs of a model, in the place of arguments.
        changes: Settings whose names are no Python names: `{"linear_0.dimension": [256, 512]}`.
        **settings: Settings by name. A list is swept: `batch=[8, 16, 32]`; anything else is the same at all points.

    Returns:
        The points; shown as a picture in a notebook, a table by `print`.

    Raises:
        UnknownOptionError: No list, or more than two; a setting that there is not, or a value that does not fit.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def make(batch=8, width=16):
        ...     x = jax.ShapeDtypeStruct((batch, width), "float32")
        ...     return jnp.matmul, (x, jax.ShapeDtypeStruct((width, 4), "float32"))
        >>> found = sweep(make, batch=[8, 16], width=[16, 32])
        >>> [(point.settings["batch"], point.settings["width"], point.flops) for point in found.points]
        [(8, 16, 1024), (8, 32, 2048), (16, 16, 2048), (16, 32, 4096)]
    """
    swept, others = _parted({**settings, **by_name(changes, is_swept=True)})
    starts = {name: values_of(name, given)[0] for name, given in swept.items()}
    with called_as("ml.sweep", **swept):
        subject = subject_of(target, args, shapes, others, starts)
    answers = Answers(subject, Behind())
    return swept_over(answers, swept, source, peak)


def swept_over(answers: Answers, swept: Mapping[str, Any], source: str, peak: bool) -> Sweep:
    """Return what a program costs at all combinations of values.

    Args:
        answers: The program.
        swept: The values of one setting, or of two.
        source: One of `SOURCES`.
        peak: Whether to find out the most memory that is held at once.

    Raises:
        UnknownOptionError: As `sweep`.
    """
    subject = answers.subject
    if source not in SOURCES:
        raise UnknownOptionError(
            f"a sweep of {subject.name!r} cannot have its figures from {source!r}.",
            (("sources", ", ".join(SOURCES)),),
            f'source="{nearest(source, SOURCES) or "compiled"}"',
        )
    if len(swept) not in (1, 2):
        raise UnknownOptionError(
            f"a sweep varies one setting, or two, and {', '.join(map(repr, swept)) or 'none'} "
            f"{'was' if len(swept) < 2 else 'were'} given as a list.",
            (("settings", ", ".join(subject.base) or "none"),),
            f"{next(iter(swept), next(iter(subject.base), 'batch'))}=[8, 16, 32]",
        )
    values = {name: values_of(name, given) for name, given in swept.items()}
    every = [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]
    settled = [subject.settled(point, swept) for point in every]
    points = tuple(
        _point(answers, point, settings, source, peak) for point, settings in zip(every, settled, strict=True)
    )
    is_estimate = source == "analytic" and any(point.peak_bytes is not None for point in points)
    return Sweep(subject.name, source, values, points, (*((ESTIMATE,) if is_estimate else ()), *_notes(points)))


def _parted(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    swept = {name: value for name, value in settings.items() if isinstance(value, list | range | np.ndarray)}
    return swept, {name: value for name, value in settings.items() if name not in swept}


def _point(answers: Answers, point: Settings, settings: Settings, source: str, peak: bool) -> Point:
    try:
        if source == "analytic":
            return _analytic(answers, point, settings, peak)
        inspection = answers.traced(settings)[0]
        with answers.context():
            if source == "compiled":
                return _compiled(inspection, point, peak)
            return _measured(inspection, point, peak)
    except Exception as error:  # the other points stand
        return Point(point, reasons=dict.fromkeys(FIELDS, reason_of(error)))


def _analytic(answers: Answers, point: Settings, settings: Settings, with_peak: bool) -> Point:
    answer = answers.at(settings)
    held = peak_of(answers, settings) if with_peak else _NOT_ASKED
    return _of(answer.cost, point, held, answer.way, None, _NOT_RUN)


def _compiled(inspection: Inspection, point: Settings, with_peak: bool) -> Point:
    held = peak_compiled(inspection) if with_peak else _NOT_ASKED
    return _of(inspection.cost("compiled"), point, held, "compiled", None, _NOT_RUN)


def _measured(inspection: Inspection, point: Settings, with_peak: bool) -> Point:
    held = peak_compiled(inspection) if with_peak else _NOT_ASKED
    found = profile(inspection)
    return _of(found, point, held, "measured", found.total.time_s, "; ".join(found.notes) or "nobody says")


def _of(cost: Cost, point: Settings, held: Peak, way: str, time_s: float | None, no_time: str) -> Point:
    total = cost.total
    known = {name: getattr(total, name) for name in ("flops", "bytes_accessed", "transcendentals", "params")}
    reasons = {name: _reason(cost.notes, name) for name, value in known.items() if value is None}
    reasons |= {"peak_bytes": held.reason} if held.bytes is None else {}
    reasons |= {"time_s": no_time} if time_s is None else {}
    calls = total.unknown_transcendentals
    bounds = {"flops": total.unknown, "transcendentals": calls, "bytes_accessed": total.unknown_bytes}
    at_least = tuple(name for name, count in bounds.items() if count and known[name])
    return Point(point, **known, peak_bytes=held.bytes, time_s=time_s, way=way, reasons=reasons, at_least=at_least)


def _reason(notes: Sequence[str], figure: str) -> str:
    """Return what notes say of a figure; all of them if none names it."""
    own = [note.removeprefix(f"{figure}: ") for note in notes if figure in note.partition(":")[0]]
    return "; ".join(own or notes) or "nobody says"


def _known_somewhere(points: Sequence[Point]) -> list[str]:
    return [name for name in FIELDS if any(getattr(point, name) is not None for point in points)]


def _notes(points: Sequence[Point]) -> tuple[str, ...]:
    """Say why some figures are known at no point; what is known at some of them says so by itself."""
    known = _known_somewhere(points)
    found: dict[str, list[str]] = {}
    for point in points:
        for name, reason in point.reasons.items():
            if name not in known and name not in found.setdefault(reason, []):
                found[reason].append(name)
    # What went wrong at one point went wrong for all of its figures, and is no reason why others have no time.
    only = {reason for point in points if len(point.reasons) == len(FIELDS) for reason in point.reasons.values()}
    return tuple(
        f"{', '.join(names)}: {reason}" for reason, names in found.items() if names and not (known and reason in only)
    )
