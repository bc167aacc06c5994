"""The MIME bundle of a value, which a notebook displays: a text, and for most values a picture or a table."""

from __future__ import annotations

from mithril_nb.display import find_renderer
from mithril_nb.viz.diagrams.picture import Picture, graph_text
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.html_parts import image_html
from mithril_nb.viz.text import encodable

Bundle = dict[str, str]


def bundle(value: object) -> Bundle:
    """Return the MIME bundle of a value. Without a renderer for its type, the bundle contains only the `repr`.

    If the renderer raises an error, the bundle contains the `repr` with the error below it.
    """
    renderer = find_renderer(type(value))
    if renderer is None:
        return {"text/plain": encodable(repr(value))}
    try:
        return encodable(_themed(renderer(value)))
    except Exception as error:  # any error: the cell must still show the value
        return {"text/plain": encodable(f"{value!r}\n(cannot draw it: {type(error).__name__}: {error})")}


def _themed(plain: Bundle) -> Bundle:
    """Add an HTML version to a bundle with an SVG. Only HTML can follow the theme of the notebook, light or dark."""
    if "image/svg+xml" not in plain or "text/html" in plain:
        return plain
    return {**plain, "text/html": image_html(plain["image/svg+xml"], plain["text/plain"].partition("\n")[0])}


def picture_bundle(drawn: Picture, title: str) -> Bundle:
    """Return the MIME bundle of a graph that is already laid out."""
    text = graph_text(drawn.graph, drawn.annotations.nodes, drawn.annotations.edge_shapes)
    if drawn.problems:
        text += "\n\n" + "\n".join(str(problem) for problem in drawn.problems)
    return {"text/plain": text, "image/svg+xml": scene_svg(drawn.diagram, drawn.problems, title)}
