"""Searches in programs: equal to a search by another way, and shown as a table."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import WIDTH, models, modest
from transcript import message_of

from mithril_nb import errors, targets
from mithril_nb.graph.query import Found, Match, parse_query
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect

HOSTILE = "<img src=x onerror=alert(1)>&\u202e\n" + "x" * 5000
NUMBERS = {"flops": "flops", "bytes": "bytes_accessed"}
COMPARED = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}


@cache
def program() -> Inspection:
    def loss(w: Any, x: Any) -> Any:
        with jax.named_scope("head"):
            return jnp.sum(jnp.tanh(x @ w))

    return inspect(jax.grad(loss), jnp.zeros((3, 4)), jnp.zeros((2, 3)), params="w")


@modest
@given(models(depth=1, most=4), st.data())
def test_matches_are_those_of_a_search_by_hand(model: Any, data: st.DataObject) -> None:
    try:
        found = targets.inspect(model, shapes={one.name: (3, WIDTH) for one in model.inputs})
        rows = {row.id: row for row in found.cost().rows}
    except errors.MithrilError:
        assume(False)
        return
    equations = {one.id: one for one in found.equations}
    assert {one.id for one in found.find("-kind:parameter")} == set(equations)
    if not equations:
        return
    one = data.draw(st.sampled_from([*equations.values()]))
    part = data.draw(st.sampled_from(one.primitive.split("_")))
    kinds = {path: node.block.kind for path, node in model.graph.walk()}

    def has_kind(id: str) -> bool:
        path = equations[id].block
        around = [kinds[outer] for outer in kinds if path == outer or path.startswith(f"{outer}/")]
        return any(part.lower() in text.lower() for text in (equations[id].primitive, *around))

    assert ids(found, f"-kind:parameter kind:{part}") == {id for id in equations if has_kind(id)}
    for key, field in NUMBERS.items():
        sign = data.draw(st.sampled_from([*COMPARED]))
        bound = data.draw(st.sampled_from([0, 1, *(getattr(row, field) or 0 for row in rows.values())]))
        known = {id: getattr(row, field) for id, row in rows.items()}
        right = {id for id, value in known.items() if value is not None and COMPARED[sign](value, bound)}
        assert ids(found, f"{key}{sign}{bound}") == right
        assert ids(found, f"-kind:parameter -{key}{sign}{bound}") == set(equations) - right
    if one.block:
        quoted = one.block.replace("\\", "\\\\").replace('"', '\\"')
        assert ids(found, f'-kind:parameter block:"{quoted}"') >= {
            other.id for other in equations.values() if f"{other.block}/".startswith(f"{one.block}/")
        }


def ids(inspection: Inspection, query: str) -> set[str]:
    return {one.id for one in inspection.find(query)}


def test_every_column_can_be_searched() -> None:
    (match,) = program().find("dot role:backward block:head dtype:f32 flops>1 bytes>1 memory=48 line:test_find.py")
    assert isinstance(match, Match)
    assert (match.block, match.kind, match.role, match.flops, match.memory) == (
        ("head",),
        "dot_general",
        "backward",
        48,
        48,
    )
    assert program().find("").searched == len(program().find("")) == len(program().stage("jaxpr").instructions)


def test_other_stages_can_be_searched() -> None:
    found = program().find("kind:dot flops>1", "hlo")
    assert {one.flops for one in found} == {48}
    assert found.stage == "hlo"
    with pytest.raises(errors.StageUnavailableError):
        program().find("dot", "hl0")


@pytest.mark.parametrize("query", ["flops>1", "-flops>1", "dot bytes>1"])
def test_numbers_that_a_stage_does_not_have_are_an_error(query: str) -> None:
    key = "bytes" if "bytes" in query else "flops"
    assert message_of(lambda: program().find(query, "stablehlo")) == (
        f"UnknownOptionError: stage 'stablehlo' has no {key} to search for.\n"
        "    reason  only jaxpr, hlo_before, hlo have costs"
    )
    assert len(program().find("kind:dot memory>1", "stablehlo")) == 2


def test_fusions_show_their_content() -> None:
    found = inspect(lambda x: jnp.exp(x) * 3 + x, jnp.ones((64, 64))).find("kind:fusion", "hlo")
    assert [set(one.contains) for one in found] == [{"exponential", "multiply", "add", "broadcast"}]
    assert [one.flops for one in found] == [0]
    heads, row = str(found).splitlines()[1:3]
    assert "own FLOPs" in heads
    assert "fusion: exponential, " in row


def test_programs_without_a_jaxpr_are_searched_in_their_first_stage() -> None:
    given = targets.inspect(jax.jit(jnp.dot).lower(jnp.zeros((2, 3)), jnp.zeros((3, 4))))
    assert [one.kind for one in given.find("kind:dot")] == ["stablehlo.dot_general"]


def test_a_result_is_shown_as_text_and_as_a_table() -> None:
    found = program().find("kind:tanh")
    assert str(found).splitlines()[0] == f"1 of {found.searched} instructions of jaxpr matches: kind:tanh"
    assert f"<caption>1 of {found.searched}" in found._repr_mimebundle_()["text/html"]
    nothing = program().find("kind:nothing")
    assert str(nothing) == f"0 of {found.searched} instructions of jaxpr match: kind:nothing"
    assert "<table" not in nothing._repr_mimebundle_()["text/html"]


def test_the_caption_counts_one_block_in_the_singular() -> None:
    for count, text in ((1, "1 of 1 block matches"), (2, "1 of 2 blocks matches")):
        found = Found("net", "", parse_query(""), (Match("a", "Relu", ("a",)),), count)
        assert str(found).splitlines()[0] == text


def test_hostile_names_stay_data() -> None:
    def net(x: Any) -> Any:
        with jax.named_scope("block:" + "%3Cscript%3E"):
            return jnp.sin(x)

    found = inspect(net, jnp.zeros(3), name=HOSTILE).find("sin")
    assert len(found) == 1
    shown = Found(HOSTILE, "jaxpr", found.query, (Match(HOSTILE, HOSTILE, (HOSTILE,), line=(HOSTILE,)),), 1)
    bundle = shown._repr_mimebundle_()
    assert "<img" not in bundle["text/html"]
    assert "\u202e" not in bundle["text/plain"]


def test_errors_are_raised_before_the_program_is_traced() -> None:
    def net(x: Any) -> Any:
        raise AssertionError("traced")

    assert message_of(lambda: inspect(net, jnp.zeros(3)).find("flops>many")) == (
        "UnknownOptionError: flops needs a number in a query.\n    received  many\n    Try: flops>1e6"
    )
