"""A notebook as slides: one HTML file that needs no kernel and no network."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import ModelFileError, installed

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)")
_START = re.compile(r"^(#{1,2} .*|-{3,}\s*)$")
# A script would draw this; the HTML or the picture beside it is shown instead.
_LIVE = ("application/vnd.jupyter.widget-view+json", "application/javascript")


def slides(notebook: str | Path, path: str | Path | None = None) -> Path:
    """Write the slides of a saved notebook, with its outputs, and return the path of the file.

    A slide starts at each heading of the first or second level, and at each line `---` in Markdown. If some cells have
    the slide type *slide* or *subslide* of Jupyter, these decide. Cells of the types *skip* and *notes* are left out. A
    slide that is longer than the screen scrolls. The arrow keys, Page Up and Page Down, Home and End move; each slide
    has an address, such as `#3`. Formulas stay in TeX.

    The file contains what the notebook contains, also its HTML and its pictures, so open slides of strangers as you
    would open their notebooks. It loads nothing from a network.

    Args:
        notebook: File of the notebook. Outputs that are not saved are not in the slides.
        path: Where to write the file; by default beside the notebook, with the suffix `.slides.html`.

    Raises:
        ModelFileError: The file is not a notebook, or cannot be read or written.
        UnavailableBackendError: nbconvert is not installed. Jupyter brings it.

    Examples:
        ```python
        ml.teach.slides("notebooks/03_from_python_to_machine_code.ipynb", "lecture.html")
        ```
    """
    nbformat, nbconvert = installed("nbformat", "slides"), installed("nbconvert", "slides")
    source = Path(notebook)
    try:
        contents = nbformat.read(source, as_version=nbformat.NO_CONVERT)
        contents = nbformat.convert(nbformat.validator.normalize(contents)[1], 4)
        groups = _split(contents.cells, nbformat)
    except Exception as error:  # a damaged notebook raises one of many types
        because = (("because", f"{type(error).__name__}: {error}"),)
        raise ModelFileError(f"cannot read the notebook {str(notebook)!r}.", because) from error
    target = source.with_suffix(".slides.html") if path is None else Path(path)
    exporter = nbconvert.HTMLExporter(
        template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True, embed_images=True
    )
    folder = {"metadata": {"path": str(source.parent)}}
    bodies = [
        exporter.from_notebook_node(nbformat.v4.new_notebook(cells=cells, metadata=contents.metadata), folder)[0]
        for cells in groups
    ]
    heading = re.search(r"<h1[^>]*>(.*?)<a class=.anchor-link|<h1[^>]*>(.*?)</h1>", "".join(bodies), re.DOTALL)
    title = re.sub(r"<[^>]*>", "", heading[1] or heading[2]).strip() if heading else escape(source.stem)
    sections = "".join(f'<section class="slide">{body}</section>' for body in bodies)
    formatter = installed("pygments.formatters", "slides", "pygments").HtmlFormatter
    light, dark = (formatter(style=style).get_style_defs(".highlight") for style in ("sas", "github-dark"))
    template = files("mithril_nb.teach").joinpath("slides.html").read_text(encoding="utf-8")
    # One pass, because the notebook may contain the name of a part.
    parts = {"title": title, "light": light, "dark": dark, "slides": sections, "count": str(len(bodies))}
    write_text(target, re.sub(r"\$(title|light|dark|slides|count)\b", lambda name: parts[name[1]], template))
    return target


def _split(cells: list[Any], nbformat: Any) -> list[list[Any]]:
    kinds = [(cell.metadata.get("slideshow") or {}).get("slide_type", "") for cell in cells]
    is_typed = not {"slide", "subslide"}.isdisjoint(kinds)
    groups: list[list[Any]] = [[]]
    for cell, kind in zip(cells, kinds, strict=True):
        if kind in ("skip", "notes"):
            continue
        for output in cell.get("outputs", []):
            for live in _LIVE:
                output.get("data", {}).pop(live, None)
        if kind in ("slide", "subslide"):
            groups.append([])
        if is_typed or cell.cell_type != "markdown":
            groups[-1].append(cell)
            continue
        # Pictures that were pasted are attachments of the cell.
        pasted = {"attachments": cell.attachments} if "attachments" in cell else {}
        first, *others = (
            [nbformat.v4.new_markdown_cell(part, **pasted)] * bool(part.strip()) for part in _parts(cell.source)
        )
        groups[-1] += first
        groups += others
    return [group for group in groups if group] or [[]]


def _parts(text: str) -> list[str]:
    """Return a text of Markdown in parts: what precedes its first slide, then its slides.

    Headings in HTML comments and between `$$` start slides, too.
    """
    parts: list[list[str]] = [[]]
    fence = ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        # A line of dashes below a text makes the text a heading.
        is_underline = line.startswith("-") and number > 0 and bool(lines[number - 1].strip())
        if not fence and _START.match(line) and not is_underline:
            parts.append([line] if line.startswith("#") else [])
        else:
            parts[-1].append(line)
    return ["\n".join(part) for part in parts]
