"""Size of the messages between kernel and page: a click, a step of a slider, and the first snapshot."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import mithril_nb as ml
from mithril_nb.models import GPT, Model, Relu
from mithril_nb.viz.html_parts import built

CLICK_BAR, STEP_BAR = 2_000, 30_000
"""Bytes per click, and per step of a slider on a GPT of 12 blocks."""
BUNDLE_BAR, VIEW_BAR = 900_000, 5_000
"""Bytes of the front end once per page, and for each further view."""
VIEWS = ("workbench", "explorer", "curves")


def message_sizes() -> Iterator[tuple[str, str, str]]:
    """Yield action, messages with their size, and bar. The stages of the program are requested as by a page."""
    gpt = GPT(vocabulary=1000, context=128, layers=12, heads=12, width=96)
    wb = ml.workbench(gpt, shapes={"input": [2, 64]})
    assets = built("assets.js")
    packed = re.search(r'"([A-Za-z0-9+/=]{1000,})"', assets)
    unpacked = len(gzip.decompress(b64decode(packed[1]))) if packed else len(assets)
    sent = f"{_size_of(unpacked)}, sent as {_size_of(len(assets))}"
    yield "code of the front end, once per page", sent, _size_of(BUNDLE_BAR)
    yield "  per further view", _size_of(max(len(built(f"{name}.js")) for name in VIEWS)), _size_of(VIEW_BAR)
    yield "GPT of 12 blocks: snapshot", _size([wb.get_state("snapshot")]), ""
    page = _Page(wb)
    for stage in ("jaxpr", "stablehlo"):
        page.do("request_stage", stage=stage)
    yield "  click on a block", page.do("select", paths=["block_6"]), _size_of(CLICK_BAR)
    yield "  its FLOP formula", page.do("request_formula", block="block_6"), _size_of(CLICK_BAR)
    for value in (400, 416):
        step = {"path": "block_6/mlp/up", "name": "dimension", "value": value}
        yield f"  slider step to {value}", page.do("set_attribute", **step), _size_of(STEP_BAR)
    yield "  the jaxpr of the new program", page.do("request_stage", stage="jaxpr"), ""
    yield "  another batch size", page.do("set_shape", name="input", shape=[3, 64]), ""
    wb.close()
    chain = Model(name="chain")
    for _ in range(1000):
        chain += Relu()
    wb = ml.workbench(chain, shapes={"input": [2, 64]})
    yield "chain of 1,000 blocks: snapshot", _size([wb.get_state("snapshot")]), ""
    yield "  click on a block", _Page(wb).do("select", paths=["relu_500"]), _size_of(CLICK_BAR)
    wb.close()


class _Page:
    """A page that follows the snapshot of a widget."""

    def __init__(self, widget: Any):
        self._widget, self._sent = widget, []
        widget.session.wait()
        widget.comm.send = lambda data, buffers=None, **_: self._sent.append((data, buffers or []))
        self.do("request_snapshot", revision=widget.snapshot["revision"])

    def do(self, name: str, /, **args: Any) -> str:
        """Send a command, wait for all results, and return the size of the messages."""
        self._sent.clear()
        command = {"type": "command", "id": 1, "name": name, "args": args}
        self._widget._receive(self._widget, command, [])
        self._widget.session.wait()
        self._widget._packer.wait()
        binary = sum(len(one) for _, buffers in self._sent for one in buffers)
        return _size([command, *(data for data, _ in self._sent)], binary)


def _size(messages: list[Any], binary: int = 0) -> str:
    count = sum(len(json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode()) for one in messages)
    return f"{_size_of(count + binary)} in {len(messages)}"


def _size_of(count: int) -> str:
    return f"{count / 1000:.1f} kB"
