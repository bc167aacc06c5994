"""The arguments of a call: traced ones, as for `jax.jit`, and static ones; and the arrays among its results."""

from __future__ import annotations

import functools
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType, MethodType
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import (
    MithrilError,
    ShapeError,
    StageUnavailableError,
    UnexpectedInputError,
    UnknownOptionError,
    short_repr,
)
from mithril_nb.targets.module_scopes import is_machinery, is_module

NUMBERS = (bool, int, float, complex)
"""Python's types of numbers."""
_RESULTS = (jax.Array, np.generic, *NUMBERS)


def check_sizes(arguments: Mapping[str, Any], title: str) -> None:
    """Raise if a size in a shape is text, a float or `None`, because JAX's error does not name the sizes it accepts."""
    for name, value in arguments.items():
        for leaf in jax.tree.leaves(value):
            if isinstance(leaf, jax.ShapeDtypeStruct) and not all(
                isinstance(dim, int | np.integer) or jax.export.is_symbolic_dim(dim) for dim in leaf.shape
            ):
                raise ShapeError(
                    f"the argument {name!r} of {title!r} has a size that is not a whole number.",
                    (
                        ("shape", str(leaf.shape)),
                        ("needs", "whole numbers, or names from one call of jax.export.symbolic_shape"),
                    ),
                )


def is_result(leaf: Any) -> bool:
    """Return whether a leaf is an array or a number, which a program can return."""
    return leaf.dtype.kind in "biufcV" if isinstance(leaf, np.ndarray) else isinstance(leaf, _RESULTS)


def results_of(out: Any) -> Any:
    """Return the result of a function with `None` in place of leaves that are neither arrays nor numbers."""
    return jax.tree.map(lambda leaf: leaf if is_result(leaf) else None, out)


def checked_result(out: Any, title: str) -> Any:
    """Return the result of a function unchanged, if a program can return it."""
    # JAX's own error for a generator names its type, but not the function.
    leaves: list[Any] = jax.tree.leaves(out, is_leaf=_is_iterator)
    if any(map(_is_iterator, leaves)):
        raise StageUnavailableError(f"{title!r} returns an iterator, which JAX cannot trace.")
    if leaves and not any(map(is_result, leaves)):
        advice = "return x  # an array, or a tuple, list or dict of arrays"
        raise StageUnavailableError(f"{title!r} returns no array.", (("returned", type(out).__name__),), advice)
    return out


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator)


try:  # private, but needed to separate the XLA options of a jitted function from it
    from jax._src.pjit import _cpp_pjit as _jit
except ImportError:  # pragma: no cover
    _jit = None

_NAMELESS = "<unnamed function>"
"""`__name__` of a jitted object without a name, such as a partial."""
_NONE: Mapping[str, Any] = MappingProxyType({})


class Arguments:
    """The arguments of one call, divided into traced and static leaves.

    - Traced: arrays, `jax.ShapeDtypeStruct`s, and Python numbers, which become weakly typed arrays.
    - Static: values that `jax.jit` rejects, such as text, functions and config objects; and numbers in modules of Flax,
      Equinox and Haiku, as in `eqx.filter_jit`.

    Attributes:
        all_names: Unique names of all arguments. Keyword arguments keep their names.
        values: All arguments, keyword arguments last.
        by_name: All arguments by name.
        names: Names of the arguments that contain traced leaves.
        traced: The arguments in `names`, with `None` in place of each static leaf.
        static: Names of the arguments that are static with all leaves, because of the argument `static` or of the
            function's `jax.jit`.
        has_clash: True if a positional-only argument and a keyword argument have the same name.

    Examples:
        >>> arguments = Arguments(jax.numpy.sum, (jax.ShapeDtypeStruct((3,), "float32"),), {"axis": 0}, static={"axis"})
        >>> arguments.names, arguments.with_traced(*arguments.traced)[1]
        (('a',), {'axis': 0})
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        apart: frozenset[str] = frozenset(),
        static: Collection[int | str] = frozenset(),
        are_numbers_static: bool = False,
    ):
        # Sorted, as the inputs of a jitted function are: JAX sorts the keys of a dict, also of the keyword arguments.
        self.fn, self._keywords, self._title = fn, tuple(sorted(kwargs)), title_of(fn)
        # Keyword arguments come first, so that they keep their names: in `def f(*x, x_0)`, the first of `x` is `x_0_`.
        names = _unique((*self._keywords, *argument_names(fn, args)))
        self.all_names = (*names[len(kwargs) :], *names[: len(kwargs)])
        parameters = _parameters(fn)
        positional_only = inspect.Parameter.POSITIONAL_ONLY
        self.has_clash = any(parameters[name].kind is positional_only for name in parameters.keys() & kwargs)
        self.values = (*args, *(kwargs[name] for name in self._keywords))
        self.by_name = dict(zip(self.all_names, self.values, strict=True))
        check_sizes(self.by_name, self._title)
        self._keys = (*range(len(args)), *self._keywords)
        static = {*static, *static_of_jit(fn, len(args))}
        self.static = {name for key, name in zip(self._keys, self.all_names, strict=True) if key in static}
        are_numbers_static |= is_machinery(type(fn)) and hasattr(fn, "lower")  # `eqx.filter_jit`
        # The arguments named in `apart` are neither traced nor static: the caller passes them to `with_traced`.
        self._parts = [
            None if name in apart else _Part.of(value, name in self.static, are_numbers_static, is_jitted(fn))
            for name, value in self.by_name.items()
        ]
        with_arrays = [
            (name, part) for name, part in zip(self.all_names, self._parts, strict=True) if part and part.arrays
        ]
        self.names = tuple(name for name, _ in with_arrays)
        self.traced = tuple(part.with_traced(part.arrays, keeps_static=False) for _, part in with_arrays)

    def with_traced(self, *traced: Any, apart: Mapping[str, Any] = _NONE) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of the call, with `traced` in place of the traced leaves."""
        by_name = dict(zip(self.names, traced, strict=True))
        return self._call(
            [
                apart[name] if part is None else part.with_traced(by_name.get(name))
                for name, part in zip(self.all_names, self._parts, strict=True)
            ]
        )

    def _call(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = len(values) - len(self._keywords)
        return tuple(values[:count]), dict(zip(self._keywords, values[count:], strict=True))

    def calling(self, *traced: Any) -> Any:
        """Call the function, without its `jax.jit`, with `traced` in place of the traced leaves."""
        args, kwargs = self.with_traced(*traced)
        fn: Any = self.fn.__wrapped__ if is_jitted(self.fn) else self.fn
        with self.explained():
            return checked_result(fn(*args, **kwargs), self._title)

    def trace(self, *traced: Any) -> jax.stages.Traced:
        """Trace the function with its argument names, and with the shardings and donation of its `jax.jit`."""
        fn: Any = self.fn
        if is_jitted(fn):
            args, kwargs = self.with_traced(*traced)
            with self.explained():
                return fn.trace(*args, **kwargs)

        # Without the `__dict__`, which for a callable object holds its attributes.
        @functools.wraps(fn, updated=())
        def function(*args: Any, **kwargs: Any) -> Any:
            values = (*args, *(kwargs[name] for name in self._keywords))
            args, kwargs = self._call([part.with_traced(value) for part, value in zip(parts, values, strict=True)])
            return results_of(checked_result(fn(*args, **kwargs), self._title))

        function.__name__ = self._title
        parts = [part for part in self._parts if part is not None]
        by_name = dict(zip(self.names, traced, strict=True))
        args, kwargs = self._call([by_name.get(name) for name in self.all_names])
        # An argument without traced leaves is static, so that it is not an argument of the compiled program.
        static = [key for key, part in zip(self._keys, parts, strict=True) if part.static and not part.arrays]
        numbers = [key for key in static if isinstance(key, int)]
        names = [key for key in static if isinstance(key, str)]
        with self.explained():
            return jax.jit(function, static_argnums=numbers, static_argnames=names).trace(*args, **kwargs)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Name the arguments in an error about the value of a number, or about text or sizes in place of an array."""
        try:
            yield
        except MithrilError:
            raise
        except Exception as error:
            explanation = self._explanation(error)
            if explanation is None:
                raise
            raise explanation.with_traceback(error.__traceback__) from error  # points to the line of the user's Python

    def _explanation(self, error: Exception) -> StageUnavailableError | None:
        text = str(error).partition("\n")[0]
        because = ("because", f"{type(error).__name__}: {text}")
        # JAX has no common class for errors about values: some are a plain TypeError or IndexError.
        is_about_value = isinstance(error, TypeError | IndexError) and re.search("[Tt]race[rd]|static|concrete", text)
        if is_about_value or isinstance(error, OverflowError):  # of a number that does not fit into int32
            names = [
                name for name, part in zip(self.all_names, self._parts, strict=True) if part and part.has_numbers()
            ]
            names.sort(key=lambda name: isinstance(self.by_name[name], float))  # an axis or a count first
            if names:
                return StageUnavailableError(
                    f"{self._title!r} needs the value of a number, which jax.jit traces as an array without a value.",
                    (("given", ", ".join(f"{name}={format_argument(self.by_name[name])}" for name in names)), because),
                    f'static_argnames="{names[0]}"',
                )
        elif re.search(r"\b(str|tuple|list)\b", text):
            return self.no_array(because)
        return None

    def no_array(self, because: tuple[str, str]) -> StageUnavailableError | None:
        """Return the error for text or sizes in place of an array; `None` without such an argument."""
        for name, value in self.by_name.items():
            leaves = () if name in self.static or isinstance(value, NUMBERS) else jax.tree.leaves(value)
            if any(isinstance(leaf, str | int) for leaf in leaves):
                return StageUnavailableError(
                    f"the argument {name!r} of {self._title!r} is not an array.",
                    (("given", short_repr(value)), because),
                    'jax.ShapeDtypeStruct((4, 64), "float32")',
                )
        return None


@dataclass(frozen=True)
class _Part:
    structure: Any
    arrays: list[Any]
    static: list[Any]  # all leaves of the argument, with `None` in place of the traced ones

    @classmethod
    def of(cls, value: Any, is_static: bool, are_numbers_static: bool, is_jitted: bool) -> _Part:
        leaves, structure = jax.tree.flatten(value)
        traced = [
            not is_static
            and (
                leaf.dtype.kind in "biufcV"  # not text, dates and objects
                if isinstance(leaf, np.ndarray | np.generic)
                else isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, *NUMBERS))
            )
            for leaf in leaves
        ]
        # In a call of a jitted function, JAX decides, and traces numbers in modules as well.
        if not is_jitted and any(isinstance(leaf, NUMBERS) for leaf in leaves):
            inside = [True] * len(leaves)
            if not are_numbers_static:
                marked = jax.tree.map(
                    lambda node: jax.tree.map(lambda _: True, node) if is_module(node) else False,
                    value,
                    is_leaf=is_module,
                )
                inside = jax.tree.leaves(marked)
            traced = [
                is_traced and not (is_inside and isinstance(leaf, NUMBERS))
                for is_traced, is_inside, leaf in zip(traced, inside, leaves, strict=True)
            ]
        return cls(
            structure,
            [_spec(leaf) for leaf, is_traced in zip(leaves, traced, strict=True) if is_traced],
            [None if is_traced else leaf for leaf, is_traced in zip(leaves, traced, strict=True)],
        )

    def has_numbers(self) -> bool:
        return any(isinstance(leaf, NUMBERS) for leaf in self.arrays)

    def with_traced(self, traced: Any, keeps_static: bool = True) -> Any:
        arrays = iter(jax.tree.leaves(traced))
        return self.structure.unflatten(
            [next(arrays) if leaf is None else leaf if keeps_static else None for leaf in self.static]
        )


def _spec(leaf: Any) -> Any:
    # A spec instead of a NumPy array, so that its memory can be freed.
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def named(
    program: Callable[..., Any], names: Sequence[str], title: str, fn: Any = None, trace: Any = None
) -> Callable[..., Any]:
    """Return a program as a function with the name `title` and the parameters `names`, made identifiers.

    Leaves of its result that are neither arrays nor numbers become `None`, such as the functions in an Equinox module.
    """

    def call(*args: Any) -> Any:
        return results_of(program(*args))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__dict__["__signature__"] = inspect.Signature(
        [inspect.Parameter(name, kind) for name in _unique([_identifier(name) for name in names])]
    )
    if fn is not None:  # the user's function, after which the stages name blocks
        call.__dict__["__wrapped__"] = fn
    if trace is not None:  # the stages call this instead of `jax.jit(call).trace`
        call.__dict__["trace"] = trace
    call.__name__ = call.__qualname__ = title
    return call


def names_of(program: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of a function that `named` returned."""
    return tuple(inspect.signature(program).parameters)


def accepts_keyword(fn: Any, count: int, name: str) -> bool | None:
    """Return whether `fn` accepts the keyword `name` after `count` positional arguments; `None` for `**kwargs`."""
    kinds = {parameter.name: parameter.kind for parameter in _parameters(fn).values()}
    if kinds.get(name) is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return [*kinds].index(name) >= count
    if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY:
        return True
    return None if inspect.Parameter.VAR_KEYWORD in kinds.values() else False


def check_call(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], title: str) -> None:
    """Raise if the signature of a function does not accept these arguments."""
    signature = signature_of(fn)
    try:
        if signature is not None:
            signature.bind(*args, **kwargs)
    except TypeError as error:
        texts = [*map(format_argument, args), *(f"{name}={format_argument(value)}" for name, value in kwargs.items())]
        raise UnexpectedInputError(
            f"cannot inspect {title!r} with these arguments: {error}.",
            (("takes", str(signature)), ("given", ", ".join(texts) or "nothing")),
        ) from None


class _ArrayText(str):
    __repr__ = str.__str__  # without quotes


def format_argument(value: Any) -> str:
    """Return an argument as short text. An array is its dtype and shape: `"float32[3, 2]"`."""

    def text(leaf: Any) -> Any:
        shape = getattr(leaf, "shape", None)
        return leaf if shape is None else _ArrayText(f"{getattr(leaf, 'dtype', '')}{list(shape)}")

    try:
        short = jax.tree.map(text, value)
    except (TypeError, ValueError):  # a dict whose keys JAX cannot sort
        short = value
    return " ".join(short_repr(short, 40).split())


def static_arguments(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], static_argnums: Any, static_argnames: Any
) -> frozenset[int | str]:
    """Return the positions and names of the static arguments, from options as in `jax.jit`.

    Examples:
        >>> static = static_arguments(lambda x, axis: x, (1, 2), {}, None, "axis")
        >>> sorted(static, key=str)
        [1, 'axis']
    """
    if static_argnums is None and static_argnames is None:
        return frozenset()
    title = title_of(fn)
    if is_jitted(getattr(fn, "__func__", fn)):
        raise UnknownOptionError(f"{title!r} is jitted: the static arguments must be options of its jax.jit.")
    try:
        jitted = jax.jit(fn, static_argnums=static_argnums, static_argnames=static_argnames)
        static = frozenset(static_of_jit(jitted, len(args)))
        for key, value in [*enumerate(args), *kwargs.items()]:
            if key in static:
                hash(value)
    except (TypeError, ValueError) as error:
        names = ", ".join((*argument_names(fn, args), *kwargs)) or "none"
        facts = (("because", str(error)), ("arguments", names))
        raise UnknownOptionError(f"jax.jit rejects these static arguments of {title!r}.", facts) from None
    return static


def title_of(target: Any) -> str:
    """Return the name of a function, also inside a partial or a jitted function; for other objects, of their class.

    Examples:
        >>> import functools
        >>> title_of(functools.partial(max, 3)), title_of(jax.jit(functools.partial(title_of)))
        ('max', 'title_of')
    """
    while getattr(target, "__name__", _NAMELESS) == _NAMELESS:
        inner = target.func if isinstance(target, functools.partial) else getattr(target, "__wrapped__", None)
        if inner is None:
            return type(target).__name__
        target = inner
    return target.__name__


def without_compiler_options(fn: Any) -> tuple[Any, dict[str, Any]]:
    """Return a jitted function or method without its compiler options, and these options.

    JAX rejects compiler options of a function inside another jitted function, and most targets are traced inside one.
    """
    if isinstance(fn, MethodType):
        function, options = without_compiler_options(fn.__func__)
        return (MethodType(function, fn.__self__), options) if options else (fn, {})
    # JAX has no public way to read or change the options. A function wrapped by `functools.wraps` copies `_jit_info`.
    info = getattr(fn, "_jit_info", None) if is_jitted(fn) else None
    options = dict(getattr(info, "compiler_options_kvs", ()))
    if info is None or not options or _jit is None:
        return fn, {}
    return _jit(fn.__wrapped__, info._replace(compiler_options_kvs=())), options


def is_jitted(fn: Any) -> bool:
    """Return whether a function is a result of `jax.jit`. A result of `nnx.jit` is not, because it splits modules."""
    # By its attributes, because its class is private to jaxlib. A bound method has those of its function.
    has_stages = not isinstance(fn, MethodType) and all(hasattr(fn, name) for name in ("trace", "lower", "eval_shape"))
    return has_stages and not hasattr(fn, "jitted_fn")


def static_of_jit(fn: Any, count: int) -> set[int | str]:
    """Return the positions and names of the static arguments of a jitted function."""
    # JAX has no public way to read them. A result of `nnx.jit` has an inner result of `jax.jit` as `jitted_fn`.
    info = getattr(fn if is_jitted(fn) else getattr(fn, "jitted_fn", None), "_jit_info", None)
    # Positions count from the end if they are negative. Those of arguments that are left out do not apply.
    numbers = {number % count for number in getattr(info, "static_argnums", ()) if -count <= number < count}
    return {*numbers, *getattr(info, "static_argnames", ())}


def argument_names(fn: Any, args: tuple[Any, ...]) -> list[str]:
    """Return the parameter name of each positional argument."""
    signature = signature_of(fn)
    if signature is None:
        return [f"args_{number}" for number in range(len(args))]
    names: list[str] = []
    for name, value in signature.bind_partial(*args).arguments.items():
        is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names.extend([f"{name}_{number}" for number in range(len(value))] if is_many else [name])
    return names


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    unique: list[str] = []
    for name in names:
        while name in unique:
            name += "_"
        unique.append(name)
    return tuple(unique)


def _identifier(name: str) -> str:
    if name.isidentifier():
        return f"{name}_" if keyword.iskeyword(name) else name
    # A digit is valid only after another letter.
    safe = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in name)
    return safe if safe.isidentifier() else f"_{safe}"


def _parameters(fn: Any) -> Mapping[str, inspect.Parameter]:
    signature = signature_of(fn)
    return {} if signature is None else signature.parameters


def signature_of(fn: Any) -> inspect.Signature | None:
    """Return the signature of a function; `None` if Python cannot read it."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some functions written in C
        return None
