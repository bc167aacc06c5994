"""The line of Python behind each equation: the user's call, even if a library created the equation."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax_programs import equations_of, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.jax_versions import file_label
from mithril_nb.stages.records import Equation

HERE = file_label(__file__)
X = spec(3, 3)


def line_of(fn, code):
    """Return the number of the first line of a function that contains a piece of code."""
    lines, first = python_inspect.getsourcelines(fn)
    return first + next(at for at, line in enumerate(lines) if code in line)


def at(fn, code):
    return f"{HERE}:{line_of(fn, code)}"


def sources(inspection):
    return {one.source for one in inspection.equations}


def of_primitive(inspection, primitive) -> Equation:
    return equations_of(inspection, primitive)[0]


ONE_CALL: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: jax.nn.relu(x),
    "gelu": lambda x: jax.nn.gelu(x),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "log_softmax": lambda x: jax.nn.log_softmax(x),
    "solve": lambda x: jnp.linalg.solve(x, x),
    "det": lambda x: jnp.linalg.det(x),
    "loss of optax": lambda x: optax.softmax_cross_entropy(x, x),
    "loop of a library": lambda x: jnp.polyval(x, x),
    "random": lambda x: jax.random.normal(jax.random.key(0), x.shape),
    "sort": lambda x: jnp.quantile(x, 0.3),
    "map": lambda x: lax.map(jnp.sin, x),
}
"""Library functions, each called on one line of the user."""


def own_line(fn):
    return f"{HERE}:{fn.__code__.co_firstlineno}"


@pytest.mark.parametrize("name", ONE_CALL)
def test_library_equations_have_the_line_of_the_users_call(name):
    fn = ONE_CALL[name]
    assert sources(inspect(fn, X)) == {own_line(fn)}


@pytest.mark.parametrize("name", [name for name in ONE_CALL if name != "random"])
def test_gradients_of_library_functions_have_that_line_too(name):
    fn = ONE_CALL[name]

    def loss(x):
        return jax.grad(lambda x: fn(x).sum())(x)

    assert sources(inspect(loss, X)) == {own_line(fn), at(loss, "return")}


def first_user(x):
    return jax.nn.relu(x)


def second_user(x):
    x = x + 1
    return jax.nn.relu(x)


def both(x):
    return first_user(x), second_user(x)


def test_a_cached_trace_has_the_line_of_each_call():
    lines = [one.source for one in inspect(both, X).equations if one.primitive in ("max", "custom_jvp_call")]
    assert lines == [at(first_user, "relu")] * 2 + [at(second_user, "relu")] * 2


def test_lines_do_not_come_from_an_earlier_program():
    assert sources(inspect(first_user, X)) == {at(first_user, "relu")}
    assert sources(inspect(second_user, X)) == {at(second_user, "x + 1"), at(second_user, "relu")}
    assert sources(inspect(first_user, X)) == {at(first_user, "relu")}


@jax.jit
def jitted_helper(x):
    y = jnp.sin(x)
    return jnp.where(y > 0, y, x)


def calls_a_jitted_helper(x):
    return jitted_helper(x) + jitted_helper(x + 1)


def test_the_users_jitted_function_has_its_own_lines():
    found = inspect(calls_a_jitted_helper, X)
    assert of_primitive(found, "sin").source == at(jitted_helper.__wrapped__, "sin")
    assert of_primitive(found, "select_n").source == at(jitted_helper.__wrapped__, "where")
    calls = [one.source for one in found.equations if one.is_call and "." not in one.id]
    assert calls == [at(calls_a_jitted_helper, "return")] * 2


def mapped(row):
    return jnp.tanh(row)


def calls_back(x):
    return lax.map(mapped, x)


def test_callbacks_have_the_line_in_the_users_function():
    found = inspect(calls_back, X)
    assert of_primitive(found, "tanh").source == at(mapped, "tanh")
    assert of_primitive(found, "scan").source == at(calls_back, "map")


def squared(x):
    return (x**2).sum()


def test_equations_around_the_function_have_its_def_line():
    found = sources(inspect(jax.hessian(squared), spec(3)))
    assert found == {at(squared, "def squared"), at(squared, "return")}


def test_a_function_of_a_library_has_its_own_lines():
    found = inspect(jax.nn.softmax, X)
    assert {one.partition(":")[0] for one in sources(found)} == {"jax/_src/nn/functions.py"}
    assert "_softmax(x" in found.stage("python").text
    assert len(found.find("line:functions.py")) == len(found.equations)


def test_library_lines_are_found_and_have_costs(tmp_path):
    folder = tmp_path / "lib" / "python3.11" / "site-packages" / "jax_md"
    folder.mkdir(parents=True)
    (folder / "energy.py").write_text(
        "import jax.numpy as jnp\n\ndef energy(r):\n    s = 1 / r\n    return (s**12 - s**6).sum()\n"
    )
    space: dict[str, Any] = {}
    exec(compile((folder / "energy.py").read_text(), str(folder / "energy.py"), "exec"), space)

    def own(r):
        return space["energy"](r) * 2

    for called, count in ((own, 1), (space["energy"], 0)):
        found = inspect(called, spec(3))
        costs = found.cost()
        users = [line for line in costs.by_line if line.startswith("test_user_lines.py")]
        assert bool(users) == bool(count)
        every = costs.by_line.all_lines
        assert {"jax_md/energy.py:4", "jax_md/energy.py:5"} <= {*every}
        assert sum(one.flops for one in every.values()) == costs.total.flops
        assert "s = 1 / r" in str(every)
        assert len(found.find("line:energy.py")) == len(found.equations) - count
        assert {*found.cost("compiled").by_line.all_lines} >= {"jax_md/energy.py:5"}


LIBRARY = """
import jax
import jax.numpy as jnp

def distance(r):
    return jax.jit(lambda r: 1 / r)(r)

def pair(r):
    return distance(r) ** 6

def energy(r):
    return jax.lax.fori_loop(0, 2, lambda _, r: pair(r), r)

def minimize(function, r):
    return r - jax.grad(function)(r)

class Affine:
    def forward(self, x):
        return jnp.tan(x)
"""


def test_functions_that_the_user_calls_in_a_library_are_blocks(tmp_path):
    file = tmp_path / "lib" / "python3.11" / "site-packages" / "jax_md" / "energy.py"
    space: dict[str, Any] = {}
    exec(compile(LIBRARY, str(file), "exec"), space)

    def own(r):
        return jnp.sin(r).sum()

    def total(r):
        with jax.named_scope("scaled"):
            r = space["Affine"]().forward(r)
        return space["minimize"](own, space["energy"](r)) + 1

    blocks = {one.primitive: one.block for one in inspect(total, spec(3)).equations if not one.is_call}
    expected = {"tan": "scaled/forward", "div": "energy", "cos": "own", "sub": "minimize", "add": "total"}
    assert {name: blocks[name] for name in expected} == expected
    inside = {one.primitive: one.block for one in inspect(space["energy"], spec(3)).equations}
    assert inside["div"] == "pair/distance"


def by_adam(grads):
    return optax.adam(1e-3).update(grads, optax.adam(1e-3).init(grads))[0]


def test_user_and_library_lines_are_both_kept():
    relu = of_primitive(inspect(ONE_CALL["relu"], X), "max")
    assert relu.library_source == f"jax/_src/nn/functions.py:{line_of(python_inspect.unwrap(jax.nn.relu), 'maximum')}"
    adam = inspect(by_adam, X).equations
    assert {one.source for one in adam} == {at(by_adam, "return")}
    assert all(one.library_source.startswith("optax/") for one in adam if "." not in one.id)


def several_lines(x, y):
    z = jnp.dot(
        x,
        y,
    )
    return [
        jnp.sin(one)
        for one in z
    ]  # fmt: skip


def test_an_expression_of_several_lines_has_its_range():
    found = inspect(several_lines, X, X)
    first = line_of(several_lines, "jnp.dot")
    dot = of_primitive(found, "dot_general")
    assert dot.source == f"{HERE}:{first}"
    assert dot.source_range == (first, 8, first + 3, 5)
    assert dot.source_lines == f"{HERE}:{first}-{first + 3}"
    sin = of_primitive(found, "sin")
    line = line_of(several_lines, "jnp.sin")
    assert (sin.source_lines, sin.source_range) == (f"{HERE}:{line}", (line, 8, line, 20))
    for stage in ("stablehlo", "hlo"):
        (made,) = (one for one in found.stage(stage).instructions if one.opcode.endswith(("dot", "dot_general")))
        assert made.source == (dot.source_lines,)
    shown = next(one for one in found.stage("python").instructions if one.id == dot.source)
    assert shown.lines == 4


def one_file(x):
    return optax.l2_loss(x).sum()


def not_called(x):
    return jnp.cos(x)


def uses_two(x):
    return one_file(jax.nn.relu(x))


def test_the_python_stage_has_only_functions_that_contributed():
    first, second = line_of(one_file, "def"), line_of(uses_two, "def")
    assert inspect(uses_two, X).stage("python").text == (
        f"# {HERE}:{first}\n{python_inspect.getsource(one_file)}\n"
        f"# {HERE}:{second}\n{python_inspect.getsource(uses_two)}"
    )


def test_equal_functions_of_two_files_keep_their_files(tmp_path):
    layers: list[Callable[[Any], Any]] = []
    for name in ("alpha.py", "beta.py"):  # their code objects compare equal
        names: dict[str, Any] = {"jnp": jnp}
        file = tmp_path / name
        file.write_text("def layer(x):\n    return jnp.exp(x) + 1\n")
        exec(compile(file.read_text(), str(file), "exec"), names)
        layers.append(names["layer"])
    alpha, beta = layers
    assert sources(inspect(alpha, X)) == {"alpha.py:2"}
    assert sources(inspect(beta, X)) == {"beta.py:2"}
    found = inspect(lambda x: beta(alpha(x)), X)
    assert [one.source for one in found.equations] == ["alpha.py:2"] * 2 + ["beta.py:2"] * 2
    assert len(found.stage("python").text.split("def layer")) == 3
