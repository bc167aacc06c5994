"""Turning a graph into a function: without an array library, and in JAX with the name scopes that the stages read."""

from contextlib import contextmanager
from urllib.parse import unquote

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from strategies import WIDTH, models, modest

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOpError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import MLP, Add, Dropout, Linear, Model, Relu
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import Toolkit, block_scope, check_kernels, draws_random_numbers, run


class Texts:
    """A toolkit whose arrays are texts that record the operations."""

    def __init__(self):
        self.scopes: list[str] = []
        self.at: list[str] = []

    @contextmanager
    def scope(self, name: str):
        self.at.append(name)
        self.scopes.append("/".join(self.at))
        yield
        self.at.pop()

    @property
    def toolkit(self) -> Toolkit:
        def kernel(op: str):
            def apply(call, arrays):
                key = f" key={call.key}" if call.key else ""
                return {"output": f"{op}({', '.join(f'{port}={array}' for port, array in arrays.items())}{key})"}

            return apply

        kernels = {op: kernel(op) for op in ("linear", "relu", "add", "dropout")}
        draws = lambda op, options, training: op == "dropout" and training  # noqa: E731
        return Toolkit("texts", kernels, self.scope, lambda key, number: f"{key}.{number}", draws)


def residual() -> Model:
    body = Model(name="body")
    body |= Linear(4, use_bias=False)(weight="w")
    body += Dropout(0.5)
    model = Model()
    model |= body(input="x", w="shared", output="made")
    model |= Dropout(0.5, name="a/b")(input="x", output="dropped")
    model |= Add()(left="made", right="dropped")
    return model


def test_a_program_follows_its_graph():
    texts = Texts()
    out = run(residual().graph, texts.toolkit, {"shared": "W"}, {"x": "X"}, key="k", training=True)
    linear = "linear(input=X, weight=W)"
    assert out == {"output": f"add(left=dropout(input={linear} key=k.1), right=dropout(input=X key=k.2))"}
    assert texts.scopes == [
        "block:body", "block:body/block:linear_0", "block:body/block:dropout_0", "block:a%252Fb", "block:add_0",
    ]  # fmt: skip
    assert unquote(texts.scopes[3].removeprefix("block:")) == "a%2Fb"


def test_only_blocks_that_draw_get_keys():
    texts = Texts()
    graph = residual().graph
    assert "key" not in run(graph, texts.toolkit, {"shared": "W"}, {"x": "X"})["output"]
    assert draws_random_numbers(graph, texts.toolkit, True)
    assert not draws_random_numbers(graph, texts.toolkit, False)
    assert not draws_random_numbers(MLP().graph, texts.toolkit, True)


def test_params_by_name_and_bare_for_one_block():
    assert run(Linear(3).graph, Texts().toolkit, {"weight": "W", "bias": "B"}, {"input": "X"}) == {
        "output": "linear(input=X, weight=W, bias=B)"
    }
    nested = Model() + MLP(None, [], 3)
    assert run(
        nested.graph, Texts().toolkit, {"mlp_0.linear_0.weight": "W", "mlp_0.linear_0.bias": "B"}, {"input": "X"}
    )


def test_an_op_without_a_kernel():
    model = Model() + (Model(name="in") + Linear(3) + MLP(None, [3], 2, "tanh"))
    with pytest.raises(UnknownOpError) as error:
        check_kernels(model.graph, Texts().toolkit)
    assert str(error.value) == (
        "backend 'texts' has no kernel for op 'tanh' (block 'in/mlp_0/tanh_0').\n"
        "    has  add, dropout, linear, relu (4 ops)\n"
        "    Try: build the block from these ops."
    )
    assert error.value.diagnostics[0].block == "in/mlp_0/tanh_0"
    check_kernels((Model() + Relu()).graph, Texts().toolkit)


@modest
@given(models(most=4))
def test_jax_sees_every_block_as_a_scope(model):
    graph = model.graph
    inputs = {port.name: TensorSpec((2, WIDTH)) for port in graph.inputs if port.role == "data"}
    params = {p.name: jnp.zeros(p.spec.shape) for p in infer(graph, inputs).parameters}
    arrays = {name: jnp.zeros(spec.shape) for name, spec in inputs.items()}
    toolkit = JaxBackend().toolkit
    jaxpr = jax.make_jaxpr(lambda params, arrays: run(graph, toolkit, params, arrays))(params, arrays)
    paths = {path for path, node in graph.walk() if node.block.graph is None and node.block.op != "dropout"}
    seen = set()
    for equation in jaxpr.eqns:
        stack = str(equation.source_info.name_stack).split("/")
        seen.add("/".join(unquote(scope.removeprefix("block:")) for scope in stack if scope.startswith("block:")))
    assert seen == paths


def test_scopes_support_any_name():
    assert block_scope("a/b") == "block:a%252Fb"
    assert block_scope("<b>\n") == "block:%3Cb%3E%0A"
