"""`what_if`: what a program would cost with other settings."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.cost.memory.use import memory_of
from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.graph.spec import Dim
from mithril_nb.stages import Inspection
from mithril_nb.stages.failure import failure_of
from mithril_nb.targets import inspect
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.calls import arguments_written, variable_of
from mithril_nb.targets.doors import called_as, door
from mithril_nb.targets.options import has_argument
from mithril_nb.targets.own import is_own
from mithril_nb.targets.slips import check_handed_on, options_written
from mithril_nb.whatif.answers import MOST_KEPT, TRACED, Answers
from mithril_nb.whatif.behind import Behind, Later
from mithril_nb.whatif.change import Change, Peak
from mithril_nb.whatif.models import OwnModel
from mithril_nb.whatif.settings import NOT_SWEPT, Settings, as_written, by_name, key_of
from mithril_nb.whatif.subjects import OF_ANY, Fixed, Made, Subject

COMPILED = "compiled"
"""The way of a change as XLA tells it."""
MOST_PLANNED = 1500
"""Equations of a program that XLA plans the memory of without being asked to compile it: it takes seconds for them."""
SHARDED = 'XLA decides what each device holds of sharded arrays; source="compiled" has its plan'


class WhatIf:
    """A program that can be asked what it would cost with other settings.

    What takes long to trace is prepared behind, in a thread that ends by itself; what is asked for and takes long, as a
    compiler does, is made in another.

    Args:
        subject: The program.
        learns: Whether to prepare; by default if the program takes long to trace.
    """

    def __init__(self, subject: Subject, learns: bool | None = None):
        self._behind, self._asked = Behind(), Behind()
        weakref.finalize(self, self._behind.close)
        self._answers = Answers(subject, self._behind, learns)
        self._answers.start()
        self._made: dict[Any, Later[Change]] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that changes start from."""
        return dict(self._answers.subject.base)

    @property
    def cost(self) -> Cost:
        """The analytic cost at these settings."""
        return self._answers.at(self._answers.subject.base).cost

    @property
    def ways(self) -> Mapping[str, str]:
        """How a change of each setting is answered by now, and why it is traced if it is.

        `"formula"`: the program is traced with a symbol for the setting, which is verified; `"learned and verified"`:
        from a few of its values, at others checked; `"traced"`: anew for each value. All of them give the same
        figures, unless the program does something else at a size between those that were looked at: `learns=False` has
        all of them traced.
        """
        return self._answers.known_ways()

    def __call__(self, changes: Settings | None = None, /, **settings: Any) -> Change:
        """Return what the costs become with other settings.

        Args:
            changes: Settings whose names are no Python names: `{"linear_0.dimension": 512}`.
            **settings: Settings by name: `batch=64`.

        Raises:
            UnknownOptionError: A setting that there is not, or a value that does not fit.
            StageUnavailableError: The program cannot be traced with them.
            Exception: What the function that makes the program raised.
        """
        subject = self._answers.subject
        after = subject.settled({**by_name(changes), **settings})
        before = {**subject.base}
        answer, changed, was = self._answers.at(after), _changed(before, after), self._answers.at(before).cost
        return Change(
            subject.name,
            changed,
            was,
            answer.cost,
            answer.way,
            (*answer.notes, *self._casts(changed, was, answer.cost)),
            Later(partial(_peaks, self._answers, before, after), self._asked),
            self._compiled(before, after),
            None if answer.is_exact else partial(self._exact, before, after),
        )

    def _casts(self, changed: Settings, before: Cost, after: Cost) -> tuple[str, ...]:
        subject = self._answers.subject
        is_own = subject.makes and "dtype" in subject.base  # then it is the person's function that casts
        is_more = "dtype" in changed and not is_own and _casts(after) > _casts(before)
        return (f"dtype: the program casts more than before: {subject.casts}",) if is_more else ()

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until everything is prepared; return whether it was so in time.

        Args:
            timeout: Seconds to wait; by default as long as it takes.
        """
        return self._behind.wait_until_idle(timeout)

    def close(self) -> None:
        """Give up what is not prepared yet. Questions are still answered."""
        self._behind.close()

    def _compiled(self, before: Settings, after: Settings) -> Later[Change]:
        key = key_of(after)
        if key not in self._made:
            self._made[key] = Later(partial(_compiled, self._answers, before, after), self._asked)
            if len(self._made) > MOST_KEPT:  # who holds a change has it still
                del self._made[next(iter(self._made))]
        return self._made[key]

    def _exact(self, before: Settings, after: Settings) -> Later[Change]:
        compiled = self._compiled(before, after)
        return Later(partial(_exactly, self._answers, before, after, compiled), self._asked).start()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"WhatIf({self._answers.subject.name!r}: {told})"


def what_if(
    target: Any,
    *args: Any,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    learns: bool | None = None,
    **settings: Any,
) -> WhatIf:
    """Ask what a program would cost with other settings: analytic figures at once, the compiler's behind.

    Args:
        target: A function that makes the program from settings: it takes them by name, each with a default, and
            returns a function and the tuple of its arguments (their shapes suffice), a model and the shapes of its
            inputs, or what `ml.inspect` gives. Or a program as it stands: a function with its arguments, an
            `Inspection`, a model. Of these `batch`, `dtype` and `precision` can be others; of a model of ours its
            `remat` too, and attributes of its blocks by path.
        *args: What the function or the model is called with; none if it makes the program.
        shapes: Shapes of the inputs of a model, in the place of arguments.
        learns: Whether to prepare answers behind; by default if the program takes long to trace.
        **settings: Settings that are to be others than the defaults. For a program as it stands: what `ml.inspect`
            takes besides.

    Returns:
        What is called with other settings, and gives a `Change`.

    Raises:
        UnknownOptionError: A setting that there is not, or nothing that could be changed.
        StageUnavailableError: The program cannot be traced.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def make(batch=8, width=16):
        ...     x = jax.ShapeDtypeStruct((batch, width), "float32")
        ...     return jnp.matmul, (x, jax.ShapeDtypeStruct((width, 4), "float32"))
        >>> change = what_if(make)(batch=32)
        >>> change.before.total.flops, change.after.total.flops, change.delta.flops, change.way
        (1024, 4096, 3072, 'traced')
    """
    if learns is not None and not isinstance(learns, bool):
        raise UnknownOptionError(
            f"ml.what_if cannot take learns={' '.join(short_repr(learns, 40).split())}.",
            (("needs", "True, False or None"),),
            "learns=False",
        )
    with called_as("ml.what_if"):
        subject = subject_of(target, args, shapes, settings)
    return WhatIf(subject, learns)


def subject_of(
    target: Any,
    args: tuple[Any, ...],
    shapes: Mapping[str, Sequence[Dim]] | None,
    settings: dict[str, Any],
    starts: Settings = NOT_SWEPT,
) -> Subject:
    """Return what is looked at.

    Args:
        target: A program, or a function that makes one.
        args: What it is called with.
        shapes: Shapes of the inputs of a model, in the place of arguments.
        settings: Settings by name.
        starts: Values of settings that vary, for functions that have no default for them.

    Raises:
        UnknownOptionError: Nothing that could be changed.
    """
    is_ours = type(target).__module__.startswith("mithril_nb.")  # as what `what_if` gave: it makes no program
    is_function = callable(target) and not isinstance(target, type) and not hasattr(target, "init") and not is_ours
    is_made = not args and shapes is None and is_function and not is_own(target)
    if not is_made and not isinstance(target, Inspection):
        _refuse_settings(target, args, {"shapes": shapes, **settings})
        check_handed_on(settings)
    if is_own(target):
        return OwnModel(target, args, shapes, settings)
    if isinstance(target, Inspection):
        if args or settings:
            raise UnknownOptionError(
                f"program {target.name!r} is inspected already: it takes no arguments and no options.",
                advice=f"ml.what_if(inspection)({_given(settings) or 'batch=64'})",
            )
        return Fixed(target)
    if is_made:
        return Made(target, settings, starts)
    return Fixed(inspect(target, *args, shapes=shapes, **settings))


def _refuse_settings(target: Any, args: tuple[Any, ...], options: Settings) -> None:
    """Raise if a program as it stands is given settings at once, which are no arguments of it."""
    known = (*OF_ANY, "remat") if is_own(target) else OF_ANY
    changed = {name: value for name, value in options.items() if name in known and has_argument(target, name) is False}
    if not changed:
        return
    others = {name: value for name, value in options.items() if name not in changed}
    call = [variable_of(target), *arguments_written(target, args), *options_written(others)]
    facts = (("given", _given(changed)), ("settings", ", ".join(known)))
    if door().name == "ml.sweep":
        raise UnknownOptionError(
            f"ml.sweep takes {title_of(target)!r} as it stands, and changes what is given as a list.",
            facts,
            door().call(*call, *(as_written(name, (value,), is_swept=True) for name, value in changed.items())),
        )
    raise UnknownOptionError(
        f"ml.what_if takes {title_of(target)!r} as it stands; a second call changes its settings.",
        facts,
        f"{door().call(*call)}({_given(changed)})",
    )


def _given(settings: Settings) -> str:
    return ", ".join(as_written(name, (value,)) for name, value in settings.items())


def _casts(cost: Cost) -> int:
    return sum(row.opcode == "convert_element_type" for row in cost.rows)


def _peaks(answers: Answers, before: Settings, after: Settings) -> tuple[Peak, Peak]:
    """Both in the same way, so that their difference is that of the programs: XLA's plan, or else an estimate."""
    with suppress(Exception):  # for a program that cannot be traced, the estimate has the reason
        programs = [answers.traced(settings)[0] for settings in (before, after)]
        if all(len(one.equations) <= MOST_PLANNED for one in programs):  # whatever is compiled already
            with answers.context():
                first, second = map(peak_compiled, programs)
            if first.bytes is not None and second.bytes is not None:
                return first, second
    return peak(answers, before), peak(answers, after)


def peak(answers: Answers, settings: Settings) -> Peak:
    """Return the most memory that a program holds at once, from its equations alone."""

    def estimate() -> Any:
        inspection = answers.traced(settings)[0]
        if inspection.is_divided:
            raise StageUnavailableError(SHARDED)
        return memory_of(inspection, "analytic")

    return _told(estimate)


def peak_compiled(inspection: Inspection) -> Peak:
    """Return the most memory that a compiled program holds at once on one device."""
    return _told(lambda: memory_of(inspection, "compiled"))


def _told(memory: Callable[[], Any]) -> Peak:
    try:
        found = memory()
    except Exception as error:  # what is not known takes nothing else with it
        return Peak(None, reason_of(error))
    reason = "; ".join(getattr(found, "notes", ())) or "nobody says"
    return Peak(found.peak_bytes, source=found.source) if found.peak_bytes is not None else Peak(None, reason)


def reason_of(error: Exception) -> str:
    """Return in one line why something went wrong."""
    if isinstance(error, MithrilError):
        first = error.diagnostics[0]
        return f"{first.summary} {first.shown().facts[0][1]}" if first.facts else first.summary
    failure = failure_of(error)
    return f"{failure.kind}: {failure.message}".splitlines()[0]


def _compiled(answers: Answers, before: Settings, after: Settings) -> Change:
    inspections = [answers.traced(settings)[0] for settings in (before, after)]
    for inspection in inspections:
        inspection.want(machine_code=False)  # what XLA writes of its memory
    with answers.context():
        costs = [inspection.cost("compiled") for inspection in inspections]
    first, second = map(peak_compiled, inspections)
    peaks = Later.of((first, second))
    return Change(answers.subject.name, _changed(before, after), costs[0], costs[1], COMPILED, (), peaks)


def _exactly(answers: Answers, before: Settings, after: Settings, compiled: Later[Change]) -> Change:
    found = [answers.traced(settings)[1] for settings in (before, after)]
    peaks = Later(partial(_peaks, answers, before, after), Behind())
    return Change(answers.subject.name, _changed(before, after), found[0], found[1], TRACED, (), peaks, compiled)


def _changed(before: Settings, after: Settings) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), value)
        for name, value in after.items()
        if key_of({name: value}) != key_of({name: before.get(name)})
    }
