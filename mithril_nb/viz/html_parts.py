"""Parts of HTML pages: style sheet, heading, problems, tables, pictures and scripts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import Diagnostic, ModelFileError, StageUnavailableError
from mithril_nb.viz.palette import DARK, LIGHT, LIT, PINNED, Theme, mix_colours, themed_rules
from mithril_nb.viz.text import block_key, escaped, one_line

MONO = "var(--jp-code-font-family, ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif)"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
"""Content security policy: the browser loads nothing from other places, even if the text of a stage contains HTML."""


_UNTRUSTED = "Stages and costs are hidden, because this notebook is not trusted."


@cache
def _sections() -> dict[str, str]:
    """Return the sections of `styles.css` by name. A section starts with a comment such as `/* @base: … */`."""
    text = (Path(__file__).parent / "styles.css").read_text(encoding="utf-8")
    _, *parts = re.split(r"/\* @(\w+):.*?\*/", text.replace("$mono", MONO).replace("$sans", SANS), flags=re.DOTALL)
    names, rules = parts[::2], parts[1::2]
    return {name: "".join(map(str.strip, own.splitlines())) for name, own in zip(names, rules, strict=True)}


def _style(*sections: str) -> str:
    """Return a style sheet: the colours of both themes, the section `base` of `styles.css`, and the given sections."""
    theme = themed_rules(".mnb", _variables(LIGHT), _variables(DARK))
    return f"<style>{theme}{''.join(_sections()[name] for name in ('base', *sections))}</style>"


def output_html(body: str, *sections: str, kind: str = "mnb", key: str = "", picture: str = "") -> str:
    """Return self-contained HTML for the output of a cell.

    Args:
        body: The content, as HTML.
        *sections: Names of the sections of `styles.css` that the content needs.
        kind: CSS classes of the element around the content.
        key: The result of `key_of` for the stages whose lines the content shows; `""` if it shows none.
        picture: An SVG to show instead in a notebook that is not trusted, whose sanitizer strips styles, scripts and
            inline SVG, and would show the content as thousands of words in one column.
    """
    if picture:
        # JupyterLab's sanitizer keeps `hidden`, but not the style sheet that overrides it in a trusted notebook.
        plain = f'<div class="untrusted">{image_html(picture, "graph")}<p>{_UNTRUSTED}</p></div>'
        body, sections = f'{plain}<div class="content" hidden>{body}</div>', (*sections, "untrusted")
    link = f' data-mnb="{key}"' if key else ""
    return f'<div class="{kind}"{link}>{_style(*sections)}{body}</div>'


def page_html(title: str, about: str, body: str, *sections: str, kind: str, scripts: str) -> str:
    """Return a self-contained HTML file.

    Args:
        title: Title and heading of the page.
        about: A short description, shown beside the heading.
        body: The content, as HTML.
        *sections: Names of the sections of `styles.css` that the content needs.
        kind: CSS class of the element around the content.
        scripts: The script elements.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escaped(one_line(title))}</title>'
        f"{_style('heading', *sections)}</head>"
        f'<body class="mnb"><main class="{kind}">{heading_html(title, about)}{body}</main>{scripts}</body></html>\n'
    )


def heading_html(name: str, about: str) -> str:
    """Return the heading of a page: a name, which is elided if it is too long, and a short description."""
    shown = escaped(one_line(name))
    return f'<h1><span class="name" title="{shown}">{shown}</span><span class="quiet">{escaped(about)}</span></h1>'


class Markup(str):
    """HTML that is inserted into a table unchanged: a cell, row or caption."""


def cell(text: str, style: str = "") -> Markup:
    """Return a table cell that contains a text."""
    return Markup(f'<td class="{style}">{escaped(text)}</td>' if style else f"<td>{escaped(text)}</td>")


def html_table(
    heads: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    style: str = "cost",
    caption: str = "",
    foot: str = "",
    words: int = -1,
) -> str:
    """Return an HTML table whose first column names the rows.

    Args:
        heads: Titles of the columns; or the rows of the head, as HTML in a `Markup`. Without titles, the table has no
            head.
        rows: The rows. A row is a name and then the texts of its cells; cells and whole rows may be `Markup`.
        style: CSS classes of the table. A table scrolls sideways if its first class starts with `cost`.
        caption: Title of the table, as a text or as `Markup`.
        foot: Rows of the foot, as HTML.
        words: Index of a column that contains words instead of numbers, and whose title is aligned to the left; -1 for
            none.

    Examples:
        >>> html_table((), [("a < b", "24")], style="made")
        '<table class="made"><tbody><tr><th scope="row">a &lt; b</th><td>24</td></tr></tbody></table>'
    """
    titles = heads
    if not isinstance(heads, Markup):
        looks = (' class="words"' if at == words else "" for at in range(len(heads)))
        cells = (f'<th scope="col"{look}>{escaped(head)}</th>' for head, look in zip(heads, looks, strict=True))
        titles = f"<tr>{''.join(cells)}</tr>"
    table = (
        f'<table class="{style}">'
        + (f"<caption>{_included(caption)}</caption>" if caption else "")
        + (f"<thead>{titles}</thead>" if heads else "")
        + f"<tbody>{''.join(map(_row, rows))}</tbody>"
        + (f"<tfoot>{foot}</tfoot>" if foot else "")
        + "</table>"
    )
    return f'<div class="scroll">{table}</div>' if style.startswith("cost") else table


def _row(row: Iterable[str]) -> str:
    if isinstance(row, Markup):
        return row
    name, *cells = row
    written = "".join(one if isinstance(one, Markup) else cell(one) for one in cells)
    return f'<tr><th scope="row">{escaped(name)}</th>{written}</tr>'


def _included(text: str) -> str:
    return text if isinstance(text, Markup) else escaped(text)


def _variables(theme: Theme) -> str:
    names = {
        "ground": theme.ground, "surface": theme.surface, "line": theme.line, "wire": theme.wire, "ink": theme.ink,
        "muted": theme.muted, "accent": theme.accent, "bad": theme.bad, "cost": theme.cost, "track": theme.track,
        "on": mix_colours(theme.accent, theme.ground, LIT), "pin": mix_colours(theme.accent, theme.ground, PINNED),
    }  # fmt: skip
    names |= {f"h{at}": hue for at, hue in enumerate(theme.hues)}
    names |= {f"c{letter}": colour for letter, colour in zip("kftmsc", theme.code, strict=True)}
    return "".join(f"--{name}:{colour};" for name, colour in names.items())


def problems_html(problems: Sequence[Diagnostic]) -> str:
    """Return problems as an HTML list, without a style sheet; `""` if there are none.

    Examples:
        >>> problems_html([])
        ''
    """
    if not problems:
        return ""
    return f'<ul class="problems">{"".join(_card(problem) for problem in problems)}</ul>'


def _card(problem: Diagnostic) -> str:
    shown = problem.shown()
    link = f' data-block="{escaped(block_key(problem.block))}" tabindex="0"' if problem.block else ""
    facts = "".join(f"<dt>{escaped(label)}</dt><dd>{escaped(text)}</dd>" for label, text in shown.facts)
    advice = f"<div>Try: <code>{escaped(shown.advice)}</code></div>" if shown.advice else ""
    return (
        f"<li{link}><b>{escaped(problem.code)}</b>: {escaped(shown.summary)}"
        f"{f'<dl>{facts}</dl>' if facts else ''}{advice}</li>"
    )


def image_html(svg: str, alt: str) -> str:
    """Return a picture as an HTML image. JupyterLab shows it even if the notebook is not trusted.

    Args:
        svg: The picture, with its dark colours in a `prefers-color-scheme` rule.
        alt: Description for screen readers.

    Examples:
        >>> image_html("<svg/>", "a graph").partition("</style>")[2]
        '<img class="mnb-picture" alt="a graph" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """
    data = b64encode(svg.encode()).decode()
    label = escaped(one_line(alt))
    style = f"<style>{_sections()['picture']}</style>"
    return f'{style}<img class="mnb-picture" alt="{label}" src="data:image/svg+xml;base64,{data}">'


def write_page(page: str, path: str | Path | None, advice: str) -> str:
    """Write a page to `path` unless it is `None`, and return the page.

    Args:
        page: The text of the page.
        path: Where to write the page.
        advice: Code shown after `Try:` if the page cannot be written.

    Raises:
        ModelFileError: The file cannot be written.
    """
    if path is not None:
        try:
            write_text(path, page)
        except OSError as error:
            raise ModelFileError(
                f"cannot write {str(path)!r}.", (("because", error.strerror or str(error)),), advice
            ) from error
    return page


STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return the text of a file in `static/`, where the build of the front end writes its files.

    Raises:
        StageUnavailableError: The file is missing, because the front end has not been built.
    """
    path = STATIC / name
    if not path.is_file():
        raise StageUnavailableError(
            f"the front end of the widgets is not built: {name} is missing.",
            (("built by", "pip install, or npm ci && npm run build in mithril_nb/ui/frontend"),),
            "pip install .",
        )
    return path.read_text(encoding="utf-8")


@cache
def link_script() -> str:
    """Return the script that highlights linked lines, in its HTML element; `""` if the front end is not built.

    Outputs are readable without it, so values can be displayed even if Node.js is not available for the build.
    """
    return f"<script>{built('outputs.js').rstrip()}</script>" if (STATIC / "outputs.js").is_file() else ""
