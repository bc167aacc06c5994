"""Build the program that emitters print: read a traced program, clean it up, divide it into functions, name arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mithril_nb.emission.blocks import divide
from mithril_nb.emission.cleanup import clean
from mithril_nb.emission.naming.namer import Namer
from mithril_nb.emission.narrowing import narrow
from mithril_nb.emission.program import Function, Program, Statement, Value
from mithril_nb.emission.reading import read
from mithril_nb.emission.sizes import Size
from mithril_nb.errors import StageUnavailableError
from mithril_nb.stages.patterns import DETACH
from mithril_nb.stages.trace import traced


def build(
    program: traced.Program,
    reserved: Iterable[str] = (),
    keeps_gradients: bool = False,
    fuse: Callable[[Function], Function] = lambda function: function,
    takes_names: bool = False,
) -> Program:
    """Return a traced program as functions of statements, in which all arrays have names.

    Args:
        program: The program.
        reserved: Names that the emitter uses itself, such as names of helper functions.
        keeps_gradients: If true, keep `stop_gradient` of float arrays, because the library may differentiate the
            source. It has no effect on a program that contains its own gradients.
        fuse: A function that takes a `Function`, also the body of a loop or branch, and returns it with calls of
            library functions, such as `layer_norm`, instead of statements that compute the same result.
        takes_names: See `check_sizes`.

    Raises:
        StageUnavailableError: A size is a name, such as `"batch"`, and not a number; see `check_sizes`.
    """
    check_sizes(program, takes_names)
    trace = program.trace
    main, constants = flat_program(program, keeps_gradients, {*reserved, *trace.arguments})
    are_params = [one.is_param for one in program.inputs]
    params = {value for value, is_param in zip(main.inputs, are_params, strict=True) if is_param}
    divided = divide(main, constants, params)
    reserved = {*reserved, *(str(size) for value in main.inputs for size in value.shape if isinstance(size, Size))}
    namer = Namer(main, divided, constants, params, trace.outputs, reserved, program.ports, program.kinds, fuse)
    return namer.program(trace.name, trace.inputs)


def flat_program(
    program: traced.Program, keeps_gradients: bool = False, reserved: Iterable[str] = ()
) -> tuple[Function, dict[Value, Any]]:
    """Return a traced program as one function, and the arrays of its constants. See `build` for the options."""
    main, constants = read(program, reserved)
    if keeps_gradients and not any(one.role == "backward" for one in main.walk()):
        main = _with_detach(main)
    return clean(narrow(clean(main))), constants


def check_sizes(program: traced.Program, takes_names: bool = False) -> None:
    """Check that every size of a program is a number.

    Args:
        program: The program.
        takes_names: If true, a name is allowed if it is the size of an axis of an input, where the source can read it.

    Raises:
        StageUnavailableError: A size is a name, such as `"batch"`, that is not allowed.
    """
    read = {size for leaf in program.trace.inputs for size in leaf.spec.shape} if takes_names else set()
    sizes = [name for name in program.trace.sizes_without_numbers if name not in read]
    if sizes:
        raise StageUnavailableError(
            f"no source for program {program.trace.name!r}: it needs a number for each size.",
            (("no number", ", ".join(sizes)),),
            f'pass numbers for the sizes, such as {sizes[0]}=32, or export to "stablehlo".',
        )


def _with_detach(function: Function) -> Function:
    """Return a function with `detach` instead of `stop_gradient` of float arrays. `clean` removes only the latter."""

    def kept(one: Statement) -> Statement:
        one = replace(one, bodies=tuple(map(_with_detach, one.bodies)))
        is_float = one.primitive == "stop_gradient" and "float" in one.inputs[0].dtype
        return replace(one, primitive=DETACH) if is_float and isinstance(one.inputs[0], Value) else one

    return replace(function, statements=tuple(map(kept, function.statements)))
