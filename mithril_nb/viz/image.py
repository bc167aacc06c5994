"""A picture as HTML: an image that is as light or dark as the page around it."""

from __future__ import annotations

from base64 import b64encode

from mithril_nb.viz.escape import escaped, one_line

# A picture has both looks in it. The page says which one by its colour scheme, as JupyterLab and VS Code do not by
# themselves: without these rules a picture in a light notebook would be as dark as the system around it.
_CSS = (
    ".mnb-picture{color-scheme:light dark;max-width:100%;height:auto}"
    '[data-jp-theme-light="true"] .mnb-picture,.vscode-light .mnb-picture{color-scheme:light}'
    '[data-jp-theme-light="false"] .mnb-picture,.vscode-dark .mnb-picture{color-scheme:dark}'
)


def image_html(svg: str, alt: str) -> str:
    """Return a picture as HTML. JupyterLab shows it in a notebook that it does not trust, too.

    Args:
        svg: The picture; its dark colours stand behind `prefers-color-scheme`.
        alt: What it shows, for who hears the page.

    Examples:
        >>> image_html("<svg/>", "a graph").partition("</style>")[2]
        '<img class="mnb-picture" alt="a graph" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """
    data = b64encode(svg.encode()).decode()
    told = escaped(one_line(alt))
    return f'<style>{_CSS}</style><img class="mnb-picture" alt="{told}" src="data:image/svg+xml;base64,{data}">'
