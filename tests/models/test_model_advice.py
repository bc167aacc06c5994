"""The advice of model errors works: composing, inference, files."""

from __future__ import annotations

import pytest
from advice import check

from mithril_nb import models
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import KINDS
from mithril_nb.models.fields import fields_of

COMPOSING = {
    "models/adding.py:Adding.connected": """
        model, block = Model(), Linear(3)
        model |= Relu()(input=block.output)
        """,
    "models/adding.py:_contradiction": """
        Model() | Linear(2)(input=IOKey("x", shape=["b", 3])) | Linear(2)(input=IOKey("x", shape=["b", 4]))
        """,
    "models/registry.py:refuse_call": "OneHot()",
    "models/connection.py:IOKey.__post_init__": "IOKey(3)",
    "models/shape_inference/constants.py:_check_numbers": 'Constant("many")',
    "models/shape_inference/constants.py:_check_numbers#2": "Constant(2**40, dtype='int32')",
    "models/shape_inference/constants.py:_check_numbers#2 | too many bits": "Constant(10**40)",
    "models/fields.py:checked": 'models.model.with_attributes(Linear(3), {"width": 4})\n# Try: {}',
    "models/fields.py:checked#2": 'Linear("many")',
    "models/model.py:Model.__call__": "Relu()(Linear(3).output)",
    "models/model.py:Model.__call__#2": "Relu()(input=object)",
    "models/model.py:Model.__call__#2 | lists nested too deep": """
        deep = 1.0
        for _ in range(80): deep = [deep]
        Relu()(input=deep)
        """,
    "models/model.py:Model.__call__#3": 'Relu()(inputs="x")',
    "models/model.py:Model.__call__#3 | no blocks": """
        Model()(input="x")
        # Try: model = Model()\\n{}\\nmodel(input="x")
        """,
    "models/model.py:Model.__getitem__": """
        model = Linear(3)
        model["outputt"]
        """,
    "models/model.py:Model.__getitem__ | no blocks": """
        Model()["output"]
        # Try: model = Model()\\n{}\\nmodel["output"]
        """,
    "models/registry.py:with_attributes": """
        models.model.with_attributes(Model() | Linear(3), {"dimension": 4})
        # Try: models.model.with_attributes(Linear(3), {"dimension": 4})
        """,
    "models/model.py:Model._extend": """
        model = Model()
        model += 3
        # Try: {}
        """,
    "models/model.py:_checked_name": 'Model(name="")',
    "models/annotations.py:by_name": """
        model = Linear(3)
        model.set_shapes("input")
        """,
    "models/annotations.py:AnnotationMethods.set_initializers.edit": """
        model = Model() | Linear(3)
        model.set_initializers({"linear_0.wieght": "zeros"})
        """,
    "models/annotations.py:AnnotationMethods.set_initializers.edit | no parameters": """
        (Model() | Relu()).set_initializers({"relu_0": "zeros"})
        # Try: model = Model() | Relu()\\n{}\\nmodel.set_initializers({"linear_0": "zeros"})
        """,
    "models/registry.py:kind_named": 'models.registry.kind_named(kind="Linaer")',
    "models/registry.py:kind_named | like no other": """
        models.registry.kind_named("Zzzqqq")
        # Try: models.registry.kind_named({}[0])
        """,
    "models/registry.py:refuse_second": """
        type("Swish", (Operator,), {"op": "relu"})
        # Try: {}; type("Swish2", (Operator,), {"op": op})
        """,
    "models/registry.py:refuse_second | a kind": """
        type("Relu", (Operator,), {"op": "relu_3"})
        # Try: {}: op = "relu_3"
        """,
    "models/annotations.py:_trained": """
        model = Model() | Linear(3)
        ml.compile(model, frozen=["linear_9"], shapes={"input": [2, 3]})
        """,
    "models/annotations.py:_trained | no blocks": """
        Model().set_differentiability(input=False)
        # Try: model = Model()\\n{}\\nmodel.set_differentiability(input=False)
        """,
    "models/summary.py:_checked": "Relu().summary(depth=-1)",
    "models/initializers.py:_checked": """
        model = Model() | Linear(3)
        model.set_initializers({"linear_0.weight": "he_norml"})
        """,
    "models/initializers.py:_invalid": """
        model = Model() | Linear(3)
        model.set_initializers({"linear_0": "normal(x)"})
        """,
    "models/naming.py:by_port": """
        model = Linear(3)
        ml.compile(model, shapes=[32, 784])
        # Try: {}; ml.compile(model, shapes=shapes)
        """,
    "models/naming.py:by_port#2": """
        model = Linear(3)
        ml.compile(model, shapes={"x": [2, 3]})
        # Try: {}; ml.compile(model, shapes=shapes)
        """,
    "models/naming.py:by_port#3": """
        model = Model() | Linear(3)(input="x")
        ml.compile(model, shapes={"x": [2, 3], "input": [2, 3]})
        # Try: {}; ml.compile(model, shapes=shapes)
        """,
    "models/naming.py:flat_params": """
        pm = ml.compile(Linear(3), shapes={"input": [2, 3]})
        pm.evaluate([1, 2], {"input": jnp.ones((2, 3))})
        # Try: {}; pm.evaluate(params, {"input": jnp.ones((2, 3))})
        """,
    "models/naming.py:flat_params#2": """
        pm = ml.compile(Model() | Linear(3, use_bias=False, name="up"), shapes={"input": [2, 3]})
        weight = jnp.ones((3, 3))
        pm.evaluate({"up.weight": weight, "up": {"weight": weight}}, {"input": jnp.ones((2, 3))})
        # Try: {}; pm.evaluate(params, {"input": jnp.ones((2, 3))})
        # ...: weight
        """,
}

CUSTOM = {
    "models/op.py:computed": """
        type("Doubling1", (Operator,), {"compute": lambda self, inputs: inputs, "infer": lambda self: None})
        # Try: infer = lambda cls, options, inputs: op.Inferred(inputs)\\n{}\\ntype("Doubling1", (Operator,), {"compute": lambda self, inputs: inputs, "infer": infer})()
        """,
    "models/op.py:op": 'ml.op("linaer", dimension=3)\n# Try: {}',
    "models/op.py:op | unknown": """
        ml.op("qxyzzy")
        # Try: backend = ml.JaxBackend()\\n{}\\ndef qxyzzy(x): return x\\nml.op("qxyzzy")
        """,
    "models/op.py:op#2": """
        ml.JaxBackend().register_op("halved")(lambda x: x / 2)
        ml.op("halved", by=3)
        """,
    "models/op.py:ports_of": """
        register = ml.JaxBackend().register_op("sinc2")
        register(lambda: 3)
        # Try: {}\\nregister(sinc2)
        """,
    "models/op.py:check_name": """
        backend = ml.JaxBackend()
        backend.register_op(lambda x: x)
        # Try: {}\\ndef my_op(x): return x
        """,
    "models/op.py:Operator.__init__": """
        type("Idle", (Operator,), {})()
        # Try: class Idle(Operator):\\n    {}\\nIdle()
        """,
    "models/fields.py:passed_on": """
        class Late(Operator):
            def __init__(self, width=2, name=None):
                super().__init__(name)
            def compute(self, inputs):
                return {"output": inputs["input"]}
        Late()
        # Try: class Late(Operator):\\n    def __init__(self, width=2, name=None):\\n        {}\\n    compute = Late.compute\\nLate()
        """,
    "models/fields.py:passed_on | a composite": """
        class Twice(Composite):
            def __init__(self, width, depth=2, name=None):
                super().__init__(name, depth=depth)
        Twice(width=3)
        # Try: class Twice2(Composite):\\n    def __init__(self, width, depth=2, name=None):\\n        {}\\nassert Twice2(width=3).options["width"] == 3
        """,
    "models/rules.py:OpRules.infer": """
        class Blank(Operator):
            op = "blank_1"
        Blank.infer({}, {})
        # Try: Blank.infer = classmethod(lambda cls, options, inputs: None); Blank.infer(None, None)
        """,
}

CONTROL = {
    "models/control.py:Control._check_body": "Scan(None)",
    "models/control.py:Control._check_body#2": "Repeat(Model())",
    "models/control.py:Scan.__init__": """
        body = Model() | Add()(left="x", right="before", output="sum")
        Scan(body, carry={"hidden": "before"})
        """,
    "models/control.py:Scan.__init__ | fixed": """
        body = Model() | Add()(left="x", right="before", output="sum")
        Scan(body, fixed=["mask"])
        """,
    "models/control.py:Scan.__init__ | one input": """
        Scan(Relu(), carry={"hidden": "input"})
        """,
    "models/control.py:Scan.__init__#2": """
        body = Model() | Add()(left="x", right="before", output="sum")
        Scan(body, carry={"sum": "before"}, fixed=["before"])
        """,
    "models/control.py:Scan.__init__#2 | carried": """
        body = Model() | Add()(left="x", right="before", output="sum") | Relu()(input="sum", output="y")
        body.expose_keys("sum")
        Scan(body, carry={"sum": "before", "y": "before"})
        """,
    "models/control.py:Scan.__init__#3": """
        body = Relu()
        Scan(body, carry={"output": "input"})
        # Try: {}
        """,
    "models/control.py:Scan.__init__#3 | no inputs": """
        Scan(Constant(1.0))
        """,
    "models/control.py:Scan.infer_body": "shapes(Scan(Relu(), axis=2), input=[2, 3])",
    "models/control.py:Scan.infer_body#2": """
        body = Model() | Add()(left="x", right="y")
        shapes(Scan(body, axis=1), x=[4, 2], y=[4, 3])
        # Try: shapes(Scan(body, axis=1, fixed=dict({})["fixed"]), x=[4, 2], y=[4])
        """,
    "models/control.py:Scan.infer_body#3": "shapes(Scan(Sum(), axis=1), input=[5, 6, 3])",
    "models/control.py:Repeat.__init__": "Repeat(Constant(1.0))",
    "models/control.py:Cond.ports": """
        inner = Cond(Relu(), Tanh())
        Cond(inner, Tanh())
        # Try: Cond(otherwise=Tanh(), {})
        """,
    "models/control.py:Cond.ports#2": """
        otherwise = Model() | Tanh()(output="y")
        Cond(Relu(), otherwise)
        # Try: Cond(Relu(), {})
        """,
    "models/control.py:Cond.ports#2 | more outputs": """
        Cond(Relu(), Split(2) | Relu()(input="x", output="y"))
        # Try: Cond(Relu(), Tanh())
        """,
    "models/control.py:Cond.infer_body": """
        shapes(Cond(Relu(), Tanh()), condition=[3], input=[3])
        # Try: shapes(Cond(Relu(), Tanh()), condition=[], input=[3])
        """,
    "models/control.py:Cond.infer_body#2": """
        shapes(Cond(Relu(), Sum()), condition=[], input=[3])
        # Try: shapes(Cond(Mean(), Sum()), condition=[], input=[3])
        """,
    "models/control.py:_pairs_of": """
        body = Model() | Add()(left="x", right="prev_hidden", output="hidden")
        Scan(body, carry="ab")
        """,
    "models/control.py:_names_of": """
        body = Model() | Add()(left="x", right="mask")
        Scan(body, fixed="x")
        """,
    "models/control.py:_checked_number": """
        body = Relu()
        Repeat(body, 0)
        """,
    "models/control.py:_array_of": """
        shapes(Scan(Shape()), input=[5, 6, 3])
        # Try: shapes(Model() | Shape()(input="input"), input=[5, 6, 3])
        """,
    "models/control.py:_check_same": """
        shapes(Repeat(Linear(3), 2), input=[2, 4])
        # Try: shapes(Repeat(Linear(4), 2), input=[2, 4])
        """,
}

INFERENCE = {
    "models/shape_inference/dims.py:place_of": """
        shapes(SwapAxes(0, 2), input=[3, 4])
        # Try: shapes(SwapAxes(0, 1), input=[3, 4])
        """,
    "models/shape_inference/dims.py:broadcast": """
        shapes(Add(), left=[3], right=[4])
        # Try: shapes(Add(), left=[3], right=[3])
        """,
    "models/shape_inference/infer.py:_Work.body": """
        shapes(Repeat(BatchNorm1d(), 2), input=[3, 4])
        # Try: shapes(Repeat(LayerNorm(), 2), input=[3, 4])
        """,
    "models/shape_inference/infer.py:_Work.array": """
        model = Model() | Linear(4, use_bias=False)(input="x", weight="w") | Linear(5, use_bias=False)(input="x", weight="w")
        shapes(model, x=[2, 7])
        # Try: shapes(Model() | Linear(4)(input="x", weight="w") | Linear(4)(input="x", weight="w"), x=[2, 7])
        """,
    "models/shape_inference/port_checks.py:contradiction": """
        model = (Model() | Linear(3)(output="y")).set_shapes(y=[2, 4])
        shapes(model, input=[2, 5])
        # Try: {}\\nshapes(model, input=[2, 5])
        """,
    "models/shape_inference/port_checks.py:contradiction | an input": """
        model = Model() | Relu()(input=IOKey("x", shape=["n", "n"]))
        shapes(model, x=[2, 3])
        # Try: {}\\nshapes(model, x=[2, 3])
        """,
    "models/shape_inference/port_checks.py:contradiction | a parameter": """
        model = (Model() | Linear(3)).set_shapes({"linear_0.weight": [2, 2]})
        shapes(model, input=[2, 5])
        # Try: {}\\nshapes(model, input=[2, 5])
        """,
    "models/shape_inference/port_checks.py:contradiction | dtype": """
        model = (Model() | Linear(3)).set_types({"linear_0.bias": "float16"})
        ml.compile(model, shapes={"input": [2, 4]})
        """,
    "models/shape_inference/infer.py:_Work.mismatch": "shapes(Linear(3, input_size=4), input=[2, 5])",
    "models/shape_inference/port_checks.py:invalid_attribute": "shapes(Reshape(shape=(2.5, 3)), input=[6])",
    "models/shape_inference/port_checks.py:rule_of": """
        infer(add_to_graph(LogicalGraph(), Block("Alien", (), (Port("input"),), (Port("output"),), op="alien"))[0], dict())
        # Try: assert "relu" in {}; infer(add_to_graph(LogicalGraph(), Relu().block)[0], dict([])).raise_problems()
        """,
    "models/shape_inference/port_checks.py:check_dtype": """
        shapes(Model() | Linear(3)(input="x", output="h") | Embedding(3, 4)(input="h"), x=[2, 3])
        # Try: model = Model() | Linear(3)(input="x", output="h"); x = model.h; model |= Embedding(3, 4)(input={})
        """,
    "models/shape_inference/port_checks.py:check_dtype | an input": """
        array = jnp.ones((2, 3))
        ml.inspect(Embedding(3, 4), array)
        # Try: array = {}; ml.inspect(Embedding(3, 4), array).cost()
        """,
    "models/shape_inference/port_checks.py:check_fed": """
        model = Model() | Relu()(input="z", output="w") | Linear(3, use_bias=False)(input="x", weight="w")
        shapes(model, x=[2, 4], z=[9, 2])
        # Try: shapes(model, x=[2, 4], z=[4, 3])
        """,
}

FILES = {
    "models/saving/serialization.py:graph_from_dict": """
        path = new_path("model.json"); model = Linear(3)
        Model.from_dict([1, 2])
        """,
    "models/saving/formats.py:save": """
        model = Linear(3)
        ml.save(None, "model.json")
        """,
    "models/saving/serialization.py:save_graph": """
        model = Linear(3)
        ml.save(model, "a/b/model.json")
        """,
    "models/saving/serialization.py:load_graph": """
        path = new_path("model.json"); model = Linear(3)
        wrong = new_path("wrong.json"); wrong.write_text("model = 3")
        ml.load(wrong)
        """,
    "models/saving/serialization.py:_bytes_of": """
        path = new_path("model.json"); ml.save(Linear(3), path)
        ml.load(path.with_name("modle.json"))
        """,
    "models/saving/links.py:_broken": """
        model = Model() + Linear(3)
        ml.load("#model=AAAA")
        """,
    "models/saving/serialization.py:check_path": """
        model = Linear(3)
        ml.save(model, None)
        """,
    "models/saving/reading.py:_Reader.note": """
        path = new_path("model.json"); model = Linear(3)
        data = (Model() | Linear(3)).set_types(input="int32").to_dict(); data["graph"]["notes"][0]["dtype"] = "int31"
        Model.from_dict(data)
        # Try: {}
        """,
    "models/saving/reading.py:inconsistent": """
        path = new_path("model.json"); model = Linear(3)
        data = (Model() | Linear(3)).to_dict(); data["graph"]["nodes"][0]["name"] = ""
        Model.from_dict(data)
        """,
    "models/saving/reading.py:_Reader.block": """
        path = new_path("model.json"); model = Linear(3)
        data = (Model() | Linear(3)).to_dict(); data["graph"]["nodes"][0]["kind"] = "Linaer"
        Model.from_dict(data)
        """,
    "models/saving/reading.py:broken": """
        path = new_path("model.json"); model = Linear(3)
        data = (Model() | Linear(3)).to_dict(); data["graph"] = None
        Model.from_dict(data)
        """,
    "models/saving/serialization.py:_checked_limits": """
        path = new_path("model.json"); ml.save(Linear(3), path)
        ml.load(path, limits=3)
        """,
    "models/fields.py:checked#2 | a limit": "ml.LoadLimits(nodes=-1)",
    "models/saving/reading.py:LoadLimits.check#2": """
        path = new_path("model.json"); ml.save(Linear(3), path)
        ml.load(path, limits=ml.LoadLimits(nodes=300_000, file_bytes=1))
        """,
    "models/saving/reading.py:LoadLimits.check": """
        graph, outer = {"nodes": [], "edges": [], "labels": []}, {"format": "mithril_nb.model", "version": 1, "name": ""}
        for _ in range(51): graph = {"nodes": [{"name": "m", "kind": "Model", "graph": graph}], "edges": [], "labels": []}
        Model.from_dict({**outer, "graph": graph})
        # Try: Model.from_dict({**outer, "graph": graph["nodes"][0]["graph"]["nodes"][0]["graph"]})
        """,
    "models/saving/reading.py:LoadLimits.check#2 | a limit that cannot rise": """
        path = new_path("model.json"); model = Model() | Relu()
        data = model.to_dict(); data["graph"]["notes"] = [{"node": "relu_0", "port": "output", "shape": [1] * 100}]
        Model.from_dict(data)
        # Try: Model.from_dict(model.to_dict())
        """,
    "models/shape_inference/folding.py:as_array": """
        shapes(Model() | Value(None)(output="v") | Relu()(input="v"))
        # Try: shapes(Model() | Value((1.0, 2.0))(output="v") | Relu()(input="v"))
        """,
    "models/shape_inference/port_checks.py:impossible_output": """
        model = Model() | Glu()
        shapes(model | Clamp()(input="x", min_val="glu_0.output"))
        # Try: shapes(Model() | Glu() | Clamp()(input="x", min_val="least"))
        """,
    "models/shape_inference/port_checks.py:check_option": """
        model = Model() | Shape()(input="x", output="sizes")
        shapes(model | Clamp()(input="x", min_val="sizes"), x=[2, 3])
        # Try: shapes(Model() | Clamp()(input="x", min_val=0.0), x=[2, 3])
        """,
    "graph/spec.py:check_rank": """
        ml.compile(Linear(3), shapes={"input": [1] * 200})
        """,
}

REQUIRED = [
    kind
    for kind in KINDS.values()
    if kind.__module__.startswith("mithril_nb.")
    and kind is not models.Sequential
    and any(field.is_required for field in fields_of(kind))
]


@pytest.mark.parametrize("kind", REQUIRED, ids=lambda kind: kind.__name__)
def test_advice_for_missing_arguments_works(kind: type) -> None:
    with pytest.raises(UnknownOptionError) as error:
        kind()
    made = eval(error.value.diagnostics[0].advice, dict(vars(models)))
    assert isinstance(made, kind)


CASES = {**COMPOSING, **CUSTOM, **CONTROL, **INFERENCE, **FILES}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
