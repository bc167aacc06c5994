"""`ml.try_shardings`: menus that split the arguments of a program over a mesh, and show what each choice costs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import ipywidgets as widgets
from jax.sharding import PartitionSpec

from mithril_nb.cost.mesh import MeshUse, Sliced
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.failure import failure_of
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.html_parts import html_table
from mithril_nb.viz.text import escaped
from mithril_nb.viz.units import nbytes, seconds

_WHOLE = "no dimension"


class ShardingMenu(widgets.VBox):
    """Menus for the shardings of a program's arguments, and the program with them. Create it with `try_shardings`.

    Attributes:
        inspection: The program with the chosen shardings.
        specs: The chosen `PartitionSpec` of each argument by name.
        errors: Errors of handlers and of the compiler, latest last.
    """

    def __init__(self, inspection: Inspection):
        self.inspection = self._start = inspection
        self.errors: list[BaseException] = []
        self._first = inspection.mesh
        self._arrays = {array.name: array for array in self._first.arrays if _can_change(array)}
        if not self._arrays:
            raise StageUnavailableError(f"program {inspection.name!r} has no argument that can be split.")
        self._queue = JobQueue("mithril_nb shardings", self.errors.append)
        self._axes: dict[str, dict[str, int | None]] = {
            name: {axis: _dim_along(array, axis) for axis in self._first.axes} for name, array in self._arrays.items()
        }
        self._array = widgets.Dropdown(options=[*self._arrays], description="array")
        self._menus = {
            axis: widgets.Dropdown(description=f"{axis} ({size})") for axis, size in self._first.axes.items()
        }
        self._reset = widgets.Button(description="Reset", tooltip="Return to the shardings of the program")
        self._status, self._result = widgets.HTML(), widgets.HTML()
        self._is_filling = False
        super().__init__([
            widgets.HBox([self._array, *self._menus.values(), self._reset], layout={"flex_flow": "row wrap"}),
            self._status,
            self._result,
        ])  # fmt: skip
        self._array.observe(self._on_array, "value")
        for axis, menu in self._menus.items():
            menu.observe(lambda change, axis=axis: self._on_choice(axis, change["new"]), "value")
        self._reset.on_click(self._on_reset)
        self._fill()
        self._show(self._first)

    @property
    def _name(self) -> str:
        return str(self._array.value)

    @property
    def specs(self) -> dict[str, PartitionSpec]:
        """The chosen `PartitionSpec` of each argument by name."""
        return {name: _spec(axes, len(self._arrays[name].shape)) for name, axes in self._axes.items()}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> Any:
        parts = super()._repr_mimebundle_(include=include, exclude=exclude, **options)
        data, *rest = parts if isinstance(parts, tuple) else (parts,)
        # A saved notebook shows the mesh where no kernel runs.
        shown = {**bundle(self.inspection.mesh), **(data or {})}
        return (shown, *rest) if rest else shown

    def _fill(self) -> None:
        """Offer the dimensions of the array that each axis of the mesh divides evenly."""
        array, chosen = self._arrays[self._name], self._axes[self._name]
        self._is_filling = True  # the menus report changes of their options as choices
        try:
            for axis, menu in self._menus.items():
                dims = [dim for dim, whole in enumerate(array.shape) if whole % self._parts(chosen, axis, dim) == 0]
                menu.options = [(_WHOLE, None), *((f"dimension {dim} of {array.shape[dim]}", dim) for dim in dims)]
                menu.value = chosen[axis] if chosen[axis] in dims else None
        finally:
            self._is_filling = False

    def _parts(self, chosen: Mapping[str, int | None], axis: str, dim: int) -> int:
        """Return in how many parts a dimension is divided if one axis more divides it."""
        return prod(size for name, size in self._first.axes.items() if name == axis or chosen[name] == dim)

    def _on_array(self, _: Any) -> None:
        self._fill()

    def _on_choice(self, axis: str, dim: int | None) -> None:
        if not self._is_filling:
            self._axes[self._name][axis] = dim
            self._fill()
            self._compile()

    def _on_reset(self, _: Any) -> None:
        for name, array in self._arrays.items():
            self._axes[name] = {axis: _dim_along(array, axis) for axis in self._first.axes}
        self._fill()
        self._compile()

    def _compile(self) -> None:
        self._status.value = '<p role="status">Compiling …</p>'
        specs = self.specs

        def compile_it(is_wanted: Any) -> None:
            try:
                changed = {name: spec for name, spec in specs.items() if spec != self._original(name)}
                inspection = self._start.with_shardings(changed) if changed else self._start
                use = inspection.mesh
            except Exception as error:
                self.errors.append(error)
                if is_wanted():
                    self._status.value = f'<p role="alert">{escaped(failure_of(error).text)}</p>'
                return
            if is_wanted():  # a later choice is compiled next
                self.inspection = inspection
                self._status.value = ""
                self._show(use)

        self._queue.submit(compile_it)

    def _original(self, name: str) -> PartitionSpec:
        array = self._arrays[name]
        return _spec({axis: _dim_along(array, axis) for axis in self._first.axes}, len(array.shape))

    def _show(self, use: MeshUse) -> None:
        before, now = (_figures(inspection) for inspection in (self._start, self.inspection))
        rows = [(name, text, now[name]) for name, text in before.items()]
        table = html_table(("", "before", "now"), rows)
        self._result.value = f'<div class="mnb">{table}</div>{bundle(use)["text/html"]}'


def _can_change(array: Sliced) -> bool:
    return array.kind == "argument" and bool(array.shape) and array.axes is not None


def _dim_along(array: Sliced, axis: str) -> int | None:
    return next((dim for dim, names in enumerate(array.axes or ()) if axis in names), None)


def _spec(axes: Mapping[str, int | None], rank: int) -> PartitionSpec:
    along = [tuple(axis for axis, dim in axes.items() if dim == at) for at in range(rank)]
    return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in along))


def _figures(inspection: Inspection) -> dict[str, str]:
    use, memory = inspection.mesh, inspection.memory
    collectives = [exchange for exchange in use.collectives if exchange.payload_bytes != 0]
    total = inspection.cost("compiled").total
    times = [exchange.predicted_s for exchange in use.collectives]
    return {
        "collectives": str(len(collectives)),
        "bytes sent by one device": nbytes(total.wire_bytes),
        "predicted time of collectives": seconds(None if None in times else sum(filter(None, times))),
        "peak memory of one device": nbytes(memory.peak_bytes),
        "fits": "unknown" if memory.fits is None else "yes" if memory.fits else "no",
    }


def try_shardings(inspection: Inspection) -> ShardingMenu:
    """Show menus that split the arguments of a program over its mesh, and what each choice costs.

    Each choice is compiled in the background. A table compares collectives, bytes, memory and predicted time with the
    program before, and a picture shows which device holds which slice.

    Args:
        inspection: A program on a mesh, such as that of `ml.inspect(..., device="v5e:4x4")`.

    Returns:
        A widget. Its `inspection` is the program with the chosen shardings, and `specs` are the shardings.

    Raises:
        StageUnavailableError: The program does not compile, or has no mesh.
    """
    return ShardingMenu(inspection)
