"""`mithril-nb report`: write an HTML file with graph, stages and costs, whose links work without a kernel."""

from __future__ import annotations

import argparse
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.cli.target import PROGRAMS, Target, find_target, inspection_of, shapes_of
from mithril_nb.errors import ModelFileError, StageUnavailableError


def write_report(options: argparse.Namespace) -> int:
    """Write the report of the target."""
    target = find_target(options.target, bool(options.arg))
    if not Path(options.output).parent.is_dir():  # checked before the program is compiled, which may take long
        raise _cannot_write(options.output, os.strerror(errno.ENOENT))
    inspection = inspection_of(target, options)
    page = inspection.to_html() if target.graph is None else _page(target, inspection, options)
    try:
        write_text(options.output, page)
    except OSError as error:
        raise _cannot_write(options.output, error.strerror or str(error)) from error
    print(f"wrote {options.output}, {len(page.encode()) / 1000:.0f} kB")
    return 0


def _cannot_write(path: str, why: str) -> ModelFileError:
    return ModelFileError(f"cannot write {path!r}.", (("because", why),), "-o report.html")


def _page(target: Target, inspection: Any, options: argparse.Namespace) -> str:
    """Return the page: stages and costs, and for a model its graph and the Python that builds it.

    LLVM IR and machine code are omitted: they have thousands of lines even for a small model, and would make the page
    large and slow to open. `show --stage llvm` prints them.
    """
    from mithril_nb import cost
    from mithril_nb.models.naming import input_specs
    from mithril_nb.models.saving.formats import to_source
    from mithril_nb.viz.diagrams.picture import picture
    from mithril_nb.viz.pages.inspection import FIRST
    from mithril_nb.viz.pages.report import report_html

    graph = target.graph
    assert graph is not None
    stages = [inspection.stage(name) for name in FIRST]
    data: dict[str, Any] | None = None
    shares: dict[str, Any] = {}
    with suppress(StageUnavailableError):  # the program cannot be traced; its stages contain the reason
        blocks = cost.cost_of(inspection).to_dict(rows=False)["by_block"]
        shares = {path: block["share"] for path, block in blocks.items()}
        data = cost.costs_of(inspection).to_dict()
    made = picture(graph, input_specs(graph, shapes_of(options.shape)), shares)
    title = f"{target.title}: {PROGRAMS[options.program or options.default_program]}"
    return report_html(title, made.diagram, stages, data, source=to_source(graph), problems=made.problems)
