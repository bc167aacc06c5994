"""The terminal twin: `mithril-nb lab | show | report` print and write what the workbench shows; `launch` trains."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from mithril_nb.cli.lab import NOTEBOOK, open_lab
from mithril_nb.cli.launch import launch_script
from mithril_nb.cli.report import write_report
from mithril_nb.cli.show import SHOWN, show_target
from mithril_nb.cli.target import PROGRAMS
from mithril_nb.cli.terminal import FAILED, complain
from mithril_nb.errors import Diagnostic, MithrilError

_TARGETS = """\
TARGET is one of
  model.json        a file that ml.save(model, path) wrote; reading it runs no code. --shape gives its inputs shapes.
  step.mlir         a file with StableHLO (.mlir) or HLO (.hlo), as text (.txt too) or serialized (.pb, .bin), or an
                    exported program; reading it runs no code.
  file.py:name      something in a Python file, which is run with its folder on sys.path. It may be
                    a function, with its arguments by --arg, or by an attribute example_args, a tuple;
                    a function that takes nothing, which is called and gives (function, arguments), a model or a module;
                    a Model, or a module of Flax, Equinox or Haiku.
  module:name       the same in a module, which is imported from the working folder or from what is installed.

  mithril-nb show model.json --shape input=32,784 --stage hlo --block linear_0
  mithril-nb show jax.nn:gelu --arg "f32[32,784]" --stage stablehlo
  mithril-nb show train.py:step --passes
  mithril-nb show train:step --stage cost --by line
  mithril-nb show step.mlir --stage cost
"""


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
        complain(error.diagnostics)
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
            complain([Diagnostic(str(error).strip() or kind, (), "the same with --debug, for where.", code=kind)])
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mithril-nb", description="Compose a model, watch it become machine code, see what it costs, train it."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_lab(commands.add_parser("lab", help="open JupyterLab on the builder notebook"))
    written = {"epilog": _TARGETS, "formatter_class": argparse.RawDescriptionHelpFormatter}
    _add_show(commands.add_parser("show", help="print a program at one of its stages, or what it costs", **written))
    _add_report(commands.add_parser("report", help="write one HTML file with graph, stages and costs", **written))
    _add_launch(commands.add_parser("launch", help="run a training script on several processes, here or elsewhere"))
    return parser


def _add_lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", nargs="?", help=f"the notebook (default: {NOTEBOOK}, or a new one)")
    parser.add_argument("jupyter", nargs="*", metavar="-- OPTION", help="options for JupyterLab, after --")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(command=open_lab)


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, "forward")
    parser.add_argument("--stage", choices=SHOWN, help="what to print (default: graph; cost with --by)")
    parser.add_argument("--block", metavar="PATH", help="only lines of this block and of those inside, with numbers")
    parser.add_argument(
        "--role", choices=("forward", "backward", "update"), help="only lines of this part of a step, with numbers"
    )
    parser.add_argument("--by", choices=("block", "line"), help="costs of each block (default), or of each Python line")
    parser.add_argument("--short", action="store_true", help="optimized HLO for people: names, and bodies in place")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--graph", action="store_true", help="the stage's graph, blocks and loops indented")
    what.add_argument("--passes", action="store_true", help="the passes of XLA that changed something")
    what.add_argument("--pass", dest="number", type=int, metavar="N", help="what pass N of them changed")
    parser.add_argument("--json", action="store_true", help="print it as JSON, with all instructions and their blocks")
    parser.set_defaults(command=show_target)


def _add_report(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, "train-step")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where to")
    parser.set_defaults(command=write_report)


def _add_target(parser: argparse.ArgumentParser, program: str) -> None:
    parser.add_argument(
        "target", metavar="TARGET", help="model file, program file, file.py:name or module:name, see below"
    )
    parser.add_argument(
        "--shape", action="append", default=[], metavar="INPUT=32,784", help="shape of a model's input; may be repeated"
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="[NAME=]f32[32,784]",
        help="an argument: an array's dtype and shape, or a number or text of Python; may be repeated",
    )
    parser.add_argument(
        "--static",
        action="append",
        default=[],
        metavar="NAME",
        help="an argument of a function that is static, as in jax.jit; may be repeated",
    )
    parser.add_argument(
        "--program", choices=tuple(PROGRAMS), help=f"which program of a model or a module (default: {program})"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unforeseen error")
    parser.set_defaults(default_program=program)


def _add_launch(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--processes", type=int, default=2, metavar="N", help="how many in all (default: 2)")
    add("--coordinator", metavar="HOST:PORT", help="address of process 0, to join other machines")
    add("--process-id", type=int, metavar="K", help="which of them this one is, from 0; to join")
    add("--devices", type=int, default=1, metavar="D", help="devices of each process (default: 1)")
    add("--start-timeout", type=float, default=120, metavar="S", help="seconds to meet (default: 120)")
    add("--peer-timeout", type=float, default=60, metavar="S", help="seconds until a silent one is lost (default: 60)")
    add("script", help="the script; ml.distributed() in it says which process it is in")
    add("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    add("--debug", action="store_true", help="show the traceback of an unforeseen error")
    parser.set_defaults(command=launch_script)
