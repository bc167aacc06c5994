"""The formula of a block: its terms add up to its FLOPs, what is not known is named, and the text says all of it."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from waiting import PATIENCE_S

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.models import MLP, Flatten, Linear, Model, Relu
from mithril_nb.session import Session, design_of
from mithril_nb.session.formulas import MOST_TERMS, BlockFormula, Term, formula_of
from mithril_nb.targets import inspect


def spec(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


def session_of(*blocks: Any, program: str = "forward", shape: tuple[int, ...] = (32, 16)) -> Session:
    model = Model()
    for block in blocks:
        model += block
    session = Session(design_of(model, {"input": list(shape)}), JaxBackend())
    session.do("set_program", program=program)
    assert session.wait(PATIENCE_S)
    return session


def test_a_linear_in_letters_and_in_numbers():
    cost = session_of(Linear(64)).cost
    found = formula_of(cost, "linear_0")
    assert found.whole == found.short == cost.formula("linear_0") == "2·32·64·16 + 2048"
    assert found.terms == (
        Term("2·B·M·N·K", (("B", 1), ("M", 32), ("N", 64), ("K", 16)), 1, None, ("dot_general",), 65536),
        Term("n", (("n", 2048),), 1, None, ("add",), 2048),
    )
    assert str(found) == (
        "linear_0: 2·32·64·16 + 2048\n"
        "    2·B·M·N·K  B=1, M=32, N=64, K=16  65,536 FLOP  dot_general\n"
        "    n          n=2,048                 2,048 FLOP  add\n"
        "    B: batch, M: rows of the left, N: columns of the right, K: summed over, n: items of the result"
    )
    assert str(found.terms[1]) == "n  n=2,048  2,048 FLOP  add"


@pytest.mark.parametrize("program", ["forward", "forward+backward", "train step"])
def test_terms_and_what_is_left_add_up_to_the_flops_of_the_block_and_of_all(program):
    cost = session_of(MLP(16, [64, 32], 10), Relu(), Linear(3), program=program).cost
    for path in ("", "mlp_0", "mlp_0/linear_0", "linear_0", "relu_0"):
        found = formula_of(cost, path)
        whole = cost.total if not path else cost.subtree(path)
        assert sum(term.flops for term in found.terms) + found.left_flops == whole.flops
        assert len(found.terms) <= MOST_TERMS
        assert [term.flops for term in found.terms] == sorted((term.flops for term in found.terms), reverse=True)
        json.dumps(found.to_dict(), allow_nan=False)


def test_more_terms_than_are_shown_are_counted():
    found = formula_of(session_of(MLP(16, [64, 32, 10, 7, 5, 3], 2)).cost, "mlp_0")
    assert (len(found.terms), found.left > 0) == (MOST_TERMS, True)
    assert str(found).splitlines()[-2] == f"    and {found.left} more: {found.left_flops:,} FLOP"
    assert found.short != found.whole
    assert str(found).splitlines()[0] == f"mlp_0: {found.whole}"


def test_rounds_of_a_loop_count_as_often_as_they_run():
    def loop(x):
        with jax.named_scope("net"):
            return jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0]

    [term] = formula_of(inspect(loop, spec(4, 4)).cost(), "net").terms
    assert (term.times, term.flops) == (5, 5 * 2 * 4 * 4 * 4)
    assert str(term) == "5 × 2·B·M·N·K  B=1, M=4, N=4, K=4  640 FLOP  dot_general"


def test_what_is_not_known_stands_first_and_says_why():
    def loop(x):
        with jax.named_scope("net"):
            return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: jnp.sin(c @ c), x) * 2

    found = formula_of(inspect(loop, spec(4, 4)).cost(), "net")
    unknown = [term for term in found.terms if term.flops is None]
    assert found.terms[: len(unknown)] == tuple(unknown)
    assert {(term.times, term.why) for term in unknown} == {(None, "trip count unknown")}
    assert "what nobody knows" in found.whole
    line = next(line for line in str(found).splitlines() if line.endswith("dot_general"))
    assert line.split() == ("? × 2·B·M·N·K B=1, M=4, N=4, K=4 not known: trip count unknown dot_general".split())


def test_a_letter_that_means_several_things_says_all_of_them():
    found = formula_of(inspect(lambda x: jnp.sort(x) + 1, spec(8)).cost(), "")
    assert found.legend == (("n", "items given or items of the result"), ("N", "length of the axis"))


def test_what_has_no_rule_has_no_letters():
    def called(x):
        with jax.named_scope("net"):
            return jax.pure_callback(lambda x: x, x, x)

    found = formula_of(inspect(called, spec(4)).cost(), "net")
    [term] = found.terms
    assert (term.formula, term.letters, term.flops) == ("", (), None)
    assert str(term) == f"not known: {term.why}  pure_callback"
    assert term.why.startswith("no rule")


def test_a_block_that_computes_nothing_and_one_that_is_not_in_the_program_say_so():
    cost = session_of(Flatten(), Linear(2), shape=(4, 2, 3)).cost
    assert str(formula_of(cost, "flatten_0")) == "flatten_0: 0; its equations only move data, or give it another name"
    gone = formula_of(cost, "gone")
    assert str(gone) == "gone: no equation of the program came from it: there is nothing to count"
    assert gone == BlockFormula("gone", why="no equation of the program came from it: there is nothing to count")


def test_sizes_that_have_only_names_stand_as_names():
    batch, width = jax.export.symbolic_shape("batch, width")
    cost = inspect(jnp.matmul, spec(batch, width), spec(width, 10)).cost()
    found = formula_of(cost, "")
    assert found.whole == "20·batch·width"
    [term] = found.terms
    assert term.flops is None
    assert dict(term.letters)["K"] == "width"


def test_a_page_is_told_of_the_design_that_it_shows_and_of_why_there_is_none():
    session = session_of(Linear(64))
    told: list[tuple[str, Any]] = []
    session.listen(lambda kind, value: told.append((kind, value)) if kind == "formula" else None)
    assert session.run_command("want_formula", {"block": "linear_0"}) is None
    assert session.wait(PATIENCE_S)
    [(_, found)] = told
    assert found == formula_of(session.cost, "linear_0", session.snapshot()["version"])
    told.clear()
    session.do("set_shape", name="input", shape=[])
    session.do("want_formula", block="linear_0")
    assert session.wait(PATIENCE_S)
    [(_, found)] = told
    assert (found.block, found.whole, found.terms) == ("linear_0", "", ())
    assert found.why
    assert session.errors == []
