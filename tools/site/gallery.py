"""The gallery: programs in docs/gallery as pages with their source, costs and saved explorer."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Dict, List

_CODE = re.compile(r"`([^`]*)`")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "gallery"
FAMILIES = {
    "networks": "Networks",
    "training": "Training",
    "transformations": "Transformations",
    "scientific": "Scientific computing",
    "sampling": "Sampling",
    "reinforcement": "Reinforcement learning",
    "kernels": "Kernels and scans",
    "many_devices": "Many devices",
}
"""Titles of the folders, in the order of the page."""


@dataclass(frozen=True)
class Program:
    """A program of the gallery.

    Attributes:
        name: Path in the gallery, without suffix.
        title: Title in a few words.
        about: What is worth a look.
        source: The code below its docstring.
    """

    name: str
    title: str
    about: str
    source: str

    @classmethod
    def read(cls, path: Path) -> Program:
        """Read a program from its file."""
        text = path.read_text(encoding="utf-8")
        first = ast.parse(text).body[0]
        title, _, about = (ast.get_docstring(ast.parse(text)) or path.stem).partition("\n")
        source = "\n".join(text.splitlines()[first.end_lineno :]).strip()
        name = path.relative_to(FOLDER).with_suffix("").as_posix()
        return cls(name, title.rstrip("."), " ".join(about.split()), source)


def programs() -> List[Program]:
    """Return all programs, by family."""
    return [Program.read(path) for family in FAMILIES for path in sorted((FOLDER / family).glob("*.py"))]


def inspected(program: Program) -> Any:
    """Run a program, and return its inspection."""
    names: Dict[str, Any] = {"__name__": program.name.replace("/", "_")}
    path = FOLDER / f"{program.name}.py"
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names["p"]


_PAGE = """\
---
hide: [navigation, toc]
---

[Gallery](../index.md)

# {title}

{about}

<iframe class="mnb-page" src="{name}.explorer.html" loading="lazy" title="{escaped}: graph, stages, costs"></iframe>

[Open it in a tab of its own]({name}.explorer.html){{ target=_blank }}

## Program

```python
{source}
```

## Cost by block

<!-- mnb-file {name}.cost.html -->
"""
_CARD = """\
<li><a href="{path}.html"><span class="mnb-thumb"><img src="{path}.svg" alt="" loading="lazy"></span>{title}</a>
<p>{about}</p><small>{flops} FLOP · {count} B</small></li>
"""


def write(folder: Path) -> None:
    """Write the pages of all programs, their saved explorers and pictures, and the overview."""
    from mithril_nb.cost.records import format_sum
    from mithril_nb.display import render

    cards: Dict[str, str] = {}
    every = programs()
    for program in every:
        print(f"   gallery/{program.name}", flush=True)
        p = inspected(program)
        family, _, name = program.name.partition("/")
        (folder / family).mkdir(parents=True, exist_ok=True)
        p.save(folder / family / f"{name}.explorer.html")
        p.save(folder / family / f"{name}.svg")
        cost = p.cost()
        (folder / family / f"{name}.cost.html").write_text(render(cost)["text/html"], encoding="utf-8")
        title, about = escape(program.title), _CODE.sub(r"<code>\1</code>", escape(program.about))
        page = _PAGE.format(title=program.title, escaped=title, about=program.about, name=name, source=program.source)
        (folder / family / f"{name}.md").write_text(page, encoding="utf-8")
        total = cost.total
        flops, count = format_sum(total.flops, total.unknown), format_sum(total.bytes_accessed, total.unknown_bytes)
        card = _CARD.format(path=program.name, title=title, about=about, flops=flops, count=count)
        cards[family] = cards.get(family, "") + card
    parts = [f'## {FAMILIES[family]}\n\n<ul class="mnb-cards">\n{text}</ul>' for family, text in cards.items()]
    about = "programs, each with its graph, its stages down to machine code, and its costs by block."
    text = "\n\n".join(["# Gallery", f"{len(every)} {about}", *parts])
    (folder / "index.md").write_text(f"{text}\n", encoding="utf-8")


def write_home(folder: Path) -> List[str]:
    """Write the saved explorer of the home page, with all devices whose compilers are installed; return their names."""
    from mithril_nb.errors import MithrilError

    p = inspected(Program("training/sgd_step", "", "", ""))
    devices = ["cpu"]
    for device in ("h100", "v5e"):
        try:
            p.on(device).stage("hlo")
            devices.append(device)
        except MithrilError as error:
            print(f"   without {device}: {error.diagnostics[0].summary}")
    p.to_html(folder / "home.html", devices=devices[1:])
    return devices
