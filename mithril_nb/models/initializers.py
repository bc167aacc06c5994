"""Initializers of parameters, by name.

A parameter is initialised to `scale * draw + shift`, where the draw is one of

| name | draw | source |
|---|---|---|
| `glorot_uniform` | uniform in `±√(6 / (fan_in + fan_out))` | Glorot and Bengio 2010, eq. 16 |
| `glorot_normal` | normal of variance `2 / (fan_in + fan_out)`, truncated at 2 standard deviations | the same |
| `he_uniform` | uniform in `±√(6 / fan_in)` | He et al. 2015, eq. 10 |
| `he_normal` | normal of variance `2 / fan_in`, truncated | the same |
| `lecun_uniform` | uniform in `±√(3 / fan_in)` | LeCun et al. 1998, eq. 16 |
| `lecun_normal` | normal of variance `1 / fan_in`, truncated | the same; Klambauer et al. 2017 |
| `truncated_normal` | standard normal, truncated to [-2, 2] | |
| `normal` | standard normal | |
| `uniform` | uniform in [0, 1) | |
| `orthogonal` | orthonormal columns (rows, if there are fewer of them) | Saxe et al. 2014 |
| `constant`, `ones` | 1 | |
| `zeros` | 0, independent of scale and shift | |

`fan_in` is the number of inputs summed into one output, `fan_out` the number of outputs that one input contributes to:
the size of `in_axis` or `out_axis`, times the window size of a convolution. Truncation reduces a variance, so the
normal distributions that depend on `fan_in` or `fan_out` are then rescaled to the variance in the table. The
distributions are those of `jax.nn.initializers`.

A `Linear` uses `he_uniform` and a convolution `he_normal` by default, which assume an activation that halves the mean
square. If no activation reads its output, it uses `lecun_uniform` or `lecun_normal`: with He's formula, ten such layers
in a row would multiply the standard deviation of their input by 32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite

from mithril_nb.errors import UnknownOptionError, short_repr, similar

_FANS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal", "orthogonal")
_PLAIN = ("truncated_normal", "normal", "uniform", "constant")
FIXED = ("zeros", "ones", "constant")
"""The initializers that draw no random numbers."""
INITIALIZERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_FANS, ("scale", "shift", "in_axis", "out_axis")),
    **dict.fromkeys(_PLAIN, ("scale", "shift")),
    "zeros": (),
    "ones": (),
}
"""The arguments of each initializer, by name."""


@dataclass(frozen=True)
class Initializer:
    """Initializer of a parameter.

    Attributes:
        name: A key of `INITIALIZERS`: `"glorot_uniform"`, `"normal"`, `"zeros"`, ...
        in_axis: The input axis of the array, which determines `fan_in`.
        out_axis: The output axis of the array, which determines `fan_out`.
        scale: Factor of the drawn numbers. For `"normal"` it is the standard deviation.
        shift: Number that is added after scaling.
        parts: For an array that concatenates several arrays along `out_axis`, such as the weights of gates: one factor
            for each of them. Each is initialised separately.
    """

    name: str
    in_axis: int = -2
    out_axis: int = -1
    scale: float = 1.0
    shift: float = 0.0
    parts: tuple[float, ...] = ()


def initializer_text(initializer: object) -> str:
    """Return an initializer as text for `Model.set_initializers`, in the shortest form.

    Args:
        initializer: A name such as `"normal"`, a name with arguments such as `"normal(0.02)"`, or an `Initializer`.

    Examples:
        >>> [initializer_text(text) for text in ("normal(scale = 0.020)", "uniform(2, -1)", "constant(1)")]
        ['normal(0.02)', 'uniform(2, -1)', 'constant']
    """
    name, settings = _parsed(initializer)
    plain = replace(Initializer(name), **settings)
    # The axes depend on the block, so they are written only if the user gave them.
    fixed = [key for key in ("in_axis", "out_axis") if key in settings]
    arguments = {key: getattr(plain, key) for key in INITIALIZERS[name] if key in fixed}
    if plain.shift:
        arguments = {"scale": plain.scale, "shift": plain.shift, **arguments}
    elif plain.scale != 1:
        arguments = {"scale": plain.scale, **arguments}
    # An integer without ".0"; `repr` is the shortest text of any other float.
    texts = [f"{value:.17g}" if value == int(value) else repr(value) for value in arguments.values()]
    texts = [text if key in ("scale", "shift") else f"{key}={text}" for key, text in zip(arguments, texts, strict=True)]
    return f"{name}({', '.join(texts)})" if texts else name


def initializer_of(text: str, default: Initializer | None = None) -> Initializer:
    """Parse the text of an initializer.

    Args:
        text: A name such as `"normal"`, or a name with arguments such as `"normal(0.02)"`.
        default: The default initializer of the parameter, with the axes to use if the text omits them.

    Examples:
        >>> initializer_of("he_normal", Initializer("glorot_uniform", in_axis=1, out_axis=0))
        Initializer(name='he_normal', in_axis=1, out_axis=0, scale=1.0, shift=0.0, parts=())
    """
    name, settings = _parsed(text)
    plain = default or Initializer(name)
    parts = (1.0,) * len(plain.parts)  # without the default's factors
    return replace(Initializer(name, in_axis=plain.in_axis, out_axis=plain.out_axis, parts=parts), **settings)


def _parsed(initializer: object) -> tuple[str, dict[str, float]]:
    if isinstance(initializer, Initializer):
        if initializer.parts:
            raise _invalid(initializer, "an Initializer without parts")
        plain = Initializer(initializer.name)
        settings = {key: getattr(initializer, key) for key in ("scale", "shift", "in_axis", "out_axis")}
        return _checked(initializer, initializer.name, {k: v for k, v in settings.items() if v != getattr(plain, k)})
    call = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", initializer) if isinstance(initializer, str) else None
    if call is None:
        raise _invalid(initializer, "text" if not isinstance(initializer, str) else "a name, or a name with arguments")
    name, arguments = call.groups()
    settings: dict[str, float] = {}
    for position, argument in enumerate((arguments or "").split(",") if (arguments or "").strip() else ()):
        key, _, text = argument.rpartition("=")
        key = key.strip() or (("scale", "shift")[position] if position < 2 and not key else "")
        try:
            value = float(text)
        except ValueError:
            raise _invalid(initializer, f"numbers as arguments, not {text.strip()!r}") from None
        if key in settings or not key or not isfinite(value):
            raise _invalid(initializer, "each argument once, by its name, and finite")
        settings[key] = value
    return _checked(initializer, name, settings)


def _checked(initializer: object, name: str, settings: dict[str, float]) -> tuple[str, dict[str, float]]:
    if name not in INITIALIZERS:
        near = similar(name, INITIALIZERS)
        raise UnknownOptionError(
            f"unknown initializer {name!r}.",
            (("known", ", ".join(INITIALIZERS)),),
            repr(near[0]) if near else "'normal(0.02)'",
        )
    for key, value in settings.items():
        if key not in INITIALIZERS[name]:
            raise _invalid(initializer, f"arguments of {name}: {', '.join(INITIALIZERS[name]) or 'none'}")
        if key.endswith("axis"):
            if value != int(value):
                raise _invalid(initializer, f"a whole number as {key}")
            settings = {**settings, key: int(value)}
    return name, settings


def _invalid(initializer: object, needs: str) -> UnknownOptionError:
    return UnknownOptionError(
        f"{short_repr(initializer)} is not an initializer.", (("needs", needs),), '"normal(scale=0.02)"'
    )
