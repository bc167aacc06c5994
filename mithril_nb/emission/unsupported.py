"""The error for a primitive that a backend has no source for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mithril_nb.emission.program import CALL, EmittedProgram, Function, Statement
from mithril_nb.errors import UnsupportedPrimitiveError
from mithril_nb.stages.records import format_source

NAMED_SIZE = "a size that is a name here"
_EXPECTED = {
    **dict.fromkeys(("debug_callback", "debug_print"), "a function without jax.debug.print and jax.debug.callback"),
    **dict.fromkeys(("pure_callback", "io_callback"), "a function of jax.numpy operations"),
    "pallas_call": "a function without a Pallas kernel",
    "shard_map": "a program of one device",
}
_RANDOM = frozenset(f"random_{name}" for name in "bits fold_in seed split unwrap wrap".split())


def unsupported(statement: Statement, backend: str, reason: str = "") -> UnsupportedPrimitiveError:
    """Return the error for a statement that a backend cannot express.

    Examples:
        >>> raise unsupported(Statement("fft", (), (), block="mix", source="net.py:3"), "c")
        Traceback (most recent call last):
        ...
        mithril_nb.errors.UnsupportedPrimitiveError: backend 'c' has no source for primitive 'fft' (block 'mix').
            line  net.py:3
            Try: ml.JaxBackend()  # runs every primitive
    """
    name, block = statement.primitive, statement.block
    advice = "ml.JaxBackend()  # runs every primitive"
    if backend in ("onnx", "jax"):
        advice = 'ml.export(model, "folder", to="stablehlo")  # contains every primitive'
    if reason == NAMED_SIZE:
        advice = "pass arrays or shapes with numbers instead of names of sizes."
    if name in _RANDOM:
        advice = "noise = jax.random.normal(key, shape)  # outside the model; pass it as an input"
    facts = [("unsupported", reason)] if reason else []
    if statement.source:
        facts.append(("line", format_source(statement.source)))
    if name in _EXPECTED:
        facts.append(("expected", _EXPECTED[name]))
    error = UnsupportedPrimitiveError(
        f"backend {backend!r} has no source for primitive {name!r}{f' (block {block!r})' if block else ''}.",
        tuple(facts),
        advice,
        block=block,
    )
    error.primitive, error.backend, error.source = name, backend, statement.source
    return error


def check_dtypes(functions: Sequence[Function], backend: str, is_known: Callable[[str], bool]) -> None:
    """Raise if a backend does not have the dtype of an array in functions, of which the last is the main one."""
    for statement in (statement for function in functions for statement in function.walk()):
        for operand in (*statement.inputs, *statement.outputs):
            if not is_known(operand.dtype) and operand.name != "_":  # an unused result needs no dtype
                raise unsupported(statement, backend, f"dtype {operand.dtype}")
    for operand in (*functions[-1].inputs, *functions[-1].outputs):  # a program may have no statements
        if not is_known(operand.dtype):
            raise UnsupportedPrimitiveError(
                f"backend {backend!r} has no arrays of dtype {operand.dtype}.",
                advice='ml.export(model, "folder", to="stablehlo")  # contains every dtype',
            )


def check_supported(program: EmittedProgram, backend: str, supported: Iterable[str]) -> None:
    """Raise for the first statement whose primitive is not in `supported`."""
    names = {*supported, CALL}
    for statement in program.walk():
        if statement.primitive not in names:
            raise unsupported(statement, backend)
