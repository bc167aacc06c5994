"""`what_if`: the cost of a program with other settings."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import gcd, lcm, prod
from typing import Any

import jax
from jax.sharding import NamedSharding

from mithril_nb.analysis.whatif.change import Change, Future, Peak, quiet_queue
from mithril_nb.analysis.whatif.cost_oracle import ESTIMATE, MOST_KEPT, TRACED, CostOracle
from mithril_nb.analysis.whatif.subjects import (
    COMMON_SETTINGS,
    FixedProgram,
    MadeProgram,
    MithrilModel,
    Settings,
    VariableProgram,
    by_name,
    format_setting,
    is_size,
    key_of,
)
from mithril_nb.cost import Cost
from mithril_nb.cost.memory.use import best_memory_of, memory_of
from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError
from mithril_nb.graph.spec import Dim
from mithril_nb.hardware import as_device
from mithril_nb.inspection import Inspection
from mithril_nb.stages.failure import failure_of
from mithril_nb.targets import inspect
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.inspection import has_argument
from mithril_nb.targets.mithril_models import is_mithril_model
from mithril_nb.targets.options import check_options

COMPILED = "compiled"
"""The `way` of a change with XLA's figures."""
MOST_TRIED = 2**31 - 1
"""Largest value of a setting that is tried for `WhatIf.largest`: XLA's sizes are 32-bit in places."""
MOST_PLANNED = 1500
"""Most equations of a program that is compiled for its peak memory without an explicit request; more take seconds."""
SHARDED = 'XLA decides how much of sharded arrays each device holds; source="compiled" has its plan'


def _print_over(text: str) -> None:
    print(f"\r{text:<79}", end="" if text else "\r", flush=True)


class WhatIf:
    """A program with settings: call it with other settings to get the change of its costs.

    If the program takes long to trace, a background thread learns rules for the costs, so that later calls
    need no trace. The thread ends by itself. Slow work on request, such as compiling, runs in a second thread.

    Args:
        subject: The program.
        learns: True to learn rules in the background, as `ways` describes. By default, this is done if the
            program takes long to trace.
    """

    def __init__(self, subject: VariableProgram, learns: bool | None = None):
        # A compilation takes seconds and must not delay the traces of the preparation.
        self._queue, self._requests = quiet_queue(), quiet_queue()
        weakref.finalize(self, self._queue.end)
        self._oracle = CostOracle(subject, self._queue, learns)
        self._oracle.start()
        self._made: dict[Any, Future[Change]] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings before a change."""
        return dict(self._oracle.subject.base)

    @property
    def cost(self) -> Cost:
        """The analytic cost before a change."""
        return self._oracle.at(self._oracle.subject.base).cost

    @property
    def ways(self) -> Mapping[str, str]:
        """The way in which costs for other values of a setting are found, by name of the setting.

        - `"learned and verified"`: by rules from traces of a few values, which were compared with further traces;
        - `"traced"`: by a new trace for each value. The text may continue with the reason: `"traced: ..."`.

        All of them give the same costs, unless the program changes at a size between the traced ones. Pass
        `learns=False` to `ml.what_if` to trace always.
        """
        return {name: self._oracle.ways.get(name, TRACED) for name in self._oracle.subject.base}

    def __call__(self, changes: Settings | None = None, /, **settings: Any) -> Change:
        """Return the change of costs with other settings.

        Args:
            changes: Settings whose names are not Python names: `{"linear_0.dimension": 512}`.
            **settings: Settings by name: `batch=64`.
        """
        subject = self._oracle.subject
        after = subject.with_changes({**by_name(changes), **settings})
        before = {**subject.base}
        answer, changed, was = self._oracle.at(after), _changed(before, after), self._oracle.at(before).cost
        return Change(
            subject.name,
            changed,
            was,
            answer.cost,
            answer.way,
            (*answer.notes, *self._casts(changed, was, answer.cost)),
            Future(partial(_peaks, self._oracle, before, after), self._requests),
            self._compiled(before, after),
            partial(self._exact, before, after) if answer.way == ESTIMATE else None,
        )

    def _casts(self, changed: Settings, before: Cost, after: Cost) -> tuple[str, ...]:
        subject = self._oracle.subject
        is_own = subject.makes and "dtype" in subject.base  # then the user's function does the casts
        is_more = "dtype" in changed and not is_own and _casts(after) > _casts(before)
        return (f"dtype: the program casts more than before: {subject.casts}",) if is_more else ()

    def largest(
        self, setting: str = "batch", *, multiple_of: int | None = None, report: Callable[[str], object] | None = None
    ) -> int:
        """Return the largest value of a setting with which the program fits into the memory of its device.

        Each candidate is compiled: the value is doubled until the program does not fit, and then the interval is
        halved. A larger value is assumed to need more memory. An interrupt ends the compiler at once.

        Args:
            setting: Name of a setting whose value is a size.
            multiple_of: The result is a multiple of this number. By default, this is the least number with which the
                shardings of the arguments divide arrays evenly, such as the number of devices that split the batch.
            report: A function that receives a line on the value that is compiled, and `""` at the end. By default, the
                line is printed, and removed at the end.

        Returns:
            The largest value; 0 if the program does not fit with any.

        Raises:
            UnknownOptionError: It is not known whether the program fits, because the memory of its device is unknown,
                or because it does not compile for another reason. Or `multiple_of` is not a size, or the shardings of
                the arguments do not divide all its multiples.

        Examples:
            ```python
            p = ml.inspect(step, params, batch, device="v5e")
            ml.what_if(p).largest("batch")
            ```
        """
        subject = self._oracle.subject
        is_invalid = multiple_of is not None and multiple_of < 1
        if is_invalid or (setting in subject.base and not is_size(subject.base[setting])):
            value = format_setting(setting, subject.base.get(setting))
            raise UnknownOptionError(f"{value} of program {subject.name!r} is not a size.")
        settings = subject.with_changes({setting: 1})  # finds the batch of the program
        start, parts = subject.base[setting], self._parts(setting)
        multiple_of = multiple_of or parts
        if multiple_of % parts:
            raise UnknownOptionError(
                f"{setting} of program {subject.name!r} must be a multiple of {parts}: the mesh divides its arrays.",
                (("multiple_of", str(multiple_of)),),
                f'largest("{setting}", multiple_of={lcm(multiple_of, parts)})',
            )

        report = report or _print_over
        try:
            return multiple_of * self._most(settings, setting, start, multiple_of, report)
        finally:
            report("")

    def _most(
        self, settings: Settings, setting: str, start: int, multiple_of: int, report: Callable[[str], object]
    ) -> int:
        name = self._oracle.subject.name

        def fits(count: int) -> bool:
            size = count * multiple_of
            ends = ((low, "fits"), (top, "does not"))
            limits = ", ".join(f"{end * multiple_of:,} {verb}" for end, verb in ends if end)
            report(f"{name} with {setting}={size:,}: compiling{f' ({limits})' if limits else ''}")
            inspection = self._oracle.traced({**settings, setting: size})[0]
            with self._oracle.context():
                memory = best_memory_of(inspection)
            if memory.fits is None:
                raise UnknownOptionError(
                    f"it is unknown whether {name!r} fits with {setting}={size}.",
                    (("because", "; ".join(memory.notes) or "the memory of its device is unknown"),),
                    'ml.what_if(inspection.on("v5e"))' if memory.capacity_bytes is None else "",
                )
            return memory.fits

        # `low` fits, or is 0; `top` does not, or is 0 if nothing is known to be too large.
        low, top, high = 0, 0, max(1, start // multiple_of)
        while fits(high):
            low, high = high, 2 * high
            if high * multiple_of > MOST_TRIED:
                raise UnknownOptionError(f"{name!r} fits with {setting}={low * multiple_of:,}, too.")
        top = high
        while top - low > 1:
            middle = (low + top) // 2
            low, top = (middle, top) if fits(middle) else (low, middle)
        return low

    def _parts(self, setting: str) -> int:
        """Return the least number of whose multiples the shardings of the arguments divide all arrays evenly."""
        subject, parts = self._oracle.subject, 1
        start = subject.base[setting]
        with self._oracle.context():
            programs = [subject.inspection({**subject.base, setting: size}) for size in (start, 2 * start)]
        for leaf, twice in zip(*(jax.tree.leaves(program.arguments) for program in programs), strict=False):
            sharding = getattr(leaf, "sharding", None)
            if not isinstance(sharding, NamedSharding):
                continue
            for size, other, names in zip(leaf.shape, getattr(twice, "shape", ()), sharding.spec, strict=False):
                # An array may have several rows for each unit of the setting.
                if isinstance(names, str | tuple) and size != other and size % start == 0:
                    count = prod(sharding.mesh.shape[name] for name in ([names] if isinstance(names, str) else names))
                    parts = lcm(parts, count // gcd(count, size // start))
        return parts

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until the preparation in the background is finished; return false if it takes longer than `timeout`.

        Args:
            timeout: Seconds to wait; by default without limit.
        """
        return self._queue.wait(timeout)

    def close(self) -> None:
        """Cancel the preparation in the background. The object can still be called."""
        self._queue.end()

    def _compiled(self, before: Settings, after: Settings) -> Future[Change]:
        key = key_of(after)
        # A change that is requested again shares its compilation.
        if key not in self._made:
            self._made[key] = Future(partial(_compiled, self._oracle, before, after), self._requests)
            if len(self._made) > MOST_KEPT:  # a `Change` keeps its own reference
                del self._made[next(iter(self._made))]
        return self._made[key]

    def _exact(self, before: Settings, after: Settings) -> Future[Change]:
        compiled = self._compiled(before, after)
        return Future(partial(_exactly, self._oracle, before, after, compiled), self._requests).start()

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"WhatIf({self._oracle.subject.name!r}: {settings})"


def what_if(
    target: Any,
    *args: Any,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    learns: bool | None = None,
    device: Any = None,
    **settings: Any,
) -> WhatIf:
    """Return an object that computes the costs of a program with other settings: `ml.what_if(make)(batch=64)`.

    Analytic costs are computed at once, costs of the compiled program in the background.

    `target` is one of two:

    - A function that makes the program. It takes settings by name, and returns a function and the tuple of its
      arguments (or their shapes), a model and the shapes of its inputs, or the result of `ml.inspect`.
    - A program: a function with its arguments, an `Inspection` or a model. The settings are `batch`, `dtype` and
      `precision`. A mithril_nb model also has `remat`, the sizes of the axes of its inputs (`"input.1"`), and the
      attributes of its blocks (`"linear_0.dimension"`).

    Args:
        target: A function that makes the program, or the program.
        *args: Arguments of the function or inputs of the model; none if `target` makes the program.
        shapes: Shapes of a model's inputs, instead of arguments.
        learns: True to learn rules for the costs in the background, as `WhatIf.ways` describes; false to
            trace always. By default, they are learned if the program takes long to trace.
        device: A device that this machine need not have, as in `ml.inspect`, for figures of the compiled program.
        **settings: Values that replace the defaults of `target`; for a program, other arguments of `ml.inspect`.

    Returns:
        A `WhatIf`: call it with other settings to get a `Change`.

    Raises:
        UnknownOptionError: A setting does not exist or has no value, an option is not valid, or settings to change are
            passed with a program: the returned object takes them.
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
    subject = subject_of(target, args, shapes, settings)
    subject.device = as_device(device)
    return WhatIf(subject, learns)


def subject_of(
    target: Any,
    args: tuple[Any, ...],
    shapes: Mapping[str, Sequence[Dim]] | None,
    settings: dict[str, Any],
    starts: Settings | None = None,
) -> VariableProgram:
    """Return the program with its settings; for a call of `ml.sweep`, `starts` has values of the swept settings."""
    # A `WhatIf` is callable, and would be taken for a function that makes a program.
    is_ours = type(target).__module__.startswith("mithril_nb.")  # such as a `WhatIf`, which is callable
    # A class would be called without arguments. Modules of Flax are callable and have `init`: they are programs.
    is_function = callable(target) and not isinstance(target, type) and not hasattr(target, "init") and not is_ours
    is_made = not args and shapes is None and is_function and not is_mithril_model(target)
    if not is_made and not isinstance(target, Inspection):
        _refuse_settings(target, {"shapes": shapes, **settings}, starts is not None)
        check_options(settings)
    if is_mithril_model(target):
        return MithrilModel(target, args, shapes, settings)
    if isinstance(target, Inspection):
        if args or settings:
            raise UnknownOptionError(
                f"program {target.name!r} is already an inspection; it takes no further arguments or options.",
                advice=f"ml.what_if(inspection)({_given(settings) or 'batch=64'})",
            )
        return FixedProgram(target)
    if is_made:
        return MadeProgram(target, settings, starts or {})
    return FixedProgram(inspect(target, *args, shapes=shapes, **settings))


def _refuse_settings(target: Any, options: Settings, is_swept: bool) -> None:
    names = (*COMMON_SETTINGS, "remat") if is_mithril_model(target) else COMMON_SETTINGS
    changed = {name: value for name, value in options.items() if name in names and has_argument(target, name) is False}
    if not changed:
        return
    facts = (("settings", ", ".join(names)),)
    advice = "ml.sweep varies them if they are lists" if is_swept else "pass them to the result of ml.what_if"
    raise UnknownOptionError(f"{_given(changed)} cannot be set with program {title_of(target)!r}: {advice}.", facts)


def _given(settings: Settings) -> str:
    return ", ".join(format_setting(name, value) for name, value in settings.items())


def _casts(cost: Cost) -> int:
    return sum(row.opcode == "convert_element_type" for row in cost.rows)


def _peaks(oracle: CostOracle, before: Settings, after: Settings) -> tuple[Peak, Peak]:
    # Both peaks come from the same source, so that they can be compared.
    with suppress(Exception):  # for a program that cannot be traced, the estimate has the reason
        programs = [oracle.traced(settings)[0] for settings in (before, after)]
        if all(
            len(inspection.equations) <= MOST_PLANNED for inspection in programs
        ):  # even if one of them is compiled already
            with oracle.context():
                first, second = map(peak_compiled, programs)
            if first.bytes is not None and second.bytes is not None:
                return first, second
    return peak(oracle, before), peak(oracle, after)


def peak(oracle: CostOracle, settings: Settings) -> Peak:
    """Estimate the peak memory of a program from its equations."""

    def estimate() -> Any:
        inspection = oracle.traced(settings)[0]
        if inspection.is_divided:
            raise StageUnavailableError(SHARDED)
        return memory_of(inspection, "analytic")

    return _as_peak(estimate)


def peak_compiled(inspection: Inspection) -> Peak:
    """Return the peak memory of a compiled program on one device."""
    return _as_peak(lambda: memory_of(inspection, "compiled"))


def _as_peak(memory: Callable[[], Any]) -> Peak:
    try:
        usage = memory()
    except Exception as error:  # an unknown peak must not prevent other costs
        return Peak(None, reason_of(error))
    reason = "; ".join(getattr(usage, "notes", ())) or "no reason given"
    return Peak(usage.peak_bytes, source=usage.source) if usage.peak_bytes is not None else Peak(None, reason)


def reason_of(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, MithrilError):
        first = error.diagnostics[0]
        return f"{first.summary} {first.shortened().facts[0][1]}" if first.facts else first.summary
    failure = failure_of(error)
    return f"{failure.kind}: {failure.message}".splitlines()[0]


def _compiled(oracle: CostOracle, before: Settings, after: Settings) -> Change:
    inspections = [oracle.traced(settings)[0] for settings in (before, after)]
    for inspection in inspections:
        inspection.want(machine_code=False)  # so that XLA writes its memory plan
    with oracle.context():
        costs = [inspection.cost("compiled") for inspection in inspections]
    first, second = map(peak_compiled, inspections)
    peaks = Future.of((first, second))
    return Change(oracle.subject.name, _changed(before, after), costs[0], costs[1], COMPILED, (), peaks)


def _exactly(oracle: CostOracle, before: Settings, after: Settings, compiled: Future[Change]) -> Change:
    costs = [oracle.traced(settings)[1] for settings in (before, after)]
    peaks = Future(partial(_peaks, oracle, before, after), quiet_queue())
    return Change(oracle.subject.name, _changed(before, after), costs[0], costs[1], TRACED, (), peaks, compiled)


def _changed(before: Settings, after: Settings) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), value)
        for name, value in after.items()
        if key_of({name: value}) != key_of({name: before.get(name)})
    }
