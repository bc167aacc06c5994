"""The pictures of costs, as methods; `mithril_nb.viz` draws them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mithril_nb.display import Shown, draw

if TYPE_CHECKING:
    from mithril_nb.cost.records import Figures


class Drawn(Shown):
    """Mixin: pictures of the costs of a program."""

    source: str
    device: Any

    if TYPE_CHECKING:

        @property
        def total(self) -> Figures:
            """The whole."""
            ...

        def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
            """Return the costs as plain data."""
            ...

    def treemap(self, field: str | None = None, width: int = 720) -> Any:
        """Return a picture in which the area of a block is its cost: a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            field: `"flops"`, `"bytes_accessed"`, `"params"`, `"time_s"` or `"transcendentals"`; by default the FLOPs,
                or the time if that was measured.
            width: Width in px.

        Raises:
            UnknownOptionError: There is no such field, or it is no width.
        """
        return draw(self, "treemap", field=self._drawn if field is None else field, width=width)

    def roofline(self, peaks: Any = None, width: int = 720) -> Any:
        """Return a picture of the machine's roofline with each block below it, a `Drawing` too.

        Args:
            peaks: What the machine can do, as `ml.machine()` returns it, or `flops_per_s`, `bytes_per_s`
                and `source` by name. By default a profile's, or what `ml.machine()` measured of the program's device.
            width: Width in px.

        Raises:
            UnknownOptionError: These are no peaks, or it is no width.
        """
        return draw(self, "roofline", peaks=peaks, width=width)

    def overlay(self, graph: Any, field: str | None = None, expanded: Collection[str] = ()) -> Any:
        """Return the graph of the program with the cost of each block on it, a `Drawing` too.

        Args:
            graph: The inspection that the costs are of or its graph, or the model that the program is of or its graph.
            field: As for `treemap`.
            expanded: Paths of the groups whose insides are drawn, as a graph of an inspection names its nodes; or one.

        Raises:
            UnknownOptionError: There is no such field, it is no graph, or these are not the costs of this graph.
            UnknownBlockError: The graph has no such group.
        """
        name = self._drawn if field is None else field
        return draw(self, "overlay", graph=graph, field=name, expanded=expanded)

    @property
    def _drawn(self) -> str:
        """The field that a picture shows by default."""
        return "time_s" if self.source == "measured" and self.total.time_s is not None else "flops"
