"""What questions say about equations: their text, Python line and operands."""

from __future__ import annotations

from typing import Any

import jax

from mithril_nb.inspection import Inspection
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.equations import Site
from mithril_nb.teach.answers import spec_text


def sites_by_id(program: Inspection) -> dict[str, Site]:
    """Return JAX's own equations by id."""
    return {site.id: site for site in program.traced_program.sites}


def jaxpr_lines(program: Inspection) -> dict[str, str]:
    """Return the line of each equation in the text of the jaxpr by id, without indentation."""
    stage = program.stage("jaxpr")
    lines = stage.text.split("\n")
    return {instruction.id: lines[instruction.line - 1].strip() for instruction in stage.instructions}


def operands_text(equation: Equation) -> str:
    """Return the operands of an equation with shapes and dtypes."""
    return " and ".join(spec_text(spec) for spec in equation.inputs) or "no operands"


def named(equation: Equation) -> str:
    """Return how a question names an equation: its id and primitive, and its Python line if it is known."""
    origin = f" (from {equation.source})" if equation.source else ""
    return f"equation {equation.id}, `{equation.primitive}`{origin}"


def python_line(program: Inspection, equation: Equation) -> str:
    """Return the line of Python that created an equation; `""` if its text is unknown."""
    label, _, number = equation.source.rpartition(":")
    if not number.isdecimal():
        return ""
    code = program.cost("analytic").lines.code(label)
    return f"{equation.source}  {code[int(number) - 1].strip()}" if 0 < int(number) <= len(code) else ""


def code_of(program: Inspection, equation: Equation, line: str) -> str:
    """Return the lines that a question shows: the line of Python, and a line of the jaxpr."""
    return "\n".join(filter(None, (python_line(program, equation), line)))


def device_text(program: Inspection) -> str:
    """Return the device and the version of JAX, on which answers about compiled programs depend."""
    device: Any = program.device or jax.devices()[0]
    name = getattr(device, "device_kind", "") or getattr(device, "name", "") or str(device)
    return f"{'CPU' if name.lower() == 'cpu' else name}, JAX {jax.__version__}"
