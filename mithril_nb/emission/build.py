"""Build the program that emitters print: read a traced program, clean it up, divide it into functions, name arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mithril_nb.emission.blocks import Divided
from mithril_nb.emission.cleanup import clean, narrow
from mithril_nb.emission.naming.namer import Namer
from mithril_nb.emission.program import EmittedProgram, Function, Statement, Value
from mithril_nb.emission.reading import read
from mithril_nb.emission.sizes import NamedSize
from mithril_nb.errors import StageUnavailableError
from mithril_nb.stages.patterns import DETACH
from mithril_nb.stages.trace import traced


def build(
    program: traced.Program,
    reserved: Iterable[str] = (),
    keeps_gradients: bool = False,
    fuse: Callable[[Function], Function] = lambda function: function,
    takes_names: bool = False,
) -> EmittedProgram:
    """Return a traced program as functions of statements, in which all arrays have names.

    Args:
        program: The program.
        reserved: Names that the emitter uses itself, such as names of helper functions.
        keeps_gradients: If true, keep `stop_gradient` of float arrays, because the library may differentiate the
            source. It has no effect on a program that contains its own gradients.
        fuse: A function that takes a `Function`, also the body of a loop or branch, and returns it with calls of
            library functions, such as `layer_norm`, instead of statements that compute the same result.
        takes_names: If true, sizes of axes of inputs may be names, such as `"batch"`, which the source can read.
    """
    check_sizes(program, takes_names)
    trace = program.trace
    main, constants = flat_program(program, keeps_gradients, {*reserved, *trace.arguments})
    params = {value for value, leaf in zip(main.inputs, program.inputs, strict=True) if leaf.is_param}
    reserved = {*reserved, *(str(size) for value in main.inputs for size in value.shape if isinstance(size, NamedSize))}
    return Namer(main, Divided(main, constants, params), constants, params, program, reserved, fuse).program()


def flat_program(
    program: traced.Program, keeps_gradients: bool = False, reserved: Iterable[str] = ()
) -> tuple[Function, dict[Value, Any]]:
    """Return a traced program as one function, and the arrays of its constants. See `build` for the options."""
    main, constants = read(program, reserved)
    # A train step contains its gradients, and `detach` in every block would only be noise.
    if keeps_gradients and not any(statement.role == "backward" for statement in main.walk()):
        main = _with_detach(main)
    # `narrow` needs the final uses of each value, and leaves reshapes that the second `clean` merges.
    return clean(narrow(clean(main))), constants


def check_sizes(program: traced.Program, takes_names: bool = False) -> None:
    """Raise if a size of a program is a name; with `takes_names`, only if it is not the size of an input's axis."""
    read = {size for leaf in program.trace.inputs for size in leaf.spec.shape} if takes_names else set()
    sizes = [name for name in program.trace.sizes_without_numbers if name not in read]
    if sizes:
        raise StageUnavailableError(
            f"no source for program {program.trace.name!r}: it needs a number for each size.",
            (("no number", ", ".join(sizes)),),
            f'pass numbers for the sizes, such as {sizes[0]}=32, or export to "stablehlo".',
        )


def _with_detach(function: Function) -> Function:
    # `clean` removes `stop_gradient`, and keeps `detach`.

    def detached(statement: Statement) -> Statement:
        statement = replace(statement, bodies=tuple(map(_with_detach, statement.bodies)))
        is_detach = statement.primitive == "stop_gradient" and isinstance(statement.operand, Value)
        return replace(statement, primitive=DETACH) if is_detach and "float" in statement.operand.dtype else statement

    return replace(function, statements=tuple(map(detached, function.statements)))
