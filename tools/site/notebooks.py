"""A notebook as a page: Markdown, code, and outputs as HTML. Lessons run, and their questions work."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import Any, Dict, Tuple

import nbformat
from nbclient import NotebookClient

from tools.notebooks import PATIENCE_S, REPAIR, is_lesson

ROOT = Path(__file__).resolve().parents[2]
FROZEN = "from tools.site import frozen; frozen.register()"
_ANSWER = re.compile(r"^\w+\.predict\(\.\.\.\)$")
_SCORE = "ml.teach.score()"
_HOW_TO = re.compile(r"^\*Run the cells .*?\*$", re.MULTILINE | re.DOTALL)
_NOTE = """\
*No kernel runs on this page. Answer each question in its form before you read on; the first answer counts. The puzzles
are for the notebook, which checks what you write.*"""
_LINK = re.compile(r"\]\((?!\w+:)([^)#]+)([^)]*)\)")
_RICH = ("text/html", "image/svg+xml", "image/png")


def page(path: Path) -> Tuple[str, Dict[str, str]]:
    """Return a notebook as Markdown, and the HTML that replaces each of its outputs, by token.

    Raises:
        CellExecutionError: A cell of a lesson fails.
    """
    notebook = nbformat.read(path, as_version=4)
    if is_lesson(path):
        _run(notebook, path.parent)
    parts, outputs = [], {}
    for cell in notebook.cells:
        source = "".join(cell.source)
        if cell.cell_type == "markdown":
            text = _LINK.sub(_link, source)
            parts.append(_HOW_TO.sub(_NOTE, text) if is_lesson(path) else text)
        elif cell.cell_type == "code" and not _ANSWER.match(source):
            is_repair = REPAIR in cell.metadata.get("tags", [])
            parts += ['<details markdown="1"><summary>Repair</summary>'] * is_repair
            parts.append(f"```python\n{source}\n```")
            # The output of a puzzle without a solution would be that there is none.
            shown = [] if source.rstrip().endswith(": ...") else cell.outputs
            html = '<p class="mnb-score"></p>' if source == _SCORE else "".join(map(_html, shown))
            if html:
                token = f"mnb-output-{len(outputs)}"
                outputs[token] = f'<div class="mnb-cell-output">{html}</div>'
                parts.append(f"<!-- {token} -->")
            parts += ["</details>"] * is_repair
    return "\n\n".join(parts) + "\n", outputs


def _run(notebook: Any, folder: Path) -> None:
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FROZEN))
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    client = NotebookClient(
        notebook, timeout=PATIENCE_S, store_widget_state=False, resources={"metadata": {"path": str(folder)}}
    )
    # Without its warning that it uses TCP.
    client.extra_arguments = ["--IPKernelApp.log_level=40"]
    client.execute(env={**os.environ, "PYTHONPATH": paths})
    del notebook.cells[0]


def _link(match: re.Match) -> str:
    target, anchor = match.groups()
    if target.startswith("../docs/"):
        target = f"../{target[len('../docs/') :]}"
    elif target.endswith(".ipynb"):
        target = f"{target[: -len('.ipynb')]}.md"
    elif not target.startswith("images/"):
        return f"](#{anchor})" if anchor else "](#)"
    return f"]({target}{anchor})"


def _html(output: Any) -> str:
    if output.output_type == "stream":
        return f"<pre>{escape(output.text)}</pre>"
    if output.output_type == "error":
        return f"<pre>{escape(output.ename)}: {escape(output.evalue)}</pre>"
    data = output.data
    kind = next((kind for kind in _RICH if kind in data), "text/plain")
    content = "".join(data.get(kind, ""))
    if kind == "image/png":
        name = escape("".join(data.get("text/plain", "picture")))
        return f'<img alt="{name}" src="data:image/png;base64,{content.strip()}">'
    return content if kind in _RICH else f"<pre>{escape(content)}</pre>"
