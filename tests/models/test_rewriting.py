"""Python edited where the model changed: it builds the new model, and lines of other statements stay as they are."""

from __future__ import annotations

import ast
import re
from difflib import ndiff
from random import Random

import pytest
from random_edits import random_edit
from stress import is_long

from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models import Gelu, Linear, Model, Relu
from mithril_nb.models.saving.formats import to_source
from mithril_nb.models.saving.reading import from_source
from mithril_nb.models.saving.rewriting import same_model, updated_source, with_imports
from mithril_nb.ui.session.design import EDITS, Design
from mithril_nb.ui.session.templates import TEMPLATES, template_design


def decorated(random: Random, source: str) -> str:
    """Return the code with comments, blank lines, calls over several lines, and another name of the model."""
    if "net" not in source:
        source = re.sub(r"^model\b", "net", source, flags=re.MULTILINE)
    lines, body = source.splitlines(), ast.parse(source).body
    for node in reversed(body):
        start, end = node.lineno - 1, node.end_lineno or node.lineno
        if isinstance(node, ast.ImportFrom) or end - start > 1:
            continue
        if random.random() < 0.3:
            lines[start] += f"  # comment {start}"
        elif random.random() < 0.3 and "(" in lines[start] and "'" not in lines[start]:
            head, tail = lines[start].split("(", 1)
            lines[start : start + 1] = [f"{head}(", f"        {tail}"]
        if random.random() < 0.3:
            lines.insert(start, random.choice(["", f"# part {start}", "  # indented"]))
    return "\n".join(['"""A net."""', *lines, "# the end"])


def randomly_edited(random: Random, design: Design, edits: int) -> Design:
    while edits:
        name, args = random_edit(random, design)
        edits -= 1
        try:
            design = EDITS[name](design, **args).design
        except Exception:  # arguments of wrong types, which a session refuses before
            continue
    return design


@pytest.mark.parametrize("seed", [*TEMPLATES, *range(300 if is_long() else 40)])
def test_the_code_builds_the_edited_model_and_other_lines_stay(seed: int | str) -> None:
    random, empty = Random(seed), Design(LogicalGraph(), name="net")
    design = randomly_edited(random, empty, 12) if isinstance(seed, int) else template_design(seed, has_data=False)
    before = Model.of(design.graph, design.name)
    text = decorated(random, to_source(before))
    assert same_model(from_source(text), before)
    assert updated_source(text, before, before) in (text, f"{text}\n")
    for _ in range(6):
        design = randomly_edited(random, design, 1)
        after = Model.of(design.graph, design.name)
        changed = updated_source(text, before, after)
        assert same_model(from_source(changed), after)
        old, new = (to_source(model).splitlines() for model in (before, after))
        touched = sum(line.startswith(("+", "-")) for line in ndiff(old, new))
        # A statement takes at most two lines here, and each changed statement is there once before and once after.
        assert len(set(text.splitlines()) - set(changed.splitlines())) <= 2 * touched
        text, before = changed, after


TEXT = """import mithril_nb.models as mm
from mithril_nb.models import Linear as L  # blocks

net = mm.Model()   # the model
# encoder
net |= L( dimension = 8 )  # wide
net += mm.Relu()
net += L(2,
   use_bias=False)
"""


def test_only_the_changed_statement_changes() -> None:
    before = from_source(TEXT)
    wider = Model() + Linear(16) + Relu() + Linear(2, use_bias=False)
    assert updated_source(TEXT, before, wider) == TEXT.replace("L( dimension = 8 )", "Linear(16)").replace(
        "Linear as L", "Linear as L, Linear"
    )
    longer = Model() + Linear(8) + Relu() + Gelu() + Linear(2, use_bias=False)
    assert updated_source(TEXT, before, longer) == TEXT.replace("mm.Relu()\n", "mm.Relu()\nnet += Gelu()\n").replace(
        "Linear as L", "Linear as L, Gelu"
    )
    shorter = Model() + Linear(8) + Linear(2, use_bias=False)
    assert updated_source(TEXT, before, shorter) == TEXT.replace("net += mm.Relu()\n", "")


def test_code_composed_in_another_way_is_written_anew() -> None:
    text = "m = Model() + Linear(8) + Relu()"
    after = Model() + Linear(9) + Relu()
    assert updated_source(text, from_source(text), after) == to_source(after)


BUILD = "m = Model()  # a net\nm |= Linear( 8 )\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from mithril_nb.models import Model\n", "from mithril_nb.models import Model, Linear\n"),
        ("from mithril_nb.models import Model # a\n", "from mithril_nb.models import Model, Linear # a\n"),
        ("from mithril_nb.models import *\n", "from mithril_nb.models import *\n"),
        (
            "from mithril_nb.models import (Model)\n",
            "from mithril_nb.models import (Model)\nfrom mithril_nb.models import Linear\n",
        ),
        (
            "from mithril_nb.models import Model; n = Model()\n",
            "from mithril_nb.models import Linear\nfrom mithril_nb.models import Model; n = Model()\n",
        ),
        ('"""A \x0c\u2028 net."""\n', '"""A \x0c\u2028 net."""\nfrom mithril_nb.models import Linear, Model\n'),
        ("", "from mithril_nb.models import Linear, Model\n"),
    ],
)
@pytest.mark.parametrize("end", ["", '"text"\n'])
def test_missing_imports_are_added(before: str, after: str, end: str) -> None:
    code = with_imports(f"{before}{BUILD}{end}", from_source(BUILD))
    assert code == f"{after}{BUILD}{end}"
    scope: dict[str, object] = {}
    exec(code, scope)
    model = scope["m"]
    assert isinstance(model, Model)
    assert model.graph == from_source(BUILD).graph


def test_lines_end_as_python_counts_them() -> None:
    text = f"# \x0c a page, \x85 and \u2028\n{BUILD}"
    after = from_source(BUILD) + Relu()
    lines = ["from mithril_nb.models import Linear, Model, Relu\n", text, "m += Relu()\n"]
    assert updated_source(text, from_source(text), after) == "".join(lines)
