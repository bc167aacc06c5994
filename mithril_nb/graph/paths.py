"""Block paths: names joined by `/`. Characters with a meaning in a path are written as `%XX`.

A name may contain any character, but a path, a parameter name and a JAX scope must parse unambiguously.
"""

from __future__ import annotations

from urllib.parse import unquote

_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in "%/.():[]"})


def component(name: str) -> str:
    """Return the name as written in a path.

    Examples:
        >>> component("linear_0"), component("a/b")
        ('linear_0', 'a%2Fb')
    """
    return name.translate(_ESCAPES)


def name_of(part: str) -> str:
    """Return the name encoded in a path component: the inverse of `component`."""
    return unquote(part)


def join_path(prefix: str, name: str) -> str:
    """Return the path of the block `name` inside the block at `prefix` (`""` for the model itself).

    Examples:
        >>> join_path("mlp_0", "linear_1"), join_path("", "linear_1")
        ('mlp_0/linear_1', 'linear_1')
    """
    return f"{prefix}/{component(name)}" if prefix else component(name)


def split_path(path: str) -> tuple[str, ...]:
    """Return the names along a path; `()` for the model itself.

    Examples:
        >>> split_path("mlp_0/linear_1")
        ('mlp_0', 'linear_1')
    """
    return tuple(name_of(part) for part in path.split("/")) if path else ()


def is_within(path: str, group: str) -> bool:
    """Return whether a path is the group itself or a block inside it; `""` is the group of all blocks.

    Examples:
        >>> is_within("mlp_0/linear_1", "mlp_0"), is_within("mlp_0", "mlp_0"), is_within("mlp_01", "mlp_0")
        (True, True, False)
    """
    return group == "" or path == group or path.startswith(f"{group}/")


def parameter_name(path: str, port: str) -> str:
    """Return the name of a block's parameter.

    Examples:
        >>> parameter_name("mlp_0/linear_1", "weight"), parameter_name("", "weight")
        ('mlp_0.linear_1.weight', 'weight')
    """
    return ".".join((*path.split("/"), component(port))) if path else component(port)
