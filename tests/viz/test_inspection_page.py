"""The page of a program: one self-contained file, readable without scripts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import mithril_nb
from mithril_nb.errors import ModelFileError, StageUnavailableError
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.stage_kinds import STAGE_KINDS

# Names of languages, not addresses that are loaded; Preact has all of them.
NAMESPACES = {f"http://www.w3.org/{name}" for name in ("2000/svg", "1999/xhtml", "1998/Math/MathML")}
SPEC = jax.ShapeDtypeStruct((3, 3), "float32")


def program(x):
    with jax.named_scope("one"):
        y = jnp.tanh(x) @ x
    with jax.named_scope("two"):
        with jax.named_scope("inner"):
            y = jnp.exp(y) * 2
        return y.sum() + y


@pytest.fixture(scope="module")
def whole() -> Inspection:
    return inspect(program, SPEC)


@pytest.fixture(scope="module")
def page(whole: Inspection) -> str:
    return whole.to_html()


def data_of(page: str) -> dict[str, Any]:
    packed = re.search(r'id="mnb-data">([^<]*)<', page)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def test_the_page_has_every_part_and_is_well_formed(page: str, parsed) -> None:
    found = parsed(page)
    headings = "".join(found.texts)
    for part in (
        "Passes of XLA that changed something",
        "Cost",
        "Stages",
        *(kind.description for kind in STAGE_KINDS.values() if not (kind.is_optional or kind.platforms)),
    ):
        assert part in headings
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= NAMESPACES


def text_of(packed: dict[str, Any]) -> str:
    """Return the text of a stage, as `page/packed-text.ts` does."""
    if "text" in packed:
        return packed["text"]
    columns = iter(packed["numbers"])
    own: dict[int, list[Iterator[int]]] = {}
    addresses = accumulate(map(int, packed["addresses"].split()))
    lines = []
    for key in packed["lines"]:
        template = packed["templates"][key]
        signs = [letter for letter in template if letter in "\1\2\3"]
        is_address = signs[:1] == ["\3"]
        if key not in own:
            own[key] = [accumulate(map(int, next(columns).split())) for _ in signs[is_address:]]
        values = ([next(addresses)] if is_address else []) + [next(column) for column in own[key]]
        texts = re.split("[\1-\3]", template)
        numbers = [
            str(value) if sign == "\1" else f"0x{value:x}" if sign == "\2" else f"0x{value:04x}"
            for sign, value in zip(signs, values, strict=True)
        ]
        lines.append("".join(one for pair in zip(texts, [*numbers, ""], strict=True) for one in pair))
    return "\n".join(lines)


def test_every_line_and_link_can_be_unpacked(page: str, whole: Inspection) -> None:
    data = data_of(page)
    assert [stage["name"] for stage in data["stages"]] == [
        name for name, kind in STAGE_KINDS.items() if not (kind.is_optional or kind.platforms)
    ]
    for packed in data["stages"]:
        stage = whole.stage(packed["name"])
        assert text_of(packed) == stage.text
        columns, tables = packed["columns"], packed["tables"]
        lines = list(accumulate(columns["step"]))
        for at, one in enumerate(stage.instructions):
            found = {name: tables[name][columns[name][at]] for name in tables}
            assert (lines[at], columns["lines"][at]) == (one.line, one.lines)
            assert tuple(found["equations"]) == one.equations
            assert dict(found["shares"]) == pytest.approx(one.blocks)
            assert (found["role"], found["origin"], found["opcode"]) == (one.role, one.origin, one.opcode)
            assert (tuple(found["source"]), tuple(found["library"])) == (one.source, one.library_source)
        assert {path for shares in tables["shares"] for path, _ in shares} <= data["hues"].keys()
    assert data["passes"] == [one.diff for one in whole.passes]
    assert data["shown"] == ["jaxpr", "stablehlo", "hlo"]


def test_the_page_has_the_graph_with_all_its_levels(page: str) -> None:
    graph = data_of(page)["graph"]
    boxes = graph["boxes"]
    parents = {key: boxes["key"][at] if at >= 0 else "" for key, at in zip(boxes["key"], boxes["parent"], strict=True)}
    assert {"one", "two", "two/inner"} <= parents.keys()
    assert parents["two/inner"] == "two"
    assert set(graph["opened"]) <= parents.keys()
    assert "data-e=" not in page, "a script replaces the picture, so its links are not needed"


def test_a_page_of_several_devices_contains_the_page_of_each() -> None:
    page = inspect(program, SPEC).to_html(stages=["jaxpr"], devices=["v5e", "cpu"])
    menu = re.compile(r'<p class="device" hidden>.*?</p>')
    (own,) = re.findall("<template>(.*)</template>", page, re.DOTALL)
    other = inspect(program, SPEC).on("v5e").to_html(stages=["jaxpr"])
    assert menu.sub("", own) in other
    assert data_of(own) == data_of(other)
    assert menu.sub("", page.replace(f"<template>{own}</template>", "")) == inspect(program, SPEC).to_html(
        stages=["jaxpr"]
    )
    chosen = [re.findall(r"<option( selected|)>(\w+)<", options) for options in menu.findall(page)]
    assert chosen == [[(" selected", "cpu"), ("", "v5e")], [("", "cpu"), (" selected", "v5e")]]


def test_nothing_is_compiled_for_stages_that_need_no_compiler() -> None:
    some = inspect(program, SPEC)
    page = some.to_html(stages=["jaxpr", "stablehlo"])
    assert not some.is_compiled
    assert "Passes of XLA" not in page
    assert [stage["name"] for stage in data_of(page)["stages"]] == ["jaxpr", "stablehlo"]


def early(x):
    raise ValueError("not today")


def test_a_program_that_fails_at_once_has_no_empty_panes() -> None:
    inspection = inspect(early, SPEC)
    page = inspection.to_html()
    panes = re.findall(r'<section class="pane".*?</section>', page, re.DOTALL)
    assert len(panes) == len(inspection.stages) == page.count('<p class="gone">not available: ValueError: not today')
    with_text = [pane for pane in panes if 'class="code"' in pane]
    assert [re.findall(r'data-stage="(\w+)"', pane) for pane in with_text] == [["python"], ["jaxpr"]]
    assert all("not today" in pane.partition('class="code"')[2] for pane in with_text)
    assert "Traceback" not in page.partition("<script")[0]


def test_a_program_that_cannot_be_traced_has_a_page(parsed) -> None:
    page = inspect(lambda x: x @ x, jax.ShapeDtypeStruct((2, 3), "float32")).to_html()
    parsed(page)
    assert "TypeError: dot_general requires contracting dimensions" in page
    assert "<h2>Cost</h2>" not in page


def test_the_page_is_written_and_failures_raise(whole: Inspection, page: str, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert whole.to_html(target) == target.read_text(encoding="utf-8") == page
    missing = tmp_path / "none" / "page.html"
    with pytest.raises(ModelFileError) as error:
        whole.to_html(missing)
    assert str(error.value) == (f"cannot write {str(missing)!r}.\n    because  No such file or directory")
    with pytest.raises(StageUnavailableError) as error:
        whole.to_html(stages=["mlir"])
    assert str(error.value).startswith("program 'program' has no stage 'mlir'.\n")


def test_names_are_escaped(parsed) -> None:
    def fn(x):
        with jax.named_scope("</script><b>"):
            return x + 1

    page = inspect(fn, SPEC, name="<i>&").to_html(stages=["jaxpr"])
    parsed(page)
    assert "<title>&lt;i&gt;&amp;</title>" in page
    assert page.count("</script>") == 2
    assert "<b>" not in page.replace("<header><b>", "")


def test_the_script_builds_no_markup(page: str) -> None:
    script = page[page.rindex("<script>") :]
    for word in ("outerHTML=", "insertAdjacentHTML", "document.write", "eval(", "fetch", "Function("):
        assert word not in script
    # Preact sets `innerHTML` for the attribute `dangerouslySetInnerHTML`, which no source of ours has.
    for file in sources():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\binnerHTML\b|dangerouslySetInnerHTML", text), file
    assert script.count("innerHTML") == len(re.findall(r"\.innerHTML\b", script)) <= 4


def sources() -> list[Path]:
    found = [*(Path(mithril_nb.__file__).parent / "ui" / "frontend" / "src").rglob("*.ts*")]
    assert len(found) > 100
    return found
