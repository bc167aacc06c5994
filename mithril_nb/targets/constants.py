"""Arguments that are constants of the program: bound by a partial, or static; and errors about missing constants."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax

from mithril_nb.errors import MithrilError, StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.targets.arguments import Arguments, accepts_keyword, argument_names, is_jitted, static_of_jit, title_of
from mithril_nb.targets.arrays import NUMBERS, written_spec
from mithril_nb.targets.calls import shown
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
            f"jax.jit(f.__wrapped__, {written})",
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
                "Write the value into the function.",
            )
    return static


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def explaining(call: Callable[..., Any], given: Arguments) -> Callable[..., Any]:
    """Return `call` with an error for text in place of an array, and for numbers whose values Python needs.

    Args:
        call: The program, which is traced.
        given: The arguments of the user's function.
    """

    @functools.wraps(call)
    def explained(*traced: Any) -> Any:
        try:
            return call(*traced)
        except Exception as error:
            explanation = _explanation(given, error)
            if explanation is None:
                raise
            raise explanation.with_traceback(error.__traceback__) from error

    return explained


def _explanation(given: Arguments, error: Exception) -> StageUnavailableError | None:
    first = error.__cause__ if isinstance(error, MithrilError) and error.__cause__ is not None else error
    because = f"{type(first).__name__}: {_first_line(first)}"
    names = [
        name
        for name, value in zip(given.names, given.traced, strict=True)
        if any(isinstance(leaf, NUMBERS) for leaf in jax.tree.leaves(value))
    ]
    if names and _is_about_value(first):
        return StageUnavailableError(
            f"{title_of(given.fn)!r} needs the value of a number, which jax.jit traces as an array without a value.",
            (("given", ", ".join(f"{name}={shown(given.by_name[name])}" for name in names)), ("because", because)),
            _made_static(given, names),
        )
    is_of_text = re.search(r"\bstr\b", str(error)) and not isinstance(error, MithrilError)
    return no_array_but_text(given, because) if is_of_text else None


def _made_static(given: Arguments, names: list[str]) -> str:
    hashable = [name for name in names if _is_hashable(given.by_name[name])]
    if not hashable:
        return "Write the number into the function."
    name = min(hashable, key=lambda one: isinstance(given.by_name[one], float))  # an integer, such as an axis, if any
    is_by_name = accepts_keyword(given.fn, 0, name) is True
    option = f'static_argnames="{name}"' if is_by_name else f"static_argnums={given.all_names.index(name)}"
    return f"jax.jit(f.__wrapped__, {option})" if is_jitted(given.fn) else option


def _is_about_value(error: BaseException) -> bool:
    # JAX has no common class for these errors: some are a plain TypeError or IndexError.
    is_one = isinstance(error, TypeError | IndexError) and re.search("[Tt]race[rd]|static|concrete", str(error))
    return bool(is_one) or isinstance(error, OverflowError)


def _first_line(error: BaseException) -> str:
    line = re.sub(r" at 0x[0-9a-f]+", "", str(error).partition("\n")[0])
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def no_array_but_text(given: Arguments, because: str, target: Any = None) -> StageUnavailableError | None:
    """Return the error for text in place of an array; `None` if no traced argument contains text.

    Args:
        given: The arguments.
        because: The error of the failed trace, as text.
        target: The module that receives the arguments; `None` for a function. For a function, any text is an error. A
            module may accept text, so only text that looks like the type of an array is an error: `"f32[3]"`.
    """
    texts = {
        name: [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, str)]
        for name, value in given.by_name.items()
        if name not in given.static
    }
    typed = [name for name in texts if any(map(written_spec, texts[name]))]
    names = typed or ([] if target is not None else [name for name in texts if texts[name]])
    if not names:
        return None
    title = title_of(given.fn if target is None else target)
    array = next(filter(None, map(written_spec, texts[names[0]])), 'jax.ShapeDtypeStruct((4, 64), "float32")')
    return StageUnavailableError(
        f"the argument {names[0]!r} of {title!r} contains text instead of an array.",
        (("given", short_repr(given.by_name[names[0]])), ("because", because)),
        f"{array}  # instead of the text",
    )
