"""What is looked at: from a function that makes a program, or from a program, to the same with other settings."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import jax

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.stages import Inspection
from mithril_nb.targets import inspect
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.own import is_own
from mithril_nb.whatif.arguments import Batch, batch_of, cast, common_dtype, resized
from mithril_nb.whatif.settings import NOT_SWEPT, PRECISIONS, Settings, as_written, checked, told

OUTSIDE = ("dtype", "precision")
"""Settings that every program has: they are changed from outside of it."""
OF_ANY = ("batch", *OUTSIDE)
"""Settings that a program as it stands has."""
_CASTS = "what goes into it is another, and what it casts to by itself stays; "


class Subject(Protocol):
    """A program for any settings.

    Attributes:
        name: What to call it.
        base: The settings that it is looked at with first.
        makes: Whether the settings go to a person's own function, which may take whole numbers in symbols.
        casts: Why it may cast more in another dtype.
    """

    name: str
    base: dict[str, Any]
    makes: bool
    casts: str

    def settled(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings, some of them changed.

        Args:
            changes: Those that are to be others.
            swept: The values that a sweep was given for them.

        Raises:
            UnknownOptionError: A setting that there is not, or a value that does not fit.
        """
        ...

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings; nothing of it is made.

        Raises:
            Exception: What a person's own function raised.
        """
        ...


class Made:
    """What a function makes of settings.

    Args:
        make: Takes settings by name; gives a function and its arguments, a model and the shapes of its inputs, or an
            `Inspection`.
        given: Settings that are to be others than the function's own defaults.
        starts: Settings that vary: what the function has no default for begins with these.
    """

    makes = True
    casts = f'{_CASTS}with make(dtype="float32") it is made anew'

    def __init__(self, make: Callable[..., Any], given: Settings, starts: Settings = NOT_SWEPT):
        self.name = title_of(make)
        self._make = make
        defaults, self._takes_any = _defaults(make)
        defaults |= {name: starts[name] for name, value in defaults.items() if value is _NONE and name in starts}
        self._own = frozenset(defaults)
        for name, value in given.items():
            if name not in defaults and name not in OUTSIDE and not self._takes_any:
                checked({key: value for key, value in defaults.items()}, {name: value}, f"{self.name}()")
        missing = [name for name, value in defaults.items() if value is _NONE and name not in given]
        if missing:
            raise UnknownOptionError(
                f"{self.name}() needs a value for {', '.join(map(repr, missing))}.",
                (("settings", ", ".join(defaults)),),
                f"ml.what_if({self.name}, {', '.join(f'{name}=...' for name in missing)})  # or, if it is the program, "
                f"ml.what_if({self.name}, {', '.join(missing)})(batch=64)",
            )
        self.base: dict[str, Any] = {**{name: value for name, value in defaults.items() if value is not _NONE}, **given}

    def settled(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings, some of them changed."""
        around = {name: value for name, value in changes.items() if name in OUTSIDE and name not in self.base}
        own = {name: value for name, value in changes.items() if name not in around}
        check_outside(around, swept)
        _check_width(around.get("dtype"))
        return {**checked(self.base, own, f"{self.name}()", self._takes_any, swept=swept), **around}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings; nothing of it is made."""
        takes = self._own | (set(settings) - set(OUTSIDE) if self._takes_any else frozenset[str]())
        around = {name: value for name, value in settings.items() if name not in takes}
        own = {name: value for name, value in settings.items() if name in takes}
        return outside(lambda: self._inspected(self._make(**own)), around)

    def _inspected(self, made: Any) -> Inspection:
        if isinstance(made, Inspection):
            return made
        if isinstance(made, tuple) and len(made) > 1:  # pyright: ignore[reportUnknownArgumentType]
            target, *given = made  # pyright: ignore[reportUnknownVariableType]
            if is_own(target) and len(given) == 1 and isinstance(given[0], Mapping):
                return inspect(target, shapes=given[0])  # pyright: ignore[reportUnknownArgumentType]
            if callable(target) or is_own(target):
                is_whole = len(given) == 1 and isinstance(given[0], tuple)
                args: tuple[Any, ...] = given[0] if is_whole else tuple(given)
                return inspect(target, *args)
        raise UnknownOptionError(
            f"{self.name}() must give a function and its arguments, and gave {short_repr(made, 60)}.",
            (("or", "a model and the shapes of its inputs, or what ml.inspect gives"),),
            "return step, (jax.ShapeDtypeStruct((batch, 784), 'float32'),)",
        )


class Fixed:
    """A program as it stands: its batch, its dtype and its precision may be others.

    Args:
        inspection: The program.
    """

    makes = False
    casts = f'{_CASTS}ml.what_if(model, ...), or ml.what_if(make) with make(dtype="float32"), makes it anew'

    def __init__(self, inspection: Inspection):
        self.name = inspection.name
        self._inspection = inspection
        self._batch: Batch | None = None
        self.base: dict[str, Any] = {}
        dtype = common_dtype(inspection.arguments)
        if dtype is not None:
            self.base["dtype"] = dtype

    def settled(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings, some of them changed."""
        if "remat" in changes:
            raise UnknownOptionError(
                f"{self.name!r} is a whole program: what it saves for its gradient cannot be changed from outside.",
                (("settings", "batch, dtype, precision"),),
                "ml.what_if(make)  # make(remat=False) returns a step, whose loss is jax.checkpoint(loss) with it",
            )
        known = {"batch": None, "dtype": None, "precision": None, **self.base}
        if "batch" in changes and self._batch is None:
            self._batch = batch_of(self._inspection)
            self.base["batch"] = self._batch.size
        known |= self.base
        check_outside({name: value for name, value in changes.items() if name in OUTSIDE}, swept)
        _check_width(changes.get("dtype"))
        settings = checked(known, changes, repr(self.name), is_made=False, swept=swept)
        return {name: value for name, value in settings.items() if name in self.base or name in changes}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings; nothing of it is made."""
        made = self._inspection
        size, batch = settings.get("batch"), self._batch
        if size is not None and batch is not None and size != batch.size:
            made = made.altered(lambda args: resized(args, batch, size))
        changed = {name: settings.get(name) for name in OUTSIDE if settings.get(name) != self.base.get(name)}
        return outside(lambda: made, changed)


_NONE: Any = object()


def _defaults(make: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """Return the settings that a function takes, with their defaults, and whether it takes any others."""
    try:
        parameters = python_inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return {}, True
    by_name = {python_inspect.Parameter.POSITIONAL_OR_KEYWORD, python_inspect.Parameter.KEYWORD_ONLY}
    defaults = {
        one.name: _NONE if one.default is one.empty else one.default for one in parameters if one.kind in by_name
    }
    return defaults, any(one.kind is one.VAR_KEYWORD for one in parameters)


def check_outside(settings: Settings, swept: Settings = NOT_SWEPT) -> None:
    """Raise if a dtype or a precision is none.

    Args:
        settings: The settings.
        swept: The values that a sweep was given for them.

    Raises:
        UnknownOptionError: There is no such dtype of numbers with a fraction, or no such precision.
    """
    precision, dtype = settings.get("precision"), settings.get("dtype")
    if precision is not None and precision not in PRECISIONS:
        raise UnknownOptionError(
            f"unknown precision {short_repr(precision, 40)}.",
            (("known", ", ".join(PRECISIONS)),),
            as_written("precision", ("default", "highest"), "precision" in swept),
        )
    if dtype is not None and not _is_float(dtype):
        raise UnknownOptionError(
            f"arrays of numbers with a fraction cannot become {told(dtype)!r}.",
            (("known", "float16, bfloat16, float32, float64"),),
            as_written("dtype", ("float32", "bfloat16"), "dtype" in swept),
        )


def _check_width(dtype: Any) -> None:
    """Raise if JAX would take another dtype in its place without a word: the costs would be those of that one."""
    if dtype is not None and jax.dtypes.canonicalize_dtype(dtype) != jax.numpy.dtype(dtype):
        raise UnknownOptionError(
            f"JAX makes no arrays of {told(dtype)} unless it is told to.",
            (("because", "it computes with 32 bits by default, and would cut these off"),),
            'jax.config.update("jax_enable_x64", True)  # before arrays are created; else dtype="float32"',
        )


def _is_float(dtype: Any) -> bool:
    if hasattr(dtype, "shape") and not isinstance(dtype, jax.numpy.dtype | type):
        return False  # an array has a dtype, and is none
    try:
        return bool(jax.numpy.issubdtype(jax.numpy.dtype(dtype), jax.numpy.floating))
    except (TypeError, ValueError):
        return False


def outside(make: Callable[[], Inspection], settings: Settings) -> Inspection:
    """Return a program in another precision, and with its arrays of numbers with a fraction in another dtype.

    Args:
        make: Makes the program as it is.
        settings: `dtype` and `precision`; `None`, or nothing, leaves it as it is.
    """
    dtype, precision = settings.get("dtype"), settings.get("precision")
    with nullcontext() if precision is None else jax.default_matmul_precision(precision):
        made = make()
        return made if dtype is None and precision is None else made.altered(lambda args: _cast(args, dtype))


def _cast(args: Any, dtype: Any) -> Any:
    return args if dtype is None else cast(args, dtype)
