"""Names of blocks and connections, and block paths: names joined by `/`, with special characters as `%XX`.

A name may contain any character, but a path, a parameter name and a JAX scope must parse unambiguously.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache, lru_cache
from urllib.parse import unquote

from mithril_nb.errors import ConnectionError, MithrilError, UnknownOptionError, short_repr

NAME_LENGTH = 1_000
"""Maximum number of characters in a name. `ml.load` accepts no longer name by default."""
# JAX joins scopes with "/" and adds text such as "jvp(...)", so these characters cannot be in a name.
_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in "%/.():[]"})


@lru_cache(1 << 14)
def component(name: str) -> str:
    """Return a name as part of a path: slashes, dots and other special characters become codes such as %2F.

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


@lru_cache(maxsize=4096)
def lineage(path: str) -> tuple[str, ...]:
    """Return the paths of the blocks around a block, the outermost first, then the path itself; `()` for `""`.

    Examples:
        >>> lineage("mlp_0/linear_1")
        ('mlp_0', 'mlp_0/linear_1')
    """
    parts = path.split("/") if path else []
    # Cached: tables and costs ask for the same few paths for each equation.
    return tuple("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def is_within(path: str, group: str) -> bool:
    """Return whether the block at `path` is the block at `group`, or inside it. Every block is inside `""`, the model.

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


@cache
def _stem(kind: str) -> str:
    words: list[str] = []
    for index, char in enumerate(kind):
        is_capital, follows = char.isupper(), kind[index + 1 : index + 2]
        # A capital starts a word before a small letter (RBF|Kernel), or after a word of over two letters: not in SiLU.
        starts = is_capital and (follows.islower() or (index and kind[index - 1].islower() and len(words[-1]) > 2))
        # The first character starts the first word, whatever it is.
        if starts or not words:
            words.append(char)
        else:
            words[-1] += char
    return "_".join(words).lower()


def default_name(kind: str, number: int) -> str:
    """Return the name of the block with this kind and number.

    Examples:
        >>> default_name("MaxPool2d", 3), default_name("RBFKernel", 0), default_name("SiLU", 0)
        ('max_pool2d_3', 'rbf_kernel_0', 'silu_0')
    """
    return f"{_stem(kind)}_{number}"


def next_name(kind: str, number: int, used: Container[str]) -> str:
    """Return the default name of the next block of a kind: the first name from `number` on that is not taken.

    Examples:
        >>> next_name("Linear", 1, {"linear_0", "linear_1"})
        'linear_2'
    """
    # The user may have given this name to another block.
    while (name := default_name(kind, number)) in used:
        number += 1
    return name


def check_length(name: str, error: type[MithrilError] = UnknownOptionError) -> None:
    """Raise an error if a name has more than `NAME_LENGTH` characters."""
    if len(name) > NAME_LENGTH:
        facts = (("has", f"{len(name):,} characters"), ("at most", f"{NAME_LENGTH:,} characters"))
        raise error(f"the name {short_repr(name)} is too long.", facts, f"{name[:20]!r}")


def checked_name(name: object) -> str:
    """Return a valid name for an input or an output.

    Examples:
        >>> checked_name("hidden")
        'hidden'
    """
    if isinstance(name, str) and name and "." not in name:
        check_length(name, ConnectionError)
        return name
    if not isinstance(name, str) or not name:
        raise ConnectionError(
            f"a connection cannot have the name {short_repr(name)}.", (("needs", "a non-empty string"),), "'hidden'"
        )
    raise ConnectionError(
        f"a connection cannot have the name {name!r}: a dot separates a block from its port.",
        (("needs", "a name without dots"),),
        f"{name.strip('.').replace('.', '_') or 'hidden'!r}",
    )
