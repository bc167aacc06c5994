"""Programs with settings: a function that makes a program, or a program whose arguments can be changed."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from mithril_nb.analysis.whatif.settings import NOT_SWEPT, PRECISIONS, Settings, checked, format_setting, format_value
from mithril_nb.errors import ShapeError, UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.targets import inspect
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.mithril_models import is_mithril_model

NUMERICS = ("dtype", "precision")
"""Settings of numbers that every program has: they change its arguments and the context of its trace."""
COMMON_SETTINGS = ("batch", *NUMERICS)
"""Settings of a program that is not made by a function."""
_CASTS = "only its inputs have the new dtype, and the casts inside it are unchanged; "


class Subject(Protocol):
    """A program that can be built with different settings, such as its batch size or dtype.

    Attributes:
        name: Display name of the program.
        base: The initial settings.
        makes: True if the settings are passed to a user's function that makes the program.
        casts: Text for a note: the reason why another `dtype` can add casts to the program.
    """

    name: str
    base: dict[str, Any]
    makes: bool
    casts: str

    def with_changes(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings with the changes applied.

        Args:
            changes: The new values.
            swept: For a call of `ml.sweep`, the values of each swept setting, for errors.

        Raises:
            UnknownOptionError: A setting does not exist, or a value is not valid.
        """
        ...

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage.

        Raises:
            Exception: The error that the user's function raised.
        """
        ...


class MadeProgram:
    """A program made by a user's function of settings.

    Args:
        make: The function. It takes settings by name, and returns a function and its arguments, a model and the shapes
            of its inputs, or an `Inspection`.
        settings: Settings that replace the defaults of `make`.
        starts: For a call of `ml.sweep`, initial values of swept settings that have no default.

    Raises:
        UnknownOptionError: `settings` contains a setting that `make` does not have, or a setting has no value.
    """

    makes = True
    casts = f'{_CASTS}make(dtype="float32") can build it in the new dtype'

    def __init__(self, make: Callable[..., Any], settings: Settings, starts: Settings = NOT_SWEPT):
        self.name = title_of(make)
        self._make = make
        defaults, self._takes_any = _defaults(make)
        defaults |= {name: starts[name] for name, value in defaults.items() if value is _NONE and name in starts}
        self._own = frozenset(defaults)
        for name, value in settings.items():
            if name not in defaults and name not in NUMERICS and not self._takes_any:
                checked(defaults, {name: value}, f"{self.name}()")
        missing = [name for name, value in defaults.items() if value is _NONE and name not in settings]
        if missing:
            raise UnknownOptionError(
                f"{self.name}() needs a value for {', '.join(map(repr, missing))}.",
                (("settings", ", ".join(defaults)),),
                f"ml.what_if({self.name}, {', '.join(f'{name}=...' for name in missing)})  # or, if {self.name}() is "
                f"the program itself, ml.what_if({self.name}, {', '.join(missing)})(batch=64)",
            )
        self.base: dict[str, Any] = {
            **{name: value for name, value in defaults.items() if value is not _NONE},
            **settings,
        }

    def with_changes(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        around = {name: value for name, value in changes.items() if name in NUMERICS and name not in self.base}
        own = {name: value for name, value in changes.items() if name not in around}
        check_numerics(around, swept)
        _check_width(around.get("dtype"))
        return {**checked(self.base, own, f"{self.name}()", self._takes_any, swept=swept), **around}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        takes = self._own | (set(settings) - set(NUMERICS) if self._takes_any else frozenset[str]())
        around = {name: value for name, value in settings.items() if name not in takes}
        own = {name: value for name, value in settings.items() if name in takes}
        return with_numerics(lambda: self._inspected(self._make(**own)), around)

    def _inspected(self, result: Any) -> Inspection:
        if isinstance(result, Inspection):
            return result
        if isinstance(result, tuple) and len(result) > 1:  # pyright: ignore[reportUnknownArgumentType]
            target, *rest = result  # pyright: ignore[reportUnknownVariableType]
            if is_mithril_model(target) and len(rest) == 1 and isinstance(rest[0], Mapping):
                return inspect(target, shapes=rest[0])  # pyright: ignore[reportUnknownArgumentType]
            if callable(target) or is_mithril_model(target):
                is_whole = len(rest) == 1 and isinstance(rest[0], tuple)
                args: tuple[Any, ...] = rest[0] if is_whole else tuple(rest)
                return inspect(target, *args)
        raise UnknownOptionError(
            f"{self.name}() must return a function and its arguments, got {short_repr(result, 60)}.",
            (("or", "a model and the shapes of its inputs, or the result of ml.inspect"),),
            "return step, (jax.ShapeDtypeStruct((batch, 784), 'float32'),)",
        )


class FixedProgram:
    """A program that is not made by a function: its batch, dtype and precision can change."""

    makes = False
    casts = f'{_CASTS}ml.what_if(model, ...), or ml.what_if(make) with make(dtype="float32"), rebuilds it'

    def __init__(self, inspection: Inspection):
        self.name = inspection.name
        self._inspection = inspection
        self._batch: Batch | None = None
        self.base: dict[str, Any] = {}
        dtype = common_dtype(inspection.arguments)
        if dtype is not None:
            self.base["dtype"] = dtype

    def with_changes(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        if "remat" in changes:
            raise UnknownOptionError(
                f"cannot set remat of program {self.name!r}: only a model has this setting.",
                (("settings", "batch, dtype, precision"),),
                "ml.what_if(make)(remat=True)  # make(remat) calls jax.checkpoint if remat is true",
            )
        available = {"batch": None, "dtype": None, "precision": None, **self.base}
        if "batch" in changes and self._batch is None:
            self._batch = batch_of(self._inspection)
            self.base["batch"] = self._batch.size
        available |= self.base
        check_numerics({name: value for name, value in changes.items() if name in NUMERICS}, swept)
        _check_width(changes.get("dtype"))
        settings = checked(available, changes, repr(self.name), is_made=False, swept=swept)
        return {name: value for name, value in settings.items() if name in self.base or name in changes}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        inspection = self._inspection
        size, batch = settings.get("batch"), self._batch
        if size is not None and batch is not None and size != batch.size:
            inspection = inspection.altered(lambda args: resized(args, batch, size))
        changed = {name: settings.get(name) for name in NUMERICS if settings.get(name) != self.base.get(name)}
        return with_numerics(lambda: inspection, changed)


_NONE: Any = object()


def _defaults(make: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Return the settings of a function with their defaults (`_NONE` for none), and whether it accepts any others."""
    try:
        parameters = python_inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return {}, True
    by_name = {python_inspect.Parameter.POSITIONAL_OR_KEYWORD, python_inspect.Parameter.KEYWORD_ONLY}
    defaults = {
        parameter.name: _NONE if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
        if parameter.kind in by_name
    }
    return defaults, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def check_numerics(settings: Settings, swept: Settings = NOT_SWEPT) -> None:
    """Raise if the setting `dtype` or `precision` is not valid.

    Args:
        settings: The settings. Settings with other names are ignored.
        swept: For a call of `ml.sweep`, the values of each swept setting, for errors.

    Raises:
        UnknownOptionError: `dtype` is not a floating-point dtype, or `precision` is unknown.
    """
    precision, dtype = settings.get("precision"), settings.get("dtype")
    if precision is not None and precision not in PRECISIONS:
        raise UnknownOptionError(
            f"unknown precision {short_repr(precision, 40)}.",
            (("known", ", ".join(PRECISIONS)),),
            format_setting("precision", ("default", "highest"), "precision" in swept),
        )
    if dtype is not None and not _is_float(dtype):
        raise UnknownOptionError(
            f"floating-point arrays cannot be cast to {format_value(dtype)!r}.",
            (("known", "float16, bfloat16, float32, float64"),),
            format_setting("dtype", ("float32", "bfloat16"), "dtype" in swept),
        )


def _check_width(dtype: Any) -> None:
    """Raise `UnknownOptionError` if JAX would silently use a narrower dtype instead, with other costs."""
    if dtype is not None and jax.dtypes.canonicalize_dtype(dtype) != jax.numpy.dtype(dtype):
        raise UnknownOptionError(
            f"JAX creates no {format_value(dtype)} arrays by default.",
            (("because", "jax_enable_x64 is off, so JAX would truncate them to 32 bits"),),
            'jax.config.update("jax_enable_x64", True)  # before arrays are created; else dtype="float32"',
        )


def _is_float(dtype: Any) -> bool:
    if hasattr(dtype, "shape") and not isinstance(dtype, jax.numpy.dtype | type):
        return False  # an array has a dtype, but is not one
    try:
        return bool(jax.numpy.issubdtype(jax.numpy.dtype(dtype), jax.numpy.floating))
    except (TypeError, ValueError):
        return False


def with_numerics(make: Callable[[], Inspection], settings: Settings) -> Inspection:
    """Make a program with another precision, and with its floating-point arguments in another dtype.

    Args:
        make: Function that makes the program.
        settings: The settings `precision` and `dtype`. A setting that is missing or `None` changes nothing.
    """
    dtype, precision = settings.get("dtype"), settings.get("precision")
    with nullcontext() if precision is None else jax.default_matmul_precision(precision):
        inspection = make()
        if dtype is None and precision is None:
            return inspection
        return inspection.altered(lambda args: args if dtype is None else cast(args, dtype))


@dataclass(frozen=True)
class Batch:
    """The arrays of a program that have one row per sample.

    Attributes:
        size: Number of samples.
        leaves: Indices of the arrays among the leaves of the arguments.
    """

    size: int
    leaves: frozenset[int]


def common_dtype(args: Any) -> str | None:
    """Return the dtype of all floating-point arrays in `args`; `None` if there are none, or if dtypes differ."""
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(args) if _is_floating(leaf)}
    return dtypes.pop() if len(dtypes) == 1 else None


def cast(args: Any, dtype: Any) -> Any:
    """Return the arguments with all floating-point arrays in another dtype."""
    return jax.tree.map(
        lambda leaf: _spec(leaf, leaf.shape, jax.numpy.dtype(dtype)) if _is_floating(leaf) else leaf, args
    )


def resized(args: Any, batch: Batch, size: Any) -> Any:
    """Return the arguments for another number of samples, which may be a symbol."""
    leaves, structure = jax.tree.flatten(args)
    return structure.unflatten(
        [
            _spec(leaf, (size, *leaf.shape[1:]), leaf.dtype) if index in batch.leaves else leaf
            for index, leaf in enumerate(leaves)
        ]
    )


def batch_of(inspection: Inspection) -> Batch:
    """Return the number of samples of a program, and its arrays with one row per sample.

    A size is a candidate if it is the first dim of all arrays of an argument. Of several candidates, the batch is the
    one that can change while all other sizes stay: for each candidate, the program is traced with one more sample. The
    first dim of a weight cannot change in this way, because the other arrays would no longer fit.

    Raises:
        ShapeError: There is no candidate, or not exactly one of several candidates can change.
    """
    candidates = _candidates(inspection.arguments)
    fitting = [batch for batch in candidates if _is_free(inspection, batch)] if len(candidates) > 1 else candidates
    if len(fitting) == 1:
        return fitting[0]
    leaves = inspection.inputs
    facts = [
        (
            f"first dim {batch.size}",
            ", ".join(f"{leaves[index].name} {leaves[index].spec}" for index in sorted(batch.leaves)),
        )
        for batch in fitting or candidates
    ]
    raise ShapeError(
        f"cannot determine the batch of {inspection.name!r}: "
        + (
            "several first dims are possible."
            if fitting
            else "none of these first dims can vary."
            if candidates
            else "each argument is scalar, or has arrays with different first dims."
        ),
        tuple(facts),
        "ml.what_if(make)  # make(batch=32) returns the function and the shapes of its arguments",
    )


def _candidates(args: tuple[Any, ...]) -> list[Batch]:
    groups: dict[int, set[int]] = {}
    start = 0
    for arg in args:
        leaves = jax.tree.leaves(arg)
        arrays = [index for index, leaf in enumerate(leaves, start) if len(getattr(leaf, "shape", ())) > 0]
        sizes = {leaves[index - start].shape[0] for index in arrays}
        if len(sizes) == 1:
            groups.setdefault(sizes.pop(), set()).update(arrays)
        start += len(leaves)
    return [Batch(size, frozenset(indices)) for size, indices in groups.items()]


def _is_free(inspection: Inspection, batch: Batch) -> bool:
    """Return whether the program can be traced with one more sample in the arrays of `batch`, and no other change."""
    other = inspection.altered(lambda args: resized(args, batch, batch.size + 1))
    return other.stage("jaxpr").unavailable is None


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def _spec(leaf: Any, shape: tuple[Any, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array, with its sharding if it has one."""
    sharding, is_weak = getattr(leaf, "sharding", None), bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=is_weak)
