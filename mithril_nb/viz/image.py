"""A picture as HTML: an image that follows the light or dark theme of the page around it."""

from __future__ import annotations

from base64 import b64encode

from mithril_nb.viz.escape import escaped, one_line

# An SVG holds both themes and picks one by the page's colour scheme, which JupyterLab and VS Code do not set. Without
# these rules a picture in a light notebook would follow the system's dark theme.
_CSS = (
    ".mnb-picture{color-scheme:light dark;max-width:100%;height:auto}"
    '[data-jp-theme-light="true"] .mnb-picture,.vscode-light .mnb-picture{color-scheme:light}'
    '[data-jp-theme-light="false"] .mnb-picture,.vscode-dark .mnb-picture{color-scheme:dark}'
)


def image_html(svg: str, alt: str) -> str:
    """Return a picture as HTML, which JupyterLab shows in untrusted notebooks too.

    Args:
        svg: The picture; its dark colours are in a `prefers-color-scheme` rule.
        alt: Description for screen readers.

    Examples:
        >>> image_html("<svg/>", "a graph").partition("</style>")[2]
        '<img class="mnb-picture" alt="a graph" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """
    data = b64encode(svg.encode()).decode()
    label = escaped(one_line(alt))
    return f'<style>{_CSS}</style><img class="mnb-picture" alt="{label}" src="data:image/svg+xml;base64,{data}">'
