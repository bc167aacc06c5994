"""`compile()`: bind a logical model to a backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import jax

from mithril_nb.backends.backend import check_switch, notice
from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.backends.jax.devices import devices_of
from mithril_nb.compilation.binding import declared_sizes, infer_for, with_constants, with_training
from mithril_nb.compilation.emitted import EmittedModel
from mithril_nb.compilation.model import PhysicalModel
from mithril_nb.compilation.options import read_options
from mithril_nb.errors import UnknownOptionError, refuse_unknown
from mithril_nb.graph.check import check
from mithril_nb.graph.edit import alone
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_specs
from mithril_nb.models.shape_inference.infer import Inference, with_param_shapes


def compile(
    model: Model | LogicalGraph | Block,
    backend: JaxBackend | EmittedBackend | None = None,
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
) -> Any:
    """Bind a logical model to a backend.

    Args:
        model: The model to compile. Later changes to the model do not affect the result.
        backend: Backend to run on; default: `JaxBackend()`. For any other backend, the result is an `EmittedModel`,
            and only `shapes`, `verbose`, `constants`, `frozen` and `trainable` are accepted.
        shapes: Shape of each input; a dim may be a name (`["batch", 784]`). Missing shapes are inferred from the
            blocks, or from the first inputs.
        jit: True to jit the programs; default: the backend's setting.
        verbose: True to print the inferred shapes.
        parallelism: How to use the devices in the backend's mesh. `"data"` splits the batch over the first mesh axis,
            `"model"` splits the parameters over the last mesh axis, `"mixed"` does both.
        jit_options: A dict with any of three keys. `"donate_argnums"`: positions of the arguments of `evaluate` to
            donate in calls that compute gradients. `"xla_computation"`: True to keep the text of
            `pm.xla_computation`. `"static_argnums"`: has no effect.
        tpu_options: A dict with any of two keys. `"replicate_inputs"`: True to replicate each input on all devices of
            the mesh. `"allow_spmd"`: has no effect, because it is always true.
        static_shapes: True to reject inputs whose shapes differ from `shapes`, or from the first inputs. By default,
            an input with another shape causes a recompilation and a warning.
        optimizations: A dict with any of the keys `"fusion"`, `"buffer_reuse"` and `"layout_optimization"`, which are
            optimizations of XLA. `{"fusion": False}` disables fusion; the others are always on.
        constants: A dict from the name of an input to its value. These inputs become constants.
        frozen: Names of parameters or blocks that training must not change.
        trainable: Names of parameters, blocks or inputs to train.
        **unknown: Any other argument raises an `UnknownOptionError` that lists the valid arguments.

    Returns:
        The physical model. Its programs are compiled on their first run, or when a stage is requested.

    Raises:
        ShapeError: Shapes do not match, or cannot be split evenly over the devices. All problems are reported together.
        UnexpectedInputError: `shapes` or `constants` contains the name of an input that the model does not have.
        ConnectionError: `frozen` or `trainable` contains an unknown name.
        UnknownOptionError: An argument does not exist, or a value is invalid.
        UnknownOpError: The backend does not support a block.
        UnsupportedPrimitiveError: The backend runs emitted source, which does not support a block. If shapes are
            unknown, the first evaluation raises this error.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> pm = compile(Linear(dimension=64), shapes={"input": [32, 128]})
        >>> pm.evaluate(pm.randomize_params(), {"input": pm.backend.randn(32, 128)})["output"].shape
        (32, 64)
    """
    # Python's own error would not list the arguments.
    refuse_unknown("compile", unknown, compile)
    check_switch("jit", jit)
    check_switch("verbose", verbose)
    backend = JaxBackend() if backend is None else backend
    if isinstance(backend, EmittedBackend):
        unused = {
            # Rejected and not ignored: each of them changes how XLA compiles, and there is no XLA.
            "jit": jit, "parallelism": parallelism, "jit_options": jit_options, "tpu_options": tpu_options,
            "static_shapes": static_shapes, "optimizations": optimizations,
        }  # fmt: skip
        rejected = [name for name, value in unused.items() if value is not None]
        if rejected:
            raise UnknownOptionError(
                f"{type(backend).__name__} takes no option {rejected[0]!r}: it does not use XLA.",
                (("takes", "shapes, verbose, constants, frozen, trainable"),),
                f"ml.compile(model, ml.JaxBackend(), {rejected[0]}={unused[rejected[0]]!r})",
            )
        with jax.enable_x64(backend.default_dtype == "float64"):
            tracer = JaxBackend()
            # `JaxBackend(dtype="float64")` would switch JAX to float64 for the whole process.
            tracer.default_dtype = as_dtype(backend.default_dtype)
            traced = compile(
                model, tracer, shapes=shapes, verbose=verbose, constants=constants, frozen=frozen, trainable=trainable
            )
        emitted = EmittedModel(traced, backend)
        emitted.emit_forward()
        return emitted
    if not isinstance(backend, JaxBackend):
        raise UnknownOptionError(
            f"cannot compile for {backend!r}.", (("needs", "a backend that runs models"),), "ml.JaxBackend()"
        )
    graph, placement = graph_of(model), devices_of(model)
    if constants is not None:
        graph = with_constants(graph, constants)
    specs = input_specs(graph, shapes or {}, backend.default_dtype)
    # `shapes` may also contain the shape of a parameter, which then is not open.
    graph = with_param_shapes(graph, specs)
    if frozen or trainable:
        graph = with_training(graph, frozen, trainable, specs)
    inference = infer_for(backend, graph, specs)
    inference.raise_problems()
    if placement and backend.mesh is not None:
        raise UnknownOptionError(
            "the blocks of this model are placed on devices, so the backend cannot have a mesh.",
            (("placed", ", ".join(placement)), ("mesh", str(dict(backend.mesh.shape)))),
            "ml.compile(placed_model, ml.JaxBackend())  # or the model without place_model",
        )
    if placement and jit:
        notice("jit=True has no effect: a model that is placed on several devices runs op by op.")
    # A jitted program runs on one set of devices, so placed blocks run op by op.
    jitted = (backend.jit if jit is None else jit) and not placement
    options = read_options(backend, jitted, parallelism, jit_options, tpu_options, static_shapes, optimizations)
    compiled = PhysicalModel(graph, backend, inference, jitted, options, placement, declared_sizes(graph, specs))
    if verbose:
        print(shape_log(inference))
    return compiled


def graph_of(model: Model | LogicalGraph | Block) -> LogicalGraph:
    """Return the logical graph of a model, graph or block.

    Raises:
        UnknownOptionError: `model` is none of the three.
        ConnectionError, CycleError, NameTakenError, UnconnectedPortError: The graph is invalid.
    """
    if isinstance(model, LogicalGraph):
        check(model)
        return model
    block = model.block if isinstance(model, Model) else model
    if not isinstance(block, Block):
        raise UnknownOptionError(f"cannot compile {block!r}.", (("needs", "a model"),), "ml.compile(Linear(10))")
    return alone(block)


def shape_log(inference: Inference) -> str:
    """Return the inferred shapes as text, one line for each input, block and parameter."""
    lines = [f"{name:<24} {spec}" for name, spec in inference.inputs.items()]
    lines += [f"{path:<24} {next(iter(specs.outputs.values()), '')}" for path, specs in inference.blocks.items()]
    lines += [f"{parameter.name:<24} {parameter.spec}" for parameter in inference.parameters]
    return "\n".join(lines)
