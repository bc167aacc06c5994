"""The arguments of a call: traced ones, as for `jax.jit`, and static ones."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, MethodType
from typing import Any

import jax
import numpy as np

from mithril_nb.targets.arrays import NUMBERS, check_sizes, checked_result, explain_sizes, results_of
from mithril_nb.targets.module_scopes import is_machinery, is_module

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

    Args:
        fn: The function that is called.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
        apart: Names of arguments to leave out: neither traced nor static. The caller passes their values to `whole`.
        static: Names and positions of further static arguments, as `static_arguments` returns them.
        are_numbers_static: True to make all Python numbers static, as in a call of a module.

    Raises:
        ShapeError: A size is neither a number nor a name that JAX accepts.

    Attributes:
        fn: The function.
        all_names: Unique names of all arguments. Keyword arguments keep their names.
        values: All arguments, keyword arguments last.
        by_name: All arguments by name.
        names: Names of the arguments that contain traced leaves.
        traced: The arguments in `names`, with `None` in place of each static leaf.
        static: Names of the arguments that are static as a whole, because of `static` or of the function's `jax.jit`.
        has_clash: True if a positional-only argument and a keyword argument have the same name.

    Examples:
        >>> given = Arguments(jax.numpy.sum, (jax.ShapeDtypeStruct((3,), "float32"),), {"axis": 0}, static={"axis"})
        >>> given.names, given.whole(*given.traced)[1]
        (('a',), {'axis': 0})
        >>> Arguments(divmod, (7, 2.0), {}).traced
        (7, 2.0)
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
        self.fn, self._keywords, self._title = fn, tuple(sorted(kwargs)), title_of(fn)
        # Keyword arguments come first, so that they keep their names: in `def f(*x, x_0)`, the first of `x` is `x_0_`.
        names = _unique((*self._keywords, *argument_names(fn, args)))
        self.all_names = (*names[len(kwargs) :], *names[: len(kwargs)])
        takes = {} if (signature := signature_of(fn)) is None else signature.parameters
        self.has_clash = any(takes[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in takes.keys() & kwargs)
        self.values = (*args, *(kwargs[name] for name in self._keywords))
        self.by_name = dict(zip(self.all_names, self.values, strict=True))
        check_sizes(self.by_name, self._title)
        self._places = (*range(len(args)), *self._keywords)
        static = {*static, *static_of_jit(fn, len(args))}
        self.static = {name for place, name in zip(self._places, self.all_names, strict=True) if place in static}
        are_numbers_static |= is_machinery(type(fn)) and hasattr(fn, "lower")  # `eqx.filter_jit`
        self._parts = [
            None if name in apart else _Part.of(value, place in static, are_numbers_static, is_jitted(fn))
            for place, name, value in zip(self._places, self.all_names, self.values, strict=True)
        ]
        with_arrays = [
            (name, part) for name, part in zip(self.all_names, self._parts, strict=True) if part and part.arrays
        ]
        self.names = tuple(name for name, _ in with_arrays)
        self.traced = tuple(part.built(part.arrays) for _, part in with_arrays)

    def whole(self, *traced: Any, apart: Mapping[str, Any] = _NONE) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of the call, with `traced` in place of the traced leaves.

        Args:
            *traced: Arrays or tracers, with the structure of the attribute `traced`.
            apart: The arguments that were left out, by name.
        """
        given = dict(zip(self.names, traced, strict=True))
        return self.call(
            [
                apart[name] if part is None else part.whole(given.get(name))
                for name, part in zip(self.all_names, self._parts, strict=True)
            ]
        )

    def call(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Split a list of arguments, in the order of `all_names`, into positional and keyword arguments."""
        count = len(values) - len(self._keywords)
        return tuple(values[:count]), dict(zip(self._keywords, values[count:], strict=True))

    def calling(self, *traced: Any) -> Any:
        """Call the function, without its `jax.jit`, with `traced` in place of the traced leaves."""
        args, kwargs = self.whole(*traced)
        fn: Any = self.fn.__wrapped__ if is_jitted(self.fn) else self.fn
        with explain_sizes(self.by_name, self._title):
            return checked_result(fn(*args, **kwargs), self._title)

    def trace(self, *traced: Any) -> jax.stages.Traced:
        """Trace the function with its argument names, and with the shardings and donation of its `jax.jit`."""
        fn: Any = self.fn
        if is_jitted(fn):
            args, kwargs = self.whole(*traced)
            with explain_sizes(self.by_name, self._title):
                return fn.trace(*args, **kwargs)

        @functools.wraps(fn, updated=())
        def function(*args: Any, **kwargs: Any) -> Any:
            values = (*args, *(kwargs[name] for name in self._keywords))
            args, kwargs = self.call([part.whole(value) for part, value in zip(parts, values, strict=True)])
            with explain_sizes(self.by_name, self._title):
                return results_of(checked_result(fn(*args, **kwargs), self._title))

        function.__name__ = self._title
        parts = [part for part in self._parts if part is not None]
        given = dict(zip(self.names, traced, strict=True))
        args, kwargs = self.call([given.get(name) for name in self.all_names])
        # An argument without traced leaves is static, so that it is not an argument of the compiled program.
        static = [place for place, part in zip(self._places, parts, strict=True) if part.kept and not part.arrays]
        numbers = [place for place in static if isinstance(place, int)]
        names = [place for place in static if isinstance(place, str)]
        return jax.jit(function, static_argnums=numbers, static_argnames=names).trace(*args, **kwargs)


@dataclass(frozen=True)
class _Part:
    """One argument of a call.

    Attributes:
        structure: Structure of the argument as a pytree.
        arrays: The traced leaves.
        kept: All leaves, with `None` in place of the traced ones.
    """

    structure: Any
    arrays: list[Any]
    kept: list[Any]

    @classmethod
    def of(cls, value: Any, is_static: bool, are_numbers_static: bool, is_jitted: bool) -> _Part:
        leaves, structure = jax.tree.flatten(value)
        traced = [not is_static and _is_traced(leaf) for leaf in leaves]
        if not is_jitted and any(isinstance(leaf, NUMBERS) for leaf in leaves):
            inside = [are_numbers_static] * len(leaves) if are_numbers_static else _inside_modules(value)
            traced = [
                one and not (is_inside and isinstance(leaf, NUMBERS))
                for one, is_inside, leaf in zip(traced, inside, leaves, strict=True)
            ]
        return cls(
            structure,
            [_spec(leaf) for leaf, is_traced in zip(leaves, traced, strict=True) if is_traced],
            [None if is_traced else leaf for leaf, is_traced in zip(leaves, traced, strict=True)],
        )

    def built(self, arrays: Sequence[Any]) -> Any:
        """Return the argument with `arrays` as traced leaves, and `None` in place of static leaves."""
        given = iter(arrays)
        return self.structure.unflatten([next(given) if leaf is None else None for leaf in self.kept])

    def whole(self, traced: Any) -> Any:
        given = iter(jax.tree.leaves(traced))
        return self.structure.unflatten([next(given) if leaf is None else leaf for leaf in self.kept])


def _inside_modules(value: Any) -> list[bool]:
    inside = jax.tree.map(
        lambda one: jax.tree.map(lambda _: True, one) if is_module(one) else False, value, is_leaf=is_module
    )
    return jax.tree.leaves(inside)


def named(
    program: Callable[..., Any], names: Sequence[str], title: str, fn: Any = None, trace: Any = None
) -> Callable[..., Any]:
    """Return a program as a function with the name `title` and the parameters `names`.

    Names that are not identifiers are changed, such as `"input.ids"`. The function returns `None` in place of leaves
    that are neither arrays nor numbers, such as text, or the functions in an Equinox module.

    Args:
        program: Function of positional arguments.
        names: Names of these arguments.
        title: Name of the new function.
        fn: The user's function, whose Python the stages show; `None` if there is none.
        trace: Function that traces the program; default: `jax.jit(...).trace` of the new function.

    Examples:
        >>> inspect.signature(named(lambda *args: args, ("a", "input.ids"), "pair"))
        <Signature (a, input_ids)>
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
    signature = signature_of(fn)
    kinds = {} if signature is None else {one.name: one.kind for one in signature.parameters.values()}
    if kinds.get(name) is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return [*kinds].index(name) >= count
    if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY:
        return True
    return None if inspect.Parameter.VAR_KEYWORD in kinds.values() else False


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


def _spec(leaf: Any) -> Any:
    """Return a NumPy array as a `jax.ShapeDtypeStruct`, so that its memory can be freed."""
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def _is_traced(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufcV"
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, *NUMBERS))


def with_self(fn: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return a jitted method as a function whose first argument is `self`, because `static_argnums` count `self`."""
    is_method = isinstance(fn, MethodType) and is_jitted(fn.__func__)
    return (fn.__func__, (fn.__self__, *args)) if is_method else (fn, args)


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
    is_one = not isinstance(fn, MethodType) and all(hasattr(fn, name) for name in ("trace", "lower", "eval_shape"))
    return is_one and not hasattr(fn, "jitted_fn")


def static_of_jit(fn: Any, count: int) -> set[int | str]:
    """Return the positions and names of the static arguments of a jitted function."""
    # JAX has no public way to read them. A result of `nnx.jit` has an inner result of `jax.jit` as `jitted_fn`.
    info = getattr(fn if is_jitted(fn) else getattr(fn, "jitted_fn", None), "_jit_info", None)
    numbers = {number % count for number in getattr(info, "static_argnums", ()) if -count <= number < count}
    return {*numbers, *getattr(info, "static_argnames", ())}


def argument_names(fn: Any, args: tuple[Any, ...]) -> list[str]:
    """Return the parameter name of each positional argument.

    Raises:
        TypeError: There are too many arguments.
    """
    signature = signature_of(fn)
    if signature is None:
        return [f"args_{place}" for place in range(len(args))]
    names: list[str] = []
    for name, value in signature.bind_partial(*args).arguments.items():
        is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names.extend([f"{name}_{place}" for place in range(len(value))] if is_many else [name])
    return names


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with `_` appended to a name that is already used."""
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
    """Return the signature of a function; `None` if Python cannot read it."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some functions written in C
        return None
