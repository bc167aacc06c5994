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
        drawn = renderer(value)
        # Only HTML can follow the theme of the notebook, light or dark.
        if "image/svg+xml" in drawn and "text/html" not in drawn:
            drawn = {**drawn, "text/html": image_html(drawn["image/svg+xml"], drawn["text/plain"].partition("\n")[0])}
        return encodable(drawn)
    except Exception as error:  # any error: the cell must still show the value
        return {"text/plain": encodable(f"{value!r}\n(cannot draw it: {type(error).__name__}: {error})")}


def picture_bundle(drawn: Picture, title: str) -> Bundle:
    """Return the MIME bundle of a graph that is already laid out."""
    text = "\n\n".join(filter(None, [graph_text(drawn.graph, drawn.nested), "\n".join(map(str, drawn.problems))]))
    return {"text/plain": text, "image/svg+xml": scene_svg(drawn.diagram, drawn.problems, title)}
