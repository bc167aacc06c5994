"""Stages as HTML: every character is escaped, every line has its block, and links have targets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.teach.explain_help import op_help
from mithril_nb.viz.html_parts import link_script
from mithril_nb.viz.pages.listing import hues_seen, listing_html, listing_text

JAXPR = Stage(
    "jaxpr",
    "{ lambda a:f32[2,3]  # inputs['x']\n  let\n    b:f32[2,4] = dot_general[precision=None] a w\n"
    "    c:f32[2,4] = max b 0.0:f32[]\n  in (c,) }\n",
    (
        Instruction("0", "dot_general", 3, ("0",), (("linear_0", 1.0),), "forward", "tagged"),
        Instruction("1", "max", 4, ("1",), (("relu_0", 1.0),), "backward", "inferred"),
    ),
    0.009,
)
HLO = Stage(
    "hlo",
    'HloModule m\nENTRY %main {\n  ROOT %fusion = f32[2,4]{1,0} fusion(%a), calls=%f, metadata={op_name="x"}\n}',
    (Instruction("fusion", "fusion", 3, ("0", "1"), (("linear_0", 0.75), ("relu_0", 0.25)), "update", "tagged"),),
    0.31,
)


def test_golden(golden, parsed):
    html = listing_html(JAXPR, HLO).replace(link_script(), "")
    parsed(html)
    golden("listing.html", html)
    golden("listing.txt", listing_text(JAXPR))


def test_line_numbers_link_to_the_other_stage(parsed):
    page = parsed(listing_html(JAXPR, HLO))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    assert len(links) == 3
    assert all(link[0] == "#" and link[1:] in ids for link in links)


def test_a_stripe_has_the_hues_of_blocks_and_pattern_of_the_role(parsed):
    html = listing_html(JAXPR, HLO)
    assert '<i class="h0" style=flex-grow:0.75></i><i class="h1" style=flex-grow:0.25></i>' in html
    assert 'class="s i rb"' in html
    assert 'class="s ru"' in html
    assert "linear_0 75.0 %, relu_0 25.0 % · fusion · update · tagged · equations 0, 1" in html


def test_a_long_text_is_cut_and_counts_the_rest(parsed):
    stage = Stage("hlo", "\n".join(f"  %x.{at} = f32[] constant({at})" for at in range(1000)))
    html = listing_html(stage, most_lines=30)
    assert "970 more lines, not shown here" in html
    assert html.count('class="l"') == 30
    assert listing_text(stage, 30).splitlines()[-1] == "... 970 more lines"
    wide = listing_html(Stage("jaxpr", "x" * 1400))
    assert "… 1,000 more characters" in wide
    assert "more line" not in wide


def test_an_unavailable_stage_shows_the_reason(parsed):
    html = listing_html(Stage("hlo", "", unavailable="no <compiler> here"))
    parsed(html)
    assert "not available: no &lt;compiler&gt; here" in html
    assert listing_text(Stage("hlo", "", unavailable="none")) == "hlo is not available: none"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=120), st.text(min_size=1, max_size=20), st.sampled_from(["jaxpr", "stablehlo", "hlo", "<b>"]))
def test_any_text_is_escaped(parsed, text, block, name):
    made = Instruction("0", block, 1, (block,), ((block, 1.0),), "forward", "tagged", lines=3)
    html = listing_html(Stage(name, text, (made,), unavailable=None)).replace(link_script(), "")
    page = parsed(html)
    assert {tag for tag, _ in page.elements} <= {
        "div", "style", "section", "header", "b", "span", "code", "i", "a",
    }  # fmt: skip


def test_hues_by_first_appearance():
    assert hues_seen([HLO, JAXPR]) == {"linear_0": 0, "relu_0": 1}


def test_hues_follow_the_order_of_equations_not_of_lines():
    def made(line: int, equation: str, block: str) -> Instruction:
        return Instruction(equation, "op", line, (equation,), ((block, 1.0),))

    lines = (made(1, "arg0", "last"), made(2, "10", "last"), made(3, "9.b0.2", "middle/x"), made(4, "(loss)", "(loss)"))
    stage = Stage("hlo", "\n" * 6, (*lines, made(5, "9.b0.1", "first"), made(6, "11", "(optimizer)")))
    assert hues_seen([stage]) == {"first": 0, "middle": 1, "last": 2}


def test_a_tooltip_has_help_transforms_and_python_lines():
    shares, more = (("a", 1.0),), {"transforms": ("vmap", "scan"), "source": ("m.py:3",)}
    made = Instruction("0", "dot_general", 1, ("0",), shares, "forward", "tagged", **more)
    html = listing_html(Stage("jaxpr", "b:f32[2] = dot_general a w", (made,)))
    assert (
        'title="a · dot_general · forward · tagged · equation 0\n'
        f"{op_help('jaxpr', 'dot_general')}\n"
        'inside of vmap, scan\nm.py:3"'
    ) in html


def test_a_line_of_a_kernel_is_linked_at_kernel_level():
    made = Instruction("k:0", "fadd", 1, ("0",), (("a", 1.0),), "forward", "kernel")
    html = listing_html(Stage("llvm", "%1 = fadd float %a, %b", (made,)))
    assert 'title="a · fadd · forward · linked at kernel level · equation 0' in html
    assert '<span class="s k"><span>' in html  # the stripe is dashed, so that it differs by more than colour
    assert ".mnb .s.k span{mask:" in html


def test_a_failed_stage_shows_its_text_below_the_reason():
    stage = Stage("jaxpr", "{ lambda\n  !! it fails", unavailable="TypeError: no")
    assert listing_text(stage) == "jaxpr is not available: TypeError: no\n{ lambda\n  !! it fails"
    html = listing_html(stage)
    assert html.index("not available: TypeError: no") < html.index("!!")
