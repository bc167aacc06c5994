"""The commands `show`, `report`, `compare`, `find` and `export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mithril_nb.emission.stage  # noqa: F401 - registers its stages
from mithril_nb.cli.target import PROGRAMS, Target, call_of, find_target, inspection_of, shapes_of
from mithril_nb.cli.terminal import FAILED, check_output, complain, say, say_json, write_output
from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.errors import (
    Diagnostic,
    MithrilError,
    StageUnavailableError,
    UnknownBlockError,
    UnknownOptionError,
    listed,
)
from mithril_nb.graph.query import parse_query
from mithril_nb.models.model import Model
from mithril_nb.stages.stage_kinds import STAGE_KINDS

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages import Stage
    from mithril_nb.stages.records import Instruction


OTHERS = ("cost", "source")
"""Values of `--stage` that are not stages: the cost, and the Python code that builds a model."""


def show_target(options: argparse.Namespace) -> int:
    """Print the requested view of the target, and return the exit code."""
    from mithril_nb.stages.program_stages import first_stage

    options.stage = options.stage or ("cost" if options.by else "graph")
    target = find_target(options.target, bool(options.arg))
    is_part = bool(options.block or options.role)
    is_other = options.graph or options.passes or options.number is not None
    _check_options(options, is_part, is_other)  # before a compilation, which may take long
    if target.graph is not None and not (is_part or is_other):
        if options.stage == "graph":
            return _show_graph(target, shapes_of(options.shape), options.json)
        if options.stage == "source":
            from mithril_nb.models.saving.formats import to_source

            source = to_source(target.graph)
            if options.json:
                say_json({"source": source})
            else:
                say(source)
            return 0
    inspection = inspection_of(target, options)
    if options.passes:
        _show_passes(inspection, options.json)
    elif options.number is not None:
        _show_pass(inspection, options.number, options.json)
    elif options.graph or (options.stage == "graph" and inspection.given is not None and not is_part):
        stage = first_stage(inspection) if options.stage in ("graph", "source", "cost") else options.stage
        _show_stage_graph(inspection, stage, options.json)
    elif options.stage == "cost" and options.by in ("line", "role"):
        cost = inspection.cost()
        table = cost.by_role if options.by == "role" else cost.by_line
        if not options.json:
            say(str(table))
        elif options.by == "role":
            say_json({role: figures.to_dict() for role, figures in cost.by_role.items()})
        else:
            say_json(cost.by_line.to_dict())
    elif options.stage == "cost":
        _show_cost(inspection, options.json)
    elif options.short:
        _show_short(inspection, options)
    else:
        _show_stage(inspection, "python" if options.stage == "source" else options.stage, options)
    return 0


def _check_options(options: argparse.Namespace, is_part: bool, is_other: bool) -> None:
    if options.stage not in (*STAGE_KINDS, *OTHERS):
        known = ", ".join((*STAGE_KINDS, *OTHERS))
        raise UnknownOptionError(f"unknown stage {options.stage!r}.", (("known", known),))
    if is_part and (is_other or options.stage in OTHERS):
        raise UnknownOptionError(
            "--block and --role select lines of the text of a stage.", (("stages with lines", ", ".join(STAGE_KINDS)),)
        )
    if options.by and (is_other or options.stage != "cost"):
        raise UnknownOptionError("--by needs --stage cost.")
    if options.short and (is_other or options.stage != "hlo"):
        raise UnknownOptionError("--short needs --stage hlo.")


# Views of a model


def _show_graph(target: Target, shapes: Mapping[str, Sequence[int | str]], as_json: bool) -> int:
    from mithril_nb.models.naming import input_specs
    from mithril_nb.viz.diagrams.picture import graph_text, picture

    graph = target.graph
    assert graph is not None
    specs = input_specs(graph, shapes)
    drawing = picture(graph, specs, expanded={path for path, node in graph.walk() if node.block.graph})
    if as_json:
        problems = [problem.to_dict() for problem in drawing.problems]
        say_json({"graph": drawing.diagram.to_dict(), "problems": problems})
    else:
        say(graph_text(graph, drawing.nested))
    complain(drawing.problems)
    return FAILED if drawing.problems else 0


# Views of every program


def _show_cost(inspection: Inspection, as_json: bool) -> None:
    from mithril_nb import cost
    from mithril_nb.stages.program_stages import first_source
    from mithril_nb.viz.costs.tables.table import cost_text

    costs = cost.costs_of(inspection)
    data = costs.to_dict(rows=as_json)
    if as_json:
        say_json(data)
    elif costs:
        say(cost_text(data))
    if not costs:  # after the JSON, which states the reasons of all sources
        cost.cost_of(inspection, first_source(inspection))  # raises the reason


def _show_stage_graph(inspection: Inspection, name: str, as_json: bool) -> None:
    from mithril_nb.viz.costs.overlays import stage_shares
    from mithril_nb.viz.diagrams.stages import stage_graph_text

    _give_up_if_unavailable(inspection.stage(name))
    graph = inspection.graph(name)
    if as_json:
        nodes = [{**asdict(node), "hidden_by": graph.hidden.get(node.key)} for node in graph.nodes.values()]
        say_json({"stage": name, "nodes": nodes, "flows": [[source, target] for source, target, _ in graph.flows]})
    else:
        say(stage_graph_text(graph, shares=stage_shares(inspection, graph)))


def _show_passes(inspection: Inspection, as_json: bool) -> None:
    from mithril_nb.display import columns

    passes = inspection.passes
    summaries = [
        {"number": xla_pass.number, "name": xla_pass.name, "pipeline": xla_pass.pipeline, **_sizes(xla_pass.diff)}
        for xla_pass in passes
    ]
    if as_json:
        say_json(summaries)
        return
    rows = [("pass", "name", "pipeline", "lines added", "lines removed")]
    rows += [tuple(str(value) for value in summary.values()) for summary in summaries]
    say(columns(rows, right={0, 3, 4}))


def _sizes(diff: str) -> dict[str, int]:
    lines = diff.split("\n")
    return {name: sum(line.startswith(sign) for line in lines) for name, sign in (("added", "+"), ("removed", "-"))}


def _show_pass(inspection: Inspection, number: int, as_json: bool) -> None:
    passes = inspection.passes
    if not 0 <= number < len(passes):
        raise UnknownOptionError(f"pass {number} does not exist.", (("passes", f"0 to {len(passes) - 1}"),))
    xla_pass = passes[number]
    if as_json:
        data = {"number": number, "name": xla_pass.name, "pipeline": xla_pass.pipeline}
        say_json({**data, "before": xla_pass.before, "after": xla_pass.after, "diff": xla_pass.diff})
    else:
        say(f"{xla_pass}\n{xla_pass.diff}")


# Stages


def _show_stage(inspection: Inspection, name: str, options: argparse.Namespace) -> None:
    stage = inspection.stage(name)
    is_part = bool(options.block or options.role)
    if is_part:
        _give_up_if_unavailable(stage)
    chosen = _chosen(inspection, stage, options)
    if is_part and not chosen:
        raise _nothing_chosen(stage, options)
    if options.json:
        from mithril_nb.inspection.exports import stage_data

        say_json(stage_data(replace(stage, instructions=tuple(chosen))))
    elif stage.text:
        numbers = None
        if is_part:
            owner: dict[int, str] = {}
            for instruction in stage.instructions:
                owner |= dict.fromkeys(range(instruction.line, instruction.line + instruction.lines), instruction.id)
            ids = {instruction.id for instruction in chosen}
            numbers = [number for number, id in sorted(owner.items()) if id in ids]
        lines = stage.text.rstrip("\n").split("\n")
        # A pipe or a file gets the text of the stage, byte for byte.
        if sys.stdout.isatty():
            _print_striped(stage, lines, numbers)
        else:
            say(stage.text if numbers is None else _numbered(lines, numbers))
    _give_up_if_unavailable(stage)


def _show_short(inspection: Inspection, options: argparse.Namespace) -> None:
    from mithril_nb.stages.hlo.readable import readable

    stage = inspection.stage("hlo")
    _give_up_if_unavailable(stage)
    short = readable(stage.text)
    lines = short.text.rstrip("\n").split("\n")
    is_part = bool(options.block or options.role)
    chosen = {instruction.id for instruction in _chosen(inspection, stage, options)}
    if is_part and not chosen:
        raise _nothing_chosen(stage, options)
    # In the short form, a line may contain several instructions. It is printed if its first instruction is chosen.
    firsts: dict[int, str] = {}
    for number, name in short.lines:
        firsts.setdefault(number, name)
    numbers = [number for number, name in firsts.items() if name in chosen] if is_part else None
    if options.json:
        rows = [{"line": number, "id": name} for number, name in short.lines if name in chosen]
        say_json({"name": stage.name, "text": short.text, "lines": rows})
    else:
        say(short.text if numbers is None else _numbered(lines, sorted(numbers)))


def _chosen(inspection: Inspection, stage: Stage, options: argparse.Namespace) -> list[Instruction]:
    from mithril_nb.stages.program_stages import known_equations

    if not (options.block or options.role):
        return list(stage.instructions)

    def is_chosen(path: str, role: str | None) -> bool:
        is_inside = not options.block or path == options.block or path.startswith(f"{options.block}/")
        return is_inside and options.role in (None, role)

    equations = {equation.id for equation in known_equations(inspection) if is_chosen(equation.block, equation.role)}
    return [
        instruction
        for instruction in stage.instructions
        if not equations.isdisjoint(instruction.equations)
        or any(is_chosen(path, instruction.role) for path in instruction.blocks)
    ]


def _nothing_chosen(stage: Stage, options: argparse.Namespace) -> MithrilError:
    paths = sorted({path for instruction in stage.instructions for path, _ in instruction.shares})
    roles = sorted({instruction.role for instruction in stage.instructions if instruction.role})
    filters = " and ".join(
        f"{word} {value!r}" for word, value in (("block", options.block), ("role", options.role)) if value
    )
    return UnknownBlockError(
        f"no line of stage {stage.name!r} has {filters}.", (("blocks", listed(paths)), ("roles", listed(roles)))
    )


def _give_up_if_unavailable(stage: Stage) -> None:
    if stage.unavailable is not None:
        reason, _, where = stage.unavailable.partition("\n")
        message = f"{stage.name} is not available: {reason.rstrip('.')}." + (f"\n    {where.strip()}" if where else "")
        raise MithrilError(Diagnostic(message, code="StageUnavailableError"))


def _numbered(lines: Sequence[str], numbers: Sequence[int]) -> str:
    width = len(str(max(numbers, default=0)))
    return "\n".join(f"{number:>{width}}  {lines[number - 1]}" for number in numbers)


def _print_striped(stage: Stage, lines: Sequence[str], numbers: Sequence[int] | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from mithril_nb.viz.pages.listing import hues_seen
    from mithril_nb.viz.palette import DARK_HUES, hue_of
    from mithril_nb.viz.text import visible

    hues, console = hues_seen([stage]), Console(highlight=False)  # rich would color numbers and quotes in the text
    stripes: dict[int, str] = {}
    for instruction in stage.instructions:
        if instruction.shares:
            hue = hue_of(max(instruction.shares, key=lambda pair: pair[1])[0], hues)
            # Instructions of the loss and the optimizer belong to no block and have no hue.
            style = "dim" if hue is None else DARK_HUES[hue]
            stripes |= dict.fromkeys(range(instruction.line, instruction.line + instruction.lines), style)
    for block, hue in hues.items():
        console.print(Text("▌", style=DARK_HUES[hue]) + Text(f"{visible(block) or UNATTRIBUTED_LABEL} "), end="")
    console.print()
    # `soft_wrap` leaves long lines to the terminal: rich would break them, and copied text would have the breaks.
    width = len(str(len(lines)))
    for number in range(1, len(lines) + 1) if numbers is None else numbers:
        stripe = Text("▌", style=stripes[number]) if number in stripes else Text(" ")
        count = "" if numbers is None else f"{number:>{width}} "
        line = Text.assemble((count, "dim"), stripe, visible(lines[number - 1]))
        console.print(line, soft_wrap=True)


def write_report(options: argparse.Namespace) -> int:
    """Write the report of the target."""
    target = find_target(options.target, bool(options.arg))
    check_output(options.output)
    inspection = inspection_of(target, options)
    page = inspection.to_html() if target.graph is None else _page(target, inspection, options)
    write_output(options.output, page)
    return 0


def _page(target: Target, inspection: Any, options: argparse.Namespace) -> str:
    # LLVM IR and machine code are omitted: they have thousands of lines even for a small model, and would make the page
    # large and slow to open.
    from mithril_nb import cost
    from mithril_nb.models.naming import input_specs
    from mithril_nb.models.saving.formats import to_source
    from mithril_nb.viz.diagrams.picture import picture
    from mithril_nb.viz.pages.inspection import FIRST
    from mithril_nb.viz.pages.report import report_html

    graph = target.graph
    assert graph is not None
    # A stage that fails contains the reason, so a program that does not compile has a report too.
    stages = [inspection.stage(name) for name in FIRST]
    data: dict[str, Any] | None = None
    shares: dict[str, Any] = {}
    with suppress(StageUnavailableError):  # the program cannot be traced; its stages contain the reason
        blocks = cost.cost_of(inspection).to_dict(rows=False)["by_block"]
        shares = {path: block["share"] for path, block in blocks.items()}
        data = cost.costs_of(inspection).to_dict()
    drawing = picture(graph, input_specs(graph, shapes_of(options.shape)), shares)
    title = f"{target.title}: {PROGRAMS[options.program or options.default_program]}"
    return report_html(title, drawing.diagram, stages, data, source=to_source(graph), problems=drawing.problems)


COMPARISON_FORMATS = ("text", "html", "json")


def compare_targets(options: argparse.Namespace) -> int:
    """Print the differences, or write them to a file."""
    from mithril_nb.analysis.compare import compare

    if options.output:
        check_output(options.output)
    comparison = compare(_side(options.before, options), _side(options.after, options))
    for name in options.stage:
        if name not in comparison.stages:
            common = ", ".join(comparison.stages) or "none; models need --shape to have stages"
            raise UnknownOptionError(f"both sides need the stage {name!r}.", (("both have", common),))
    if options.format == "json":
        return _write(options, comparison.to_json(*options.stage), lambda: say_json(comparison.to_dict(*options.stage)))
    if options.format == "html":
        page = comparison.to_html(stages=options.stage or None)
        # Not `say`, which would escape characters of the page.
        return _write(options, page, lambda: print(page, end=""))
    parts = [str(comparison)] if not options.stage else []
    for name in options.stage:
        stage = comparison.stage(name)
        lines = "\n".join(stage.diff_lines())
        parts.append(f"{name}: {stage.unavailable or stage.summary}" + (f"\n{lines}" if lines else ""))
    text = "\n\n".join(parts)
    return _write(options, f"{text}\n", lambda: say(text))


def _side(text: str, options: argparse.Namespace) -> object:
    from mithril_nb.inspection.saved import is_saved_inspection, read_json

    path = Path(text)
    if path.suffix.lower() == ".json" and path.is_file() and is_saved_inspection(read_json(path)):
        return path
    target = find_target(text, bool(options.arg))
    if target.graph is not None and not (options.arg or options.program or shapes_of(options.shape)):
        return path if path.suffix.lower() == ".json" else target.value  # compared by blocks, without compiling
    return inspection_of(target, options)


def _write(options: argparse.Namespace, text: str, show: Callable[[], None]) -> int:
    if options.output:
        write_output(options.output, text)
    else:
        show()
    return 0


def find_matches(options: argparse.Namespace) -> int:
    """Print the matches: blocks of a model without shapes, else equations or instructions of a program."""
    from mithril_nb.viz.search_results import result_text

    query = parse_query(options.query)  # before a compilation, which may take long
    target = find_target(options.target, bool(options.arg))
    # These keys need no shapes, so the model is not traced.
    is_named = not {*query.keys} - {"block", "kind"}
    needs_program = options.arg or options.program or options.stage or shapes_of(options.shape)
    if target.graph is not None and is_named and not needs_program:
        matches = Model.of(target.graph, target.title).find(options.query)
    else:
        matches = inspection_of(target, options).find(options.query, options.stage)
    if options.json:
        say_json(matches.to_dict())
    else:
        say(result_text(matches, None))
    return 0


EXPORT_FORMATS = ("numpy", "torch", "mlx", "c", "ggml", "jax", "stablehlo", "onnx", "iree")


def export_target(options: argparse.Namespace) -> int:
    """Write the folder of the target."""
    target = find_target(options.target, bool(options.arg))
    args, keywords = call_of(target, options)
    from mithril_nb.interop import load_params
    from mithril_nb.interop.exporting import export

    params = None if options.params is None else load_params(options.params)
    folder = export(
        target.value, options.output, *args, to=options.to, params=params, overwrite=options.overwrite, **keywords
    )
    files = [path for path in folder.iterdir() if path.is_file()]
    print(f"wrote {folder}, {len(files)} files, {sum(path.stat().st_size for path in files) / 1000:.0f} kB")
    return 0
