"""XLA's flags, given to each program that is compiled: the environment, that all programs share, is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from mithril_nb.backends.notices import notice
from mithril_nb.errors import UnknownOptionError

_KINDS = {"xla_gpu_": "gpu", "xla_tpu_": "tpu", "xla_cpu_": "cpu"}
"""Platforms that a flag is for, by how it begins."""
_AT_START = "xla_force_host_platform_device_count"
"""The one flag that XLA reads only when it starts."""


def compiler_options(flags: Any, platform: str) -> dict[str, str]:
    """Return flags as `jax.jit(compiler_options=...)` takes them; those for other platforms are warned about.

    Args:
        flags: Texts as in the variable XLA_FLAGS: `["--xla_cpu_enable_fast_math=true"]`.
        platform: `"cpu"`, `"gpu"` or `"tpu"`.

    Raises:
        UnknownOptionError: A flag that XLA does not know, or a value that it does not take.

    Examples:
        >>> compiler_options(["--xla_cpu_enable_fast_math=true"], "cpu")
        {'xla_cpu_enable_fast_math': 'True'}
    """
    if isinstance(flags, str) or not isinstance(flags, Sequence) or not all(isinstance(one, str) for one in flags):
        raise UnknownOptionError(
            f"xla_flags={flags!r} is no list of flags.",
            (("needs", "a list of texts"),),
            'xla_flags=["--xla_cpu_enable_fast_math=true"]',
        )
    options: dict[str, str] = {}
    for flag in flags:
        name, is_set, value = flag.strip().removeprefix("--").partition("=")
        meant = next((kind for start, kind in _KINDS.items() if name.startswith(start)), platform)
        if name == _AT_START:
            raise UnknownOptionError(
                f"the XLA flag {name!r} comes too late: it is read when JAX starts.",
                advice=f'os.environ["XLA_FLAGS"] = "--{name}={value or 8}"  # before JAX is imported',
            )
        if meant == platform:
            options[name] = _spelt(value) if is_set else "True"
            _try(name, options[name], flag)
        else:  # not tried: XLA may know its flags for other platforms only there
            notice(
                f"the XLA flag {name!r} has no effect: it is for {meant.upper()}s, and this backend runs on {platform}."
            )
    return options


def _spelt(value: str) -> str:
    # XLA_FLAGS takes "true"; an option of one compilation takes Python's spelling only.
    return value.capitalize() if value.lower() in ("true", "false") else value


def _try(name: str, value: str, flag: str) -> None:
    """Compile next to nothing with it: XLA has no list of its flags to look into."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        said = str(error).partition(": ")[2] or str(error)
        raise UnknownOptionError(
            f"XLA does not take the flag {flag!r}.",
            (("because", said),),
            'xla_flags=["--xla_cpu_enable_fast_math=true"]  # or no flags',
        ) from None
