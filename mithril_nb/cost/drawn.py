"""Charts of costs, as methods; `mithril_nb.viz` draws them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mithril_nb.display import Shown, draw

if TYPE_CHECKING:
    from mithril_nb.cost.records import Figures


class Drawn(Shown):
    """Mixin with charts of the costs of a program."""

    source: str
    device: Any

    if TYPE_CHECKING:

        @property
        def total(self) -> Figures:
            """The cost of the program."""
            ...

        def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
            """Return the costs as plain data."""
            ...

    def treemap(self, field: str | None = None, width: int = 720) -> Any:
        """Return a treemap, where the area of a block is its cost: a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            field: `"flops"`, `"bytes_accessed"`, `"params"`, `"time_s"` or `"transcendentals"`; by default the FLOPs,
                or the time if it was measured.
            width: Width in px.

        Raises:
            UnknownOptionError: There is no such field, or the width is not valid.
        """
        return draw(self, "treemap", field=self._drawn if field is None else field, width=width)

    def roofline(self, peaks: Any = None, width: int = 720) -> Any:
        """Return the machine's roofline with a point for each block: a `Drawing`.

        Args:
            peaks: The peak rates of the machine, as `ml.machine()` returns them, or a dict with `flops_per_s`,
                `bytes_per_s` and `source`. By default the peaks of the profile, or as `ml.machine()` measured them on
                the program's device.
            width: Width in px.

        Raises:
            UnknownOptionError: `peaks` or `width` is not valid.
        """
        return draw(self, "roofline", peaks=peaks, width=width)

    def overlay(self, graph: Any, field: str | None = None, expanded: Collection[str] = ()) -> Any:
        """Return the graph of the program with the cost of each block on it: a `Drawing`.

        Args:
            graph: The inspection that was counted, or the model of its program, or the graph of either.
            field: As for `treemap`.
            expanded: Path or paths of the groups to expand, as in the nodes of an inspection's graph.

        Raises:
            UnknownOptionError: There is no such field, `graph` is not a graph, or the costs belong to another graph.
            UnknownBlockError: The graph has no such group.
        """
        name = self._drawn if field is None else field
        return draw(self, "overlay", graph=graph, field=name, expanded=expanded)

    @property
    def _drawn(self) -> str:
        """The field that charts show by default."""
        return "time_s" if self.source == "measured" and self.total.time_s is not None else "flops"
