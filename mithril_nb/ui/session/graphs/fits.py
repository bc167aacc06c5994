"""What an edit would give, before it is made: the blocks that fit at a connection, and the change of the costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypedDict

from mithril_nb.cost import memory_of
from mithril_nb.errors import MithrilError
from mithril_nb.graph.edit import add
from mithril_nb.graph.paths import name_of
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.jobs import rests
from mithril_nb.models.registry import KINDS
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import (
    Client,
    Reply,
    RequestHandler,
    check_arguments,
    check_choice,
    command,
    problem_of,
)
from mithril_nb.ui.session.cost_requests import KeyHead
from mithril_nb.ui.session.design import EDITS, DesignChange, fresh_block
from mithril_nb.ui.session.own_blocks import own_kinds, own_part
from mithril_nb.viz.diagrams.logical import shape_text

_REST_S = 0.15


class FitsHead(TypedDict):
    """The connection; the data are the shape of the output by kind of block, without the kinds that do not fit."""

    source: str


class Preview(TypedDict):
    """What an edit would change. Numbers are differences; null if unknown."""

    shape: str | None  # of the output of the added block, "" if unknown; null if the edit adds or selects no block
    problem: str  # why the edit fails, or a problem of the model after it; "" for none
    params: int | None
    flops: float | None  # of one run of the program
    peak_bytes: int | None  # memory at the peak, estimated without compiling
    is_counted: bool  # false while FLOPs and memory are being counted


class FitRequests(RequestHandler):
    """Finds the blocks that fit, and tries edits, on request."""

    def __init__(self, analysis: Callable[[], Analysis], client: Client):
        super().__init__(client, "fits", "costs-of-edits")
        self._analysis = analysis

    @command
    def request_fits(self, source: str) -> None:
        """Send the kinds of blocks that can read `source`, an output of a block or an input of the model."""
        inference = self._analysis().inference
        self._quick.submit(lambda _: self._client.send("fits", Reply(FitsHead(source=source), fits(inference, source))))

    @command
    def request_preview(self, key: str, edit: str, args: dict[str, Any]) -> None:
        """Send what an edit would change: at once without costs, and with them after the program was traced."""
        check_choice("edit", edit, EDITS)
        check_arguments(edit, EDITS[edit], args, ignored=("design",))
        before = self._analysis()
        self._quick.submit(lambda is_wanted: self._try(key, before, edit, args, is_wanted), "preview")

    def _try(
        self, key: str, before: Analysis, edit: str, args: Mapping[str, Any], is_wanted: Callable[[], bool]
    ) -> None:
        preview = Preview(shape=None, problem="", params=None, flops=None, peak_bytes=None, is_counted=True)

        def send() -> None:
            self._client.send("preview", Reply(KeyHead(key=key), dict(preview)))

        try:
            change = EDITS[edit](before.design, **args)
        except MithrilError as error:
            preview["problem"] = problem_of(error).summary
            return send()
        after = before.with_design(change.design)
        new = [problem.summary for problem in after.problems if problem not in before.problems]
        preview["shape"], preview["problem"] = _shape(change, after.inference), "".join(new[:1])
        preview["params"] = None if new else _more_parameters(before, after)  # a block with a problem has no shapes
        counts = after.can_run and (before.can_run or before.is_empty) and after.program_name == before.program_name
        preview["is_counted"] = not counts
        send()
        if counts and rests(is_wanted, _REST_S):
            self._slow.submit(lambda _: send() if is_wanted() and _count(preview, before, after) else None, "preview")


def _shape(change: DesignChange, inference: Inference) -> str | None:
    if not change.selection:
        return None
    return shape_text(next(iter(inference.blocks[change.selection[0]].outputs.values()), None))


def _more_parameters(before: Analysis, after: Analysis) -> int | None:
    was, now = ({each.name: each.spec for each in side.inference.parameters} for side in (before, after))
    changed = [name for name in was | now if was.get(name) != now.get(name)]
    gone, new = ([side[name].size for name in changed if name in side] for side in (was, now))
    is_known = None not in gone and None not in new
    return sum(size or 0 for size in new) - sum(size or 0 for size in gone) if is_known else None


def _count(preview: Preview, before: Analysis, after: Analysis) -> bool:
    """Add the difference of FLOPs and memory."""
    (flops, peak), (more_flops, more_peak) = _totals(before), _totals(after)
    preview["flops"] = None if flops is None or more_flops is None else more_flops - flops
    preview["peak_bytes"] = None if peak is None or more_peak is None else more_peak - peak
    preview["is_counted"] = True
    return True


def _totals(analysis: Analysis) -> tuple[float | None, int | None]:
    if analysis.is_empty:
        return 0.0, 0
    total = analysis.cost.total
    return None if total.unknown else total.flops, memory_of(analysis.local, "analytic").peak_bytes


def fits(inference: Inference, source: str) -> dict[str, str]:
    """Return the shape of the output of each kind of block that can read `source`; `""` while it is unknown."""
    path, _, port = source.rpartition(".")
    specs = inference.blocks[path].outputs if path in inference.blocks else inference.inputs
    spec = specs.get(name_of(port))
    shapes: dict[str, str] = {}
    listed = [kind for kind, block_type in KINDS.items() if getattr(block_type, "category", "")]
    for kind in (*listed, *own_kinds()):
        with suppress(MithrilError):
            graph = own_part(kind) or add(LogicalGraph(), fresh_block(kind))[0]
            data = [port.name for port in graph.inputs if port.role == "data"]
            if data and graph.outputs:
                of_block = infer(graph, {data[0]: spec} if isinstance(spec, TensorSpec) else {})
                if not of_block.problems:
                    shapes[kind] = shape_text(of_block.outputs[graph.outputs[-1].name])
    return shapes
