"""How parameters may start, by name.

A parameter is `scale * draw + shift`, where the draw is one of

| name | draw | source |
|---|---|---|
| `glorot_uniform` | uniform in `±√(6 / (fan_in + fan_out))` | Glorot and Bengio 2010, eq. 16 |
| `glorot_normal` | normal of variance `2 / (fan_in + fan_out)`, cut off at 2 standard deviations | the same |
| `he_uniform` | uniform in `±√(6 / fan_in)` | He et al. 2015, eq. 10 |
| `he_normal` | normal of variance `2 / fan_in`, cut off | the same |
| `lecun_uniform` | uniform in `±√(3 / fan_in)` | LeCun et al. 1998, eq. 16 |
| `lecun_normal` | normal of variance `1 / fan_in`, cut off | the same; Klambauer et al. 2017 |
| `truncated_normal` | standard normal, cut off at -2 and 2 | |
| `normal` | standard normal | |
| `uniform` | uniform from 0 to 1 | |
| `orthogonal` | columns of length 1 at right angles (rows, if there are fewer of them) | Saxe et al. 2014 |
| `constant`, `ones` | 1 | |
| `zeros` | 0, whatever the scale and the shift | |

`fan_in` is the number of items that one item of the output is a sum of, `fan_out` the number of items of the output
that one of the input is part of: sizes of two axes, times the size of the window of a convolution. What is cut off is
drawn again, and the rest widened to the variance that was asked for. The distributions are those of
`jax.nn.initializers`.

A `Linear` or a convolution that is not told how to start does so by `he_uniform` or `he_normal`, which count on an
activation that halves the variance. Where none reads what it gives, it starts by `lecun_uniform` or `lecun_normal`:
ten in a row would multiply their input by 32.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite

from mithril_nb.errors import UnknownOptionError, short_repr, similar
from mithril_nb.models.op import Initializer

_FANS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal", "orthogonal")
_PLAIN = ("truncated_normal", "normal", "uniform", "constant")
FIXED = ("zeros", "ones", "constant")
"""Those that draw nothing."""
INITIALIZERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_FANS, ("scale", "shift", "in_axis", "out_axis")),
    **dict.fromkeys(_PLAIN, ("scale", "shift")),
    "zeros": (),
    "ones": (),
}
"""The arguments that each takes, by name."""


def initializer_text(initializer: object) -> str:
    """Return the text that stands for an initializer: what `Model.set_initializers` takes, in its shortest form.

    Args:
        initializer: A name, a name with arguments as in a call, or an `Initializer`.

    Raises:
        UnknownOptionError: There is none of that name, or it does not take such arguments.

    Examples:
        >>> [initializer_text(text) for text in ("normal(scale = 0.020)", "uniform(2, -1)", "constant(1)")]
        ['normal(0.02)', 'uniform(2, -1)', 'constant']
    """
    name, given = _parsed(initializer)
    plain = replace(Initializer(name), **given)
    fixed = [key for key in ("in_axis", "out_axis") if key in given]
    said = {key: getattr(plain, key) for key in INITIALIZERS[name] if key in fixed}
    if plain.shift:
        said = {"scale": plain.scale, "shift": plain.shift, **said}
    elif plain.scale != 1:
        said = {"scale": plain.scale, **said}
    texts = [f"{value:.17g}" if value == int(value) else repr(value) for value in said.values()]
    texts = [text if key in ("scale", "shift") else f"{key}={text}" for key, text in zip(said, texts, strict=True)]
    return f"{name}({', '.join(texts)})" if texts else name


def initializer_of(text: str, default: Initializer | None = None) -> Initializer:
    """Return the initializer that a text stands for.

    Args:
        text: A name, or a name with arguments as in a call.
        default: How the block would start the parameter: says which axes count, where the text does not.

    Raises:
        UnknownOptionError: There is none of that name, or it does not take such arguments.

    Examples:
        >>> initializer_of("he_normal", Initializer("glorot_uniform", in_axis=1, out_axis=0))
        Initializer(name='he_normal', in_axis=1, out_axis=0, scale=1.0, shift=0.0, parts=())
    """
    name, given = _parsed(text)
    plain = default or Initializer(name)
    parts = (1.0,) * len(plain.parts)  # arrays in a row start each by itself, whatever by
    return replace(Initializer(name, in_axis=plain.in_axis, out_axis=plain.out_axis, parts=parts), **given)


def _parsed(initializer: object) -> tuple[str, dict[str, float]]:
    """The name and the arguments; `scale` and `shift` may be given by place."""
    if isinstance(initializer, Initializer):
        if initializer.parts:
            raise _refused(initializer, "one rule for all arrays in a row: no parts")
        plain = Initializer(initializer.name)
        given = {key: getattr(initializer, key) for key in ("scale", "shift", "in_axis", "out_axis")}
        return _checked(initializer, initializer.name, {k: v for k, v in given.items() if v != getattr(plain, k)})
    call = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", initializer) if isinstance(initializer, str) else None
    if call is None:
        raise _refused(initializer, "text" if not isinstance(initializer, str) else "a name, or a name with arguments")
    name, arguments = call.groups()
    given: dict[str, float] = {}
    for place, argument in enumerate((arguments or "").split(",") if (arguments or "").strip() else ()):
        key, _, text = argument.rpartition("=")
        key = key.strip() or (("scale", "shift")[place] if place < 2 and not key else "")
        try:
            value = float(text)
        except ValueError:
            raise _refused(initializer, f"numbers as arguments, not {text.strip()!r}") from None
        if key in given or not key or not isfinite(value):
            raise _refused(initializer, "each argument once, by its name, and finite")
        given[key] = value
    return _checked(initializer, name, given)


def _checked(initializer: object, name: str, given: dict[str, float]) -> tuple[str, dict[str, float]]:
    if name not in INITIALIZERS:
        near = similar(name, INITIALIZERS)
        raise UnknownOptionError(
            f"there is no initializer {name!r}.",
            (("known", ", ".join(INITIALIZERS)),),
            repr(near[0]) if near else "use one of the known initializers.",
        )
    for key, value in given.items():
        if key not in INITIALIZERS[name]:
            raise _refused(initializer, f"arguments of {name}: {', '.join(INITIALIZERS[name]) or 'none'}")
        if key.endswith("axis"):
            if value != int(value):
                raise _refused(initializer, f"a whole number as {key}")
            given = {**given, key: int(value)}
    return name, given


def _refused(initializer: object, needs: str) -> UnknownOptionError:
    return UnknownOptionError(
        f"{short_repr(initializer)} is no initializer.", (("needs", needs),), '"normal(scale=0.02)"'
    )
