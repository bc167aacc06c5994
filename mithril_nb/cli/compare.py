"""`mithril-nb compare` prints or writes the differences between two models or programs."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.cli.show import cannot_write
from mithril_nb.cli.target import find_target, inspection_of, shapes_of
from mithril_nb.cli.terminal import say, say_json
from mithril_nb.errors import UnknownOptionError, nearest

if TYPE_CHECKING:
    from mithril_nb.analysis.compare import Comparison

FORMATS = ("text", "html", "json")


def compare_targets(options: argparse.Namespace) -> int:
    """Print the differences, or write them to a file."""
    from mithril_nb.analysis.compare import compare

    if options.output and not Path(options.output).parent.is_dir():  # checked before a compilation, which may take long
        raise cannot_write(options.output, os.strerror(errno.ENOENT), "-o comparison.html")
    comparison = compare(_side(options.before, options), _side(options.after, options))
    for name in options.stage:
        _check_stage(comparison, name)
    if options.format == "json":
        return _write(options, comparison.to_json(*options.stage), lambda: say_json(comparison.to_dict(*options.stage)))
    if options.format == "html":
        page = comparison.to_html(stages=options.stage or None)
        return _write(options, page, lambda: print(page, end=""))
    parts = [str(comparison)] if not options.stage else []
    for name in options.stage:
        stage = comparison.stage(name)
        lines = "\n".join(stage.diff_lines())
        parts.append(f"{name}: {stage.unavailable or stage.summary}" + (f"\n{lines}" if lines else ""))
    text = "\n\n".join(parts)
    return _write(options, f"{text}\n", lambda: say(text))


def _side(text: str, options: argparse.Namespace) -> Any:
    """Return the first or second argument of `compare` for BEFORE or AFTER of the command line."""
    from mithril_nb.inspection.saved import is_saved_inspection, read_json

    path = Path(text)
    if path.suffix.lower() == ".json" and path.is_file() and is_saved_inspection(read_json(path)):
        return path
    target = find_target(text, bool(options.arg))
    if target.graph is not None and not (options.arg or options.program or shapes_of(options.shape)):
        return path if path.suffix.lower() == ".json" else target.value
    return inspection_of(target, options)


def _check_stage(comparison: Comparison, name: str) -> None:
    if name in comparison.stages:
        return
    if not comparison.stages:
        raise UnknownOptionError(
            "models without shapes have no stages.", (("requested", name),), "--shape input=32,784"
        )
    raise UnknownOptionError(
        f"both sides need the stage {name!r}.",
        (("both have", ", ".join(comparison.stages)),),
        f"--stage {nearest(name, comparison.stages) or comparison.stages[0]}",
    )


def _write(options: argparse.Namespace, text: str, show: Any) -> int:
    if not options.output:
        show()
        return 0
    from mithril_nb.atomic_write import write_text

    try:
        write_text(options.output, text)
    except OSError as error:
        raise cannot_write(options.output, error.strerror or str(error), "-o comparison.html") from error
    print(f"wrote {options.output}, {len(text.encode()) / 1000:.0f} kB")
    return 0
