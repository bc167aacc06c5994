"""The terminal twin: `mithril-nb lab | show | report` print and write what the workbench shows; `launch` trains."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import (
    Diagnostic,
    LaunchError,
    MithrilError,
    ModelFileError,
    UnavailableBackendError,
    UnknownOptionError,
)

if TYPE_CHECKING:
    from mithril_nb.models import Model
    from mithril_nb.stages import Inspection, Stage

STAGES = ("graph", "jaxpr", "stablehlo", "hlo", "cost", "source")
PROGRAMS = {"forward": "forward", "forward+backward": "forward+backward", "train-step": "train step"}
NOTEBOOK = Path("notebooks") / "01_build_and_train.ipynb"
FAILED = 2
"""Exit code when something that the person asked for cannot be done; also argparse's own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What was typed after `mithril-nb`; by default what this process was started with.

    Returns:
        The exit code: 0, or 2 with a message on stderr.

    Examples:
        >>> main(["show", "no-such-file.json"])
        2
    """
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except MithrilError as error:
        _complain(error.diagnostics)
    except BrokenPipeError:  # `mithril-nb show ... | head` is no error; Python must not notice it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a person at a terminal is told what failed; the traceback is one option away
        if options.debug:
            traceback.print_exc()
        else:
            kind = type(error).__name__
            _complain([Diagnostic(str(error).strip() or kind, (), "the same with --debug, for where.", code=kind)])
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mithril-nb", description="Compose a model, watch it become machine code, see what it costs, train it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    lab = commands.add_parser("lab", help="open JupyterLab on the builder notebook")
    lab.add_argument("notebook", nargs="?", help=f"the notebook (default: {NOTEBOOK}, or a new one)")
    lab.add_argument("jupyter", nargs="*", metavar="-- OPTION", help="options for JupyterLab, after --")
    lab.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    lab.set_defaults(command=_lab)

    show = commands.add_parser("show", help="print a model, a stage of a program of it, or what it costs")
    show.add_argument("--stage", choices=STAGES, default="graph", help="what to print (default: graph)")
    show.add_argument("--json", action="store_true", help="print it as JSON, with all instructions and their blocks")
    show.set_defaults(command=_show)

    report = commands.add_parser("report", help="write one HTML file with graph, stages, costs and source")
    report.add_argument("-o", "--output", required=True, metavar="FILE", help="where to")
    report.set_defaults(command=_report)

    for command, program in ((show, "forward"), (report, "train-step")):
        command.add_argument("model", help="file that ml.save(model, path) wrote")
        command.add_argument(
            "--shape", action="append", default=[], metavar="INPUT=32,784", help="shape of an input; may be repeated"
        )
        command.add_argument(
            "--program", choices=tuple(PROGRAMS), default=program, help=f"which program (default: {program})"
        )
        command.add_argument("--debug", action="store_true", help="show the traceback of an unforeseen error")

    launch = commands.add_parser("launch", help="run a training script on several processes, here or on many machines")
    launch.add_argument("--processes", type=int, default=2, metavar="N", help="how many in all (default: 2)")
    launch.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0, to join other machines")
    launch.add_argument("--process-id", type=int, metavar="K", help="which of them this one is, from 0; to join")
    launch.add_argument("--devices", type=int, default=1, metavar="D", help="devices of each process (default: 1)")
    launch.add_argument("--start-timeout", type=float, default=120, metavar="S", help="seconds to meet (default: 120)")
    launch.add_argument(
        "--peer-timeout",
        type=float,
        default=60,
        metavar="S",
        help="seconds until a silent one is lost (default: 60)",
    )
    launch.add_argument("script", help="the script; ml.distributed() in it says which process it is in")
    launch.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    launch.add_argument("--debug", action="store_true", help="show the traceback of an unforeseen error")
    launch.set_defaults(command=_launch)
    return parser


def _complain(diagnostics: Sequence[Diagnostic]) -> None:
    for diagnostic in diagnostics:
        print(f"{diagnostic.code}: {diagnostic}", file=sys.stderr)


# lab


def _lab(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise UnavailableBackendError(
            "JupyterLab is not installed in this environment.",
            (("python", sys.executable),),
            'pip install "mithril-nb[lab]"',
        )
    notebook = _notebook(options.notebook)
    command = [sys.executable, "-m", "jupyterlab", str(notebook), *options.jupyter]
    print(f"opening {notebook} in JupyterLab; it prints its URL below. Ctrl+C twice ends it.", flush=True)
    with subprocess.Popen(command) as server:
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:  # the server was interrupted too, and asks the person itself
                continue


def _notebook(given: str | None) -> Path:
    """Return the notebook to open: the one named, the one of a checkout, or a new one here."""
    if given is not None:
        if not Path(given).exists():
            raise ModelFileError(f"there is no notebook {given!r}.", (), "mithril-nb lab")
        return Path(given)
    beside = Path(__file__).resolve().parent.parent
    for folder in (Path(), beside):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    new = Path("mithril_nb.ipynb")
    if not new.exists():
        new.write_text(json.dumps(_new_notebook(), indent=1), encoding="utf-8")
        print(f"wrote {new}")
    return new


def _new_notebook() -> dict[str, Any]:
    lines = [
        "import mithril_nb as ml",
        "from mithril_nb.models import Linear, Model, Relu",
        "",
        "model = Model()",
        "model |= Linear(64)",
        "model += Relu()",
        "model += Linear(10)",
        "",
        'wb = ml.workbench(model, shapes={"input": [32, 784]})',
        "wb",
    ]
    source = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
    cell = {
        "cell_type": "code",
        "id": "build",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


# show


def _show(options: argparse.Namespace) -> int:
    from mithril_nb.models import load

    model, shapes = load(options.model), _shapes(options.shape)
    if options.stage == "source":
        from mithril_nb.models.source import to_source

        source = to_source(model.graph)
        print(json.dumps({"source": source}) if options.json else source, end="\n" if options.json else "")
    elif options.stage == "graph":
        return _show_graph(model, shapes, options.json)
    elif options.stage == "cost":
        _show_cost(_inspection(model, shapes, options.program), options.json)
    else:
        _show_stage(_inspection(model, shapes, options.program).stage(options.stage), options.json)
    return 0


def _show_graph(model: Model, shapes: Mapping[str, Sequence[int | str]], as_json: bool) -> int:
    from mithril_nb.models.naming import input_specs
    from mithril_nb.viz.picture import picture
    from mithril_nb.viz.text import graph_text

    specs = input_specs(model.graph, shapes)
    made = picture(model.graph, specs, expanded={path for path, node in model.graph.walk() if node.block.graph})
    if as_json:
        problems = [problem.to_dict() for problem in made.problems]
        print(json.dumps({"graph": made.diagram.to_dict(), "problems": problems}))
    else:
        print(graph_text(model.graph, made.annotations.nodes, made.annotations.edge_shapes))
    _complain(made.problems)
    return FAILED if made.problems else 0


def _show_cost(inspection: Inspection, as_json: bool) -> None:
    from mithril_nb import cost
    from mithril_nb.viz.cost import cost_text

    data = cost.with_xla(cost.report(inspection), inspection, compile=True).to_dict()
    if as_json:
        print(json.dumps(data))
    elif sys.stdout.isatty():
        _print_cost_table(data)
    else:
        print(cost_text(data))


def _print_cost_table(data: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from mithril_nb.viz.cost import cost_text

    console = Console(highlight=False)
    for at, line in enumerate(cost_text(data).splitlines()):
        heads = at == 0 or line.startswith(("source ", "total "))
        console.print(Text(line, style="bold" if heads else ""), soft_wrap=True)


def _show_stage(stage: Stage, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(stage)))
    if stage.unavailable is not None:
        raise MithrilError(Diagnostic(f"{stage}.", code="StageUnavailableError"))
    if as_json:
        return
    if sys.stdout.isatty():
        _print_listing(stage)
    else:
        print(stage.text.rstrip("\n"))


def _print_listing(stage: Stage) -> None:
    """Print a stage with a stripe before each line, in the hue of the block that caused it."""
    from rich.console import Console
    from rich.text import Text

    from mithril_nb.viz.listing import hues_seen
    from mithril_nb.viz.palette import DARK_HUES

    hues, console = hues_seen([stage]), Console(highlight=False)
    first: dict[int, str] = {}
    for instruction in stage.instructions:
        if instruction.shares:
            block = max(instruction.shares, key=lambda pair: pair[1])[0]
            for number in range(instruction.line, instruction.line + instruction.lines):
                first[number] = DARK_HUES[hues[block.partition("/")[0]]]
    for block, hue in hues.items():
        console.print(Text("▌", style=DARK_HUES[hue]) + Text(f"{block or 'unattributed'} "), end="")
    console.print()
    for number, line in enumerate(stage.text.rstrip("\n").split("\n"), 1):
        stripe = Text("▌", style=first[number]) if number in first else Text(" ")
        console.print(stripe + Text(line), soft_wrap=True)


# report


def _report(options: argparse.Namespace) -> int:
    from mithril_nb import cost
    from mithril_nb.models import load
    from mithril_nb.models.naming import input_specs
    from mithril_nb.models.source import to_source
    from mithril_nb.viz.picture import picture
    from mithril_nb.viz.report import report_html

    model, shapes = load(options.model), _shapes(options.shape)
    inspection = _inspection(model, shapes, options.program)
    stages = [inspection.stage(name) for name in inspection.stages]
    data: dict[str, Any] = cost.with_xla(cost.report(inspection), inspection, compile=True).to_dict()
    shares = {row["block"]: row["share"] for row in data["rows"] if row["block"]}
    made = picture(model.graph, input_specs(model.graph, shapes), shares)
    title = f"{model.name or Path(options.model).stem}: {PROGRAMS[options.program]}"
    page = report_html(title, made.diagram, stages, data, source=to_source(model.graph), problems=made.problems)
    try:
        Path(options.output).write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ModelFileError(
            f"cannot write {options.output!r}.", (("because", error.strerror or str(error)),), "-o report.html"
        ) from error
    print(f"wrote {options.output}, {len(page.encode()) / 1000:.0f} kB")
    return 0


# launch


def _launch(options: argparse.Namespace) -> int:
    from mithril_nb.launch import launch

    try:
        launch(
            options.script,
            options.arguments,
            processes=options.processes,
            coordinator=options.coordinator,
            process_id=options.process_id,
            devices=options.devices,
            start_timeout_s=options.start_timeout,
            peer_timeout_s=options.peer_timeout,
        )
    except LaunchError as error:
        _complain(error.diagnostics)
        return error.status
    except UnknownOptionError as error:
        _complain([replace(one, advice=_as_option(one.advice)) for one in error.diagnostics])
        return FAILED
    return 0


def _as_option(advice: str) -> str:
    """Return `start_timeout_s=60`, an argument of Python, as one types it: `--start-timeout 60`; else the same text."""
    name, equals, value = advice.partition("=")
    return f"--{name.removesuffix('_s').replace('_', '-')} {value}" if equals and name.isidentifier() else advice


# Shared


def _inspection(model: Model, shapes: Mapping[str, Sequence[int | str]], program: str) -> Inspection:
    """Return the stages of a program of a model; nothing is run.

    Raises:
        MithrilError: Shapes that do not fit, or that are missing.
    """
    from mithril_nb import physical, stages, train

    for problem in _open_inputs(model, shapes):
        raise MithrilError(problem)
    compiled: Any = physical.compile(model, shapes=shapes)
    chosen = train.programs(compiled)[PROGRAMS[program]]
    return stages.inspect(chosen.function, *chosen.specs, name=chosen.name, device=compiled.backend.device)


def _open_inputs(model: Model, shapes: Mapping[str, Sequence[int | str]]) -> list[Diagnostic]:
    """Return what to say of inputs whose shape is not known in numbers, in the words of the command line."""
    from mithril_nb.models.infer import infer
    from mithril_nb.models.naming import input_specs

    found = infer(model.graph, input_specs(model.graph, shapes))
    if found.problems:
        return []  # compile says it, all mismatches at once
    return [
        Diagnostic(
            f"the shape of input {name!r} is not known in numbers.",
            (("so far", str(spec)),),
            f"--shape {name}=32,784",
            port=name,
            code="ShapeError",
        )
        for name, spec in found.inputs.items()
        if not spec.is_concrete
    ]


def _shapes(given: Sequence[str]) -> dict[str, list[int | str]]:
    """Return shapes by input from texts such as `input=32,784`.

    Raises:
        UnknownOptionError: A text that is no such thing.
    """
    from mithril_nb.graph.spec import is_dim_name

    shapes: dict[str, list[int | str]] = {}
    for text in given:
        name, equals, sizes = text.rpartition("=")
        dims = [part.strip() for part in sizes.strip("()[] ").split(",") if part.strip()]
        if not equals or not name or not dims:
            raise UnknownOptionError(
                f"{text!r} gives no input a shape.",
                (("needs", "the input's name, =, and its sizes with commas"),),
                "--shape input=32,784",
            )
        for dim in dims:
            if not dim.isdecimal() and not is_dim_name(dim):
                raise UnknownOptionError(
                    f"{dim!r} in {text!r} is no size.",
                    (("needs", "a whole number from 0 on, or a name for a size that is not known yet"),),
                    f"--shape {name}=32,784",
                )
        shapes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims]
    return shapes
