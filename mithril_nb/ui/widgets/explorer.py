"""`ml.explore`: a widget that shows the graph, linked stages, costs and passes of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.display import renderer
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.tour import Tour
from mithril_nb.stages.transforms.stepping import TransformSteps, step_through
from mithril_nb.targets import inspect
from mithril_nb.targets.inspection import as_plain_call
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.session.stages import LazyStages
from mithril_nb.ui.widgets.front_end import shown_in_widget
from mithril_nb.ui.widgets.protocol import transforms_message
from mithril_nb.ui.widgets.session_widget import SessionWidget
from mithril_nb.viz.bundles import Bundle, bundle
from mithril_nb.viz.costs.tables.table import cost_html, cost_text


class Explorer(SessionWidget):
    """A widget with graph, linked stages, costs and passes of a program. Create it with `explore`.

    Attributes:
        inspection: The program.
        session: The `Exploration` of the widget.
        errors: Errors of handlers and threads, latest last.
    """

    session: Exploration

    def __init__(self, inspection: Inspection, steps: TransformSteps | None = None, tour: Tour | None = None):
        parts = (inspection,) if steps is None else (inspection, steps)
        super().__init__(
            Exploration(inspection, steps, () if tour is None else tour.data),
            "explorer.js",
            lambda: _together(*map(bundle, parts), *_costs(inspection)),
            {"text/plain": "\n".join(map(repr, parts))},
        )

    def __repr__(self) -> str:
        return f"Explorer({self.inspection!r})"

    @property
    def inspection(self) -> Inspection:
        """The program, on the chosen device."""
        return self.session.inspection

    @property
    def stages(self) -> Mapping[str, Any]:
        """The stages by name, each computed on first use."""
        return LazyStages(self.inspection)

    def _send_initial_data(self) -> None:
        super()._send_initial_data()
        if self.session.transforms.steps is not None:
            self.send(*transforms_message(self.session.transforms.steps))
        for kind, reply in self.session.graph():
            self._on_change(kind, reply)

    @shown_in_widget
    def _on_change(self, kind: str, value: Any) -> None:
        super()._on_change(kind, value)
        if kind == "snapshot" and self._is_attended:
            self._twin.refresh()  # without a page, the output of a cell must not change after the cell ran

    def _ipython_display_(self) -> None:
        super()._ipython_display_()
        self.session.start()  # start afterwards, so that without a page the static picture does not depend on timing

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        mime_bundle = super()._repr_mimebundle_(include, exclude)
        self.session.start()
        return mime_bundle


def _costs(inspection: Inspection) -> list[Bundle]:
    try:
        cost = inspection.cost()
    except StageUnavailableError:
        return []
    data = cost.to_dict(rows=False)
    return [{"text/plain": cost_text(data), "text/html": cost_html(data)}]


def _together(*bundles: Bundle) -> Bundle:
    return {kind: "\n\n".join(part[kind] for part in bundles) for kind in bundles[0].keys() & bundles[-1].keys()}


def explore(target: Any, *args: Any, through: Sequence[Any] = (), **options: Any) -> Explorer:
    """Explore a program in the notebook: its graph, its stages linked line by line, its costs and passes.

    Args:
        target: A target of `ml.inspect`, its result, or a tour from `Inspection.tour`.
        *args: Arguments of the target, as in `ml.inspect`.
        through: Transforms that the widget also shows step by step, innermost first, as in `ml.step_through`:
            `("grad", ("vmap", 4), "jit")`.
        **options: Options of `ml.inspect`, such as `device="h100"`: the widget has a menu with other devices.

    Returns:
        The widget; the last expression of a cell shows it.

    Raises:
        UnknownOptionError: The target cannot be inspected; it is the result of `ml.inspect`, and arguments or options
            are passed; an entry of `through` is not a transform; or `through` is used and the target is not a function.

    Examples:
        >>> import jax.numpy as jnp
        >>> explore(jnp.sin, jnp.zeros(3))
        Explorer(Inspection('sin', computed: none yet))
    """
    is_stepped = not isinstance(through, list | tuple) or len(through) > 0
    if is_stepped and (isinstance(target, Inspection) or not callable(target)):
        raise UnknownOptionError(
            f"cannot step through transforms of {short_repr(target)}.",
            (("needs", "a function and its arguments"),),
            'ml.explore(fn, *args, through=("grad",))',
        )
    if not args and not options:
        if isinstance(target, Tour):
            return Explorer(target.inspection, tour=target)
        if isinstance(target, Inspection):
            return Explorer(target)
    inspection = inspect(target, *args, **options)
    if not is_stepped:
        return Explorer(inspection)
    fn, traced = as_plain_call(target, args, options)
    return Explorer(inspection, step_through(fn, *traced, through=through))


@renderer(Tour, kind="live")
def show_tour(tour: Tour) -> None:
    """Show a tour in an explorer."""
    explore(tour)._ipython_display_()
