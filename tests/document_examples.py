"""Objects for the inline code of documents, such as `model`, `p` or `run`, created on first use."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inline_code import Span, fences, parameter_names, texts

import mithril_nb.viz.costs.drawing  # noqa: F401  Docstrings of lower rooms name its class.

NOT_RUN = {
    "mithril-nb lab": "starts JupyterLab and does not return; tests/browser starts it",
    "mithril-nb lab --app model.json": "serves a page and does not return; tests/browser/test_voila.py starts it",
    "mithril-nb lab --app model.json --shape input=32,64": "serves a page and does not return",
    "mithril-nb lab --app model.json -- --no-browser --port=8900": "serves a page and does not return",
    "mithril-nb lab --app model.json -- --port 8080": "serves a page and does not return",
    "mithril-nb lab --app LINK": "serves a page and does not return",
    "mithril-nb show LINK": "LINK stands for a long link; tests/models/test_links.py opens one",
    "ggml.ggml_add(ctx, x, y)": "a line of emitted source; tests/emission/ggml runs such lines",
    "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)": "a context of PyTorch; it returns nothing",
    "mithril-nb devices install h100": "downloads; `make test` installs the compilers",
    "mithril-nb devices install v5e": "downloads",
    "mithril-nb devices install cuda": "downloads",
    "mithril-nb devices remove h100": "deletes the compiler that other tests use",
    "mithril-nb profile": "needs a target; tests/cli runs the command",
    "mithril-nb runs": "needs stored runs; tests/cli runs the command",
    "mithril-nb runs --repair": "needs stored runs; tests/train/store repairs a database",
    "mithril-nb watch": "needs a script; tests/cli runs the command",
    "mithril-nb show --stage cost --by role": "needs a target; tests/cli runs the command",
    "mithril-nb launch": "starts processes; tests/launch runs the command",
    "mithril-nb launch --processes 2 train.py": "starts processes; tests/launch runs the command",
    '"gelu"(input="x")': "Mithril's notation, which %load_ext mithril_nb rewrites; tests/seeds runs it",
    '"name"(...)': "the same notation",
    'ml.search(make, {"rate": (1e-4, 1e-1, "log"), "layers": [2, 4]}, trials=20)': "needs Optuna",
    "super().__init__": "runs only inside a method",
    "loc(#loc12)": "MLIR, not Python",
    "['layers.0']['kernel']": "a path as jax.tree_util.keystr writes it",
}
"""Code spans that no test here runs, with the reason."""

REFUSED = {
    'inspection.find("flops>1", "stablehlo")': "UnknownOptionError",
    "ResNet(18)": "UnknownOptionError",
    'cost.subtree("liner")': "UnknownBlockError",
    "cost.at(T=100)": "UnknownOptionError",
    "GPT(vocab=256)": "UnknownOptionError",
    "ml.inspect(f, (4, 64))": "StageUnavailableError",
}
"""Calls that a document shows as wrong, with the error that they must raise."""

MISSPELT = {'optimiser="adam"': "optimizer"}
"""Settings that a document shows as misspelt, with the intended option."""

INSTEAD = {
    "mithril-nb find": "mithril-nb find model.json kind:linear",
    "mithril-nb export": "mithril-nb export model.json --shape input=2,64 --to c -o folder",
    "mithril-nb export model.json --to c -o folder": "mithril-nb export model.json --shape input=2,64 --to c -o folder",
    'ml.export(model, "folder", to="c")': 'ml.export(pm, "folder", to="c")',
    "model.share_link(page)": 'model.share_link("https://example.org/page.html")',
    "ml.load(link)": 'ml.load(model.share_link("https://example.org/page.html"))',
    "tanh(x) + x": "jnp.tanh(x) + x",
    'ml.export(model, "folder", to="onnx", shapes=shapes)': 'ml.export(pm, "onnx_folder", to="onnx")',
    "source()": 'ml.compile(ml.models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]}).source()',
    "ml.compile(model, ml.TorchBackend(), shapes=shapes).as_module()": (
        'ml.compile(model, ml.TorchBackend(), shapes={"input": [32, 64]}).as_module()'
    ),
    "pm.source()": 'ml.compile(ml.models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]}).source()',
    "pm.as_module()": 'ml.compile(ml.models.Linear(3), ml.TorchBackend(), shapes={"input": [2, 4]}).as_module()',
    "pm.convert_params(params, other)": "pm.convert_params(params, ml.NumpyBackend())",
    'backend.operations()["relu"]': 'ml.NumpyBackend().operations()["relu"]',
    'to_html(overlay="flops")': 'inspection.to_html(overlay="flops")',
    "to_json()": "inspection.to_json()",
    "inspection.overlay(of)": 'inspection.overlay("flops")',
    **{
        f'{name}.overlay({{"net/hidden": 0.25}}, title="sparsity")': (
            'inspection.overlay({"linear_0": 0.25}, title="sparsity")'
        )
        for name in ("p", "widget")
    },
    'p.to_html("page.html", overlay={"sparsity": {"net/hidden": 0.25}})': (
        'inspection.to_html("page.html", overlay={"sparsity": {"linear_0": 0.25}})'
    ),
    "p.find(query)": 'inspection.find("kind:dot")',
    'p.find(query, "hlo")': 'inspection.find("kind:dot", "hlo")',
    "ml.inspect(model, shapes=...).find(query)": 'inspection.find("kind:dot")',
    "model.find(query)": 'model.find("kind:linear")',
    "graph.ancestors": 'inspection.graph("jaxpr").ancestors',
    "graph.ancestors(path)": 'inspection.graph("jaxpr").ancestors("linear_0")',
    "graph.descendants(path)": 'inspection.graph("jaxpr").descendants("linear_0")',
    "graph.between(a, b)": 'inspection.graph("jaxpr").between("linear_0", "linear_1")',
    "mithril-nb compare": "mithril-nb compare model.json model.json",
    **{
        f"mithril-nb compare before.json after.json{options}": f"mithril-nb compare{2 * ' model.json'}{shape}{options}"
        for options, shape in (
            ("", ""),
            (" --stage jaxpr", " --shape input=32,64"),
            (" --format html -o comparison.html", ""),
        )
    },
    **{
        command: command.replace("show", "show model.json --shape input=32,64")
        for command in (
            "mithril-nb show",
            "mithril-nb show --json",
            "mithril-nb show --stage cost --json",
            "mithril-nb show --stage numpy",
        )
    },
    "costs()": "inspection.costs()",
    "cost()": "inspection.cost()",
    "summary()": "model.summary()",
    "cost.at(B=128)": "symbolic.at(B=128)",
    'by_block["net"]': 'cost.by_block["linear_0"]',
    'c.subtree("net")': 'cost.subtree("linear_0")',
    'cost.formula("hidden")': 'cost.formula("linear_0")',
    "ml.load_params(path)": "ml.load_params(params_file)",
    "ml.load(path, limits=...)": "ml.load(model_file, limits=...)",
    "model.left": "model.kind",
    'ml.workbench(model, output="logits", loss=...)': 'ml.workbench(model, output="output", loss=...)',
    'ml.fit(model, data, output="logits")': 'ml.fit(pm, data, output="output")',
    'set_types(tokens="int32")': 'fresh("tokens").set_types(tokens="int32")',
    'expose_keys("h", last="output")': 'fresh().expose_keys("h", last="output")',
    'rename_keys(input="image", output="logits")': 'fresh().rename_keys(input="image", output="logits")',
    "memory_analysis()": "jitted.memory_analysis()",
    'cost("compiled")': 'inspection.cost("compiled")',
    "inspect().costs()": "pm.inspect().costs()",
    "model.hidden": "model.kind",
    'model["graph"]': 'model["kind"]',
    "compile()": "ml.compile(model)",
    "initial_state()": "pm.initial_state()",
    "forward_with_state(params, inputs, state, key=key, training=True)": "pm.forward_with_state(params, inputs, {})",
    'mithril_nb.op("name")(...)': 'mithril_nb.op("relu")()',
    "ml.inspect(f, (4, 64))": "ml.inspect(f, (4, 64)).cost()",
    "ml.from_flax(module, variables)": "ml.from_flax(flax_module, variables)",
    'ml.explore(loss, *step.example_args, through=("grad", "jit"))': 'ml.explore(f, *args, through=("sum", "grad"))',
}
"""Code whose object has another name here, or is named by the sentence around it, with the whole call."""

ARGUMENTS = {
    "ml.fit": "pm, data",
    "ml.assert_cost": "inspection",
    "assert_cost": "inspection",
    "ml.what_if": "make",
    "ml.sweep": "make",
    "ml.profile": "inspection",
    "jax.jit": "f",
    "jax.value_and_grad": "f",
    "from_equinox": "module",
}
"""Arguments for the leading `...` of a call such as `f(...)`."""

VALUES = {
    "path": '"linear_0"',
    "x": "40",
    "y": "120",
    "source": '"analytic"',
    "flops": "1e12",
    "peak_bytes": "1e12",
    "params": "10**9",
    "peaks": "ml.machine()",
    "into": "ml.compile(ml.models.Linear(10), shapes={'input': [32, 64]})",
    "compiler_options": "{}",
    "moved": "{}",
    "loss": '"cross_entropy"',
    "limits": "ml.models.LoadLimits()",
    "input": "'x'",
    "output": "'y'",
}
"""Example values for `keyword=...`, by keyword or by the target of an assignment."""

LOCAL = {
    "mithril_nb.backends.jax.backend": {"name": "'relu'"},
    "mithril_nb.models.op": {"compute": "lambda self, inputs: inputs", "self": "ml.models.Relu()"},
    "mithril_nb.backends.jax.arrays": {"start": "0", "stop": "10", "step": "2"},
    "mithril_nb.backends.jax.operations": {
        "logits": "w", "targets": "w", "batch": "2", "a": "w", "b": "w", "softmax": "jax.nn.softmax",
        "concat": "backend.concat",
    },
    "mithril_nb.cost.formulas": {"length": "8", "window": "3", "n": "8", "rows": "2", "k": "3"},
    "mithril_nb.models": {"x": "fresh().input", "slice_block": "ml.models.Slice(0, 2)", "name": "'Relu'"},
    "mithril_nb.models.shape_inference.dims": {"size": "7", "stride": "2"},
    "mithril_nb.models.library.classical": {"lead": "(2,)", "d": "3", "degree": "2", "C": "math.comb"},
    "mithril_nb.models.library.layers": {"size": "7", "stride": "2"},
    "mithril_nb.models.library.operations.indexing": {
        "n": "2", "m": "3", "i": "0", "j": "1", "x": "numpy.ones((2, 2))", "y": "numpy.ones((2, 2))",
        "indices": "numpy.zeros((2, 2), int)",
    },
    "mithril_nb.stages.hlo": {"compiled": "jitted", "lowered": "jax.jit(f).lower(w, x)"},
    "mithril_nb.stages.program_stages": {
        "x": "'jaxpr'", "y": "'hlo'", "a": "'0'", "b": "inspection.stage('hlo').instructions[0].id",
    },
    "mithril_nb.stages.jax_versions": {
        "closed": "jax.make_jaxpr(f)(w, x)", "rewrite": "lambda prefix, jaxpr: jaxpr", "prefix": "''", "jaxpr": "None",
    },
    "mithril_nb.stages.trace": {"params": "{'mlp_0.linear_1.weight': 0, 'linear_0.weight': 0}", "model": "layered"},
    "mithril_nb.targets.arguments": {"f": "dict", "y": "0"},
    "mithril_nb.train": {"model": "pm", "seed": "0", "labels": "0", "logits": "w", "argmax": "numpy.argmax"},
    "mithril_nb.train.run.events": {"rows": "run.history.rows"},
    "mithril_nb.viz": {
        "graph": "inspection.graph('jaxpr')",
    },
    "mithril_nb.analysis.whatif": {"floordiv": "operator.floordiv", "width": "8", "heads": "2", "depth": "2"},
}  # fmt: skip
"""Expressions for names whose meaning in the docstrings of a module differs from that in documents."""

SETTINGS = {
    "own": "an option of inspection.overlay",
    "input": "an input of a model, in the command line",
    "batch": "an argument of the function that ml.what_if calls",
    "is_immutable": "an attribute of models of other libraries that ml.fit trains",
    "start_timeout_s": "an option of mithril-nb launch, in Python",
}
"""Names on the left of `name=value` that are not arguments of a public function, with their meaning."""

_NOTATION = re.compile(r"[^\x00-\x7f]")
OWNERS = {
    "ArrayMaker": "backend",
    "ProgramStages": "inspection",
    "JaxBackend": "backend",
    "PhysicalModel": "pm",
    "fit": "run",
    "Trainable": "pm",
}
"""Objects whose methods the docstrings of a class or function name without the object."""
_PARTS = ("mithril_nb", "mithril_nb.models", "mithril_nb.cost", "mithril_nb.graph.records", "mithril_nb.stages", "jax")


def is_notation(text: str) -> bool:
    """Return whether text is a formula or displayed text rather than Python: it has `·`, `×`, `≥`, ..."""
    return _NOTATION.search(text) is not None


class Examples:
    """Names for inline code; each object is built once, on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Any] = {}

    @functools.cached_property
    def options(self) -> set[str]:
        """Names of arguments of the public functions, blocks and backends."""
        return parameter_names("mithril_nb", "mithril_nb.models")

    def covers(self, tree: ast.Module, span: Span) -> bool:
        """Return whether the code is about objects: it calls something, or begins with a name that is known here."""
        if any(isinstance(node, ast.Call | ast.Assign | ast.Import) for node in ast.walk(tree)):
            return True
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        return all(self._is_known(name, span) for name in names)

    def run(self, tree: ast.Module, span: Span) -> None:
        """Run the code.

        Raises:
            Exception: What the code raises.
        """
        exec(compile(tree, span.place, "exec"), {}, _Names(self, span))

    def write_files(self, folder: Path) -> None:
        """Write the files that the commands of the documents read: a model, and the program of docs/inspect.md."""
        import mithril_nb as ml

        model = _model(self)  # not the shared one, which inline code may change
        ml.save(model, folder / "model.json")
        ml.save(model, folder / "digits.json")
        programs = [code for language, code in fences(texts()["docs/inspect.md"]) if language == "python"]
        (program,) = [code for code in programs if "def step(" in code]
        (folder / "train.py").write_text(program, encoding="utf-8")

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _EXAMPLES[name](self)
        return self._made[name]

    def _is_known(self, name: str, span: Span) -> bool:
        return any(True for _ in _Names(self, span).places(name))


class _Names(dict[str, Any]):
    """The names of one span: local names, examples, names of its class and module, and of the package."""

    def __init__(self, examples: Examples, span: Span):
        self.examples, self.span = examples, span

    def __missing__(self, name: str) -> Any:
        for local in self._local():
            if name in local:
                return eval(local[name], {"importlib": importlib, "math": math, "operator": operator}, self.examples)
        for place in self.places(name):
            return self.examples[name] if place is _EXAMPLES else getattr(place, name)
        raise KeyError(name)

    def places(self, name: str) -> Iterator[Any]:
        """Yield the objects with this name."""
        if name in _EXAMPLES or any(name in local for local in self._local()):
            yield _EXAMPLES
        modules = (self.span.module, *_PARTS) if self.span.module else _PARTS
        owner = OWNERS.get(self.span.owner, self.span.owner)
        own = (self.examples[owner],) if owner in _EXAMPLES else ()
        yield from (one for one in (*own, *map(importlib.import_module, modules), math, builtins) if hasattr(one, name))

    def _local(self) -> list[Mapping[str, str]]:
        """The local names of its module, the closest first."""
        found = [name for name in LOCAL if f"{self.span.module}.".startswith(f"{name}.")]
        return [LOCAL[name] for name in sorted(found, key=len, reverse=True)]


def _model(_: Examples) -> Any:
    from mithril_nb.models import Linear, Model, Relu

    model = Model(name="net")
    model |= Linear(64)(input="input", output="kind")
    model += Relu()
    model += Linear(10)
    return model


def _stored_runs(names: Examples) -> Any:
    ml = names["ml"]
    for name in ("tanh", "other"):
        with ml.track(names.folder / "runs" / name, config={"width": 4}) as run:
            run.log({"loss": 0.5}, state={"weight": 1.0})
    return ml.runs(names.folder / "runs")


def _fresh(names: Examples) -> Callable[..., Any]:
    models = names["ml"].models

    def fresh(name: str = "input") -> Any:
        model = models.Model()
        model |= models.Linear(8)(input=name, output="h")
        model |= models.Relu()(input=model.h, output=models.IOKey("output"))
        return model

    return fresh


def _layered(names: Examples) -> Any:
    return names["eqx"].nn.MLP(4, 4, 4, 2, key=names["jax"].random.key(0))


def _function(_: Examples) -> Callable[..., Any]:
    import jax

    def f(w: Any, x: Any = 2.0) -> Any:
        with jax.named_scope("hidden"):
            return jax.numpy.tanh(x @ w if hasattr(x, "shape") else x * w)

    return f


def _step(names: Examples) -> Any:
    return names["ml"].inspect(names["model"], shapes={"input": [32, 64]}, loss="mean_squared_error", optimizer="sgd")


def _run(names: Examples) -> Any:
    run = names["ml"].fit(names["pm"], names["data"], batch_size=32, epochs=1)
    for _ in run:
        pass
    return run


def _make(_: Examples) -> Callable[..., Any]:
    import jax

    def make(batch: int = 4, remat: bool = False) -> tuple[Any, ...]:
        return (jax.checkpoint(jax.numpy.tanh) if remat else jax.numpy.tanh), jax.numpy.ones((batch, 8))

    return make


def _flax(_: Examples) -> Any:
    import flax.linen

    return flax.linen.Dense(10)


def _params_file(names: Examples) -> str:
    path = names.folder / "params.safetensors"
    names["ml"].save_params(names["params"], path)
    return str(path)


def _model_file(names: Examples) -> str:
    path = names.folder / "model.json"
    names["ml"].save(names["model"], path)
    return str(path)


def _equinox(_: Examples) -> Any:
    import equinox
    import jax

    return equinox.nn.Linear(64, 10, key=jax.random.key(0))


_EXAMPLES: Mapping[str, Callable[[Examples], Any]] = {
    "ml": lambda _: importlib.import_module("mithril_nb"),
    "jnp": lambda _: importlib.import_module("jax.numpy"),
    "lax": lambda _: importlib.import_module("jax.lax"),
    "eqx": lambda _: importlib.import_module("equinox"),
    "hk": lambda _: importlib.import_module("haiku"),
    "nn": lambda _: importlib.import_module("flax.linen"),
    **{name: functools.partial(lambda name, _: importlib.import_module(name), name)
       for name in ("mithril_nb", "jax", "optax", "functools", "pandas", "numpy", "graphviz")},
    "model": _model,
    "one": lambda names: names["ml"].models.Linear(8)(),
    "fresh": _fresh,
    "layered": _layered,
    "f": _function,
    "jitted": lambda names: names["jax"].jit(names["f"]).lower(names["w"], names["x"]).compile(),
    "key": lambda names: names["jax"].random.key(0),
    "x": lambda names: names["jnp"].ones((32, 64)),
    "w": lambda names: names["jnp"].ones((64, 10)),
    "args": lambda names: (names["w"], names["x"]),
    "target": lambda names: names["f"],
    "make": _make,
    "module": _equinox,
    "flax_module": _flax,
    "variables": lambda names: names["flax_module"].init(names["jax"].random.key(0), names["x"]),
    "path": lambda _: "linear_0",
    "params_file": _params_file,
    "model_file": _model_file,
    "gpt": lambda names: names["ml"].models.GPT(vocabulary=16, context=8, layers=1, heads=2, width=8),
    "data": lambda names: (names["numpy"].ones((64, 64), "float32"), names["numpy"].arange(64) % 10),
    "inputs": lambda names: {"input": names["x"]},
    "backend": lambda names: names["ml"].JaxBackend(),
    "pm": lambda names: names["ml"].compile(names["model"], shapes={"input": [32, 64]}),
    "params": lambda names: names["pm"].randomize_params(),
    "run": _run,
    "wb": lambda names: names["ml"].workbench(names["model"], shapes={"input": [32, 64]}),
    "inspection": lambda names: names["ml"].inspect(names["model"], shapes={"input": [32, 64]}),
    "p": lambda names: names["inspection"],
    "step": _step,
    "cost": lambda names: names["inspection"].cost(),
    "c": lambda names: names["cost"],
    "row": lambda names: names["cost"].rows[0],
    "compiled": lambda names: names["inspection"].cost("compiled"),
    "comparison": lambda names: names["inspection"].cost("lowered").compare(names["compiled"]),
    "a": lambda names: names["inspection"],
    "b": lambda names: names["inspection"],
    "found": lambda names: names["ml"].compare(names["a"], names["b"]),
    "drawing": lambda names: names["cost"].treemap(),
    "change": lambda names: names["ml"].what_if(names["make"])(batch=8),
    "symbolic": lambda names: names["ml"].inspect(names["model"], shapes={"input": ["B", 64]}).cost(),
    "profile": lambda names: names["ml"].profile(names["inspection"], runs=2),
    "measured": lambda names: names["profile"],
    "other": lambda names: names["profile"],
    "default": lambda names: names["cost"].total,
    "Inspection": lambda names: names["inspection"],
    "Cost": lambda names: names["cost"],
    "Costs": lambda names: names["inspection"].costs(),
    "CostComparison": lambda names: names["comparison"],
    "MemoryUse": lambda names: names["inspection"].memory,
    "Run": lambda names: names["run"],
    "stored": _stored_runs,
    "old": lambda names: names["stored"]["tanh"],
    "Stage": lambda names: names["inspection"].stage("jaxpr"),
    "Equation": lambda names: names["inspection"].equations[0],
    "Change": lambda names: names["change"],
}  # fmt: skip
"""Objects by their names in documents; a class name is one of its objects, as in `Cost.to_dict()`."""
