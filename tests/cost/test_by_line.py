"""Costs by line of Python: they add up to the total, and are printed as the source with figures."""

from __future__ import annotations

import inspect as python_inspect
import pickle
import re
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import CNN_PARAMS, cnn, linear_params, mlp, spec, train_step

import mithril_nb as ml
from mithril_nb.cost.costs import Cost
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.jax_versions import file_label

HERE = file_label(__file__)
X = spec(4, 4)


def net(x: Any, w: Any) -> Any:
    h = x @ w
    h = jax.nn.relu(h)
    return h.sum()


def at(code: str) -> str:
    lines, first = python_inspect.getsourcelines(net)
    return f"{HERE}:{first + next(place for place, line in enumerate(lines) if code in line)}"


def programs() -> dict[str, Any]:
    params = linear_params((5, 7, 3))
    return {
        "MLP, train step": inspect(*_flat(train_step(mlp((5, 7, 3)), params, (spec(4, 5),), spec(4, 3)))),
        "CNN": inspect(cnn, CNN_PARAMS, spec(2, 28, 28, 1)),
        "library": inspect(jax.nn.softmax, X),
        "loop": inspect(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=5)[0], X),
        "unknown trip count": inspect(lambda x: jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c @ c, x), X),
    }


def _flat(program: Any) -> Any:
    fn, args = program
    return fn, *args


PROGRAMS = programs()


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_add_up_to_the_whole(name: str, source: str) -> None:
    cost = PROGRAMS[name].cost(source)
    for field in ("flops", "transcendentals", "bytes_accessed"):
        parts = [getattr(one, field) for one in cost.by_line.values()]
        assert sum(part or 0 for part in parts) == (getattr(cost.total, field) or 0)


def test_measured_time_adds_up_too() -> None:
    cost = ml.profile(net, jnp.ones((64, 64)), jnp.ones((64, 64)), runs=3)
    times = [one.time_s for one in cost.by_line.values() if one.time_s is not None]
    assert sum(map(Fraction, times)) == Fraction(cost.total.time_s or 0.0)
    assert cost.by_line[at("x @ w")].time_s
    assert " time " in str(cost.by_line).splitlines()[1]


def test_each_line_has_its_cost() -> None:
    cost = inspect(net, X, X).cost()
    assert list(cost.by_line) == [at("x @ w"), at("relu"), at("sum")]
    assert [one.flops for one in cost.by_line.values()] == [2 * 4**3, 16, 15]


def test_costs_without_a_line_have_a_row() -> None:
    cost = inspect(jax.lax.add, X, X).cost()
    assert list(cost.by_line) == [""]
    assert cost.by_line[""].flops == cost.total.flops
    assert "(unattributed)" in str(cost.by_line)


def test_it_is_printed_as_the_source_with_figures() -> None:
    first = python_inspect.getsourcelines(net)[1]
    text = str(inspect(net, X, X).cost().by_line)
    expected = [
        "net: analytic, by line",
        "    FLOPs   bytes    share  line",
        f"{HERE}:{first}",
        f"{first}  def net(x: Any, w: Any) -> Any:",
        f"128 FLOP 192 B 80.5 % {first + 1}      h = x @ w",
        f"16 FLOP 132 B 10.1 % {first + 2}      h = jax.nn.relu(h)",
        f"15 FLOP 68 B 9.4 % {first + 3}      return h.sum()",
        "159 FLOP 392 B 100 % total",
    ]
    assert [_squeezed(line) for line in text.splitlines()] == [_squeezed(line) for line in expected]


def _squeezed(line: str) -> str:
    return re.sub(" +", " ", line).strip()


def test_it_is_shown_as_html() -> None:
    bundle = inspect(net, X, X).cost().by_line._repr_mimebundle_()
    assert bundle["text/plain"] == str(inspect(net, X, X).cost().by_line)
    html = bundle["text/html"]
    assert html.count("<tr") == 1 + 1 + 4 + 1  # heads, the file, its lines, the total
    assert "80.5 %" in html
    assert "128 FLOP" in html


def test_text_in_the_source_is_text_in_html() -> None:
    def fn(x: Any) -> Any:
        return x + 1  # <script>alert(1)</script>

    html = inspect(fn, X).cost().by_line._repr_mimebundle_()["text/html"]
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_an_unknown_line_raises() -> None:
    cost = inspect(net, X, X).cost()
    for wrong, advice in ((at("x @ w") + "3", f'cost.by_line["{at("x @ w")}"]'), ("other", "[*cost.by_line]")):
        with pytest.raises(UnknownOptionError) as caught:
            cost.by_line[wrong]
        assert str(caught.value) == (
            f"costs of 'net' have no line {wrong!r}.\n    lines  {', '.join(cost.by_line)}\n    Try: {advice}"
        )


def test_a_model_has_the_lines_that_build_it() -> None:
    model = ml.compile(ml.models.Model() + ml.models.Linear(8) + ml.models.Relu(), shapes={"input": [4, 4]})
    cost = model.inspect().cost()
    assert {key: one.flops for key, one in cost.by_line.items()} == {"model:4": 288, "model:5": 32}
    assert "Linear(8" in str(cost.by_line)


def test_costs_with_other_sizes_keep_the_lines() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    cost = inspect(net, spec(batch, 4), X).cost().at(batch=4)
    assert cost.by_line[at("x @ w")].flops == 128
    assert "h = x @ w" in str(cost.by_line)


def test_symbolic_sizes_give_formulas_by_line() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    by_line = inspect(net, spec(batch, 4), X).cost().by_line
    lines = [_squeezed(line) for line in str(by_line).splitlines()]
    assert lines[1] == "FLOPs bytes share line"
    (product,) = [line for line in lines if line.endswith("h = x @ w")]
    assert product.startswith("32·batch 32·batch + 64 ")
    assert "unknown" not in str(by_line)
    assert "%" not in str(by_line)
    assert lines[-2].startswith("40·batch - 1 ")
    assert lines[-1] == "Costs that depend on batch are not shown as numbers. Try: cost.at(batch=32).by_line"
    data = by_line.to_dict()
    assert data["symbols"] == {"batch": 32}
    assert data["total"]["formulas"]["flops"] == "40·batch - 1"
    assert data["total"]["share"] is None
    html = by_line._repr_mimebundle_()["text/html"]
    assert 'title="32·batch"' in html
    assert "cost.at(batch=32).by_line" in html


def test_pickled_costs_keep_their_lines() -> None:
    cost: Cost = pickle.loads(pickle.dumps(inspect(net, X, X).cost()))
    assert cost.by_line[at("x @ w")].flops == 128
    assert "h = x @ w" in str(cost.by_line)


def test_source_that_is_not_available_leaves_the_figures() -> None:
    space: dict[str, Any] = {"jnp": jnp}
    exec(compile("def fn(x):\n    return jnp.sin(x) * 2\n", "<string>", "exec"), space)
    lines = str(inspect(space["fn"], X).cost().by_line).splitlines()
    assert len(lines) == 4
    assert _squeezed(lines[2]).endswith("2 <string>:2: the source is not available")


def test_lines_as_plain_data() -> None:
    data = inspect(net, X, X).cost().by_line.to_dict()
    assert [(one["source"], one["flops"], one["share_bound"]) for one in data["lines"]] == [
        (at("x @ w"), 128, ""),
        (at("relu"), 16, ""),
        (at("sum"), 15, ""),
    ]
    assert data["unattributed"] is None
    assert data["total"]["flops"] == 159
