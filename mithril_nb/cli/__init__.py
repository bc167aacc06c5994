"""The command line: `show`, `find`, `report`, `compare`, `profile` and `export` print or write programs.

`lab` opens JupyterLab. `watch` reports the retraces of a script, and `launch` runs one in several processes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from mithril_nb.atomic_write import write_text
from mithril_nb.cli.app import notebook_of, open_app
from mithril_nb.cli.show import (
    COMPARISON_FORMATS,
    EXPORT_FORMATS,
    OTHERS,
    compare_targets,
    export_target,
    find_matches,
    show_target,
    write_report,
)
from mithril_nb.cli.target import PROGRAMS, find_target, inspection_of
from mithril_nb.cli.terminal import FAILED, complain, say, say_json
from mithril_nb.errors import (
    Diagnostic,
    LaunchError,
    MithrilError,
    ModelFileError,
    UnavailableBackendError,
    UnknownOptionError,
)
from mithril_nb.stages.stage_kinds import STAGE_KINDS

_COMPARED = """\
--shape, --arg, --static and --program apply to both sides. Models without --shape are compared by their blocks.

  mithril-nb compare before.json after.json
  mithril-nb compare before.json after.json --stage hlo
  mithril-nb compare old.json new.json --shape input=32,784 --format html -o comparison.html

"""
_FOUND = """\
QUERY is one argument, in quotes. Its terms are separated by spaces, and all must match.

  dot                    the block path, the operation or the kind of a block contains "dot"
  kind:dot               the operation or the kind of a block contains "dot"
  block:head             in the block "head" (* is any text)
  role:backward dtype:f64 line:train.py
  flops>1e6 bytes>=2M memory<4KiB
  -kind:dot              does not match kind:dot
  block:"lm head"        quotes keep spaces

  mithril-nb find model.json "kind:linear"
  mithril-nb find model.json "kind:dot flops>1e6 role:backward" --shape input=32,784 --program train-step

"""
_TARGETS = """\
TARGET is one of
  model.json        a model saved by ml.save(model, path); no code is run. Use --shape for the shapes of its inputs.
  step.mlir         a file with StableHLO (.mlir), HLO (.hlo) or an exported program, as text (also .txt) or
                    serialized (.pb, .bin, .mlirbc, .jax); no code is run.
  file.py:name      an object in a Python file, which is run with its folder on sys.path. The object is
                    - a function. --arg, or the tuple in its attribute example_args, gives the arguments.
                    - a function without arguments that returns a model, a module or (function, arguments).
                    - a Model, or a module of Flax, Equinox or Haiku.
  module:name       an object in a module, which is imported from the working directory or the environment.

  mithril-nb show model.json --shape input=32,784 --stage hlo --block linear_0
  mithril-nb show jax.nn:gelu --arg "f32[32,784]" --stage stablehlo
  mithril-nb show train.py:step --passes
  mithril-nb show train:step --stage cost --by line
  mithril-nb show step.mlir --stage cost
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Examples:
        >>> main(["show", "no-such-file.json"])
        2
    """
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except MithrilError as error:
        complain(error.diagnostics)
    except BrokenPipeError:  # `mithril-nb show ... | head` is not an error, and Python reports it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells report it
    # A traceback would hide the message of an error in the user's own file behind our frames.
    except Exception as error:  # print the message only; --debug prints the traceback
        if options.debug:
            traceback.print_exc()
        else:
            kind = type(error).__name__
            complain([Diagnostic(str(error).strip() or kind, (), "--debug  # prints the traceback", code=kind)])
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mithril-nb", description="Compose a model, inspect every compiler stage and its cost, and train it."
    )
    parser.add_argument("--version", action="version", version=f"mithril-nb {version('mithril-nb')}")
    parser.set_defaults(command=lambda _: parser.print_help() or 0, debug=False)
    commands = parser.add_subparsers(metavar="COMMAND")

    def command(name: str, run: Callable[..., int], help: str, epilog: str | None = None) -> argparse.ArgumentParser:
        formatter = argparse.RawDescriptionHelpFormatter if epilog else argparse.HelpFormatter
        added = commands.add_parser(name, help=help, epilog=epilog, formatter_class=formatter)
        added.set_defaults(command=run)
        return added

    sub = command("lab", open_lab, "open JupyterLab on the builder notebook, or one model")
    add = sub.add_argument
    add("notebook", nargs="?", help=f"notebook to open (default: {NOTEBOOK}, or a new one)")
    add("--app", metavar="MODEL", help="open only the workbench of this model file or link, in a page served by Voilà")
    _add_shape(sub)
    add("jupyter", nargs="*", metavar="-- OPTION", help="options for JupyterLab or Voilà, after --")
    add("--debug", action="store_true", help=argparse.SUPPRESS)

    sub = command("show", show_target, "print a program at one of its compiler stages, or its cost", _TARGETS)
    add = sub.add_argument
    _add_target(sub, "forward")
    add(
        "--stage",
        metavar="STAGE",
        help=f"what to print (default: graph; cost with --by): {', '.join((*STAGE_KINDS, *OTHERS))}, or a plugin's",
    )
    add("--block", metavar="PATH", help="print only lines of this block and blocks inside it, with line numbers")
    add(
        "--role",
        choices=("forward", "backward", "update"),
        help="print only lines of this part of a train step, with line numbers",
    )
    add("--by", choices=("block", "line", "role"), help="group costs by block (default), Python line or role")
    add("--short", action="store_true", help="short form of the optimized HLO: readable names, inlined bodies")
    view = sub.add_mutually_exclusive_group()
    view.add_argument("--graph", action="store_true", help="print the stage's graph, with blocks and loops indented")
    view.add_argument("--passes", action="store_true", help="list the XLA passes that changed the program")
    view.add_argument("--pass", dest="number", type=int, metavar="N", help="print the changes of pass N")
    add("--json", action="store_true", help="print JSON, with all instructions and their blocks")

    sub = command("find", find_matches, "list the equations or blocks that match a query", _FOUND + _TARGETS)
    add = sub.add_argument
    _add_target(sub, "forward")
    add("query", metavar="QUERY", help="terms to search for, such as 'kind:dot flops>1e6', see below")
    add("--stage", metavar="STAGE", help=f"search this stage (default: the first): {', '.join(STAGE_KINDS)}")
    add("--json", action="store_true", help="print JSON, with exact numbers")

    sub = command("report", write_report, "write a self-contained HTML file with graph, stages and costs", _TARGETS)
    add = sub.add_argument
    _add_target(sub, "train-step")
    add("-o", "--output", required=True, metavar="FILE", help="file to write")

    sub = command(
        "compare",
        compare_targets,
        "print or write the differences between two models or programs",
        _COMPARED + _TARGETS,
    )
    add = sub.add_argument
    add("before", metavar="BEFORE", help="an inspection saved as JSON, or a TARGET, see below")
    add("after", metavar="AFTER", help="like BEFORE; a saved inspection may come from another version of JAX")
    _add_arguments(sub, "forward")
    add(
        "--stage",
        action="append",
        default=[],
        metavar="STAGE",
        help=f"compare the lines of this stage: {', '.join(STAGE_KINDS)}, or a plugin's; may be repeated",
    )
    add("--format", choices=COMPARISON_FORMATS, default="text", help="form of the output (default: text)")
    add("-o", "--output", metavar="FILE", help="file to write (default: print)")

    sub = command("profile", profile_target, "run a program and print the measured time of each block", _TARGETS)
    add = sub.add_argument
    _add_target(sub, "train-step")
    add("--runs", type=int, default=20, metavar="N", help="number of measured runs (default: 20)")
    add("--json", action="store_true", help="print JSON, with exact numbers")

    sub = command("export", export_target, "write a folder with a program that runs without mithril_nb", _TARGETS)
    add = sub.add_argument
    _add_target(sub, "forward")
    add("--to", required=True, metavar="FORMAT", help=f"format of the program: {', '.join(EXPORT_FORMATS)}")
    add("-o", "--output", required=True, metavar="FOLDER", help="folder to write")
    add("--params", metavar="FILE", help="parameters that ml.save_params wrote (default: initial ones)")
    add("--overwrite", action="store_true", help="replace a folder that this command wrote")

    sub = command("devices", show_devices, "list the devices to compile for, and install or remove their compilers")
    add = sub.add_argument
    add("action", nargs="?", choices=("install", "remove"), help="what to do with the compiler of NAME")
    add("name", nargs="?", metavar="NAME", help="a device such as h100, or cuda, tpu, sass; or a folder to remove")
    add("--from", dest="wheels", metavar="FOLDER", help="install from wheels in this folder, without a network")
    add("--debug", action="store_true", help="show the traceback of unexpected errors")

    sub = command("runs", show_runs, "list the training runs of a folder, show one, or compare several")
    add = sub.add_argument
    add("folder", nargs="?", default="runs", metavar="FOLDER", help="folder of the runs (default: runs)")
    add("names", nargs="*", metavar="NAME", help="one run to show, or several to compare")
    add("--json", action="store_true", help="print JSON")
    add("--repair", action="store_true", help="make a damaged database again from its whole records")
    add("--debug", action="store_true", help="show the traceback of unexpected errors")

    sub = command("watch", watch_script, "run a Python script, and print what JAX traced and compiled, and why")
    add = sub.add_argument
    add("script", help="Python script, run as by python SCRIPT")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    add("--debug", action="store_true", help="show the traceback of unexpected errors")

    sub = command("launch", launch_script, "run a training script on several processes, on one or more machines")
    add = sub.add_argument
    add("--processes", type=int, default=2, metavar="N", help="number of processes on all machines (default: 2)")
    add("--coordinator", metavar="HOST:PORT", help="address of process 0, if processes run on several machines")
    add("--process-id", type=int, metavar="K", help="index of this process, from 0; needed with --coordinator")
    add("--devices", type=int, default=1, metavar="D", help="devices of each process (default: 1)")
    add(
        "--start-timeout", type=float, default=120, metavar="S", help="seconds to wait for all processes (default: 120)"
    )
    add(
        "--peer-timeout",
        type=float,
        default=60,
        metavar="S",
        help="seconds until an unresponsive process counts as lost (default: 60)",
    )
    add("script", help="Python script; in it, ml.distributed() returns the index and the number of processes")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    add("--debug", action="store_true", help="show the traceback of unexpected errors")
    return parser


def show_runs(options: argparse.Namespace) -> int:
    """Print the table of the runs of a folder, one run, or a comparison of several."""
    from mithril_nb.train.store.stored import runs

    stored = runs(options.folder, repair=options.repair)
    if options.json:
        chosen = [stored[name] for name in options.names] or [*stored]
        say_json([{"name": run.name, "state": run.state} | run.origin | run.summary for run in chosen])
    elif len(options.names) > 1:
        say(str(stored.compare(*options.names)))
    else:
        say(str(stored[options.names[0]] if options.names else stored))
    return 0


def show_devices(options: argparse.Namespace) -> int:
    """Print the table of devices, or install or remove a compiler."""
    from mithril_nb.hardware import COMPILERS, compiler_of, device_named, devices, other_compilers

    others = other_compilers()
    if options.action is None:
        say(str(devices()))
        for name, compiler in others.items():
            size = f"{compiler.size_bytes / 1e6:,.0f} MB"
            say(f"For another version: {size}; mithril-nb devices remove {name}")
        return 0
    if options.name is None:
        names = f"a device, or {', '.join(COMPILERS)}"
        raise UnknownOptionError(f"devices {options.action} needs a NAME.", (("names", names),))
    name = options.name
    if options.action == "remove" and name in others:
        compiler = others[name]
    else:
        compiler = compiler_of(name if name in COMPILERS else device_named(name).platform)
    if options.action == "remove":
        compiler.remove()
        say(f"{compiler.platform}: removed from {compiler.folder}")
        return 0
    if compiler.is_in_environment:
        say(f"{compiler.platform}: the environment has it")
        return 0
    if not compiler.is_installed:
        compiler.install(options.wheels)
    say(f"{compiler.platform}: {compiler.size_bytes / 1e6:,.0f} MB in {compiler.folder}")
    return 0


def _add_target(parser: argparse.ArgumentParser, program: str) -> None:
    text = "model file, program file, file.py:name or module:name, see below"
    parser.add_argument("target", metavar="TARGET", help=text)
    _add_arguments(parser, program)


def _add_arguments(parser: argparse.ArgumentParser, program: str) -> None:
    add = parser.add_argument
    _add_shape(parser)
    add(
        "--arg",
        action="append",
        default=[],
        metavar="[NAME=]f32[32,784]",
        help="an argument: dtype and shape of an array, or a Python number or string; may be repeated",
    )
    add(
        "--static",
        action="append",
        default=[],
        metavar="NAME",
        help="name of a static argument of a function, as in jax.jit; may be repeated",
    )
    add("--device", metavar="DEVICE", help="device to compile for, such as h100 or v5e:4x4; see mithril-nb devices")
    add("--program", choices=tuple(PROGRAMS), help=f"program of a model or a module (default: {program})")
    add("--debug", action="store_true", help="show the traceback of unexpected errors")
    # Not the default of --program, so that a command can tell whether the user has chosen one: functions have none.
    parser.set_defaults(default_program=program)


def _add_shape(parser: argparse.ArgumentParser) -> None:
    text = "shape of a model's input; may be repeated"
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=32,784", help=text)


def profile_target(options: argparse.Namespace) -> int:
    """Run the target with placeholder values, and print the measured times."""
    from mithril_nb.analysis.measure import profile

    measured = profile(inspection_of(find_target(options.target, bool(options.arg)), options), runs=options.runs)
    if options.json:
        say_json(measured.to_dict())
    else:
        say(str(measured))
    return 0


def watch_script(options: argparse.Namespace) -> int:
    """Run a script as `python SCRIPT` does, and print the report after it, also if it fails."""
    from mithril_nb.analysis.retraces import Watch

    if not Path(options.script).is_file():
        raise ModelFileError(f"script {options.script!r} does not exist.", (("looked in", os.getcwd()),))
    # In place, because modules may have imported the list itself.
    sys.argv[:] = [options.script, *options.arguments]
    # As `python SCRIPT` does; runpy does not.
    sys.path.insert(0, str(Path(options.script).resolve().parent))
    seen = Watch()
    try:
        with seen:
            runpy.run_path(options.script, run_name="__main__")
    except SystemExit as error:  # of the script; Python prints a text as the reason and exits with 1
        if isinstance(error.code, str):
            complain([Diagnostic(error.code, ())])
        return error.code if isinstance(error.code, int) else FAILED if error.code else 0
    except Exception:  # as Python reports it
        traceback.print_exc()
        return 1
    finally:  # a script that fails is often the one whose retraces are of interest
        say(str(seen))
    return 0


def launch_script(options: argparse.Namespace) -> int:
    """Run the script on all processes, and return the highest of their exit codes."""
    from mithril_nb.compilation.launch import launch

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
        complain(error.diagnostics)
        return error.status
    return 0


NOTEBOOK = Path("notebooks") / "01_build_and_train.ipynb"
_NEW_CELL = """\
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu

model = Model()
model |= Linear(64)
model += Relu()
model += Linear(10)

wb = ml.workbench(model, shapes={"input": [32, 784]})
wb"""


def open_lab(options: argparse.Namespace) -> int:
    """Open JupyterLab, or with `--app` the page of one model, and wait until the server exits."""
    if options.app is not None:
        return open_app(options)
    if (options.notebook or "").startswith("-"):  # argparse takes the first option after -- as the notebook
        options.notebook, options.jupyter = None, [options.notebook, *options.jupyter]
    if importlib.util.find_spec("jupyterlab") is None:
        raise UnavailableBackendError(
            "JupyterLab is not installed in this environment.",
            (("python", sys.executable),),
            'pip install "mithril-nb[lab]"',
        )
    notebook = _notebook(options.notebook)
    command = [sys.executable, "-m", "jupyterlab", str(notebook), *options.jupyter]
    print(f"Opening {notebook} in JupyterLab; its URL is printed below. Press Ctrl+C twice to stop.", flush=True)
    with subprocess.Popen(command) as server:
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:  # the server receives the interrupt as well, and prompts the user
                continue


def _notebook(path: str | None) -> Path:
    if path is not None:
        if not Path(path).exists():
            raise ModelFileError(f"notebook {path!r} does not exist.")
        return Path(path)
    beside = Path(__file__).resolve().parents[2]
    for folder in (Path(), beside):  # of a checkout; an installed package has no notebooks
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    new = Path("mithril_nb.ipynb")
    if not new.exists():
        write_text(new, json.dumps(notebook_of("build", [*_NEW_CELL.splitlines(keepends=True)]), indent=1))
        print(f"wrote {new}")
    return new
