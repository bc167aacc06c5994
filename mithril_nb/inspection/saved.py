"""Read inspections from the JSON that `Inspection.to_json` or a saved page wrote. This needs no JAX and runs no code.

A page is the HTML of `Inspection.to_html`. Its export menu writes JSON in another format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from mithril_nb.errors import ModelFileError, short_repr
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection.exports import VERSION
from mithril_nb.stages.records import ROLES, Equation, Input, Instruction, Param, Stage

FORMAT = "mithril_nb.inspection"
PAGE = "mithril_nb.page"
"""Format of the JSON that a page exports: its stages, as columns, without shapes and costs."""
PAGE_VERSION = 1
"""Version of `PAGE`. The page writes it, in `page/files.ts`."""
_ADVICE = 'inspection.save("inspection.json")  # writes the file again'
_PAGE_ADVICE = 'inspection.to_html("page.html")  # its export menu writes the JSON again'
_ORIGINS = ("tagged", "inferred", "kernel")
Value = TypeVar("Value")


@dataclass(frozen=True)
class SavedInspection:
    """A program at every saved stage.

    It was saved by `Inspection.to_json`, or exported from a page: the HTML file of `Inspection.to_html`.

    Attributes:
        name: Name of the program.
        jax: Version of JAX that computed the stages; `"unknown"` if an old version of this package wrote the page.
        stages: The stages by name.
        equations: The equations; empty if the program has no jaxpr, or was exported from a page.
        inputs: The input arrays; empty if the program was exported from a page.
    """

    name: str
    jax: str
    stages: Mapping[str, Stage] = field(repr=False)
    equations: tuple[Equation, ...] = field(repr=False, default=())
    inputs: tuple[Input, ...] = field(repr=False, default=())


def is_saved_inspection(data: Any) -> bool:
    """Return whether data declares the format of `Inspection.to_dict`, or that of the JSON from a page."""
    return isinstance(data, dict) and data.get("format") in (FORMAT, PAGE)


def saved_inspection(data: Mapping[str, Any]) -> SavedInspection:
    """Read an inspection from the data of `Inspection.to_dict`, or from JSON exported from a page.

    A page is the HTML file of `Inspection.to_html`. It exports the texts of the stages and the blocks of their lines,
    but no shapes and equations.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> saved = saved_inspection(inspect(jnp.sin, jnp.zeros(3)).to_dict("jaxpr", passes=False))
        >>> saved.name, [one.primitive for one in saved.equations]
        ('sin', ['sin'])
    """
    is_page = data.get("format") == PAGE
    kind, latest, advice = ("page", PAGE_VERSION, _PAGE_ADVICE) if is_page else ("inspection", VERSION, _ADVICE)
    version = data.get("version")
    if type(version) is int and version > latest:  # other types are reported as broken below
        raise ModelFileError(
            f"this {kind} was written in version {version} of the format.",
            (("supported", f"versions 1 to {latest}"),),
            "pip install --upgrade mithril-nb",
        )
    try:
        if is_page:
            stages = {stage.name: stage for stage in map(_stage_of_page, _items(data["stages"]))}
            return SavedInspection(_text(data["name"]), _text(data.get("jax", "unknown")), stages)
        return SavedInspection(
            _text(data["name"]),
            _text(data["jax"]),
            {stage.name: stage for stage in map(_stage, _items(data["stages"]))},
            tuple(map(_equation, _items(data["equations"]))),
            tuple(map(_input, _items(data["inputs"]))),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        because = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ModelFileError(f"this {kind} is broken.", (("because", because),), advice) from error


def read_json(path: str | Path) -> Any:
    """Return the data of a JSON file."""
    try:
        return json.loads(Path(path).read_bytes())  # of bytes, json also detects UTF-16 and a byte order mark
    except OSError as error:
        raise ModelFileError(
            f"cannot read {str(path)!r}.",
            (("because", error.strerror or str(error)),),
            'ml.compare("before.json", "after.json")',
        ) from error
    except (ValueError, RecursionError) as error:
        because = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ModelFileError(f"{str(path)!r} is not valid JSON.", (("because", because),), _ADVICE) from error


def saved_program(path: str | Path) -> str:
    """Return the text of the program in a saved inspection: its StableHLO, or else its HLO."""
    data = read_json(path)
    if not is_saved_inspection(data):
        advice = f"ml.inspect(ml.load({str(path)!r}), shapes=shapes)  # if it is a model"
        raise ModelFileError(f"cannot inspect {str(path)!r}: it is not a saved inspection.", (), advice)
    saved = saved_inspection(data)
    candidates = (saved.stages[name] for name in ("stablehlo", "hlo") if name in saved.stages)
    text = next((stage.text for stage in candidates if stage.text and not stage.unavailable), "")
    if not text:
        stages = (("stages", ", ".join(saved.stages) or "none"),)
        raise ModelFileError(f"cannot inspect {str(path)!r}: it has no StableHLO or HLO.", stages, _ADVICE)
    return text


def _checked(value: Any, kind: Any, expected: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):  # in Python, True is an int
        raise TypeError(f"expected {expected}, found {short_repr(value, 40)}")
    return value


def _text(value: Any) -> str:
    return _checked(value, str, "a text")


def _number(value: Any) -> int:
    return _checked(value, int, "a whole number")


def _items(value: Any) -> Sequence[Any]:
    return _checked(value, (list, tuple), "a list")


def _pairs(value: Any) -> Mapping[str, Any]:
    return _checked(value, dict, "an object")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _items(value)))


def _optional(value: Any, read: Callable[[Any], Value]) -> Value | None:
    return None if value is None else read(value)


def _one_of(value: Any, choices: tuple[str, ...]) -> Any:
    if value is not None and value not in choices:  # instructions that XLA has added have no role
        raise ValueError(f"expected one of {', '.join(choices)}, found {short_repr(value, 40)}")
    return value


def _spec(value: Any) -> TensorSpec:
    dims = _items(value["shape"])  # a symbolic size is a text
    return TensorSpec(tuple(dim if isinstance(dim, str) else _number(dim) for dim in dims), _text(value["dtype"]))


def _param(value: Any) -> Param:
    if isinstance(value, list | tuple):
        return tuple(map(_param, _items(value)))
    return _checked(value, (bool, int, float, str, type(None)), "plain data")


def _stage(data: Any) -> Stage:
    return _made_stage(data, tuple(map(_instruction, _items(data["instructions"]))))


def _stage_of_page(data: Any) -> Stage:
    # A page stores each distinct value once, in `tables`; `columns` holds indices. Lines are differences to the line
    # before.
    columns, tables = _pairs(data["columns"]), _pairs(data["tables"])

    def column(name: str, read: Callable[[Any], Any]) -> list[Any]:
        table = list(map(read, _items(tables[name])))
        return [table[_index(at, len(table))] for at in _items(columns[name])]

    lines = accumulate(map(_number, _items(columns["step"])))
    rows = zip(
        lines,
        column("opcode", _text),
        column("equations", _texts),
        column("shares", lambda pairs: tuple((_text(path), float(share)) for path, share in _items(pairs))),
        column("role", lambda role: _one_of(role, ROLES)),
        column("origin", lambda origin: _one_of(origin, _ORIGINS)),
        map(_number, _items(columns["lines"])),
        column("transforms", _texts),
        column("source", _texts),
        column("library", _texts),
        strict=True,  # columns of different lengths raise a ValueError, reported as a broken file
    )
    instructions = tuple(
        Instruction(
            str(at), opcode, max(1, line), equations, shares, role, origin, max(1, count), transforms=transforms,
            source=source, library_source=library,
        )
        for at, (line, opcode, equations, shares, role, origin, count, transforms, source, library) in enumerate(rows)
    )  # fmt: skip
    return _made_stage(data, instructions)


# Python would accept a negative index, and count it from the end.
def _index(value: Any, end: int) -> int:
    if not 0 <= _number(value) < end:
        raise ValueError(f"expected an index below {end}, found {value}")
    return value


def _made_stage(data: Any, instructions: tuple[Instruction, ...]) -> Stage:
    text = _text(data["text"])
    count = text.removesuffix("\n").count("\n") + 1
    # A page would index the lines of the text by these numbers.
    last = max((instruction.line + instruction.lines - 1 for instruction in instructions), default=0)
    if last > count:
        raise ValueError(f"an instruction ends on line {last:,} of {count:,}")
    return Stage(_text(data["name"]), text, instructions, 0.0, _optional(data["unavailable"], _text))


def _instruction(data: Any) -> Instruction:
    return Instruction(
        _text(data["id"]),
        _text(data["opcode"]),
        max(1, _number(data["line"])),
        _texts(data["equations"]),
        tuple((path, float(share)) for path, share in _pairs(data["blocks"]).items()),
        _one_of(data["role"], ROLES),
        _one_of(data["origin"], _ORIGINS),
        max(1, _number(data["lines"])),
        _texts(data["operands"]),
        tuple(map(_spec, _items(data["shapes"]))),
        tuple((name, _text(value)) for name, value in _pairs(data["attributes"]).items()),
        _texts(data["transforms"]),
        _texts(data["source"]),
        _texts(data["library_source"]),
        # Left out if they are empty, because nearly all are.
        tuple(map(_number, _items(data.get("picks", [])))),
        _texts(data.get("results", [])),
        _texts(data.get("carried", [])),
    )


def _equation(data: Any) -> Equation:
    return Equation(
        _text(data["id"]),
        _text(data["primitive"]),
        _text(data["block"]),
        _one_of(data["role"], ROLES),
        tuple(map(_spec, _items(data["inputs"]))),
        tuple(map(_spec, _items(data["outputs"]))),
        _text(data["source"]),
        _optional(data["repeats"], _number),  # unknown in a loop that ends by a condition on values
        bool(data["is_call"]),
        tuple((name, _param(value)) for name, value in _pairs(data["params"]).items()),
        _one_of(data["origin"], _ORIGINS),
        bool(data["is_used"]),
        tuple(_checked(value, (int, float, str, type(None)), "a constant") for value in _items(data["constants"])),
        _texts(data["transforms"]),
        _text(data["library_source"]),
    )


def _input(data: Any) -> Input:
    return Input(_text(data["name"]), _spec(data["spec"]), _text(data["block"]), _optional(data["is_param"], bool))
