"""Dicts of costs by block or by role, whose error for a missing key lists the known keys and suggests the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

from mithril_nb.cost.records import Figures, format_sum, sum_of_figures
from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.errors import UnknownBlockError, UnknownOptionError, nearest, short_repr

Value = TypeVar("Value")
_MOST_NAMED = 8


class ByName(dict[str, Value]):
    """A dict with two texts for the error messages of its subclasses, which suggest the nearest key.

    Args:
        known: The items of the dict.
        of: The subject of a message, in the plural: `"costs of 'step'"`.
        called: Code that returns this dict, for the suggestion: `"cost.by_block"`.
    """

    _usually_called: ClassVar[str] = "cost"
    _what: ClassVar[str] = ""
    _unnamed: ClassVar[str] = UNATTRIBUTED_LABEL

    # `of` and `called` have defaults because `dataclasses.asdict` copies the dict with `type(self)(pairs)`.
    def __init__(
        self,
        items: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        of: str = "these costs",
        called: str = "",
    ):
        super().__init__(items)
        self._of, self._called = of, called or self._usually_called

    def __str__(self) -> str:
        """Return costs as a table with a row for each key."""
        rows = [(str(key) or self._unnamed, figures) for key, figures in self.items() if isinstance(figures, Figures)]
        if not rows:
            return repr(self)
        rows.append(("sum", sum_of_figures((figures for _, figures in rows), all_known=True)))
        cells = [
            (
                key,
                format_sum(figures.flops, figures.unknown),
                format_sum(figures.transcendentals, figures.unknown_transcendentals),
                format_sum(figures.bytes_accessed, figures.unknown_bytes),
            )
            for key, figures in rows
        ]
        return f"{self._of}\n{columns([(self._what, 'FLOPs', 'transcendentals', 'bytes'), *cells], range(1, 4))}"


class ByBlock(ByName[Value]):
    """A dict from the path of each block to a value, in the order of the program; see `ByName` for the arguments.

    Examples:
        >>> blocks = ByBlock({"net/linear": 1, "head": 2}, "costs of 'step'")
        >>> blocks["head"], blocks.get("hed")
        (2, None)
        >>> blocks["hed"]
        Traceback (most recent call last):
        mithril_nb.errors.UnknownBlockError: costs of 'step' have no block 'hed'.
            blocks  net/linear, head
            Try: cost.by_block["head"]
    """

    _usually_called, _what = "cost.by_block", "block"

    def __missing__(self, path: object) -> Value:
        paths = [path for path in self if path]  # `""` means not attributed
        if isinstance(path, str) and _is_around(path, paths):
            raise UnknownBlockError(
                f"{self._of} have no entry for block {path!r} itself, only for blocks inside it.",
                (("blocks", first_names(paths)),),
                f'cost.subtree("{path}")  # adds them up',
            )
        call = f'{self._called}["{{}}"]' if nearest_path(path, paths) in paths else 'cost.subtree("{}")'
        raise no_block(self._of, path, paths, call, f"[*{self._called}]")


class ByRole(ByName[Value]):
    """A dict from each part of a training step to a value; the key `""` means "no part".

    See `ByName` for the arguments.

    Examples:
        >>> roles = ByRole({"forward": 2, "backward": 4, "update": 0}, "costs of 'step'")
        >>> roles["backward"], roles.get("back")
        (4, None)
        >>> roles["forwards"]
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: costs of 'step' have no role 'forwards'.
            roles  forward, backward, update
            Try: cost.by_role["forward"]
    """

    _usually_called, _what, _unnamed = "cost.by_role", "role", "(no role)"

    def __missing__(self, role: object) -> Value:
        roles = [role_ for role_ in self if role_]
        near = nearest(role, roles) or next(iter(roles), "forward")
        raise UnknownOptionError(
            f"{self._of} have no role {short_repr(role)}.",
            (("roles", ", ".join(roles) or "none"),),
            f'{self._called}["{near}"]',
        )


def no_block(of: str, path: object, paths: list[str], call: str, otherwise: str) -> UnknownBlockError:
    """Build the error for an unknown block, which suggests the known block with the most similar path.

    Args:
        of: The subject of the message: `"costs of 'step'"`.
        path: The unknown path.
        paths: Paths of the known blocks.
        call: Code to suggest; `{}` in it is replaced by the similar path.
        otherwise: Code to suggest if no known path is similar.
    """
    near = nearest_path(path, paths)
    return UnknownBlockError(
        f"{of} have no block {short_repr(path)}.",
        (("blocks", first_names(paths)),),
        call.format(near) if near else otherwise,
    )


def first_names(names: list[str]) -> str:
    """Return at most eight names as text: `"net, head"`, `"a, b, c, d, e, f, g, h and 2 more"` or `"none"`."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}" or "none"


def nearest_path(path: object, paths: list[str]) -> str | None:
    """Return the known path that the user most likely meant; `None` if none is similar.

    If the path with `/` instead of `.` is known, it is returned. Otherwise, the most similar path is returned, or a
    path whose last name is similar.

    Examples:
        >>> nearest_path("linaer", ["net", "net/linear"]), nearest_path(3, ["net"])
        ('net/linear', None)
        >>> nearest_path("net.linear", ["net/linear/matmul"])
        'net/linear'
    """
    slashed = path.replace(".", "/") if isinstance(path, str) else ""
    if slashed and (slashed in paths or _is_around(slashed, paths)):
        return slashed
    # Reversed, so that of several paths with the same last name the first one is suggested.
    by_name = {known_path.rpartition("/")[2]: known_path for known_path in reversed(paths)}
    match = nearest(path, paths) or nearest(path, by_name)
    return by_name.get(match, match) if match else None


def _is_around(path: str, paths: Iterable[str]) -> bool:
    return any(other.startswith(f"{path}/") for other in paths)


def with_outer(paths: Iterable[str]) -> list[str]:
    """Return the paths, each after the paths of the blocks that contain it, without duplicates and without `""`.

    Examples:
        >>> with_outer(["net/mlp/up", "net/mlp/down", ""])
        ['net', 'net/mlp', 'net/mlp/up', 'net/mlp/down']
    """
    parts = (path.split("/") for path in paths)
    return [
        path for path in dict.fromkeys("/".join(names[: at + 1]) for names in parts for at in range(len(names))) if path
    ]
