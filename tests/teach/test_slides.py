"""Slides of notebooks: where they start, what they contain, and what they leave out."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.errors import ModelFileError
from mithril_nb.teach.slides import _parts, _split

ROOT = Path(__file__).resolve().parents[2]
LINES = st.sampled_from(
    ["# Title", "## Part", "### Detail", "---", "text", "", "```python", "# a comment", "```", "~~~", "- item"]
)


def written(tmp_path: Path, cells: list) -> str:
    path = tmp_path / "talk.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    target = ml.teach.slides(path)
    assert target == tmp_path / "talk.slides.html"
    return target.read_text(encoding="utf-8")


def bodies(html: str) -> list[str]:
    return html[html.index("<main>") : html.index("</main>")].split('<section class="slide">')[1:]


def code(source: str, *outputs: dict, **metadata: object) -> nbformat.NotebookNode:
    data = [nbformat.v4.new_output("display_data", output) for output in outputs]
    return nbformat.v4.new_code_cell(source, outputs=data, metadata=metadata)


@given(st.lists(LINES, max_size=12))
def test_parts_lose_no_line(lines: list[str]) -> None:
    parts = _parts("\n".join(lines))
    kept = [line for part in parts for line in part.split("\n") if line not in ("", "---")]
    assert kept == [line for line in lines if line not in ("", "---")]


@given(st.lists(LINES, max_size=12))
def test_a_slide_starts_at_a_heading_outside_of_code(lines: list[str]) -> None:
    headings, is_code, mark = 0, False, ""
    for line in lines:
        if line[:3] in ("```", "~~~"):
            if not is_code:
                is_code, mark = True, line[:3]
            elif line == mark:
                is_code = False
        headings += not is_code and bool(re.match(r"#{1,2} ", line))
    parts = _parts("\n".join(lines))
    assert sum(bool(re.match(r"#{1,2} ", part)) for part in parts[1:]) == headings


def test_headings_and_rules_start_slides(tmp_path: Path) -> None:
    html = written(
        tmp_path,
        [
            nbformat.v4.new_markdown_cell("# Talk\n\nintro"),
            code("1 + 1", {"text/plain": "2"}),
            nbformat.v4.new_markdown_cell("## A\n\nalpha\n\n---\n\nbeta\n\n```\n# no heading\n```"),
            nbformat.v4.new_markdown_cell("more\n\n## B\n\nHeading\n---\n"),
        ],
    )
    slides = bodies(html)
    assert [[word for word in ("intro", "alpha", "beta", "more", "B<") if word in slide] for slide in slides] == [
        ["intro"],
        ["alpha"],
        ["beta", "more"],
        ["B<"],
    ]
    assert "2" in slides[0]
    assert "<title>Talk</title>" in html


def test_slide_types_of_jupyter_decide(tmp_path: Path) -> None:
    def kind(name: str) -> dict:
        return {"slideshow": {"slide_type": name}}

    cells = [
        code("first", **kind("slide")),
        code("hidden", **kind("skip")),
        code("same", **kind("fragment")),
        nbformat.v4.new_markdown_cell("## no slide"),
        code("second", **kind("subslide")),
        code("for the speaker", **kind("notes")),
    ]
    slides = bodies(written(tmp_path, cells))
    assert [("first" in slide, "same" in slide, "second" in slide) for slide in slides] == [
        (True, True, False),
        (False, False, True),
    ]
    assert [word for word in ("hidden", "for the speaker") if word in "".join(slides)] == []


def test_slides_load_nothing_and_show_saved_widgets(tmp_path: Path) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/html": "<b>saved</b>"}
    html = written(tmp_path, [code("w", view), nbformat.v4.new_markdown_cell("$title $slides \\1")])
    assert "<b>saved</b>" in html
    assert "$title $slides" in html
    assert "default-src 'none'" in html
    for path in sorted((ROOT / "notebooks").glob("0*.ipynb")):
        text = ml.teach.slides(path, tmp_path / "all.html").read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.(?!data:)", text), path.name
        shown = len(re.findall(r'<section class="slide">', text))
        headings = re.findall(r"<h[12]\b", text[text.index("<main>") :])
        assert shown >= 4, path.name
        assert shown >= len(headings) - 3, path.name


@pytest.mark.parametrize("content", ["", "{}", "no json", json.dumps({"cells": 3})])
def test_a_damaged_notebook_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "damaged.ipynb"
    path.write_text(content)
    with pytest.raises(ModelFileError, match="cannot read the notebook"):
        ml.teach.slides(path)
    with pytest.raises(ModelFileError, match="cannot read the notebook"):
        ml.teach.slides(tmp_path / "missing.ipynb")


def test_cells_of_the_notebook_are_not_changed_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "talk.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(cells=[code("w", {"application/javascript": "1", "text/plain": "x"})]), path
    )
    before = path.read_bytes()
    ml.teach.slides(path)
    assert path.read_bytes() == before
    assert _split([], nbformat) == [[]]


def test_pictures_are_in_the_file_and_titles_are_plain(tmp_path: Path) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    (tmp_path / "dot.png").write_bytes(base64.b64decode(pixel))
    pasted = nbformat.v4.new_markdown_cell(
        "# `jit` and *friends*\n\n![a](attachment:x.png)\n\n## Then\n\n![b](dot.png)",
        attachments={"x.png": {"image/png": pixel}},
        metadata={"slideshow": None},
    )
    html = written(tmp_path, [pasted, code("kept", slideshow={"slide_type": "-"})])
    assert html.count(f"data:image/png;base64,{pixel[:20]}") == 2
    assert "<title>jit and friends</title>" in html
    assert len(bodies(html)) == 2


def test_notebooks_of_older_formats_have_slides(tmp_path: Path) -> None:
    path = tmp_path / "old.ipynb"
    cell = {"cell_type": "markdown", "metadata": {}, "source": "# Old"}
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    assert "Old" in ml.teach.slides(path).read_text(encoding="utf-8")
