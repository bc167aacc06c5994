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
# Content security policy: the browser loads nothing from other places, even if the text of a stage contains HTML.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_UNTRUSTED = "Stages and costs are hidden, because this notebook is not trusted."


# A section starts with a comment such as `/* @base: … */`.
@cache
def _sections() -> dict[str, str]:
    text = (Path(__file__).parent / "styles.css").read_text(encoding="utf-8")
    _, *parts = re.split(r"/\* @(\w+):.*?\*/", text.replace("$mono", MONO).replace("$sans", SANS), flags=re.DOTALL)
    names, rules = parts[::2], parts[1::2]
    return {name: "".join(map(str.strip, own.splitlines())) for name, own in zip(names, rules, strict=True)}


def _style(*sections: str) -> str:
    theme = themed_rules(".mnb", _variables(LIGHT), _variables(DARK))
    return f"<style>{theme}{''.join(_sections()[name] for name in ('base', *sections))}</style>"


def output_html(body: str, *sections: str, kind: str = "mnb", key: str = "", picture: str = "") -> str:
    """Return self-contained HTML for the output of a cell."""
    if picture:
        # JupyterLab's sanitizer keeps `hidden`, but not the style sheet that overrides it in a trusted notebook.
        plain = f'<div class="untrusted">{image_html(picture, "graph")}<p>{_UNTRUSTED}</p></div>'
        body, sections = f'{plain}<div class="content" hidden>{body}</div>', (*sections, "untrusted")
    link = f' data-mnb="{key}"' if key else ""
    return f'<div class="{kind}"{link}>{_style(*sections)}{body}</div>'


def main_html(title: str, about: str, body: str, kind: str) -> str:
    """Return the heading and the contents of a page."""
    name = escaped(one_line(title))
    heading = f'<h1><span class="name" title="{name}">{name}</span><span class="quiet">{escaped(about)}</span></h1>'
    return f'<main class="{kind}">{heading}{body}</main>'


def page_html(title: str, about: str, body: str, *sections: str, kind: str, scripts: str) -> str:
    """Return a self-contained HTML file."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escaped(one_line(title))}</title>'
        f"{_style('heading', *sections)}</head>"
        f'<body class="mnb">{main_html(title, about, body, kind)}{scripts}</body></html>\n'
    )


class Markup(str):
    """HTML that is inserted into a table unchanged: a cell, row or caption."""


def cell(text: str, style: str = "") -> Markup:
    """Return a table cell that contains a text."""
    return Markup(f'<td class="{style}">{escaped(text)}</td>' if style else f"<td>{escaped(text)}</td>")


def _heading(scope: str, text: str, look: str = "") -> str:
    # A screen reader announces an empty heading with each cell.
    return f'<th scope="{scope}"{look}>{escaped(text)}</th>' if text.strip() else f"<td{look}></td>"


def html_table(
    heads: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    style: str = "cost",
    caption: str = "",
    foot: str = "",
    words: int = -1,
) -> str:
    """Return an HTML table whose first column names the rows."""
    body = ""
    for row in rows:
        if isinstance(row, Markup):
            body += row
            continue
        name, *values = row
        cells = "".join(value if isinstance(value, Markup) else cell(value) for value in values)
        body += f"<tr>{_heading('row', name)}{cells}</tr>"
    titles = heads
    if not isinstance(heads, Markup):
        cells = (_heading("col", head, ' class="words"' if at == words else "") for at, head in enumerate(heads))
        titles = f"<tr>{''.join(cells)}</tr>"
    table = (
        f'<table class="{style}">'
        + (f"<caption>{caption if isinstance(caption, Markup) else escaped(caption)}</caption>" if caption else "")
        + (f"<thead>{titles}</thead>" if heads else "")
        + f"<tbody>{body}</tbody>"
        + (f"<tfoot>{foot}</tfoot>" if foot else "")
        + "</table>"
    )
    # A table with many sources is wider than a cell, and scrolls alone.
    return f'<div class="scroll">{table}</div>' if style.startswith("cost") else table


def _variables(theme: Theme) -> str:
    names = {name: colour for name, colour in vars(theme).items() if isinstance(colour, str)}
    names |= {
        "on": mix_colours(theme.accent, theme.ground, LIT),
        "pin": mix_colours(theme.accent, theme.ground, PINNED),
    }
    names |= {f"h{at}": hue for at, hue in enumerate(theme.hues)}
    # The letters are the classes that `languages` gives to tokens.
    names |= {f"c{letter}": colour for letter, colour in zip("kftmsc", theme.code, strict=True)}
    return "".join(f"--{name}:{colour};" for name, colour in names.items())


def paragraphs(texts: Iterable[str]) -> str:
    """Return texts of one line as paragraphs of HTML."""
    return "".join(f"<p>{escaped(one_line(text))}</p>" for text in texts)


def problems_html(problems: Sequence[Diagnostic]) -> str:
    """Return problems as an HTML list, without a style sheet; `""` if there are none."""
    cards = ""
    for problem in problems:
        parts = problem.shortened()
        link = f' data-block="{escaped(block_key(problem.block))}" tabindex="0"' if problem.block else ""
        facts = "".join(f"<dt>{escaped(label)}</dt><dd>{escaped(text)}</dd>" for label, text in parts.facts)
        facts = f"<dl>{facts}</dl>" if facts else ""
        advice = f"<div>Try: <code>{escaped(parts.advice)}</code></div>" if parts.advice else ""
        cards += f"<li{link}><b>{escaped(problem.code)}</b>: {escaped(parts.summary)}{facts}{advice}</li>"
    return f'<ul class="problems">{cards}</ul>' if cards else ""


def image_html(svg: str, alt: str) -> str:
    """Return a picture as an HTML image. JupyterLab shows it even if the notebook is not trusted."""
    data = b64encode(svg.encode()).decode()
    label = escaped(one_line(alt))
    style = f"<style>{_sections()['picture']}</style>"
    # Images run no scripts and load nothing, so sanitizers keep them.
    return f'{style}<img class="mnb-picture" alt="{label}" src="data:image/svg+xml;base64,{data}">'


def write_page(page: str, path: str | Path | None) -> str:
    """Write a page to `path` unless it is `None`, and return the page."""
    if path is not None:
        try:
            write_text(path, page)
        except OSError as error:
            # `str` would repeat the path.
            because = error.strerror or str(error)
            raise ModelFileError(f"cannot write {str(path)!r}.", (("because", because),)) from error
    return page


STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return the text of a file in `static/`, where the build of the front end writes its files."""
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
