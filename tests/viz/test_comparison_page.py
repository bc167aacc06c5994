"""A comparison as text and HTML: a sign on each difference, links shared by both sides, hostile names as data."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from strategies import HOSTILE

import mithril_nb as ml
from mithril_nb.analysis.compare import Comparison
from mithril_nb.models import Gelu, Linear, Model, Relu
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.diagrams.picture import marked_scene, with_outer_blocks
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.palette import DARK, LIGHT, contrast


def net(*blocks: Model) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


BEFORE = net(Linear(8), Relu(), Linear(3))
AFTER = net(Linear(8), Gelu(), Linear(4), Relu(), Linear(3))


@pytest.fixture(scope="module")
def found() -> Comparison:
    return ml.compare(BEFORE, AFTER, shapes={"input": [4, 5]})


@pytest.fixture(scope="module")
def page(found: Comparison) -> str:
    return found.to_html(stages=["jaxpr", "stablehlo"])


def jaxpr(*lines: tuple[str, str]) -> Stage:
    """Return a stage with an instruction of a block on each line, which reads the same in every version of JAX."""
    instructions = tuple(
        Instruction(str(at), text.split("= ")[1].split()[0], at + 1, (str(at),), ((block, 1.0),), "forward", "tagged")
        for at, (block, text) in enumerate(lines)
    )
    return Stage("jaxpr", "".join(f"{text}\n" for _, text in lines), instructions)


PAIR = (
    jaxpr(
        ("enc", "b:f32[3] = sin a"),
        ("enc", "c:f32[3] = neg b"),
        ("mid", "d:f32[3] = exp c"),
        ("dec", "e:f32[] = sum d"),
    ),
    jaxpr(
        ("enc", "b:f32[3] = sin a"),
        ("enc", "c:f32[3] = neg b"),
        ("new", "d:f32[3] = cos c"),
        ("dec", "e:f32[8] = sum d"),
    ),
)


def test_golden_text(golden: Any) -> None:
    found = ml.compare(*PAIR)
    version = f"(jax {jax.__version__})"
    golden("comparison.txt", f"{found}\n\n{found.stage('jaxpr')}\n".replace(version, "(jax)"))
    golden("comparison_models.txt", f"{ml.compare(BEFORE, AFTER)}\n")


def test_the_page_is_strict_and_self_contained(page: str, parsed: Any) -> None:
    elements = parsed(page).elements
    assert sum(tag == "svg" for tag, _ in elements) == 2
    stages = [attrs["data-stage"] for tag, attrs in elements if tag == "details" and "data-stage" in attrs]
    assert stages == ["jaxpr", "stablehlo"]
    assert "Content-Security-Policy" in page


def test_each_difference_has_a_sign_and_a_word(page: str, parsed: Any) -> None:
    rows = [attrs for tag, attrs in parsed(page).elements if tag == "div" and attrs.get("class", "").startswith("l")]
    marked = [attrs for attrs in rows if "m-" in attrs["class"]]
    assert marked
    assert page.count('aria-label="added">+') == sum("m-added" in attrs["class"] for attrs in rows)
    assert page.count('aria-label="removed">−') == sum("m-removed" in attrs["class"] for attrs in rows)
    labels = re.findall(r'class="node"[^>]*aria-label="([^"]*)"', page)
    assert any(label.startswith("Gelu gelu_0") and label.endswith("added") for label in labels)


def test_partners_share_their_link(page: str) -> None:
    left, right = re.findall(r"<svg.*?</svg>", page, re.S)
    assert 'data-block="linear_2"' in left  # it is linear_1 there
    assert 'data-block="linear_2"' in right
    assert 'data-block="linear_1"' not in left
    assert page.count('data-block="gelu_0"') >= 3  # its node, the summary and the costs


def test_unchanged_lines_are_folded_and_complete(found: Comparison, page: str) -> None:
    stage = found.stage("jaxpr")
    section = page[page.index('data-stage="jaxpr"') : page.index('data-stage="stablehlo"')]
    assert section.count('<div class="l') == len(stage.rows)
    program = jax.ShapeDtypeStruct((4,), "float32")
    long = ml.compare(lambda x: _many(x, jnp.sin), lambda x: _many(x, jnp.cos), program)
    page = long.to_html(stages=["jaxpr"])
    assert "unchanged lines, not included" in page
    assert len(page) < 200_000


def _many(x: Any, last: Any) -> Any:
    for _ in range(400):
        x = x + x
    return last(x)


def test_a_cell_shows_the_first_stage_and_compiles_nothing(found: Comparison) -> None:
    data = bundle(found)
    assert set(data) == {"text/plain", "text/html"}
    assert 'data-stage="jaxpr"' in data["text/html"]
    assert 'data-stage="hlo"' not in data["text/html"]
    assert "hlo" not in found._stages
    assert bundle(found.stage("jaxpr"))["text/plain"].startswith(" { lambda")
    assert repr(found) == f"Comparison('Model' -> 'Model': {found.summary})"


def test_equal_sides_say_so() -> None:
    same = ml.compare(BEFORE, BEFORE)
    assert "no difference" in str(same)
    assert "no difference" in same.to_html()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_data(name: str, parsed: Any) -> None:
    before, after = Model(), Model()
    before += Linear(3, name=f"{name}a")
    after += Linear(4, name=f"{name}a")
    after += Relu(name=f"{name}b")
    for found in (ml.compare(before, after), ml.compare(before, after, shapes={"input": [2, 3]})):
        page = parsed(found.to_html(stages=[one for one in found.stages if one == "jaxpr"]))
        assert all(tag != "script" or not attrs for tag, attrs in page.elements)
        assert "alert" not in "".join(tag for tag, _ in page.elements)
        assert str(found).count("\x1b") == 0


def test_a_stage_text_cannot_escape(parsed: Any) -> None:
    evil = '</div></details><script>alert(1)</script>"\u202e' + "x" * 5000
    before, after = (Stage("jaxpr", f"{evil}\n{last}\n") for last in "ab")
    page = ml.compare(before, after).to_html()
    assert "<script>alert" not in page
    parsed(page)


def test_long_tables_sum_up_unchanged_blocks() -> None:
    blocks = [Linear(4) for _ in range(40)]
    found = ml.compare(net(*blocks), net(*blocks, Relu()), shapes={"input": [2, 4]})
    assert "40 unchanged blocks" in str(found)


def test_marks_reach_the_blocks_around_them(nested: Any) -> None:
    marks = {"mlp_0/relu_0": "added", "head": "removed"}
    assert with_outer_blocks(marks) == {**marks, "mlp_0": "changed"}
    scene = marked_scene(nested, marks, {})
    assert {node.key: node.mark for node in scene.nodes if node.mark} == with_outer_blocks(marks)
    svg = scene_svg(scene)
    for mark in ("added", "removed", "changed"):
        assert svg.count(f'class="rim-{mark}"') == 1
        assert svg.count(f'class="sign-{mark}"') == 1
    assert "rim-added" not in scene_svg(marked_scene(nested, {}, {}))


def test_a_repeated_part_is_marked_if_one_of_its_blocks_differs() -> None:
    model = net(*(block for _ in range(20) for block in (Linear(4), Relu())))
    scene = marked_scene(model.graph, {"linear_7": "removed"}, {})
    assert [(node.mark, node.repeat) for node in scene.nodes if node.mark] == [("changed", 20)]


def test_signs_are_readable_in_both_themes() -> None:
    for theme in (LIGHT, DARK):
        for colour in (theme.code[2], theme.bad, theme.cost):
            assert contrast(colour, theme.ground) >= 4.5
