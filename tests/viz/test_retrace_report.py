"""Reports of watched functions as text and HTML."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.analysis.retraces import FunctionReport, Retrace, WatchReport
from mithril_nb.viz.pages.retraces import retraces_html, retraces_text

AGAIN = Retrace(
    "argument 1 `x` changed from f32[32,10] to f32[33,10]", "train.py", 31, "train.py:31",
    4, True, 0.012, 0.03, 0.31,
)  # fmt: skip
STEP = FunctionReport(
    "step", "train.py:12", None, 1_000, 996, 3, 4, 4, 1, 0.0301, 0, 0.0805, 1.21,
    (
        AGAIN,
        replace(AGAIN, reason="argument 1 `x` became committed to cpu:0", call=900, is_traced=False, trace_s=None),
        replace(AGAIN, reason="static argument `s` changed from '<a\n>' to 'b'", place="", call=None, trace_s=None,
                lower_s=None, compile_s=None),
    ),
)  # fmt: skip
QUIET = FunctionReport("init", "train.py:3", None, None, None, 1, 1, 1, 0, 0.0, 1, 0.002, 0.05)
SOME = replace(QUIET, name="both", traces=2, trace_s=0.004)
ADD = FunctionReport("add", "ufuncs.py:1", "jax", None, None, 2, 2, 2, 0, 0.001, 0, 0.002, 0.05, (AGAIN,))
BLOCK = WatchReport(
    (replace(STEP, calls=None, hits=None, left_out=7), QUIET, SOME, ADD, replace(ADD, name="mul", retraces=()))
)


def test_golden(golden, parsed):
    for name, report in (("watched", STEP), ("watch", BLOCK)):
        html = retraces_html(report)
        parsed(html)
        golden(f"{name}.html", html)
        golden(f"{name}.txt", retraces_text(report) + "\n")


def test_print_shows_the_text():
    assert str(STEP) == retraces_text(STEP)
    assert str(BLOCK) == retraces_text(BLOCK)
    assert BLOCK._repr_mimebundle_() == {"text/plain": retraces_text(BLOCK), "text/html": retraces_html(BLOCK)}
    assert str(AGAIN) == "train.py:31: argument 1 `x` changed from f32[32,10] to f32[33,10]"


def test_nothing_happened(parsed):
    assert retraces_text(WatchReport(())) == "nothing was traced or compiled"
    assert "".join(parsed(retraces_html(WatchReport(()))).texts).endswith("nothing was traced or compiled")


def test_no_retraces(parsed):
    assert retraces_text(WatchReport((QUIET,))).endswith("\n\nno retraces")
    assert "".join(parsed(retraces_html(WatchReport((QUIET,)))).texts).endswith("no retraces")


def test_long_reports_are_cut():
    many = replace(STEP, retraces=(AGAIN,) * 100, left_out=900)
    assert retraces_text(many).endswith("\nand 980 more")
    functions = WatchReport(tuple(replace(QUIET, name=f"f{n}") for n in range(50)), left_out=3)
    assert "\n\nand 30 more functions\n\n" in retraces_text(functions)
    assert retraces_text(functions).endswith("\n\n3 events of other functions are not shown")
    assert "<p>and 900 more</p>" in retraces_html(many)
