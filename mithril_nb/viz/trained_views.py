"""Views of a trained model as text and HTML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mithril_nb.display import columns
from mithril_nb.train.views import AttentionMaps, Confusion, Histograms, WorstExamples
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.html_parts import Markup, html_table, output_html
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import percent
from mithril_nb.viz.values import HEADS, sample_picture, statistics_texts, value_picture

_MOST_CLASSES = 20
_MOST_MISTAKES = 10
_RIGHT, _WRONG, _ALPHA = "67 147 195", "214 96 77", 0.35  # fills on which text is readable in light and dark themes


def confusion_bundle(matrix: Confusion) -> Bundle:
    """Return counts by class and predicted class; of many classes a heat map and the most frequent mistakes."""
    counts, names, totals = matrix.counts, [*map(one_line, matrix.classes)], matrix.counts.sum(1)
    title = f"{np.trace(counts):.10g} of {counts.sum():.10g} correct; "
    if len(counts) > _MOST_CLASSES:
        rows = [(*map(one_line, pair), f"{count:.10g}") for *pair, count in matrix.mistakes[:_MOST_MISTAKES]]
        picture = value_picture(counts, 320, 320)[0]
        return _bundle(f"{title}most frequent mistakes", ("class", "predicted", "count"), rows, {2}, before=picture)
    rows = [
        (name, *(f"{count:.10g}" for count in row), percent(row[at] / total) if total else "unknown")
        for at, (name, row, total) in enumerate(zip(names, counts, totals, strict=True))
    ]
    fills = {
        (at, column): f"background:rgb({_RIGHT if at == column else _WRONG} / {_ALPHA * count / totals[at]:.3f})"
        for (at, column), count in np.ndenumerate(counts)
        if count
    }
    heads = ("class", *names, "correct")
    return _bundle(f"{title}columns are predicted classes", heads, rows, range(1, len(heads)), fills=fills)


def examples_bundle(examples: WorstExamples) -> Bundle:
    """Return a row for each sample, with a picture of each input that has one."""
    heads = ("sample", "loss", "target", "prediction")
    columns_of = zip(examples.indices, examples.losses, examples.expected, examples.predicted, strict=True)
    rows = [(str(index), f"{loss:.4g}", one_line(target), one_line(text)) for index, loss, target, text in columns_of]
    pictures = {name: [sample_picture(sample, 96, 96) for sample in array] for name, array in examples.inputs.items()}
    return _bundle("worst examples", heads, rows, {1}, pictures)


def histograms_bundle(histograms: Histograms) -> Bundle:
    """Return statistics and histogram of each array."""
    rows = [
        (one_line(name), " × ".join(map(str, row.shape)) or "scalar", *statistics_texts(row.to_dict()))
        for name, row in histograms.statistics.items()
    ]
    heads = ("parameter", "shape", *HEADS)
    bars = [value_picture(counts, 96, 32)[0] for counts in histograms.counts.values()]
    return _bundle("parameters", heads, rows, range(2, len(heads)), {"histogram": bars})


def attention_bundle(maps: AttentionMaps) -> Bundle:
    """Return a heat map of each head of each block: a row for each query, a column for each key."""
    rows = [(one_line(path), " × ".join(map(str, array.shape))) for path, array in maps.weights.items()]
    pictures = [value_picture(array, 480, 120) for array in maps.weights.values()]
    drawn = [f"{svg}<br/>{escaped(about)}" for svg, about in pictures]
    return _bundle("attention weights", ("block", "shape"), rows, (), {"heads": drawn})


def _bundle(
    title: str,
    heads: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    right: Collection[int],
    pictures: Mapping[str, Sequence[str]] = MappingProxyType({}),
    *,
    fills: Mapping[tuple[int, int], str] = MappingProxyType({}),
    before: str = "",
) -> Bundle:
    """Return a table as text and as HTML, there with more columns of pictures."""
    lines = [
        (
            name,
            *(
                Markup(f'<td style="{fills.get((at, column), "")}">{escaped(text)}</td>')
                for column, text in enumerate(row)
            ),
            *(Markup(f"<td>{column[at]}</td>") for column in pictures.values()),
        )
        for at, (name, *row) in enumerate(rows)
    ]
    table = html_table((*heads, *pictures), lines, caption=title)
    text = f"{title}\n{columns([tuple(heads), *rows], right=right)}"
    return {"text/plain": text, "text/html": output_html(before + table, "cost")}
