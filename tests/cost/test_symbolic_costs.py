"""Costs of programs with symbolic sizes: with numbers for them they equal the costs of a trace with numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.export import symbolic_shape
from jax_programs import on_host, spec
from raised import message_of

from mithril_nb.analysis.measure import profile
from mithril_nb.cost import Cost
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.figures import COUNTED
from mithril_nb.inspection import inspect_function as inspect

SIZES = ({"b": 2, "t": 3}, {"b": 8, "t": 128}, {"b": 17, "t": 5})


def attention(x, w):
    with jax.named_scope("scores"):
        scores = jnp.einsum("btd,bsd->bts", x, x @ w)
    with jax.named_scope("mix"):
        return jax.nn.softmax(scores) @ x


PROGRAMS = {
    "attention": lambda b, t: (attention, spec(b, t, 6), spec(6, 6)),
    "its gradient": lambda b, t: (jax.grad(lambda w, x: attention(x, w).mean()), spec(6, 6), spec(b, t, 6)),
    "scan of named length": lambda b, t: (
        lambda x: lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), jnp.zeros(b), x), spec(t, b)
    ),
    "scan in a scan": lambda b, t: (
        lambda x: lax.scan(lambda c, row: (lax.scan(lambda d, one: (d * one, d), c, row)[0], c), 1.0, x)[0],
        spec(t, b),
    ),
    "random numbers": lambda b, t: (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), spec(b, t)),
    "pool of a whole axis": lambda b, t: (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, t, t), (1, 1, 1), "VALID"), spec(b, t, t)
    ),
    "sort": lambda b, t: (jnp.sort, spec(b, t)),
    "branch that may cost nothing": lambda b, t: (
        lambda x: lax.cond(x.sum() > 0, lambda x: x.sum(1), lambda x: -x.sum(1), x), spec(b, t)
    ),
    "most expensive branch": lambda b, t: (
        lambda x: lax.cond(x.sum() > 0, lambda x: (x @ x.T) @ x, lambda x: x @ (x.T @ x), x), spec(b, t)
    ),
}  # fmt: skip


def costs(name: str, b, t) -> Cost:
    fn, *args = PROGRAMS[name](b, t)
    return inspect(fn, *args, params="w" if name in ("attention", "its gradient") else ()).cost()


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_for_symbolic_sizes_match_tracing(name: str) -> None:
    named = costs(name, *symbolic_shape("b, t"))
    assert set(named.symbols) == {"b", "t"}
    for sizes in SIZES:
        found, traced = named.at(**sizes), costs(name, **sizes)
        assert found.symbols == ()
        assert found.total == traced.total
        assert found.by_block == traced.by_block
        assert found.by_role == traced.by_role
        assert found.once == traced.once
        assert found.notes == traced.notes
        assert named.symbolic is not None
        for path in ("", *(path for path in traced.by_block if path)):
            for field in ("flops", "transcendentals", "bytes_accessed", "params"):
                polynomial, unknown = named.symbolic.polynomial(path, field)
                assert (not unknown) is (name != "most expensive branch" or field in ("transcendentals", "params"))
                if not unknown:
                    assert round(polynomial.value(sizes)) == getattr(traced.subtree(path), field)
        for role in ("forward", "backward", "update"):
            polynomial, unknown = named.symbolic.polynomial("", "flops", role)
            if not unknown:
                assert round(polynomial.value(sizes)) == traced.by_role[role].flops


def test_formulas_of_blocks_and_the_program() -> None:
    cost = costs("attention", *symbolic_shape("b, t"))
    assert cost.formula("scores") == "12·b·t² + 72·b·t"
    assert cost.formula("mix", "transcendentals") == "b·t²"
    assert cost.formula() == "28·b·t² + 71·b·t"
    assert cost.formula(field="params") == "36"
    assert costs("sort", *symbolic_shape("b, t")).formula() == "b·t·log2(t)"
    assert cost.at(b=2, t=3).formula("scores") == "2·6·6·6 + 2·2·3·3·6"


def test_data_has_formulas_for_symbolic_figures() -> None:
    (batch,) = symbolic_shape("batch")

    def program(params, x):
        with jax.named_scope("net"):
            with jax.named_scope("up"):
                x = x @ params["w"]
            x = on_host(x[:, :2]) + 1
        return jnp.tanh(params["w"] * 2), x * 3

    cost = inspect(program, {"w": spec(4, 3)}, spec(batch, 4)).cost()
    data = cost.to_dict(rows=False)
    assert data["by_block"]["net/up"]["formulas"] == {"flops": "24·batch", "bytes_accessed": "28·batch + 48"}
    assert data["by_block"]["net"]["formulas"]["flops"] == "2·batch"
    assert data["by_block"]["net/on_host"]["flops"] is None, "the callback is unknown"
    assert data["by_block"]["program"]["formulas"] == {"flops": "2·batch + 12", "bytes_accessed": "16·batch + 200"}
    assert data["total"]["formulas"]["flops"] == "≥ 28·batch + 12"
    assert "formulas" not in cost.at(batch=2).to_dict()["total"]
    lines = {line.split()[0]: line for line in str(cost).splitlines() if line}
    assert lines["block"].split() == ["block", "FLOPs", "transcendentals", "bytes", "params"]
    assert "≥ 26·batch" in lines["net"]
    assert lines["program"].split()[4:] == ["12", "16·batch", "+", "200", "0"], "params have an exact number"
    assert "no FLOP rule for pure_callback" in str(cost)
    assert "size unknown" not in str(cost)


def test_a_row_explains_its_letters() -> None:
    (batch,) = symbolic_shape("batch")
    for size, shown in ((32, "32"), (batch, "batch")):
        (row,) = inspect(jnp.matmul, spec(size, 784), spec(784, 10)).cost().rows
        assert row.explained == f"2·B·M·N·K with B=1, M={shown}, N=10, K=784"


def test_trip_counts_may_depend_on_a_size() -> None:
    cost = costs("scan of named length", *symbolic_shape("b, t"))
    assert {(row.rounds, row.repeats, row.unknown) for row in cost.rows if row.opcode == "add"} == {
        ("t", None, "size unknown")
    }
    assert "trip count" not in " ".join((str(cost), *(row.formula for row in cost.rows)))
    assert {row.rounds for row in cost.at(b=2, t=3).rows} == {""}


def test_operations_without_a_formula_are_listed() -> None:
    (batch,) = symbolic_shape("batch")
    found = inspect(lambda x: on_host(x[:, :2]) + 1, spec(batch, 9)).cost()
    assert found.formula() == "2·batch + unknown (1 × pure_callback: no rule: Python on the host)"
    assert found.notes[1] == "flops of 1 × pure_callback: no rule: Python on the host"
    assert found.formula(field="params").endswith("unknown (the argument x is not called 'params')")
    branches = costs("most expensive branch", *symbolic_shape("b, t"))
    assert branches.formula().endswith("dot_general: the most expensive branch depends on sizes)")


FIGURES = f"costs  {', '.join(COUNTED)}, params"


@pytest.mark.parametrize(
    ("given", "what", "known"),
    [
        (("net",), "block 'net'", "blocks  mix, scores"),
        ((["mix"],), "block ['mix']", "blocks  mix, scores"),
        (("", "time_s"), "cost 'time_s'", FIGURES),
        (("", ["flops"]), "cost ['flops']", FIGURES),
        (("", "flops", "loss"), "role 'loss'", "roles  forward, backward, update"),
        (("mixed", "param", "forwards"), "block 'mixed'", "blocks  mix, scores"),
    ],
)
def test_formulas_of_unknown_names_raise(given: tuple[Any, ...], what: str, known: str) -> None:
    cost = costs("attention", 2, 3)
    assert message_of(lambda: cost.formula(*given)) == (
        f"UnknownOptionError: cannot write a formula: program 'attention' has no {what}.\n    {known}"
    )


def test_xla_counts_have_no_formula() -> None:
    assert message_of(lambda: inspect(jnp.sin, spec(3)).cost("lowered").formula()) == (
        "UnknownOptionError: lowered costs of 'sin' have no formula; analytic costs have."
    )


def test_costs_of_symbolic_sizes_have_no_number() -> None:
    (batch,) = symbolic_shape("batch")
    cost = inspect(lambda params, x: (x @ params["w"], params["w"] * 2), {"w": spec(4, 3)}, spec(batch, 4)).cost()
    assert cost.symbols == ("batch",)
    assert [row.flops for row in cost.rows] == [None, 12]
    assert cost.total.flops is None
    assert cost.total.params == 12
    assert cost.notes[0] == "costs that depend on batch have no number: use cost.at(batch=32) or cost.formula()"
    assert cost.at(batch=5).total.flops == 2 * 5 * 4 * 3 + 12


def test_errors_list_the_symbolic_sizes() -> None:
    width, batch = symbolic_shape("width, batch")
    found = inspect(lambda x: jnp.tanh(x @ x.T), spec(batch, 2 * width + batch // 3), name="gram")
    assert found.stage("stablehlo").unavailable is None
    reason = "XLA needs a number for each size, and has none for batch, width"
    advice = "    Try: inspection.cost().at(batch=32, width=32)  # or inspect the program with arrays of known sizes"
    for stage in ("hlo_before", "hlo", "llvm", "asm"):
        assert found.stage(stage).unavailable == reason
    for source in ("lowered", "compiled"):
        with pytest.raises(StageUnavailableError) as error:
            found.cost(source)
        assert str(error.value) == f"program 'gram' has no {source} costs.\n    reason  {reason}\n{advice}"
    for refused in (lambda: found.compiled, lambda: found.passes, lambda: profile(found)):
        with pytest.raises(StageUnavailableError) as error:
            refused()
        assert str(error.value) == (
            "program 'gram' does not compile: XLA needs a number for each size.\n    no number  batch, width\n" + advice
        )
    assert found.costs().unavailable == {"lowered": reason, "compiled": reason}
    assert found.memory.peak_bytes is None
    assert found.memory.notes == ("peak_bytes, timeline: unknown without numbers for batch, width",)
    assert str(found.memory).splitlines()[1] == "peak unknown"


def test_parameters_may_have_symbolic_sizes() -> None:
    (width,) = symbolic_shape("width")
    cost = inspect(lambda params, x: x @ params["w"], {"w": spec(width, 3)}, spec(2, width)).cost()
    assert cost.total.params is None
    assert cost.at(width=10).total.params == 30


@pytest.mark.parametrize("sizes", [{"b": 3}, {"b": 3, "t": 0}, {"b": 3, "t": 4, "d": 5}])
def test_sizes_that_do_not_fit_raise(sizes: dict) -> None:
    cost = costs("sort", *symbolic_shape("b, t"))
    assert message_of(lambda: cost.at(**sizes)) == (
        "UnknownOptionError: "
        f"{', '.join(f'{name}={size}' for name, size in sizes.items())} cannot replace the symbolic sizes of program "
        "'sort'.\n    symbolic sizes  b, t\n    Try: cost.at(b=32, t=32)"
    )


def test_a_program_without_symbolic_sizes_takes_none() -> None:
    cost = inspect(jnp.sin, spec(3)).cost()
    assert cost.symbols == ()
    assert cost.at() is cost
    with pytest.raises(UnknownOptionError, match="symbolic sizes  none"):
        cost.at(b=3)
    with pytest.raises(UnknownOptionError):
        inspect(jnp.sin, spec(3)).cost("lowered").at(b=3)


def test_no_partial_sums_with_symbolic_sizes():
    (b,) = jax.export.symbolic_shape("b")
    cost = inspect(jnp.matmul, spec(b, 3), spec(3, 4)).cost()
    assert cost.once.flops is None
    assert cost.at(b=2).once.flops == cost.at(b=2).total.flops == 48
