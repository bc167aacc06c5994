"""The style sheet shared by HTML fragments: scoped to `.mnb`, light and dark, following JupyterLab's theme."""

from __future__ import annotations

from mithril_nb.viz.escape import escaped, one_line
from mithril_nb.viz.palette import DARK, LIGHT, LIT, PINNED, Theme, mix_colours

MONO = "var(--jp-code-font-family, ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace)"
SANS = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif)"


def theme_css() -> str:
    """Return the colours as CSS variables of `.mnb`: JupyterLab's theme if there is one, else the system's."""
    light, dark = _variables(LIGHT), _variables(DARK)
    return (
        f".mnb{{{light}}}@media (prefers-color-scheme:dark){{.mnb{{{dark}}}"
        f'[data-jp-theme-light="true"] .mnb{{{light}}}}}[data-jp-theme-light="false"] .mnb{{{dark}}}'
    )


def base_css() -> str:
    """Return the colours and the rules that all fragments need."""
    return (
        theme_css()
        + (
            f".mnb{{color:var(--ink);background:var(--ground);font:13px/1.4 {SANS};text-align:left}}"
            ".mnb *{box-sizing:border-box}"
            ".mnb :focus-visible{outline:2px solid var(--accent);outline-offset:-2px}"
            ".mnb a{color:inherit}"
            ".mnb .dot{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;"
            "background:var(--muted)}"
            ".mnb .quiet{color:var(--muted)}.mnb .hx{background:var(--muted)}"
        )
        + "".join(f".mnb .h{at}{{background:var(--h{at})}}" for at in range(len(LIGHT.hues)))
    )


def heading_html(name: str, about: str) -> str:
    """Return the heading of a page: its name, elided if too long, and a short description."""
    shown = escaped(one_line(name))
    return f'<h1><span class="name" title="{shown}">{shown}</span><span class="quiet">{escaped(about)}</span></h1>'


def heading_css() -> str:
    """Return the CSS rules of the heading."""
    return (
        f".mnb h1{{display:flex;align-items:baseline;gap:8px;font:600 20px/1.3 {SANS};margin:0 0 12px}}"
        ".mnb h1 .name{min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
        ".mnb h1 .quiet{flex:none;font-weight:400;font-size:13px}"
    )


def _variables(theme: Theme) -> str:
    names = {
        "ground": theme.ground, "surface": theme.surface, "line": theme.line, "wire": theme.wire, "ink": theme.ink,
        "muted": theme.muted, "accent": theme.accent, "bad": theme.bad, "cost": theme.cost, "track": theme.track,
        "on": mix_colours(theme.accent, theme.ground, LIT), "pin": mix_colours(theme.accent, theme.ground, PINNED),
    }  # fmt: skip
    names |= {f"h{at}": hue for at, hue in enumerate(theme.hues)}
    names |= {f"c{letter}": colour for letter, colour in zip("kftmsc", theme.code, strict=True)}
    return "".join(f"--{name}:{colour};" for name, colour in names.items())
