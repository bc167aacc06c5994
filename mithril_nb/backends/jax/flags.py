"""XLA flags as options of single programs. The environment variable, which all programs share, is not changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from mithril_nb.backends.notices import notice
from mithril_nb.errors import UnknownOptionError

_KINDS = {"xla_gpu_": "gpu", "xla_tpu_": "tpu", "xla_cpu_": "cpu"}
"""Platform of a flag, by its prefix."""
_AT_START = "xla_force_host_platform_device_count"
"""A flag that XLA reads only when it starts."""


def compiler_options(flags: Any, platform: str) -> dict[str, str]:
    """Return flags in the form of `jax.jit(compiler_options=...)`. Warn about flags for other platforms.

    Args:
        flags: Flags as in the variable XLA_FLAGS: `["--xla_cpu_enable_fast_math=true"]`.
        platform: `"cpu"`, `"gpu"` or `"tpu"`.

    Raises:
        UnknownOptionError: XLA rejects a flag or its value.

    Examples:
        >>> compiler_options(["--xla_cpu_enable_fast_math=true"], "cpu")
        {'xla_cpu_enable_fast_math': 'True'}
    """
    if isinstance(flags, str) or not isinstance(flags, Sequence) or not all(isinstance(one, str) for one in flags):
        raise UnknownOptionError(
            f"xla_flags={flags!r} is not a list of flags.",
            (("needs", "a list of strings"),),
            'xla_flags=["--xla_cpu_enable_fast_math=true"]',
        )
    options: dict[str, str] = {}
    for flag in flags:
        name, is_set, value = flag.strip().removeprefix("--").partition("=")
        meant = next((kind for start, kind in _KINDS.items() if name.startswith(start)), platform)
        if name == _AT_START:
            raise UnknownOptionError(
                f"the XLA flag {name!r} comes too late: JAX reads it only at the start.",
                advice=f'os.environ["XLA_FLAGS"] = "--{name}={value or 8}"  # before JAX is imported',
            )
        if meant == platform:
            options[name] = _python_bool(value) if is_set else "True"
            _try(name, options[name], flag)
        else:  # do not try it: XLA may accept such a flag only on its own platform
            notice(
                f"the XLA flag {name!r} has no effect: it is for {meant.upper()}s, and this backend runs on {platform}."
            )
    return options


def _python_bool(value: str) -> str:
    # XLA_FLAGS accepts "true", but a compiler option must be "True".
    return value.capitalize() if value.lower() in ("true", "false") else value


def _try(name: str, value: str, flag: str) -> None:
    """Compile a trivial program with the flag, because XLA has no list of its flags."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        # Without the status code: the text is "INVALID_ARGUMENT: No such compile option: ...".
        because = str(error).partition(": ")[2] or str(error)
        raise UnknownOptionError(
            f"XLA rejects the flag {flag!r}.",
            (("because", because),),
            'xla_flags=["--xla_cpu_enable_fast_math=true"]  # or no flags',
        ) from None
