"""`ml.export`: write a model or a program to a folder that runs without mithril_nb."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mithril_nb.compilation.emitted import EmittedModel
from mithril_nb.emission.build import check_sizes
from mithril_nb.errors import MissingParameterError, StageUnavailableError, UnknownOptionError, listed
from mithril_nb.inspection import Inspection
from mithril_nb.interop.exporting import c_source, python_folder  # noqa: F401 - they register their folder
from mithril_nb.interop.exporting.folder import TAKES_NAMES, check_folder, format_of, write_folder
from mithril_nb.interop.exporting.stored import by_name, fill, shape_at, stored
from mithril_nb.models.saving.serialization import check_path
from mithril_nb.stages.inspect_options import fitting_numbers
from mithril_nb.stages.trace import traced
from mithril_nb.targets import inspect
from mithril_nb.targets.inspection import as_plain_call
from mithril_nb.targets.mithril_models import compiled_for, given_specs, has_names, is_mithril_model

_EXAMPLE = 'ml.export(model, "exported", to="numpy")'


def export(
    target: Any,
    folder: str | os.PathLike[str],
    *args: Any,
    to: str,
    params: Any = None,
    inputs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Write a folder with a program as source, its weights, and a test; the folder runs without mithril_nb.

    The test runs the program with stored inputs, and compares its results with those of JAX. The folder's README has
    the two commands to install or compile it, and to run the test. If an error is raised, nothing is written.

    Args:
        target: Anything that `ml.inspect` accepts, such as a model or a function, or an `Inspection`.
        folder: Path of the folder; its parent must exist. If it exists, it must be empty; see `overwrite`.
        *args: Arguments of the call, as in `ml.inspect`. Arrays among them become the stored inputs.
        to: `"numpy"`, `"torch"`, `"mlx"`, `"c"`, `"ggml"`, `"jax"` (a script that trains), `"stablehlo"`, `"onnx"`,
            `"iree"`, or a format that `mithril_nb.interop.exporting.export_format` registered.
        params: Parameters by name, dotted or nested. By default, a model has its initial parameters for seed 0, a
            module of Flax, Equinox or Haiku has its own parameters, and a function has the parameters in `args`.
        inputs: Arrays by the name of a model's input, or of a function's argument; by default `args`. If only the shape
            of an input is known, a random placeholder is stored, the same at each export.
        overwrite: If true, replace a folder that an earlier `ml.export` wrote. Other folders are never replaced.
        **options: Options of `ml.inspect`, such as `program="forward+backward"` or `shapes={"input": [32, 784]}`.

    Returns:
        The path of the folder.

    Raises:
        UnknownOptionError: `to` or an option is unknown, `folder` is not a path, or `target` is already compiled or
            inspected, and takes no options.
        UnsupportedPrimitiveError: The format cannot express a primitive.
        ShapeError: Shapes are unknown, or arrays have other shapes.
        MissingParameterError, UnexpectedInputError: Names are missing or unknown.
        ModelFileError: `folder` is a file, contains files (see `overwrite`), or cannot be written.
        StageUnavailableError: An inspection has no jaxpr, because it was read from a later stage.
        DataError: An array has a dtype that safetensors does not support.
        UnavailableBackendError: The format needs a package that is not installed.

    Examples:
        >>> import tempfile
        >>> import mithril_nb as ml
        >>> model = ml.models.MLP(4, [3], 2)
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     folder = ml.export(model, f"{parent}/classifier", to="numpy", shapes={"input": [8, 4]})
        ...     sorted(path.name for path in folder.iterdir() if path.suffix == ".py")
        ['model.py', 'test.py']
    """
    # All checks come before the trace, which may take minutes.
    check_path(folder, "export to", _EXAMPLE)
    write = format_of(to)
    check_folder(folder, overwrite)
    inspection, values = _program(target, args, options, params is not None)
    program = inspection.traced_program
    if to not in TAKES_NAMES:
        check_sizes(program)
    fill_from(program, values, params, inputs)
    stored_program = stored(program, values, _sizes(inspection, values))
    return write_folder(folder, write(stored_program), stored_program)


def fill_from(program: traced.Program, values: list[Any], params: Any, inputs: Any) -> None:
    """Replace items of `values`, the values of the program's inputs, by the arrays in `params` and `inputs`."""
    own = list(enumerate(program.trace.inputs))
    if params is not None:
        fill(values, [(at, _name(leaf)) for at, leaf in own if program.inputs[at].is_param], params, "params", True)
    if inputs is not None:
        rest = [(index, leaf) for index, leaf in own if not program.inputs[index].is_param]
        is_model = any(leaf.argument == "inputs" and leaf.keys for _, leaf in rest)
        chosen = [(index, leaf) for index, leaf in rest if not is_model or leaf.argument == "inputs"]
        names = [(index, _name(leaf) if is_model else ".".join((leaf.argument, *leaf.keys))) for index, leaf in chosen]
        fill(values, names, inputs, "inputs", False)


def _name(leaf: Any) -> str:
    return ".".join(leaf.keys) or leaf.argument


def _sizes(inspection: Inspection, values: Sequence[Any]) -> dict[str, int]:
    trace = inspection.traced_program.trace
    numbers = fitting_numbers(trace.sizes_without_numbers, inspection.check_sizes)
    for leaf, value in zip(trace.inputs, values, strict=True):
        # Of the numbers that fit, those of the arrays: the stored inputs must fit too.
        if value is not None and len(np.shape(value)) == len(leaf.spec.shape):
            pairs = zip(leaf.spec.shape, np.shape(value), strict=True)
            numbers |= {str(dim): number for dim, number in pairs if dim in numbers}
    return numbers


def _program(
    target: Any, args: tuple[Any, ...], options: dict[str, Any], has_params: bool
) -> tuple[Inspection, list[Any]]:
    if isinstance(target, Inspection):
        _refuse_options(args, options)
        return _valued(target, {})
    if isinstance(target, EmittedModel):
        program = options.pop("program", "forward")
        _refuse_options(args, options)
        initial = {} if has_params else _numpy(target, target.randomize_params(0))
        return _valued(target.inspect(program), {"params": initial, "state": _numpy(target, target.initial_state())})
    if not is_mithril_model(target):
        inspection = inspect(target, *args, **options)
        program = _traced(inspection)
        # A module of another library becomes a function of its parameters too, so the leaves do not match.
        leaves = jax.tree.leaves(as_plain_call(target, args, options)[1])
        if len(leaves) != len(program.inputs):
            return inspection, _values_of_module(program, target, args, options, has_params)
        return inspection, list(map(_concrete, leaves))
    # Inputs of a model may be keywords, beside the options of `ml.inspect`.
    named = {name: value for name, value in options.items() if hasattr(value, "dtype")} | (
        options.pop("kwargs", None) or {}
    )
    shapes = options.pop("shapes", None)
    rest = {name: value for name, value in options.items() if name not in named}
    specs, dtypes = given_specs(target, args, named, shapes)
    if has_names(specs.values()):
        inspection = inspect(target, *args, shapes=shapes, **named, **rest)
        numbers = fitting_numbers(_traced(inspection).trace.sizes_without_numbers, inspection.check_sizes)
        specs = {name: shape_at(shape, numbers) for name, shape in specs.items()}
    else:
        inspection = None
    model = compiled_for(target, specs, dtypes)
    values: dict[str, Any] = {"inputs": {**dict(zip(model.input_names, args, strict=False)), **named}}
    values["params"] = {} if has_params else model.randomize_params(0)
    values["state"] = model.initial_state()
    if inspection is not None:
        return _valued(inspection, values)
    if not rest or rest == {"program": "forward"}:
        return _valued(model.inspect("forward"), values)  # unlike `inspect`, it adds a random key if needed
    return _valued(inspect(model, **rest), values)


def _valued(inspection: Inspection, values: Mapping[str, Mapping[str, Any]]) -> tuple[Inspection, list[Any]]:
    program = _traced(inspection)
    arguments = [values.get(leaf.argument, {}).get(".".join(leaf.keys)) for leaf in program.trace.inputs]
    return inspection, list(map(_concrete, arguments))


def _values_of_module(
    program: traced.Program, module: Any, args: tuple[Any, ...], options: Mapping[str, Any], has_params: bool
) -> list[Any]:
    variables = options.get("variables")
    # A bound or decorated method, such as `jax.vmap(module.encode)`, leads to the module that has the parameters.
    while (inner := getattr(module, "__wrapped__", None) or getattr(module, "__self__", None)) is not None:
        module = inner
    parts = [variables, *variables.values()] if isinstance(variables, Mapping) else [module]
    own = {name: value for part in parts for name, value in by_name(part).items()}
    leaves, arguments = program.trace.inputs, jax.tree.leaves((args, options.get("kwargs") or {}))
    first = len(leaves) - len(arguments)  # parameters come first
    shapes = [(np.shape(value), leaf.spec.shape) for value, leaf in zip(arguments, leaves[first:], strict=False)]
    if first < 0 or any([*map(str, shape)] != [*map(str, expected)] for shape, expected in shapes):
        first, arguments = len(leaves), []
    values = [own.get(_name(leaf)) for leaf in leaves[:first]]
    missing = [
        leaf.name
        for leaf, value, program_input in zip(leaves, values, program.inputs, strict=False)
        if value is None and not (program_input.is_param and has_params) and not leaf.spec.dtype.startswith("key<")
    ]
    if missing:
        raise MissingParameterError(
            "ml.export does not find the parameters of the module.",
            (("missing", listed(missing)),),
        )
    return [*values, *map(_concrete, arguments)]


def _concrete(value: Any) -> Any:
    return None if isinstance(value, jax.ShapeDtypeStruct) else value


def _traced(inspection: Inspection) -> traced.Program:
    if inspection.given is not None:
        raise StageUnavailableError(
            f"cannot export {inspection.name!r}: its inspection has no jaxpr.",
            (("because", "ml.inspect received a lowered or compiled program"),),
        )
    return inspection.traced_program


def _numpy(model: EmittedModel, params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: model.backend.to_numpy(array) for name, array in params.items()}


def _refuse_options(args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    if args or options:
        subject = f"option {next(iter(options))!r}" if options else "arguments"
        raise UnknownOptionError(
            f"ml.export takes no {subject} for a program that is compiled or inspected already.",
            (("takes", "to, params, inputs, overwrite"),),
        )
