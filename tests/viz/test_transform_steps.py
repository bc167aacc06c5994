"""Steps as HTML: a sign on every line, never colour alone; related lines share an id."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.errors import Diagnostic
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.stages.transforms.marks import MarkedEquation
from mithril_nb.stages.transforms.stepping import TransformStep, step_through
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.html_parts import link_script
from mithril_nb.viz.pages.transform_steps import SIGNS, steps_html, steps_text

BEFORE = Stage(
    "jaxpr",
    "{ lambda\n    a:f32[3]  # x\n  let\n    b:f32[3] = sin a\n"
    "    c:f32[3] = neg b\n    d:f32[] = reduce_sum c\n  in (d) }\n",
    (
        Instruction("arg0", "parameter", 2),
        Instruction("0", "sin", 4),
        Instruction("1", "neg", 5),
        Instruction("2", "reduce_sum", 6),
    ),
)
AFTER = Stage(
    "jaxpr",
    "{ lambda\n    a:f32[3]  # x\n  let\n    b:f32[3] = sin a\n"
    "    c:f32[3] = cos a\n    d:f32[8] = reduce_sum b\n  in (d) }\n",
    (
        Instruction("arg0", "parameter", 2),
        Instruction("0", "sin", 4),
        Instruction("1", "cos", 5),
        Instruction("2", "reduce_sum", 6),
    ),
)
STEP = TransformStep(
    "grad",
    BEFORE,
    AFTER,
    (
        MarkedEquation("0", "kept", "0", ("jvp",), origin="tagged"),
        MarkedEquation("1", "new", "0", ("jvp",), "jvp of sin", origin="tagged"),
        MarkedEquation("2", "changed", "2", ("jvp",), "adds a batch axis of 8", True, "inferred"),
    ),
    (
        MarkedEquation("0", "kept"),
        MarkedEquation("1", "gone"),
        MarkedEquation("2", "changed", note="adds a batch axis of 8"),
    ),
    "keeps 1 of 3.",
)
FAILED = TransformStep(
    "vmap", AFTER, None, problem=Diagnostic("cannot <b>.", (("TypeError", "no & no"),), 'through=("vmap",)')
)


def test_the_text_has_a_sign_and_a_source_on_each_line():
    assert steps_text([STEP, FAILED]) == (
        "0. grad: keeps 1 of 3.\n"
        "     { lambda\n"
        "         a:f32[3]  # x\n"
        "       let\n"
        "         b:f32[3] = sin a\n"
        "   +     c:f32[3] = cos a  # jvp of sin, from equation 0\n"
        "   ~     d:f32[8] = reduce_sum b  # adds a batch axis of 8 to equation 2, inferred\n"
        "       in (d) }\n"
        "   - removed: 1\n"
        "\n"
        "1. vmap\n"
        "   cannot <b>.\n"
        "       TypeError  no & no\n"
        '       Try: through=("vmap",)'
    )


def test_related_lines_share_an_id(parsed):
    page = parsed(steps_html([STEP, FAILED]))
    rows = [attributes for tag, attributes in page.elements if tag == "div" and "data-e" in attributes]
    assert [(row["class"], row["data-e"]) for row in rows] == [
        ("l m-kept", "0"), ("l m-gone", "1"), ("l m-changed", "2"),
        ("l m-kept", "0"), ("l m-new", "0"), ("l m-changed", "2"),
    ]  # fmt: skip
    assert [row["title"] for row in rows] == [
        "unchanged",
        "removed",
        "changed: adds a batch axis of 8, to equation 2",
        "unchanged",
        "new: jvp of sin, from equation 0",
        "changed: adds a batch axis of 8 to equation 2, inferred",
    ]
    # Ids are unique within a step: each step is linked separately.
    assert sum(attributes.get("class") == "mnb-linked step" for _, attributes in page.elements) == 2


def test_a_mark_is_a_sign_and_a_word_besides_a_hue(parsed):
    html = steps_html([STEP]).replace(link_script(), "")
    page = parsed(html)
    assert "<script" not in html
    labels = [attributes["aria-label"] for _, attributes in page.elements if attributes.get("class") == "g" and
              "aria-label" in attributes]  # fmt: skip
    assert labels == ["unchanged", "removed", "changed", "unchanged", "new", "changed"]
    signs = re.findall(r'<span class="g" role="img" aria-label="[^"]*">(.)</span>', html)
    assert signs == [SIGNS[mark] for mark in ("kept", "gone", "changed", "kept", "new", "changed")]
    assert len(set(SIGNS.values())) == len(SIGNS)


def test_unchanged_lines_are_muted_and_problems_are_cards(parsed):
    html = steps_html([STEP, FAILED])
    assert '<span class="x">    b:f32[3] = sin a</span>' in html
    assert '<span class="f">cos</span>' in html
    assert "cannot &lt;b&gt;." in html
    assert "Try: <code>through=(&quot;vmap&quot;,)</code>" in html


@settings(max_examples=30)
@given(st.text(max_size=60), st.text(min_size=1, max_size=12), st.sampled_from(sorted(SIGNS)))
def test_any_text_is_escaped(parsed, text, name, mark):
    stage = Stage("jaxpr", text, (Instruction("0", name, 1),))
    step = TransformStep(name, stage, stage, (MarkedEquation("0", mark, "0", (), text),), (), text)
    page = parsed(steps_html([step]).replace(link_script(), ""))
    assert {tag for tag, _ in page.elements} <= {
        "div", "style", "section", "header", "b", "span", "h4", "p",
    }  # fmt: skip


def test_a_long_jaxpr_is_cut_and_counts_the_rest(parsed):
    lines = [f"    x{at}:f32[] = sin y" for at in range(900)]
    stage = Stage("jaxpr", "\n".join(lines), tuple(Instruction(str(at), "sin", at + 1) for at in range(900)))
    step = TransformStep("vmap", stage, stage, tuple(MarkedEquation(str(at), "kept", str(at)) for at in range(900)))
    html = steps_html([step])
    parsed(html)
    assert html.count("... 500 more lines") == 2
    assert steps_text([step]).splitlines()[-1].strip() == "... 500 more lines"
    assert len(html) < 300_000


def test_values_are_shown_in_a_notebook(parsed):
    steps = step_through(
        lambda x: jnp.sum(jnp.sin(x)), jax.ShapeDtypeStruct((3,), "float32"), through=("vmap", "grad", "jit")
    )
    shown = steps._repr_mimebundle_()
    parsed(shown["text/html"])
    assert shown["text/plain"].splitlines()[0].startswith("0. trace: traces '<lambda>' once with shapes")
    assert shown["text/plain"].splitlines()[-1] == "not reached: jit"
    assert "# adds a batch axis of 8 to equation 0 of step 0\n" in shown["text/plain"]
    assert "not reached: jit" in shown["text/html"]
    assert bundle(steps[1])["text/plain"].startswith("vmap: adds a batch axis of 8 to 2 of 2 equations.")
