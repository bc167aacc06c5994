"""Read and check the options of `compile` for XLA and devices, and warn about options without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from mithril_nb.backends.backend import check_switch, notice
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOptionError

PARALLELISM = ("data", "model", "mixed")
"""Ways to use several devices: split the batch, split the parameters, or both."""
ARGUMENTS = ("params", "inputs", "output_gradients")
"""Arguments of `evaluate`. `jit_options` refers to them by position, from 0."""
_FUSION_PASSES = "fusion,cpu-fusion,cpu_instruction_fusion"
"""XLA's fusion passes that are disabled without fusion. `fusion-wrapper` stays on: a scatter on CPU needs it."""


@dataclass(frozen=True)
class Options:
    """Options of a compiled physical model. `compile` documents them.

    Attributes:
        parallelism: `"data"`, `"model"` or `"mixed"`; `None` if nothing is split over devices.
        donated: Positions of the donated arguments of `evaluate`.
        keeps_xla: True if the model's attribute `xla_computation` is available.
        replicates_inputs: True if each input is replicated on all devices.
        static_shapes: True to reject inputs whose shapes differ from the compiled ones.
        compiler_options: Options for XLA, by name.
    """

    parallelism: str | None = None
    donated: tuple[int, ...] = ()
    keeps_xla: bool = False
    replicates_inputs: bool = False
    static_shapes: bool = False
    compiler_options: Mapping[str, str] = field(default_factory=dict[str, str])


def read_options(
    backend: JaxBackend,
    jit: bool,
    parallelism: str | None = None,
    jit_options: Mapping[str, Any] | None = None,
    tpu_options: Mapping[str, Any] | None = None,
    static_shapes: bool | None = None,
    optimizations: Mapping[str, Any] | None = None,
) -> Options:
    """Return the checked options; `compile` documents the arguments. Warn about options without effect."""
    check_switch("static_shapes", static_shapes)
    _check_parallelism(parallelism, backend)
    flags = dict(backend.compiler_options)
    donated, keeps_xla = _jit_options(jit_options, jit)
    replicates = _tpu_options(tpu_options, backend, parallelism)
    if optimizations is not None and not _optimizations(optimizations, backend, jit):
        # The user may have disabled other passes by the same flag.
        flags["xla_disable_hlo_passes"] = ",".join(filter(None, (flags.get("xla_disable_hlo_passes"), _FUSION_PASSES)))
    return Options(parallelism, donated, keeps_xla, replicates, bool(static_shapes), flags)


def _check_parallelism(parallelism: Any, backend: JaxBackend) -> None:
    if parallelism is None:
        return
    if parallelism not in PARALLELISM:
        known = ", ".join(map(repr, PARALLELISM))
        raise UnknownOptionError(f"unknown parallelism {parallelism!r}.", (("known", known),))
    axes = () if backend.mesh is None else tuple(backend.mesh.shape.values())
    if len(axes) < (2 if parallelism == "mixed" else 1):
        raise UnknownOptionError(
            f"parallelism={parallelism!r} needs a mesh of devices{' with two axes' if parallelism == 'mixed' else ''}.",
            (("has", f"device_mesh={axes}" if axes else "one device"), ("devices", f"{len(jax.devices())}")),
            "ml.JaxBackend(device_mesh=(2, 4))  # the number of devices along each axis",
        )


def _jit_options(user_options: Mapping[str, Any] | None, jit: bool) -> tuple[tuple[int, ...], bool]:
    options = _checked("jit_options", user_options, ("static_argnums", "donate_argnums", "xla_computation"))
    keeps_xla = options.get("xla_computation")
    check_switch("jit_options['xla_computation']", keeps_xla)
    if static := _positions(options.get("static_argnums"), "static_argnums"):
        names = " and ".join(repr(ARGUMENTS[position]) for position in static)
        notice(
            f"jit_options['static_argnums'] has no effect on {names}: a dict of arrays cannot be static. The "
            "attributes of blocks are always static."
        )
    donated = _positions(options.get("donate_argnums"), "donate_argnums")
    if donated and not jit:
        notice("jit_options['donate_argnums'] has no effect: jit=False, and only a jitted program can reuse memory.")
    return (donated if jit else ()), bool(keeps_xla)


def _positions(argnums: Any, key: str) -> tuple[int, ...]:
    if argnums is None:
        return ()
    # One position or several, as for `jax.jit`.
    positions = tuple(argnums) if isinstance(argnums, Sequence) and not isinstance(argnums, str) else (argnums,)
    if any(
        isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(ARGUMENTS)
        for position in positions
    ):
        raise UnknownOptionError(
            f"jit_options[{key!r}]={argnums!r} must contain positions of arguments of evaluate.",
            (("arguments", ", ".join(f"{position} {name}" for position, name in enumerate(ARGUMENTS))),),
            f'jit_options={{"{key}": (0,)}}',
        )
    return tuple(sorted({int(position) for position in positions}))


def _tpu_options(user_options: Mapping[str, Any] | None, backend: JaxBackend, parallelism: str | None) -> bool:
    options = _checked("tpu_options", user_options, ("replicate_inputs", "allow_spmd"))
    for key, value in options.items():
        check_switch(f"tpu_options[{key!r}]", value)
    if options.get("allow_spmd") is False:
        notice("tpu_options['allow_spmd'] has no effect: JAX compiles every program on several devices as SPMD.")
    replicates = bool(options.get("replicate_inputs"))
    if replicates and backend.mesh is None:
        notice("tpu_options['replicate_inputs'] has no effect: the backend has one device, not a device_mesh.")
    # Only "model" leaves the batch whole.
    elif replicates and parallelism in ("data", "mixed"):
        raise UnknownOptionError(
            f"tpu_options['replicate_inputs']=True and parallelism={parallelism!r} contradict each other.",
            (("because", f"parallelism={parallelism!r} splits each input over the devices"),),
            'parallelism="model"  # or omit replicate_inputs',
        )
    return replicates and backend.mesh is not None


def _optimizations(user_options: Mapping[str, Any], backend: JaxBackend, jit: bool) -> bool:
    options = _checked("optimizations", user_options, ("fusion", "buffer_reuse", "layout_optimization"))
    for key, value in options.items():
        check_switch(f"optimizations[{key!r}]", value)
    for key, action in (("buffer_reuse", "reuses buffers"), ("layout_optimization", "chooses layouts")):
        if options.get(key) is False:
            notice(f"optimizations[{key!r}]=False has no effect: XLA always {action}.")
        elif options.get(key) and not jit:
            notice(f"optimizations[{key!r}] has no effect: jit=False, and XLA sees one operation at a time.")
    fuses = options.get("fusion")
    platform = backend.device.platform if backend.device else jax.default_backend()
    if fuses and not jit:
        notice("optimizations['fusion'] has no effect: jit=False, and XLA sees one operation at a time.")
    if fuses is False and platform != "cpu":
        notice(f"optimizations['fusion']=False has no effect: XLA requires fusion on {platform}.")
    return fuses is not False or platform != "cpu"


def _checked(name: str, user_options: Any, keys: Sequence[str]) -> dict[str, Any]:
    if user_options is None:
        return {}
    is_dict = isinstance(user_options, Mapping)
    wrong = [key for key in user_options if key not in keys] if is_dict else [user_options]
    if wrong:
        raise UnknownOptionError(
            f"{name} has no option {wrong[0]!r}.",
            (("takes", f"a dict with {', '.join(keys)}"),),
            f'{name}={{"{keys[0]}": ...}}',
        )
    return {key: value for key, value in user_options.items() if value is not None}
