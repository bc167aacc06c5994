"""`ml.try_shardings`: menus that split the arguments of a program over a mesh, and show what each choice costs."""

from __future__ import annotations

from math import prod
from typing import Any

import ipywidgets as widgets

from mithril_nb.cost.mesh import MeshUse
from mithril_nb.errors import StageUnavailableError
from mithril_nb.figures import FIGURES
from mithril_nb.inspection import Inspection
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.failure import failure_of
from mithril_nb.stages.program_stages import spec_along
from mithril_nb.stages.trace.params import COLLECTIVES
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.costs.fields import at_least, is_bound
from mithril_nb.viz.html_parts import html_table
from mithril_nb.viz.text import escaped
from mithril_nb.viz.units import nbytes, seconds

# To ipywidgets 8, the value `None` means that no option is selected: the menu would be blank.
_WHOLE = -1


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
        self._original = {
            array.name: array.axes for array in self._first.arrays if array.kind == "argument" and array.axes
        }
        if not self._original:
            raise StageUnavailableError(f"program {inspection.name!r} has no argument that can be split.")
        # Refuses a program for which every choice would fail.
        inspection.with_shardings(dict.fromkeys(self._original, spec_along([tuple(self._first.axes)])))
        self._axes, self._before = dict(self._original), _figures(inspection, self._first)
        self._queue = JobQueue("mithril_nb shardings", self.errors.append)
        self._array = widgets.Dropdown(options=[*self._original], description="array")
        self._menus = {
            axis: widgets.Dropdown(description=f"{axis} ({size})") for axis, size in self._first.axes.items()
        }
        self._reset = widgets.Button(description="Reset", tooltip="Return to the shardings of the program")
        self._status, self._result = widgets.HTML(), widgets.HTML(self._html(inspection))
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

    @property
    def _name(self) -> str:
        return str(self._array.value)

    @property
    def specs(self) -> dict[str, Any]:
        """The chosen `PartitionSpec` of each argument by name."""
        return {name: spec_along(axes) for name, axes in self._axes.items()}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> Any:
        parts = super()._repr_mimebundle_(include=include, exclude=exclude, **options)
        data, *rest = parts if isinstance(parts, tuple) else (parts,)
        # A saved notebook shows the mesh where no kernel runs.
        formats = {**bundle(self.inspection.mesh), **(data or {})}
        return (formats, *rest) if rest else formats

    def _fill(self) -> None:
        """Offer the dimensions of the array that each axis of the mesh divides evenly."""
        shape, axes = self._first[self._name].shape, self._axes[self._name]
        self._is_filling = True  # the menus report changes of their options as choices
        try:
            for axis, menu in self._menus.items():
                parts = [prod(self._first.axes[name] for name in {*names, axis}) for names in axes]
                dims = [dim for dim, size in enumerate(shape) if axis in axes[dim] or size % parts[dim] == 0]
                menu.options = [("no dimension", _WHOLE), *((f"dimension {dim} of {shape[dim]}", dim) for dim in dims)]
                menu.value = next((dim for dim in dims if axis in axes[dim]), _WHOLE)
        finally:
            self._is_filling = False

    def _on_array(self, _: Any) -> None:
        self._fill()

    def _on_choice(self, axis: str, dim: int) -> None:
        if not self._is_filling:
            left = [tuple(name for name in names if name != axis) for names in self._axes[self._name]]
            self._axes[self._name] = tuple((*names, axis) if at == dim else names for at, names in enumerate(left))
            self._fill()
            self._compile()

    def _on_reset(self, _: Any) -> None:
        self._axes = dict(self._original)
        self._fill()
        self._compile()

    def _compile(self) -> None:
        self._status.value = '<p role="status">Compiling …</p>'
        changed = {name: spec_along(axes) for name, axes in self._axes.items() if axes != self._original[name]}

        def compile_it(is_wanted: Any) -> None:
            try:
                inspection = self._start.with_shardings(changed) if changed else self._start
                result = self._html(inspection)
            except Exception as error:
                self.errors.append(error)
                if is_wanted():
                    self._status.value = f'<p role="alert">{escaped(failure_of(error).text)}</p>'
                return
            if is_wanted():  # a later choice is compiled next
                self.inspection, self._result.value, self._status.value = inspection, result, ""

        self._queue.submit(compile_it)

    def _html(self, inspection: Inspection) -> str:
        use = inspection.mesh
        rows = [(name, self._before[name], text) for name, text in _figures(inspection, use).items()]
        return f'<div class="mnb">{html_table(("figure", "before", "now"), rows)}</div>{bundle(use)["text/html"]}'


def _figures(inspection: Inspection, use: MeshUse) -> dict[str, str]:
    memory, total = inspection.memory, inspection.cost("compiled").total
    # Of other instructions, such as a custom call, it may be unknown whether they communicate.
    communicating = [exchange for exchange in use.collectives if exchange.payload_bytes != 0]
    collectives = [
        exchange for exchange in communicating if exchange.payload_bytes or exchange.opcode in COLLECTIVES.values()
    ]
    times = [exchange.predicted_s for exchange in use.collectives]
    time_s = FIGURES["predicted_s"].add([0.0, *times])
    return {
        "collectives": at_least(str(len(collectives)), len(collectives) < len(communicating)),
        "bytes sent by one device": at_least(nbytes(total.wire_bytes), is_bound(vars(total), "wire_bytes")),
        "predicted time of collectives": at_least(seconds(time_s), bool(time_s) and None in times),
        "peak memory of one device": nbytes(memory.peak_bytes),
        "fits": "unknown" if memory.fits is None else "yes" if memory.fits else "no",
    }


def try_shardings(inspection: Inspection) -> ShardingMenu:
    """Show menus that split the arguments of a program over its mesh, and what each choice costs.

    Each choice is compiled in the background. A table compares collectives, bytes, memory and predicted time with the
    program before, and a picture shows which device holds which slice.

    Args:
        inspection: A program on a mesh, such as one inspected with `device="v5e:4x4"`.

    Returns:
        A widget. Its `inspection` is the program with the chosen shardings, and `specs` are the shardings.

    Raises:
        StageUnavailableError: The program does not compile, or has no mesh, or no argument that can be split.
        UnknownOptionError: The arguments are on more than one mesh.
    """
    return ShardingMenu(inspection)
