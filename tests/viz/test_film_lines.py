"""Films: the lines of one block in each stage, and their links to the stage before."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.viz.pages.film import MOST_LINES, Film


def net(params, x):
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()


@pytest.fixture(scope="module")
def program() -> Inspection:
    array = jax.ShapeDtypeStruct
    params = [array((29, 37), "float32"), array((37, 53), "float32")]
    return ml.inspect(jax.grad(net), params, array((7, 29), "float32"))


@pytest.fixture(scope="module")
def film(program: Inspection) -> Film:
    return program.film("layer_0")


def ids_by_line(program: Inspection, stage: str) -> dict[int, str]:
    """Return the id of the innermost instruction on each line."""
    instructions = sorted(program.stage(stage).instructions, key=lambda each: -each.lines)
    return {line: each.id for each in instructions for line in range(each.line, each.line + each.lines)}


def test_a_stage_has_the_lines_that_a_search_finds(program: Inspection, film: Film) -> None:
    assert [stage.name for stage in film.stages] == list(program.stages)
    for stage in film.stages:
        text, ids = program.stage(stage.name).text.split("\n"), ids_by_line(program, stage.name)
        matches = {match.id for match in program.find("block:layer_0", stage.name)}
        lines = [number for number, id in sorted(ids.items()) if id in matches]
        assert [line.number for line in stage.lines] == lines[:MOST_LINES]
        assert stage.count == len(lines)
        assert [line.text for line in stage.lines] == [text[number - 1] for number in lines[:MOST_LINES]]


def test_lines_are_linked_as_their_instructions_are(program: Inspection, film: Film) -> None:
    assert not any(line.before for line in film.stages[0].lines)
    states = set()
    for old, new in zip(film.stages, film.stages[1:], strict=False):
        links = program.links(new.name, old.name)
        before, here = ids_by_line(program, old.name), ids_by_line(program, new.name)
        for line in new.lines:
            partners = links[here[line.number]]
            assert line.before == tuple(at for at, other in enumerate(old.lines) if before[other.number] in partners)
            assert line.is_linked == bool(partners)
            states.add((bool(line.before), line.is_linked))
    assert states >= {(True, True), (False, False)}


def test_a_link_to_a_line_that_is_not_shown_is_no_missing_link(
    program: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mithril_nb.viz.pages.film.MOST_LINES", 2)
    film = program.film("layer_1")
    away = [stage for stage in film.stages if any(line.is_linked and not line.before for line in stage.lines)]
    assert away
    for stage in away:
        count = sum(line.is_linked and not line.before for line in stage.lines)
        moved = sum(line.before != () for line in stage.lines)
        before = film.stages[film.stages.index(stage) - 1].name
        assert f"the first 2 are shown, {moved} linked to lines of {title_of(before)}, " in stage.summary(before)
        assert f"{count} linked to lines that are not shown" in stage.summary(before)
    assert film.html.count('title="linked to a line that the film does not show"') == sum(
        line.is_linked and not line.before for stage in film.stages for line in stage.lines
    )


def test_marks_and_counts_agree(film: Film) -> None:
    sections = film.html.split('<section class="film-stage"')[1:]
    for stage, section in zip(film.stages, sections, strict=True):
        new = 0 if stage is film.stages[0] else sum(not line.is_linked for line in stage.lines)
        assert section.count('title="no link to the stage before"') == new
        assert (f"{new} without a link (+)" in section) == (new > 0)
        codes = re.findall(r'<li class="film-line".*?<span class="x">(.*?)</span></li>', section)
        assert [unescape(re.sub("<[^>]*>", "", code)) for code in codes] == [line.text for line in stage.lines]


def test_an_unknown_block_is_refused_by_name(program: Inspection) -> None:
    with pytest.raises(UnknownOptionError, match="program 'net' has no block 'layr_0'") as caught:
        program.film("layr_0")
    assert "Try: block='layer_0'" in str(caught.value)


def test_stages_without_lines_are_named_with_the_reason() -> None:
    film = ml.inspect(jax.jit(net).lower([jnp.zeros((2, 3))], jnp.zeros((4, 2)))).film("layer_0")
    assert "jaxpr" not in [stage.name for stage in film.stages]
    (note,) = (note for note in film.notes if note.startswith("jaxpr is left out: "))
    assert "jax.stages.Lowered" in note
    assert note in film.html


def test_names_and_lines_are_escaped(tmp_path: Path) -> None:
    def strange(x):
        with jax.named_scope("a<b>$rows"):
            return jnp.sin(x)

    program = ml.inspect(strange, jnp.zeros(3))
    (block,) = {row.block for row in program.equations}
    film = program.film(block)
    page = film.save(tmp_path / "film.html").read_text(encoding="utf-8")
    assert "<b>$rows" not in page
    assert "&lt;b&gt;$rows" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?http|@import|url\(\s*["']?http""", page)
    assert str(film).startswith(f"film of {block!r} in 'strange'\n")
