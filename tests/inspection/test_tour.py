"""Tours: the moments of a lecture, checked when they are listed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.teach import Moment


def net(w, x):
    with jax.named_scope("layer"):
        hidden = jnp.tanh(x @ w)
    return hidden.sum()


@pytest.fixture(scope="module")
def program() -> Inspection:
    return ml.inspect(net, jnp.zeros((3, 4)), jnp.zeros((2, 3)))


def test_a_moment_has_the_equations_of_its_line(program: Inspection) -> None:
    tour = program.tour([Moment(("stablehlo", "jaxpr"), line=("stablehlo", at)) for at in lines_of(program, "tanh")])
    assert [data["stages"] for data in tour.data] == [["jaxpr", "stablehlo"]]
    (data,) = tour.data
    (equation,) = (row.id for row in program.equations if row.primitive == "tanh")
    assert data["equations"] == [equation]


def lines_of(program: Inspection, word: str) -> list[int]:
    return [at for at, line in enumerate(program.stage("stablehlo").text.split("\n"), 1) if word in line]


def test_dicts_and_moments_are_equal(program: Inspection) -> None:
    entry = {"stages": ["jaxpr", "stablehlo"], "block": "layer", "caption": "<b>"}
    tours = [program.tour([entry]), program.tour([Moment(**entry)])]
    assert tours[0].data == tours[1].data
    assert program.tour(tours[0]).data == tours[0].data
    assert str(tours[0]) == "1  jaxpr, StableHLO  layer  <b>"
    assert str(program.tour([])) == "a tour without moments"


@pytest.mark.parametrize(
    ("moments", "problem"),
    [
        ([{"stages": "hl"}], "moment 1 of the tour shows an unknown stage 'hl'."),
        ([{"stages": "jaxpr"}, Moment(3)], "moment 2 of the tour shows an unknown stage 3."),  # pyright: ignore
        ([{"stages": ["jaxpr", "jaxpr"]}], "moment 1 of the tour shows the stages ['jaxpr', 'jaxpr']."),
        ([{"stages": ["jaxpr", "stablehlo", "hlo"]}], "shows the stages ['jaxpr', 'stablehlo', 'hlo']."),
        ([{"stages": []}], "moment 1 of the tour shows the stages []."),
        ([{"block": "layer"}], "moment 1 of the tour is {'block': 'layer'}."),
        ([{"stages": "jaxpr", "text": ""}], "and some of block, line, caption, is_hidden"),
        ([{"stages": "jaxpr", "block": "lair"}], "program 'net' has no block 'lair'."),
        ([{"stages": "jaxpr", "line": ("hlo", 3)}], "moment 1 of the tour selects the line ('hlo', 3)."),
        ([{"stages": "jaxpr", "line": ("jaxpr", True)}], "selects the line ('jaxpr', True)."),
        ([{"stages": "jaxpr", "line": 5}], "selects the line 5."),
        ([{"stages": "jaxpr", "line": ("jaxpr", 1)}], "selects line 1 of jaxpr, which belongs to no equation."),
        ([{"stages": "jaxpr", "line": ("jaxpr", 99)}], "selects line 99 of jaxpr, which belongs to no equation."),
        ([Moment("jaxpr", block="layer", line=("jaxpr", 5))], "selects a block and a line."),
        ([Moment("jaxpr", is_hidden=True)], "moment 1 of the tour hides the second stage, but shows one."),
        ([Moment("jaxpr", caption=3)], "caption=3"),  # pyright: ignore
        ([3], "moment 1 of the tour is 3."),
        ("jaxpr", "a tour is a list of moments, not 'jaxpr'."),
    ],
)
def test_wrong_moments_are_refused_by_name(program: Inspection, moments: object, problem: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        program.tour(moments)  # pyright: ignore[reportArgumentType]
    assert problem in str(caught.value)


def test_a_program_that_cannot_be_traced_states_the_reason() -> None:
    broken = ml.inspect(lambda x: x @ jnp.zeros((5, 5)), jnp.zeros((3, 4)))
    with pytest.raises(UnknownOptionError, match="reason"):
        broken.tour([{"stages": "jaxpr", "block": "layer"}])


def test_a_page_needs_the_stages_of_its_tour(program: Inspection, tmp_path) -> None:
    tour = program.tour([{"stages": "hlo"}])
    with pytest.raises(UnknownOptionError, match="the tour shows stages that the page does not have"):
        tour.save(tmp_path / "page.html", stages=["jaxpr"])
    assert not (tmp_path / "page.html").exists()
    assert tour.save(tmp_path / "page.html", stages=["jaxpr", "hlo"]) == tmp_path / "page.html"


def test_a_page_needs_the_stages_of_its_tour_on_each_device(program: Inspection) -> None:
    gpu = program.on("h100")
    tour = gpu.tour([{"stages": "launches"}])
    with pytest.raises(UnknownOptionError, match=r"missing +launches"):
        gpu.to_html(tour=tour, devices=["tpu7x"])


def test_an_explorer_of_a_tour_accepts_no_other_arguments(program: Inspection) -> None:
    with pytest.raises(UnknownOptionError):
        ml.explore(program.tour([{"stages": "jaxpr"}]), device="h100")


def test_an_explorer_sends_the_moments(program: Inspection) -> None:
    tour = program.tour([{"stages": "jaxpr", "caption": "First"}])
    assert ml.explore(tour).session.snapshot()["tour"] == list(tour.data)
    assert ml.explore(program).session.snapshot()["tour"] == []
