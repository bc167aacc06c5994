"""Dicts of costs by block, role or line, whose error for a missing key suggests the nearest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from mithril_nb.cost.records import Figures, sum_of
from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.errors import MithrilError, UnknownBlockError, UnknownOptionError, nearest, short_repr
from mithril_nb.figures import FIGURES, LOCAL
from mithril_nb.graph.paths import lineage

Value = TypeVar("Value")
_MOST_NAMED = 8


class ByName(dict[str, Value]):
    """A dict by path of a block, role of an equation or line of Python; the key `""` means none of them.

    Args:
        items: The items of the dict.
        of: The subject of a message, in the plural: `"costs of 'step'"`.
        noun: What the keys name: `"block"`, `"role"` or `"line"`.
        called: Code that returns this dict, for the suggestion; by default `"cost.by_block"`.

    Examples:
        >>> blocks = ByName({"net/linear": 1, "head": 2}, "costs of 'step'")
        >>> blocks["head"], blocks.get("hed")
        (2, None)
        >>> blocks["hed"]
        Traceback (most recent call last):
        mithril_nb.errors.UnknownBlockError: costs of 'step' have no block 'hed'.
            blocks  net/linear, head
            Try: cost.by_block["head"]
    """

    # `of` has a default because `dataclasses.asdict` copies the dict with `type(self)(pairs)`.
    def __init__(
        self,
        items: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        of: str = "these costs",
        noun: str = "block",
        called: str = "",
    ):
        super().__init__(items)
        self._of, self._noun, self._called = of, noun, called or f"cost.by_{noun}"

    def __str__(self) -> str:
        """Return costs as a table with a row for each key."""
        unnamed = "(no role)" if self._noun == "role" else UNATTRIBUTED_LABEL
        rows = [(str(key) or unnamed, figures) for key, figures in self.items() if isinstance(figures, Figures)]
        if not rows:
            return repr(self)
        rows.append(("sum", sum_of((figures for _, figures in rows), all_known=True)))
        cells = [(name, *map(figures.text, LOCAL)) for name, figures in rows]
        head = (self._noun, *(FIGURES[key].column for key in LOCAL))
        return f"{self._of}\n{columns([head, *cells], range(1, len(head)))}"

    def __missing__(self, name: object) -> Value:
        names = [key for key in self if key]
        if self._noun != "block":
            near = nearest(name, names)
            raise unknown_name(self._of, self._noun, name, names, f"{self._called}[{{}}]", f"[*{self._called}]", near)
        if isinstance(name, str) and _is_around(name, names):
            raise UnknownBlockError(
                f"{self._of} have no entry for block {name!r} itself, only for blocks inside it.",
                (("blocks", first_names(names)),),
                f'cost.subtree("{name}")  # adds them up',
            )
        near = nearest_path(name, names)
        call = f"{self._called}[{{}}]" if near in names else "cost.subtree({})"
        raise unknown_name(self._of, "block", name, names, call, f"[*{self._called}]", near)


def unknown_name(
    of: str, noun: str, name: object, names: list[str], call: str, otherwise: str, near: str | None
) -> MithrilError:
    """Return the error for an unknown block, role or line. It suggests `call` with the known name `near`, if any."""
    error = UnknownBlockError if noun == "block" else UnknownOptionError
    return error(
        f"{of} have no {noun} {short_repr(name)}.",
        ((f"{noun}s", first_names(names)),),
        call.format(f'"{near}"') if near else otherwise,
    )


def first_names(names: list[str]) -> str:
    """Return at most eight names as text: `"net, head"`, `"a, b, c, d, e, f, g, h and 2 more"` or `"none"`."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}" or "none"


def nearest_path(path: object, paths: list[str]) -> str | None:
    """Return the known path that the user most likely meant: with `/` for `.`, a similar one, or one's last name.

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
    return [*dict.fromkeys(outer for path in paths for outer in lineage(path))]
