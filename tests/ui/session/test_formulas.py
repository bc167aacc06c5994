"""The formula of a block: its terms add up to its FLOPs, unknown terms have a reason, and the text is complete."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from waiting import PATIENCE_S

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.models import MLP, Flatten, Linear, Model, Relu
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.cost_tables import MOST_TERMS, BlockFormula, FormulaTerm, formula_of


def session_of(*blocks: Any, program: str = "forward", shape: tuple[int, ...] = (32, 16)) -> Session:
    model = Model()
    for block in blocks:
        model += block
    session = Session(design_of(model, {"input": list(shape)}), JaxBackend())
    session.do("set_program", program=program)
    assert session.wait(PATIENCE_S)
    return session


def test_linear_with_letters_and_numbers():
    cost = session_of(Linear(64)).cost
    found = formula_of(cost, "linear_0")
    assert found.whole == found.short == cost.formula("linear_0") == "2·32·64·16 + 2048"
    assert found.terms == (
        FormulaTerm("2·B·M·N·K", (("B", 1), ("M", 32), ("N", 64), ("K", 16)), 1, None, ("dot_general",), 65536),
        FormulaTerm("n", (("n", 2048),), 1, None, ("add",), 2048),
    )
    assert str(found) == (
        "linear_0: 2·32·64·16 + 2048\n"
        "    2·B·M·N·K  B=1, M=32, N=64, K=16  65,536 FLOP  dot_general\n"
        "    n          n=2,048                 2,048 FLOP  add\n"
        "    B: batch, M: rows of the left operand, N: columns of the right operand, "
        "K: length of the contracted axes, n: elements of the result"
    )
    assert str(found.terms[1]) == "n  n=2,048  2,048 FLOP  add"


@pytest.mark.parametrize("program", ["forward", "forward+backward", "train step"])
def test_terms_add_up_to_the_flops(program):
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


def test_loop_iterations_are_counted():
    def loop(x):
        with jax.named_scope("net"):
            return jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0]

    [term] = formula_of(inspect(loop, spec(4, 4)).cost(), "net").terms
    assert (term.times, term.flops) == (5, 5 * 2 * 4 * 4 * 4)
    assert str(term) == "5 × 2·B·M·N·K  B=1, M=4, N=4, K=4  640 FLOP  dot_general"


def test_unknown_terms_come_first_with_a_reason():
    def loop(x):
        with jax.named_scope("net"):
            return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: jnp.sin(c @ c), x) * 2

    found = formula_of(inspect(loop, spec(4, 4)).cost(), "net")
    unknown = [term for term in found.terms if term.flops is None]
    assert found.terms[: len(unknown)] == tuple(unknown)
    assert {(term.times, term.why) for term in unknown} == {(None, "trip count unknown")}
    assert "+ unknown (" in found.whole
    line = next(line for line in str(found).splitlines() if line.endswith("dot_general"))
    assert line.split() == ("? × 2·B·M·N·K B=1, M=4, N=4, K=4 unknown: trip count unknown dot_general".split())


def test_letter_with_several_meanings_lists_all():
    found = formula_of(inspect(lambda x: jnp.sort(x) + 1, spec(8)).cost(), "")
    assert found.legend == (("n", "elements of the input or elements of the result"), ("N", "length of the axis"))


def test_ops_without_rule_have_no_letters():
    def called(x):
        with jax.named_scope("net"):
            return jax.pure_callback(lambda x: x, x, x)

    found = formula_of(inspect(called, spec(4)).cost(), "net")
    [term] = found.terms
    assert (term.formula, term.letters, term.flops) == ("", (), None)
    assert str(term) == f"unknown: {term.why}  pure_callback"
    assert term.why.startswith("no rule")


def test_blocks_without_cost_give_a_reason():
    cost = session_of(Flatten(), Linear(2), shape=(4, 2, 3)).cost
    assert str(formula_of(cost, "flatten_0")) == "flatten_0: 0; its equations only move or rename data"
    gone = formula_of(cost, "gone")
    assert str(gone) == "gone: no equation of the program is attributed to this block"
    assert gone == BlockFormula("gone", why="no equation of the program is attributed to this block")


def test_symbolic_sizes_are_shown_as_names():
    batch, width = jax.export.symbolic_shape("batch, width")
    cost = inspect(jnp.matmul, spec(batch, width), spec(width, 10)).cost()
    found = formula_of(cost, "")
    assert found.whole == "20·batch·width"
    [term] = found.terms
    assert term.flops is None
    assert dict(term.letters)["K"] == "width"


def test_formula_message_has_version_and_reason():
    session = session_of(Linear(64))
    told: list[tuple[str, Any]] = []
    session.listen(lambda kind, value: told.append((kind, value)) if kind == "formula" else None)
    assert session.run_command("request_formula", {"block": "linear_0"}) is None
    assert session.wait(PATIENCE_S)
    [(_, found)] = told
    version = session.snapshot()["version"]
    assert found.head == {"block": "linear_0", "version": version}
    assert found.data == formula_of(session.cost, "linear_0", version).to_dict()
    told.clear()
    session.do("set_shape", name="input", shape=[])
    session.do("request_formula", block="linear_0")
    assert session.wait(PATIENCE_S)
    [(_, found)] = told
    assert [found.data[name] for name in ("block", "whole", "terms")] == ["linear_0", "", ()]
    assert found.data["why"]
    assert session.errors == []
