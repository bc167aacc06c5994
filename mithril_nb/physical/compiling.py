"""`compile()`: a logical model and a backend become a physical model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from mithril_nb.backends.backend import check_switch
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.placing import devices_of
from mithril_nb.backends.notices import notice
from mithril_nb.errors import UnknownOptionError, refuse_unknown
from mithril_nb.graph.check import check
from mithril_nb.graph.edit import alone
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import Dim
from mithril_nb.models.calling import example_call
from mithril_nb.models.infer import Inference
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_specs
from mithril_nb.physical.binding import infer_for, said_sizes, with_constants, with_training
from mithril_nb.physical.model import PhysicalModel
from mithril_nb.physical.options import read_options


def compile(
    model: Model | LogicalGraph | Block,
    backend: JaxBackend | None = None,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    jit: bool | None = None,
    verbose: bool = False,
    parallelism: Literal["data", "model", "mixed"] | None = None,
    jit_options: Mapping[str, Any] | None = None,
    tpu_options: Mapping[str, Any] | None = None,
    static_shapes: bool | None = None,
    optimizations: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    frozen: Iterable[str] = (),
    trainable: Iterable[str] = (),
    **unknown: Any,
) -> PhysicalModel:
    """Bind a logical model to a backend.

    Args:
        model: What to compile, as it is now: later changes of it leave the result as it is.
        backend: Where it shall run; by default `JaxBackend()`.
        shapes: Shape of each input; a dim may be a name (`["batch", 784]`). Whatever is left out is taken from the
            blocks where they say it, else from the first arrays.
        jit: Whether programs are jitted; by default as the backend says.
        verbose: Whether to print the shapes that were inferred.
        parallelism: How the devices of the backend's mesh share the work: `"data"` splits the batch over the mesh's
            first axis, `"model"` the parameters over its last, `"mixed"` does both.
        jit_options: `donate_argnums`, places of arguments of `evaluate` whose memory it may reuse (params only where
            gradients take their place); `xla_computation`, whether to keep it as text; `static_argnums`, no effect.
        tpu_options: `replicate_inputs`, whether each device of the mesh gets all of each input; `allow_spmd`, which
            is always so.
        static_shapes: Whether inputs of other shapes than compiled for (or than the first) are refused. Else they are
            compiled for anew, with a warning.
        optimizations: `fusion`, `buffer_reuse`, `layout_optimization`: what XLA may do; only fusion can be left out.
        constants: Values of inputs, by name, that are then inputs no more.
        frozen: Names of parameters or blocks that training leaves.
        trainable: Names of those that it changes, inputs included.
        **unknown: Refused, with the names of those that there are.

    Returns:
        The physical model. XLA compiles when it is first run, or when a stage is asked for.

    Raises:
        ShapeError: Shapes that do not fit, all of them at once; or that cannot be split evenly over devices.
        UnexpectedInputError: `shapes` names an input that the model does not have.
        UnknownOptionError: An argument that does not exist, or a shape that is none.
        UnknownOpError: The backend cannot run a block.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> pm = compile(Linear(dimension=64), shapes={"input": [32, 128]})
        >>> pm.evaluate(pm.randomize_params(), {"input": pm.backend.randn(32, 128)})["output"].shape
        (32, 64)
    """
    refuse_unknown("compile", unknown, compile)
    check_switch("jit", jit, "ml.compile(model, backend, jit=False)")
    check_switch("verbose", verbose, "ml.compile(model, backend, verbose=True)")
    backend = JaxBackend() if backend is None else backend
    if not isinstance(backend, JaxBackend):
        raise UnknownOptionError(
            f"cannot compile for {backend!r}.", (("needs", "a backend that runs models"),), "ml.JaxBackend()"
        )
    graph, placement = graph_of(model), devices_of(model)
    if constants is not None:
        graph = with_constants(graph, constants)
    specs = input_specs(graph, shapes or {}, backend.default_dtype)
    if frozen or trainable:
        graph = with_training(graph, frozen, trainable, specs)
    inference = infer_for(backend, graph, specs)
    inference.raise_problems()
    if placement and backend.mesh is not None:
        raise UnknownOptionError(
            "a model whose parts are placed on devices one by one cannot be spread over a mesh as well.",
            (("placed", ", ".join(placement)), ("mesh", str(dict(backend.mesh.shape)))),
            "ml.compile(placed_model, ml.JaxBackend())  # or compile the model that is not placed with this backend",
        )
    if placement and jit:
        notice("jit=True has no effect: a model that is placed on several devices runs op by op.")
    jitted = (backend.jit if jit is None else jit) and not placement
    options = read_options(backend, jitted, parallelism, jit_options, tpu_options, static_shapes, optimizations)
    compiled = PhysicalModel(graph, backend, inference, jitted, options, placement, said_sizes(graph, specs))
    if verbose:
        print(shape_log(inference))
    return compiled


def graph_of(model: Model | LogicalGraph | Block) -> LogicalGraph:
    """Return the logical graph of whatever can be compiled.

    Raises:
        UnknownOptionError: It is no model.
        ConnectionError, CycleError, NameTakenError, UnconnectedPortError: A graph that does not hold together.
    """
    if isinstance(model, LogicalGraph):
        check(model)
        return model
    block = model.block if isinstance(model, Model) else model
    if not isinstance(block, Block):
        given: Any = model
        is_kind = isinstance(given, type) and issubclass(given, Model)
        raise UnknownOptionError(
            f"cannot compile {f'the class {given.__name__!r}' if is_kind else repr(given)}.",
            (("needs", "a model"),),
            f"ml.compile({example_call(given) if is_kind else 'Linear(10)'})",
        )
    return alone(block)


def shape_log(inference: Inference) -> str:
    """Return the inferred shapes as text, a line for each input, block and parameter."""
    lines = [f"{name:<24} {spec}" for name, spec in inference.inputs.items()]
    lines += [f"{path:<24} {next(iter(specs.outputs.values()), '')}" for path, specs in inference.blocks.items()]
    lines += [f"{parameter.name:<24} {parameter.spec}" for parameter in inference.parameters]
    return "\n".join(lines)
