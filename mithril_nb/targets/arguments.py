"""What a function is called with: arrays, which are traced, and everything else, which stays as it is."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, MethodType
from typing import Any

import jax
import numpy as np

from mithril_nb.targets.results import NUMBERS, check_computes, checked_result, is_result
from mithril_nb.targets.sizes import check_sizes, sizes_given, telling_of_sizes

try:  # Without this one a function that is jitted with options for XLA can only be looked at as it is.
    from jax._src.pjit import _cpp_pjit as _jit
except ImportError:  # pragma: no cover
    _jit = None

_NONE: Mapping[str, Any] = MappingProxyType({})


class Arguments:
    """The arguments of one call, parted into what is traced and what is not.

    Arrays and `jax.ShapeDtypeStruct`s are traced, wherever in nested containers they are. Everything else is static:
    text, numbers, `None`, functions, config objects. A jitted function gets the numbers that it does not take as
    static traced, as `jax.jit` does.

    Args:
        fn: What is called.
        args: Its arguments.
        kwargs: Those that it is given by name.
        apart: Names of arguments that are neither: `whole` is given them.

    Raises:
        ShapeError: A size that is neither a number nor a name that JAX knows of.

    Attributes:
        all_names: Names of all arguments, no two the same; those by name are called what the person calls them.
        values: All arguments, those by name after the others.
        by_name: The same by their names.
        names: Names of the arguments that hold arrays.
        traced: These arguments, without what is static.
        is_plain: Whether the function is jitted and takes just `traced`, in order and by these names.

    Examples:
        >>> given = Arguments(jax.numpy.sum, (jax.ShapeDtypeStruct((3,), "float32"),), {"axis": 0})
        >>> given.names, given.whole(*given.traced)[1]
        (('a',), {'axis': 0})
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        apart: frozenset[str] = frozenset(),
    ):
        self._keywords, self._title = tuple(sorted(kwargs)), title_of(fn)
        # Whoever calls chose the keywords; of `def f(*x, x_0)` it is the first of `x` that has to be called otherwise.
        names = _unique((*self._keywords, *argument_names(fn, args)))
        self.all_names = (*names[len(kwargs) :], *names[: len(kwargs)])
        self.values = (*args, *(kwargs[name] for name in self._keywords))
        self.by_name = dict(zip(self.all_names, self.values, strict=True))
        check_sizes(self.by_name, self._title)
        static = _static_of_jit(fn, len(args), self._keywords)
        self._parts = [
            None if name in apart else _Part.of(value, static is not None and place not in static)
            for place, (name, value) in enumerate(zip(self.all_names, self.values, strict=True))
        ]
        with_arrays = [
            (name, part) for name, part in zip(self.all_names, self._parts, strict=True) if part and part.arrays
        ]
        self.names = tuple(name for name, _ in with_arrays)
        self.traced = tuple(part.built(part.arrays) for _, part in with_arrays)
        signature = signature_of(fn)
        self.is_plain = (
            not (static is None or signature is None or kwargs)
            and self.names == tuple(signature.parameters)[: len(args)]
            and jax.tree.structure(self.traced) == jax.tree.structure(args)
            and not any(map(sizes_given, args))
        )

    def whole(self, *traced: Any, apart: Mapping[str, Any] = _NONE) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and keyword arguments, with other arrays in the place of those that are traced.

        Args:
            *traced: The other arrays.
            apart: What stands in the place of those that are neither traced nor static, by name.
        """
        given = dict(zip(self.names, traced, strict=True))
        values = [
            apart[name] if part is None else part.whole(given.get(name))
            for name, part in zip(self.all_names, self._parts, strict=True)
        ]
        count = len(values) - len(self._keywords)
        return tuple(values[:count]), dict(zip(self._keywords, values[count:], strict=True))

    def calling(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of what is traced."""

        def given(*traced: Any) -> Any:
            args, kwargs = self.whole(*traced)
            with telling_of_sizes(self.by_name, self._title):
                return fn(*args, **kwargs)

        def call(*traced: Any) -> Any:
            out = given(*traced)
            if self.values and not traced:
                check_computes(out, self._title, self.by_name)
            return checked_result(out, self._title, lambda: jax.make_jaxpr(given)(*traced).effects)

        return call


@dataclass(frozen=True)
class _Part:
    """One argument: its structure, its arrays, and its other leaves, with `None` in the places of the arrays."""

    structure: Any
    arrays: list[Any]
    kept: list[Any]

    @classmethod
    def of(cls, value: Any, is_number_traced: bool) -> _Part:
        leaves, structure = jax.tree.flatten(value)
        traced = [_is_traced(leaf, is_number_traced) for leaf in leaves]
        return cls(
            structure,
            [_spec(leaf) for leaf, is_traced in zip(leaves, traced, strict=True) if is_traced],
            [None if is_traced else leaf for leaf, is_traced in zip(leaves, traced, strict=True)],
        )

    def built(self, arrays: Sequence[Any]) -> Any:
        """The argument without what is static."""
        given = iter(arrays)
        return self.structure.unflatten([next(given) if leaf is None else None for leaf in self.kept])

    def whole(self, traced: Any) -> Any:
        given = iter(jax.tree.leaves(traced))
        return self.structure.unflatten([next(given) if leaf is None else leaf for leaf in self.kept])


def named(program: Callable[..., Any], names: Sequence[str], title: str, fn: Any = None) -> Callable[..., Any]:
    """Return a function with a name and with positional parameters of these names.

    A name that Python allows no parameter, as those in `f(**{"input.ids": x, "class": y})`, becomes one that it does.
    What it gives besides arrays and numbers is left out: text, or the functions in an Equinox module.

    Examples:
        >>> inspect.signature(named(lambda *args: args, ("a", "input.ids"), "pair"))
        <Signature (a, input_ids)>
    """

    def call(*args: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf if is_result(leaf) else None, program(*args))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__dict__["__signature__"] = inspect.Signature(
        [inspect.Parameter(name, kind) for name in _unique([_identifier(name) for name in names])]
    )
    if fn is not None:  # The person's function that it stands for: the stages name blocks by what that calls.
        call.__dict__["__wrapped__"] = fn
    call.__name__ = call.__qualname__ = title
    return call


def names_of(program: Callable[..., Any]) -> tuple[str, ...]:
    """Return what a function that `named` gave calls its parameters."""
    return tuple(inspect.signature(program).parameters)


def is_own_argument(fn: Any, count: int, name: str) -> bool | None:
    """Return whether a function has an argument of a name that so many positions leave open; `None` if it takes any."""
    signature = signature_of(fn)
    kinds = {} if signature is None else {one.name: one.kind for one in signature.parameters.values()}
    if kinds.get(name) is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return [*kinds].index(name) >= count
    if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY:
        return True
    return None if inspect.Parameter.VAR_KEYWORD in kinds.values() else False


def without_partial(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What a `functools.partial` binds is given as if it were an argument."""
    while isinstance(target, functools.partial):
        target, args, kwargs = target.func, (*target.args, *args), {**target.keywords, **kwargs}
    return target, args, dict(kwargs)


def title_of(target: Any) -> str:
    """Return what to call a target.

    Examples:
        >>> import functools
        >>> title_of(functools.partial(max, 3)), title_of(title_of)
        ('max', 'title_of')
    """
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target) if callable(target) else target
    return getattr(target, "__name__", type(target).__name__)


def _spec(leaf: Any) -> Any:
    """Return the shape of an array of NumPy's, so that it is not kept alive; JAX's are let go of by the stages."""
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def _is_traced(leaf: Any, is_number_traced: bool) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufcV"
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) or (is_number_traced and isinstance(leaf, NUMBERS))


def with_self(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return for a method that is jitted the function and its arguments: `jax.jit` counts from `self`."""
    is_method = isinstance(fn, MethodType) and _is_jitted(fn.__func__)
    return (fn.__func__, (fn.__self__, *args)) if is_method else (fn, args)


def without_compiler_options(fn: Any) -> tuple[Any, dict[str, Any]]:
    """Return a function, or a method, that is jitted without what its `jax.jit` tells XLA, and what that is.

    JAX refuses these options inside of another program, and a target often becomes a part of one.
    """
    if isinstance(fn, MethodType):
        function, options = without_compiler_options(fn.__func__)
        return (MethodType(function, fn.__self__), options) if options else (fn, {})
    # JAX has no public way to ask, nor to jit again as before; `functools.wraps` hands on what it keeps.
    info = getattr(fn, "_jit_info", None) if _is_jitted(fn) else None
    options = dict(getattr(info, "compiler_options_kvs", ()))
    if info is None or not options or _jit is None:
        return fn, {}
    return _jit(fn.__wrapped__, info._replace(compiler_options_kvs=())), options


def _is_jitted(fn: Any) -> bool:
    return not isinstance(fn, MethodType) and all(hasattr(fn, name) for name in ("trace", "lower", "eval_shape"))


def _static_of_jit(fn: Any, count: int, keywords: Sequence[str]) -> frozenset[int] | None:
    """Return the places of the arguments that a jitted function takes as static; `None` if it is not jitted."""
    if not _is_jitted(fn):
        return None
    info = getattr(fn, "_jit_info", None)  # JAX has no public way to ask.
    numbers = {number % count for number in getattr(info, "static_argnums", ()) if -count <= number < count}
    names = {place for place, name in enumerate(keywords, count) if name in getattr(info, "static_argnames", ())}
    return frozenset(numbers | names)


def argument_names(fn: Any, args: tuple[Any, ...]) -> list[str]:
    """Return what a function calls its arguments by position."""
    signature = signature_of(fn)
    if signature is None:
        return [f"args_{place}" for place in range(len(args))]
    names: list[str] = []
    for name, value in signature.bind_partial(*args).arguments.items():
        is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names.extend([f"{name}_{place}" for place in range(len(value))] if is_many else [name])
    return names


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a `_` after those that were there before."""
    found: list[str] = []
    for name in names:
        while name in found:
            name += "_"
        found.append(name)
    return tuple(found)


def _identifier(name: str) -> str:
    if name.isidentifier():
        return f"{name}_" if keyword.iskeyword(name) else name
    safe = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in name)
    return safe if safe.isidentifier() else f"_{safe}"


def signature_of(fn: Any) -> inspect.Signature | None:
    """Return what a function says that it takes; `None` if it does not."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # of some that are written in C
        return None
