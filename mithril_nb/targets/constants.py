"""Arguments that are constants of the program: bound by a partial, or static; and errors about missing constants."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import jax

from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.targets.arguments import Arguments, argument_names, is_jitted, signature_of, static_of_jit, title_of
from mithril_nb.targets.arrays import NUMBERS, results_of, written_spec
from mithril_nb.targets.calls import shown, variable_of
from mithril_nb.targets.entry_point import EntryPoint, entry_point
from mithril_nb.targets.library_modules import is_foreign
from mithril_nb.targets.mithril_models import is_mithril_model
from mithril_nb.targets.module_scopes import is_module

_LONGEST = 80


def without_partial(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Move inputs of the program from a `functools.partial` to the arguments; return the target and its arguments.

    Bound modules and `jax.ShapeDtypeStruct`s are inputs. Other bound values stay in the partial, and are constants of
    the program, as in `jax.jit`. If the partial is of a model or module, all bound values become arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> without_partial(functools.partial(jnp.clip, min=0.0), (1,), {})[1:]
        ((1,), {})
        >>> without_partial(functools.partial(jnp.dot, jax.ShapeDtypeStruct((3,), "float32")), (1,), {})[1:]
        ((ShapeDtypeStruct(shape=(3,), dtype=float32), 1), {})
    """
    if not isinstance(target, functools.partial):
        return target, args, dict(kwargs)
    fn: Any = target.func
    if is_mithril_model(fn) or is_foreign(fn) or is_module(getattr(fn, "__self__", None)):
        return fn, (*target.args, *args), {**target.keywords, **kwargs}
    positional = target.args if any(map(_is_input, target.args)) else ()
    named = {name: value for name, value in target.keywords.items() if _is_input(value)}
    if not positional and not named:
        return target, args, dict(kwargs)
    bound = () if positional else target.args
    kept = {name: value for name, value in target.keywords.items() if name not in named}
    rest = functools.partial(fn, *bound, **kept) if bound or kept else fn
    return rest, (*positional, *args), {**named, **kwargs}


def _is_input(value: Any) -> bool:
    leaves = jax.tree.leaves(value, is_leaf=is_module)
    return any(is_module(leaf) or isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


def static_arguments(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], static_argnums: Any, static_argnames: Any
) -> frozenset[int | str]:
    """Return the positions and names of the static arguments, from options as in `jax.jit`.

    Raises:
        UnknownOptionError: `fn` is jitted already, `jax.jit` rejects the options, or a static argument is not hashable.

    Examples:
        >>> static = static_arguments(lambda x, axis: x, (1, 2), {}, None, "axis")
        >>> sorted(static, key=str)
        [1, 'axis']
    """
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return frozenset()
    written = ", ".join(f"{name}={short_repr(value)}" for name, value in given.items())
    names = argument_names(fn, args)
    if is_jitted(getattr(fn, "__func__", fn)):
        raise UnknownOptionError(
            f"{title_of(fn)!r} is jitted: the static arguments must be options of its jax.jit.",
            (("given", written),),
            entry_point().call(f"jax.jit({variable_of(fn)}.__wrapped__, {written})", *names),
        )
    try:
        static = frozenset(static_of_jit(jax.jit(fn, **options), len(args)))
    except (TypeError, ValueError) as error:
        known = [*names, *kwargs]
        raise UnknownOptionError(
            f"jax.jit rejects {written} for {title_of(fn)!r}.",
            (("because", str(error)), ("arguments", ", ".join(known) or "none")),
            f"static_argnames={known[-1]!r}" if known else "",
        ) from None
    for place, value in [*enumerate(args), *kwargs.items()]:
        if place in static and not _is_hashable(value):
            name = names[place] if isinstance(place, int) else place
            raise UnknownOptionError(
                f"jax.jit rejects {name!r} of {title_of(fn)!r} as a static argument: it is not hashable.",
                (("given", f"{name}={shown(value)}"),),
                _as_constant(entry_point(), fn, args, kwargs, name, shown(value)),
            )
    return static


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _as_constant(
    entry: EntryPoint, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str, value: str
) -> str:
    """Return source code of a call of a lambda in which the argument `name` is the constant `value`."""
    names = argument_names(fn, args)
    inside = [value if one == name else one for one in names]
    inside += [f"{key}={value if key == name else key}" for key in kwargs]
    outside = [one for one in (*names, *kwargs) if one != name]
    function = f"lambda {', '.join(outside)}: {variable_of(fn)}({', '.join(inside)})"
    return entry.call(function, *outside)


class NumbersNeeded:
    """Explains why a function cannot be traced: Python needs the value of a number, or an argument is text.

    Args:
        call: The program. After a failure, it is traced again with the numbers as constants, to find those it needs.
        arguments: The arguments of the user's function.
        specs: The arguments of `call`: arrays of modules, then `arguments.traced`.
        entry: The public function that the user called.
    """

    def __init__(self, call: Callable[..., Any], arguments: Arguments, specs: tuple[Any, ...], entry: EntryPoint):
        self._call, self._arguments, self._specs, self._entry = call, arguments, specs, entry
        self._names = (*[""] * (len(specs) - len(arguments.names)), *arguments.names)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with an error that names the numbers or the text that caused a failure."""

        @functools.wraps(call)
        def explained(*traced: Any) -> Any:
            try:
                return call(*traced)
            except Exception as error:
                explanation = self._explain(error)
                if explanation is None:
                    raise
                raise explanation.with_traceback(error.__traceback__) from error

        return explained

    def _explain(self, error: Exception) -> StageUnavailableError | None:
        """Return the error for needed numbers or for text; `None` if the cause is another."""
        given = self._arguments
        first = error.__cause__ if isinstance(error, MithrilError) and error.__cause__ is not None else error
        because = f"{type(first).__name__}: {_first_line(first)}"
        needed = {
            name
            for name, value in zip(given.names, given.traced, strict=True)
            if any(isinstance(leaf, NUMBERS) for leaf in jax.tree.leaves(value))
        }
        if not needed or not self._traces(needed):
            is_of_text = re.search(r"\bstr\b", str(error)) and not isinstance(error, MithrilError)
            return no_array_but_text(given, because, self._entry) if is_of_text else None
        for name in sorted(needed):
            if len(needed) > 1 and self._traces(needed - {name}):
                needed -= {name}
        names = [name for name in given.names if name in needed]
        numbers = ", ".join(f"{name}={shown(given.by_name[name])}" for name in names)
        return StageUnavailableError(
            f"{title_of(given.fn)!r} needs the value of {' and '.join(map(repr, names))}, "
            "which jax.jit traces as an array without a value.",
            (("given", numbers), ("because", because)),
            self._advice(names),
        )

    def _traces(self, static: set[str]) -> bool:
        """Return whether the program can be traced if the numbers in these arguments are constants."""
        leaves: list[Any] = []
        known: list[bool] = []
        for name, value in zip(self._names, self._specs, strict=True):
            parts = jax.tree.leaves(value)
            leaves += parts
            known += [name in static and isinstance(part, NUMBERS) for part in parts]
        structure = jax.tree.structure(self._specs)

        def whole(*traced: Any) -> Any:
            rest = iter(traced)
            values = [leaf if is_known else next(rest) for leaf, is_known in zip(leaves, known, strict=True)]
            return results_of(self._call(*structure.unflatten(values)))

        try:
            jax.eval_shape(whole, *(leaf for leaf, is_known in zip(leaves, known, strict=True) if not is_known))
        except Exception:  # The failure has another cause.
            return False
        return True

    def _advice(self, names: Sequence[str]) -> str:
        given, fn = self._arguments, self._arguments.fn
        args, kwargs = given.call(given.values)
        own, variable = argument_names(fn, args), variable_of(fn)
        name = next((name for name in names if not _is_hashable(given.by_name[name])), "")
        value = given.by_name.get(name)
        if name:
            return _as_constant(self._entry, fn, args, kwargs, name, shown(value) if _is_number(value) else name)
        places = tuple(own.index(name) for name in names if name in own)
        found = signature_of(fn)
        kinds = {} if found is None else {one.name: one.kind for one in found.parameters.values()}
        if all(kinds.get(own[place]) is Parameter.POSITIONAL_OR_KEYWORD for place in places):
            option = f'static_argnames="{names[0]}"' if len(names) == 1 else f"static_argnames={(*names,)}"
        else:
            option = f"static_argnums={places[0] if len(places) == 1 else places}"
        if is_jitted(fn):
            variable, option = f"jax.jit({variable}.__wrapped__, {option})", ""
        values = [shown(value) if _is_number(value) else name for name, value in zip(own, args, strict=True)]
        values += [f"{key}={shown(value) if _is_number(value) else key}" for key, value in kwargs.items()]
        return self._entry.call(*filter(None, (variable, *values, option)))


def _first_line(error: BaseException) -> str:
    line = re.sub(r" at 0x[0-9a-f]+", "", str(error).partition("\n")[0])
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _is_number(value: Any) -> bool:
    return all(type(leaf) in NUMBERS for leaf in jax.tree.leaves(value))  # subclasses may not print as numbers


_USUAL = 'jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the text'


def no_array_but_text(
    given: Arguments, because: str, entry: EntryPoint, target: Any = None
) -> StageUnavailableError | None:
    """Return the error for text in place of an array; `None` if no traced argument contains text.

    Args:
        given: The arguments.
        because: The error of the failed trace, as text.
        entry: The public function that the user called.
        target: The module that receives the arguments; `None` for a function. For a function, any text is an error. A
            module may accept text, so only text that looks like the type of an array is an error: `"f32[3]"`.
    """
    found = {
        name: [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, str)]
        for name, value in given.by_name.items()
        if name not in given.static
    }
    typed = [name for name, texts in found.items() if any(map(written_spec, texts))]
    names = typed or ([] if target is not None else [name for name, texts in found.items() if texts])
    if not names:
        return None
    title = title_of(given.fn if target is None else target)
    return StageUnavailableError(
        f"the argument {names[0]!r} of {title!r} contains text instead of an array.",
        (("given", short_repr(given.by_name[names[0]])), ("because", because)),
        _advice(given, entry, given.fn if target is None else target, found[names[0]]),
    )


def _advice(given: Arguments, entry: EntryPoint, target: Any, texts: list[str]) -> str:
    """Return source code of the call, with an array in place of each type such as `"f32[3]"`."""
    args, kwargs = given.call(given.values)
    if not any(map(written_spec, given.values)):  # in a container, so that only the array is written
        return next((f"{written_spec(text)}  # instead of {text!r}" for text in texts if written_spec(text)), _USUAL)
    values = [_written(name, value) for name, value in zip(argument_names(given.fn, args), args, strict=True)]
    values += [f"{name}={_written(name, value)}" for name, value in kwargs.items()]
    return entry.call(variable_of(target), *values)


def _written(name: str, value: Any) -> str:
    is_plain = isinstance(value, (str, *NUMBERS))
    return written_spec(value) or (shown(value) if is_plain else name)
