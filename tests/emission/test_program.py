"""The program that emitters print: equal to JAX's, divided by block, with every link kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c.emit import emit
from mithril_nb.emission.cleanup import clean, narrow
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.naming.gradients import Gradients
from mithril_nb.emission.program import EmittedProgram, Function, Statement, Value
from mithril_nb.emission.reading import read
from mithril_nb.emission.unsupported import check_supported
from mithril_nb.errors import StageUnavailableError, UnsupportedPrimitiveError
from mithril_nb.inspection import Inspection
from tests.emission.evaluating import Interpreter, program_of, random_arrays, traced_program


def of_model(model: Any, *shape: int, program: str = "forward+backward") -> Inspection:
    return ml.compile(model, shapes={"input": list(shape)}).inspect(program)


def loops(x: jax.Array, n: jax.Array) -> Any:
    total, parts = jax.lax.scan(lambda c, a: (c + a.sum(), jnp.sin(a) * c), 1.0, x, reverse=True)
    grown = jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x.mean()), (0, total))
    chosen = jax.lax.cond(n > 2, lambda: x.max(0), lambda: x[0])
    return grown, parts, jnp.maximum(chosen, 0.5), jax.lax.reduce(x, 0.0, jax.lax.add, (0,))


def batched_loops(x: jax.Array, n: jax.Array) -> Any:
    def grown(row: jax.Array) -> Any:
        return jax.lax.while_loop(lambda s: s[0] + s[1].sum() < n, lambda s: (s[0] + 1, jnp.abs(s[1]) * 1.5), (0, row))

    def nested(row: jax.Array) -> Any:
        return jax.lax.while_loop(lambda s: s.max() < 9, lambda s: s + 1 + grown(jnp.abs(s))[0], row)

    return jax.vmap(grown)(x), jax.vmap(nested)(x), jax.vmap(jax.vmap(lambda a: grown(a[None])))(x)


SPEC = jax.ShapeDtypeStruct((4, 3), "float32")
PROGRAMS: dict[str, Callable[[], Inspection]] = {
    "mlp": lambda: of_model(models.MLP(4, [8, 8], 3), 5, 4),
    "cnn": lambda: of_model(models.CNN([4, 8], 3), 2, 1, 8, 8),
    "lstm": lambda: of_model(models.LSTM(6), 2, 3, 4),
    "transformer": lambda: of_model(models.TransformerEncoder(layers=2, width=8, heads=2), 2, 3, 8),
    "loops": lambda: ml.inspect(loops, SPEC, jax.ShapeDtypeStruct((), "int32")),
    "batched loops": lambda: ml.inspect(batched_loops, SPEC, jax.ShapeDtypeStruct((), "int32")),
    "hessian": lambda: ml.inspect(jax.hessian(lambda x: jnp.sum(jnp.tanh(x @ x.T) ** 2)), SPEC),
}
if hasattr(jax.lax, "polynomial"):  # since JAX 0.12; also in the derivative of erfc
    PROGRAMS["polynomial"] = lambda: ml.inspect(
        lambda x: (jax.lax.polynomial(x, [1.0, x[:1] * 2, 3.0]), jax.lax.polynomial(x, [x + 1.0])), SPEC
    )


@pytest.fixture(scope="module", params=PROGRAMS)
def inspection(request: pytest.FixtureRequest) -> Inspection:
    return PROGRAMS[request.param]()


def test_statements_compute_the_results_of_jax(inspection: Inspection) -> None:
    arrays = random_arrays(inspection.arguments)
    trace = traced_program(inspection).trace
    expected = jax.tree.leaves(trace.call(trace.closed)(*arrays))
    interpreter = Interpreter(inspection)
    has_while = any(statement.primitive == "while" for statement in interpreter.program.walk())
    run = interpreter.run if has_while else jax.jit(interpreter.run)
    found = run(*jax.tree.leaves(arrays))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_every_name_is_unique_where_it_is_visible(inspection: Inspection) -> None:
    program = program_of(inspection)
    names = [function.name for function in program.functions] + [value.name for value in program.constants]
    assert len(set(names)) == len(names)
    for function in program.functions:
        made = [value for one in function.walk() for value in one.outputs if value.name != "_"]
        made += [value for one in function.walk() for body in one.bodies for value in body.inputs]
        local = [value.name for value in {*function.inputs, *made}]
        assert len(set(local)) == len(local)
        assert not set(local) & set(names)
        assert all(name.isidentifier() and name.isascii() for name in local)


def test_functions_receive_everything_that_they_read(inspection: Inspection) -> None:
    program = program_of(inspection)
    for function in program.functions:
        assert set(function.free) <= program.constants.keys()


def test_negations_join_the_operation_that_follows() -> None:
    def signs(x: jax.Array, y: jax.Array) -> Any:
        return x + -y, -x + y, x - -y, -x * 2.0, -(3.0 * x), jnp.square(-x)

    inspection = ml.inspect(signs, SPEC, SPEC)
    statements = program_of(inspection).functions[0].statements
    texts = [(one.primitive, *(getattr(x, "value", x.shape) for x in one.inputs)) for one in statements]
    whole = (4, 3)
    assert texts == [
        ("sub", whole, whole), ("sub", whole, whole), ("add", whole, whole), ("mul", whole, -2.0),
        ("mul", -3.0, whole), ("square", whole),
    ]  # fmt: skip
    arrays = [np.array([[0.0, -0.0, 1.5]] * 4, "float32"), np.array([[-0.0, 0.0, np.inf]] * 4, "float32")]
    for one, other in zip(Interpreter(inspection).run(*arrays), signs(*map(jnp.asarray, arrays)), strict=True):
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
        np.testing.assert_array_equal(one, other)
    assert len({id for one in statements for id in one.equations}) >= 10


def test_links_of_removed_statements_are_kept(inspection: Inspection) -> None:
    """An equation that matters to the results is in a statement, unless it only computes with numbers."""
    program, by_id = program_of(inspection), traced_program(inspection).by_id
    kept = {id for function in program.functions for one in function.walk() for id in one.equations}
    assert kept <= by_id.keys()
    work = {"dot_general", "conv_general_dilated", "exp", "tanh", "sin", "scan", "while", "reduce_window_max"}
    missing = {id for id, one in by_id.items() if one.is_used and one.primitive in work} - kept
    assert missing == set()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (jnp.exp(x), jnp.exp(x)),
        lambda x: (jnp.exp(x) + 1, jnp.exp(x) * 2),
        lambda x: (x.sum(1).reshape(4, 1), x.sum(1).reshape(4, 1)),
        lambda x: (lambda total: (total.reshape(4, 1), total.reshape(4, 1) * 1.0))(x.sum(1)),
        lambda x: (lambda same: jax.lax.fori_loop(0, 3, lambda i, y: y + same, x))(jnp.sin(x) * 1.0),
        lambda x: -(-(jnp.cos(x) + jnp.cos(x))).T.T,
    ],
)
def test_every_equation_is_on_a_line(function: Callable[[jax.Array], Any]) -> None:
    inspection = ml.inspect(function, SPEC, name="program")
    by_id = traced_program(inspection).by_id
    lines = {id: one for one in emit_arrays(traced_program(inspection), "numpy").lines for id in one.equations}
    assert lines.keys() >= {id for id, one in by_id.items() if one.is_used}


@pytest.mark.parametrize("name", ["c", "ggml"])
def test_lines_are_linked_to_every_equation_of_the_statements(name: str) -> None:
    inspection = PROGRAMS["transformer"]()
    program = traced_program(inspection)
    source = emit(program).source if name == "c" else emit_ggml(program)
    assert inspection.stage(name).text == source.text
    linked = {id for line in source.lines for id in line.equations}
    work = {"dot_general", "exp", "reduce_max", "reduce_sum", "scatter-add", "rsqrt"}
    assert {id for id, one in program.by_id.items() if one.is_used and one.primitive in work} <= linked
    assert all(line.block for line in source.lines if line.opcode == "dot_general" and line.equations)


def test_equal_statements_are_linked_to_the_line_that_computes_both() -> None:
    statements = program_of(ml.inspect(lambda x: (jnp.exp(x) + 1, jnp.exp(x) * 2), SPEC)).functions[0].statements
    assert [(one.primitive, len(one.equations)) for one in statements] == [("exp", 2), ("add", 1), ("mul", 1)]


def outline(program: EmittedProgram) -> list[str]:
    return [f"{one.name}({', '.join(value.name for value in one.inputs)})" for one in program.functions]


def test_a_model_has_one_function_for_each_block() -> None:
    assert outline(program_of(PROGRAMS["mlp"]())) == [
        "linear_0(input, weight, bias)",
        "relu(input)",
        "linear_1(input, weight, bias)",
        "linear_2(input, weight, bias)",
        "linear_2_backward(d_output, input, weight)",
        "linear_1_backward(d_output, input, weight)",
        "linear_0_backward(d_output, input)",
        "forward_backward(linear_0_bias, linear_0_weight, linear_1_bias, linear_1_weight, linear_2_bias, "
        "linear_2_weight, input, d_output)",
    ]


def test_equal_blocks_share_a_function() -> None:
    program = program_of(of_model(models.TransformerEncoder(layers=3, width=8, heads=2), 2, 3, 8, program="forward"))
    shared = [function for function in program.functions if len(function.blocks) == 3]
    assert shared, outline(program)
    (statement, *_) = [one for function in shared for one in function.statements if one.primitive == "dot_general"]
    assert len(statement.equations) >= 3


def test_gradients_are_named_after_their_parameters() -> None:
    program = program_of(PROGRAMS["mlp"]())
    names = [one.name for one in program.main.outputs if isinstance(one, Value)]
    assert names[:3] == ["output", "d_linear_0_bias", "d_linear_0_weight"]


def test_named_sizes_need_numbers() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    inspection = ml.inspect(jnp.sin, jax.ShapeDtypeStruct((batch, 3), "float32"))
    with pytest.raises(StageUnavailableError, match="needs a number for each size") as error:
        program_of(inspection)
    assert ("no number", "batch") in error.value.diagnostics[0].facts


def test_unsupported_primitives_are_named() -> None:
    def program(x: jax.Array) -> jax.Array:
        with jax.named_scope("block:mix"):
            return jnp.sort(x)

    with pytest.raises(UnsupportedPrimitiveError) as error:
        check_supported(program_of(ml.inspect(program, SPEC)), "c", {"add"})
    assert (error.value.primitive, error.value.backend) == ("sort", "c")
    line = program.__code__.co_firstlineno + 2
    assert str(error.value) == (
        "backend 'c' has no source for primitive 'sort' (block 'mix').\n"
        f"    line  test_program.py:{line}\n"
        "    Try: ml.JaxBackend()  # runs every primitive"
    )


def activations() -> Inspection:
    model = models.Model()
    names = "Gelu SiLU Softplus Tanh Sigmoid Softmax LogSoftmax Elu Mish Softsign HardSwish LeakyRelu".split()
    for place, name in enumerate(names):
        model |= models.Linear(4)(input=f"x{place}", output=f"up{place}")
        model |= getattr(models, name)()(input=f"up{place}", output=f"act{place}")
        model |= models.Add()(left=f"x{place}", right=f"act{place}", output=f"x{place + 1}")
    end = f"x{len(names)}"
    for port in ("left", "right"):
        model |= models.Linear(4)(input=end, output=port)
    model |= models.Tanh()(input="right", output="cell")
    model |= models.Multiply()(left="left", right="cell", output="product")
    model |= models.Exponential()(input="cell", output="power")
    model |= models.Add()(left="power", right="product", output="output")
    return ml.compile(model, shapes={"x0": [3, 4]}).inspect("forward+backward")


def of_scan() -> Inspection:
    def outputs(weight: jax.Array, bias: jax.Array, x: jax.Array) -> Any:
        def step(carry: Any, item: jax.Array) -> Any:
            hidden, total, count = carry
            hidden = jnp.tanh(item @ weight + hidden) * jnp.exp(-hidden) - total / 3
            return (hidden, total + hidden * bias, count + 1), (hidden * 2, jnp.sin(total))

        return jax.lax.scan(step, (bias, bias * 2, 0), x, reverse=True)

    def gradients(output_gradients: Any, *args: jax.Array) -> Any:
        found, pull_back = jax.vjp(lambda *args: outputs(*args)[1], *args)
        return found, pull_back(output_gradients)

    specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((3, 3), (3,), (4, 3))]
    return ml.inspect(gradients, (specs[2], specs[2]), *specs)


MORE_PROGRAMS = {
    "shared keys": lambda: of_model(models.TransformerBlock(width=8, heads=2, kv_heads=1), 2, 3, 8),
    "activations": activations,
    "gru": lambda: of_model(models.GRU(6), 2, 3, 4),
    "rnn": lambda: of_model(models.RNN(6), 2, 3, 4),
    "scan": of_scan,
}


class Nudged(Interpreter):
    """Adds an array to some values of a program, and keeps all values.

    Attributes:
        nudges: The arrays by value; for a value in a loop, one for each step.
        seen: The values by step; `None` outside loops.
    """

    nudges: dict[Value, Any]
    seen: dict[Value, dict[int | None, Any]]

    def call(self, function: Function, arrays: Sequence[Any], around: dict[Value, Any]) -> list[Any]:
        return super().call(function, self.nudged(function.inputs, arrays), around)

    def results(self, one: Statement, inputs: list[Any], scope: dict[Value, Any]) -> list[Any]:
        return self.nudged(one.outputs, super().results(one, inputs, scope))

    def nudged(self, values: Sequence[Value], arrays: Sequence[Any]) -> list[Any]:
        found = list[Any]()
        for value, array in zip(values, arrays, strict=True):
            if value in self.nudges:
                nudge = self.nudges[value]
                array = array + (nudge if self.index is None else nudge[self.index])
            self.seen.setdefault(value, {})[self.index] = array
            found.append(array)
        return found


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", *MORE_PROGRAMS])
def test_a_gradient_has_the_name_of_its_array(name: str) -> None:
    inspection = {**PROGRAMS, **MORE_PROGRAMS}[name]()
    interpreter = Nudged(inspection)
    main, constants = read(traced_program(inspection))
    main = clean(narrow(clean(main)))
    d_outputs = [value for value in main.inputs if value.name.startswith(("d_", "output_gradients"))]
    results = {
        value: d_output.name.removeprefix("d_") for value, d_output in zip(main.outputs, d_outputs, strict=False)
    }
    known = Gradients(main, main.roles, results)
    forms = ("d_{}", "minus_d_{}", "unsummed_d_{}")
    found = {value: of for value, (form, of) in known.forms.items() if form in forms}
    assert len(found) > 3
    lengths = {
        value: (one.params["length"],)
        for one in main.walk()
        if one.primitive == "scan"
        for value in (*one.bodies[0].inputs, *(each for step in one.bodies[0].walk() for each in step.outputs))
    }
    assert bool(lengths) == any(value in lengths for value in found)
    arrays = jax.tree.leaves(random_arrays(inspection.arguments))
    around = {value: jnp.asarray(array) for value, array in constants.items()}

    def run(nudges: list[Any]) -> list[Any]:
        interpreter.seen, interpreter.nudges = {}, dict(zip(dict.fromkeys(found.values()), nudges, strict=True))
        return interpreter.call(main, arrays, around)

    def loss(nudges: list[Any]) -> Any:
        outputs, scope = run(nudges), dict(zip(main.inputs, arrays, strict=True))
        return sum(jnp.sum(one * scope[d]) for one, d in zip(outputs, d_outputs, strict=False))

    def gradients(nudges: list[Any]) -> list[Any]:
        run(nudges)
        return [[array for _, array in sorted(interpreter.seen[one].items(), key=repr)] for one in found]

    nudges = [jnp.zeros((*lengths.get(one, ()), *one.shape)) for one in dict.fromkeys(found.values())]
    expected = dict(zip(dict.fromkeys(found.values()), jax.jit(jax.grad(loss))(nudges), strict=True))
    for steps, (value, whose) in zip(jax.jit(gradients)(nudges), found.items(), strict=True):
        wholes = expected[whose] if whose in lengths else [expected[whose]]
        scale = float(jnp.abs(expected[whose]).max()) or 1.0
        for array, wanted in zip(steps, wholes, strict=True):
            wanted = -wanted if known.forms[value][0] == "minus_d_{}" else wanted
            if array.ndim < wanted.ndim:  # summed along an axis that a reshape made
                array, wanted = array.sum(), wanted.sum()
            axes = array.ndim - wanted.ndim
            extra = [axis for axis in range(array.ndim) if axis < axes or wanted.shape[axis - axes] == 1]
            array = array.sum(extra, keepdims=True)
            names = f"{value.name}, gradient of {whose.name}"
            np.testing.assert_allclose(array.reshape(wanted.shape), wanted, atol=1e-4 * scale, err_msg=names)


def test_a_transformer_reads_like_the_textbook() -> None:
    inspection = of_model(models.TransformerBlock(width=8, heads=2), 2, 3, 8)
    lines = inspection.stage("numpy").text.splitlines()
    for line in (
        "    variance = total_1 / 8.0  # (2, 3, 1)",
        "    rsqrt_slope = -0.5 * ratio  # (2, 3, 1); "
        "the derivative of 1/sqrt(a) by a is -0.5 / (a * sqrt(a)); for the gradients",
        "    erfc_ = erfc(scaled_1)  # (2, 3, 32); erfc(-x) is 1 + erf(x)",
        "    normalized = centered * rsqrt  # (2, 3, 8)",
        "    softmax = exp_ / total  # (2, 2, 3, 3)",
        "def attention_attention(query, key, value):",
        "    d_value = softmax.swapaxes(-1, -2) @ d_output  # (2, 2, 3, 4)",
        "    d_softmax = d_output @ value.swapaxes(-1, -2)  # (2, 2, 3, 3)",
        "    minus_d_total = minus_unsummed_d_total.sum(axis=3, keepdims=True)  # (2, 2, 3, 1)",
        "    d_difference = d_exp * exp_  # (2, 2, 3, 3)",
        "    term = d_softmax * inverse_square  # (2, 2, 3, 3); "
        "the derivative of exp_/b by b is -exp_/b**2; exp_ and the minus follow",
        "    term = -1.1283792 * d_erfc  # (2, 3, 32); -1.1283792 is -2/sqrt(pi); "
        "the derivative of erfc(x) is -2/sqrt(pi) * exp(-x*x)",
        "    )  # d_output is the part of d_sum_1_output from the other uses of sum_1_output",
        "    d_query = d_dot @ key  # (2, 2, 3, 4)",
        "    scaled = dot * 0.5  # (2, 2, 3, 3); 0.5 is 1/sqrt(4)",
        "    inverse_square = total ** -2  # (2, 2, 3, 1); for the gradients",
        "    d_mean = unsummed_d_mean.sum(axis=2, keepdims=True)  # (2, 3, 1)",
        "    d_scaled_1 = term * exp_  # (2, 3, 32)",
        "    d_norm_2_bias, d_norm_2_weight, d_sum_1_output = norm_2_backward(",
        "d_x is d(loss)/d(x). The caller passes d(loss)/d(output) for each output.",
        "    )  # d_output is also d_mlp_output, because the gradient of a sum goes unchanged to each term",
        "    d_qkv_bias, d_qkv_weight, d_input = qkv_backward(d_qkv_output, input, qkv_weight)",
        "    dot = query @ key.swapaxes(-1, -2)  # (2, 2, 3, 3)",
        "    output = softmax @ value  # (2, 2, 3, 4)",
        "    return query, key, value",
        '    """attention/split (SplitHeads): forward."""',
        "def split_backward(d_value, d_key, d_query):",
        '    """norm_2 (LayerNorm): gradients; '
        'd_input includes d_input_so_far, the gradient from the other uses of the input."""',
        '    """norm_1 (LayerNorm): gradients; no result of the program needs the gradient of the input."""',
        "    scaled_1 = input * (-0.70710677)  # (2, 3, 32); -0.70710677 is -1/sqrt(2)",
        "    part_2_of_d_centered = centered * d_total_1  # (2, 3, 8); "
        "added once for each factor of centered * centered",
        "    largest = scaled.max(axis=3, keepdims=True)  "
        "# (2, 2, 3, 1); avoids overflow of exp; softmax does not depend on it",
    ):
        assert line in lines, line


def test_only_what_a_loop_stacks_is_named_steps() -> None:
    program = program_of(of_scan())
    loops = [one for function in program.functions for one in function.walk() if one.primitive == "scan"]
    assert len(loops) == 2
    for one in loops:
        assert not any("_steps" in value.name for value in one.outputs[: one.params["num_carry"]])


def test_a_function_that_returns_the_gradient_of_its_input_is_not_said_to_need_none() -> None:
    text = of_scan().stage("numpy").text
    assert "no result of the program needs" not in text.partition("def outputs_backward")[2]


def test_a_program_without_gradients_does_not_mention_them() -> None:
    def fib(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 10, lambda i, c: (c[1], c[0] + c[1]), (x, x))[0]

    text = ml.inspect(lambda x: fib(x), jax.ShapeDtypeStruct((), "float32")).stage("numpy").text
    assert '"""fib: forward."""' in text
    assert "gradient" not in text


def test_a_loop_reads_like_the_textbook() -> None:
    text = PROGRAMS["lstm"]().stage("numpy").text
    forward, backward = text.split("def lstm_backward")
    assert re.findall(r"    carry_1_steps.append\(carry_1\)", forward)
    assert "    added_step = added[step]" in forward
    assert "    carry_1 = carry_1_steps[step]" in backward
    assert "    d_w_hh = d_w_hh_so_far\n" in backward
    products = re.findall(r"^ +(\w+) = .*(?: @ |concatenate)", backward.partition("def ")[0], re.MULTILINE)
    assert products == ["d_added_1", "part_of_d_w_hh", "d_carry_1", "d_w_ih"]
    assert len(set(re.findall(r"^ +(term\w*) = ", backward, re.MULTILINE))) <= 5  # two terms for each tanh, and a sum


def test_reshaped_outputs_keep_their_names() -> None:
    """The array of `key` that leaves the block is then one of `np.split`, computed before that of `query`."""
    model = models.Model()
    model |= models.SplitHeads(heads=(2, 1, 1))(input="input", query="query", key="key", value="value")
    model |= models.Reshape(shape=(6, 4))(input="key", output="flat")
    for port in ("query", "flat", "value"):
        model |= models.Exponential()(input=port, output=f"{port}_out")
    text = of_model(model, 2, 3, 16, program="forward").stage("numpy").text
    assert "query, key, part = np.split(" not in text
    assert "part, key, part_1 = np.split(input, [8, 12], axis=2)" in text


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"use_rotary": True}], ids=str)
def test_arguments_have_the_names_of_ports_in_every_language(options: dict[str, Any]) -> None:
    inspection = of_model(models.TransformerBlock(width=8, heads=2, **options), 2, 3, 8)
    for stage in ("numpy", "torch", "mlx", "c", "ggml"):
        text = inspection.stage(stage).text
        for function, prefix in (("attention_attention", ""), ("split_backward", "d_")):
            found = re.search(rf"\b{function}\(([^)]*)\)", text)
            assert found is not None, (stage, function)
            assert {f"{prefix}{port}" for port in ("query", "key", "value")} <= {*re.findall(r"\w+", found[1])}, stage
        assert not re.search(r"\b(d_)?(input|output)_\d", text), stage


def test_a_function_with_the_name_of_a_primitive_keeps_its_own_body() -> None:
    @jax.custom_jvp
    def polynomial(x: jax.Array) -> jax.Array:
        return x * 5

    polynomial.defjvps(lambda d, _, x: d * 5)
    assert "x * 5.0" in ml.inspect(polynomial, SPEC).stage("numpy").text
