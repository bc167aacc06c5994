"""Training curves as a static picture and as text. Saved notebooks show them instead of the live plot."""

from __future__ import annotations

import io
import itertools
import math
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mithril_nb.viz.palette import DARK, HUES, LIGHT, themed_rules
from mithril_nb.viz.units import percent, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Columns of a training history: lists or arrays of float, by name such as `step` or `loss`. NaN means no value.
Columns = Mapping[str, Any]

_PANELS = (("loss", "validation_loss"), ("accuracy", "validation_accuracy"))
# Labels of the curves.
_LABELS = {
    "loss": "batch loss", "accuracy": "batch accuracy",
    "validation_loss": "validation loss", "validation_accuracy": "validation accuracy",
}  # fmt: skip
# Labels in the text of a run.
_FIGURES = {**_LABELS, "loss": "epoch mean loss", "accuracy": "epoch mean accuracy"}
_MOST_POINTS = 1000
DASHES = ("-", "--", ":", "-.")
"""Looks of curves with equal hues."""
_lock = threading.Lock()  # rcParams are shared by all threads


def curves_figure(columns: Columns) -> Figure:
    """Return training curves as a matplotlib figure, which you can change or save. It is not registered with pyplot.

    Loss and accuracy have a plot each. A plot without finite values is left out.
    """
    panels = [panel for panel in _PANELS if any(_points(columns, name) for name in panel)]
    # `pyplot` would keep a reference to the figure, and choose a backend for the whole process.
    figure = _figure(3.5 * max(1, len(panels)))
    if not panels:
        figure.text(0.5, 0.5, "no steps yet", ha="center", va="center", color=LIGHT.muted)
        return figure
    for axes, names in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _panel(axes, columns, names)
    return figure


def overlay_svg(
    curves: Sequence[tuple[Any, Any] | None], title: str, x_label: str = "step", *, log: str = "", heading: str = ""
) -> str:
    """Return curves, pairs of x and y in one plot, as SVG. The curve at index i has the class `ri`, and no legend."""
    figure = _figure(7)
    axes = figure.subplots()
    left_out = 0
    for index, curve in enumerate(curves):
        if curve is None:
            continue
        x, y = (np.asarray(values, float) for values in curve)
        if log:  # before it is thinned: an interval is drawn by its least value
            positive = (x if log == "x" else y) > 0
            left_out += int((~positive & np.isfinite(x) & np.isfinite(y)).sum())
            x, y = x[positive], y[positive]
        if points := thinned(x, y):
            marks = {"marker": "o", "markersize": 3} if len(points) < 40 else {}
            look, colour = DASHES[index // HUES % len(DASHES)], LIGHT.hues[index % HUES]
            x, y = zip(*points, strict=True)
            axes.plot(x, y, look, color=colour, linewidth=1.2, gid=f"r{index}", **marks)
    if log and axes.lines:  # the axis, x or y
        getattr(axes, f"set_{log}scale")("log")
    _frame(axes, x_label)
    if left_out:
        heading = f"{heading} ({left_out} values of 0 or less are not drawn)".strip()
    if heading:
        axes.set_title(heading, color=LIGHT.ink, fontsize=9, loc="left")
    text = _svg(figure, title)
    # On a page of many pictures, an id occurs only once, and a clip in a hidden picture has no effect.
    text = re.sub(r'<g id="(r\d+)">', r'<g class="\1">', text)
    text = re.sub(r'<g id="[^"]*">| clip-path="[^"]*"', lambda part: "<g>" * (part[0][0] == "<"), text)
    return re.sub(r'( d="[^"]*")', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), text)


def _figure(width: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 2.6), layout="constrained", facecolor=LIGHT.ground)


def curves_svg(columns: Columns, title: str = "training curves") -> str:
    """Return training curves as self-contained SVG for light and dark themes. Equal arguments give equal text."""
    return _svg(curves_figure(columns), title)


def _svg(figure: Figure, title: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    from mithril_nb.viz.text import escaped

    file = io.StringIO()
    # Ids derive from the salt, else from a random UUID; without a date, equal runs give equal files.
    # With paths instead of text, screen readers and searches would find no words.
    with _lock, matplotlib.rc_context({"svg.hashsalt": "mithril_nb", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]  # the lines before it reference a DTD on the network
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening = f'<svg class="mnb-curves" role="img" style="max-width:100%;height:auto" aria-label="{escaped(title)}"'
    text = text.replace("<svg", opening, 1)
    pairs = [
        (LIGHT.ground, DARK.ground), (LIGHT.ink, DARK.ink), (LIGHT.muted, DARK.muted), (LIGHT.line, DARK.line),
        (LIGHT.track, DARK.track), *zip(LIGHT.hues, DARK.hues, strict=True),
    ]  # fmt: skip
    rules = "".join(
        themed_rules(f'.mnb-curves [style*="{name}: {light.lower()}"]', f"{name}:{light}", f"{name}:{dark}!important")
        for light, dark in pairs
        for name in ("fill", "stroke")
    )
    style = f"<style>{rules}</style>"
    return text.replace(">", f"><title>{escaped(title)}</title>{style}", 1).strip()


def curves_text(run: Mapping[str, Any]) -> str:
    """Return the state of a training run as text."""
    head = f"run: {run.get('state', 'none')}"
    for unit in ("epoch", "step"):
        if run.get(f"{unit}s"):
            head += f", {unit} {run.get(unit, 0)} of {run[f'{unit}s']}"
    losses, shares = _PANELS
    facts = [(_FIGURES[name], f"{run[name]:.4g}") for name in losses if _is_known(run, name)]
    facts += [(_FIGURES[name], percent(run[name])) for name in shares if _is_known(run, name)]
    if _is_known(run, "steps_per_s"):
        facts.append(("speed", f"{run['steps_per_s']:.3g} steps/s"))
    if run.get("state") == "running" and _is_known(run, "left_s"):
        facts.append(("left", seconds(run["left_s"])))
    width = max((len(name) for name, _ in facts), default=0)
    lines = [head, *(f"    {name:<{width}}  {value}" for name, value in facts)]
    if run.get("message"):
        lines.append(f"    {run['message']}")
    return "\n".join(lines)


def _is_known(run: Mapping[str, Any], name: str) -> bool:
    value = run.get(name)
    return value is not None and not math.isnan(value)


def _points(columns: Columns, name: str) -> list[tuple[float, float]]:
    steps = columns.get("step")
    values = columns.get(name)
    if steps is None or values is None:
        return []
    return thinned(steps, values)


def thinned(x: Any, y: Any, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Return the finite points of a curve; of a long one, the extremes of each interval, so that no spike is lost."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    x, y = (values[np.isfinite(x) & np.isfinite(y)] for values in (x, y))
    if len(x) > most:
        edges = np.linspace(0, len(x), most // 2).astype(int).tolist()
        ends = itertools.pairwise(edges)
        extremes = {a + int(extreme(y[a:b])) for a, b in ends for extreme in (np.argmin, np.argmax)}
        at = sorted(extremes | {0, len(x) - 1})
        x, y = x[at], y[at]
    return [*zip(x.tolist(), y.tolist(), strict=True)]


def _panel(axes: Axes, columns: Columns, names: Sequence[str]) -> None:
    for name, colour, dashes in zip(names, LIGHT.hues, ("-", "--"), strict=False):
        points = _points(columns, name)
        if points:
            marks = {"marker": "o", "markersize": 3} if len(points) < 40 else {}
            x, y = zip(*points, strict=True)
            axes.plot(x, y, dashes, color=colour, linewidth=1.5, label=_LABELS[name], **marks)
    if names[0] == "accuracy":
        bottom, top = axes.get_ylim()
        # Margins would show accuracies below 0 and above 1.
        axes.set_ylim(max(0, bottom), min(1, top))
    axes.set_title(names[0], color=LIGHT.ink, fontsize=10, loc="left")
    _frame(axes, "step")
    legend = axes.legend(frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_color(LIGHT.ink)


def _frame(axes: Axes, x_label: str) -> None:
    axes.set_facecolor(LIGHT.ground)
    axes.set_xlabel(x_label, color=LIGHT.muted)
    axes.grid(color=LIGHT.track, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=LIGHT.muted, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LIGHT.line)
