"""Python read as syntax: other code is refused with its line, and nothing runs."""

from __future__ import annotations

import pytest

from mithril_nb.errors import MithrilError
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.models.saving.reading import MOST_CHARACTERS, from_source

REFUSED = {
    "import os\nos.system('touch ran')": ("system", 2),
    "a = Linear(3)\nopen('ran', 'w')": ("open", 2),
    "a = Linear(3)\nb = a.graph.nodes": ("only a model", 2),
    "def f(): pass": ("only a model", 1),
    "[1 for _ in Linear(3)]": ("only a model", 1),
    "a = Model()\na |= Linear(10 ** 9)": ("only a model", 2),
    "a = 3": ("only a model", 1),
    "b += Linear(3)": ("only a model", 1),
    "a = Linear(3)\na.set_shapes(nothing=[1])": ("nothing", 0),
    "float('x')": ("cannot be built", 1),
    "((": ("no Python", 1),
    "\x00": ("no Python", 1),
    "(" * 500: ("no Python", 1),
    "Foo(3)": ("Foo", 1),
    "": ("no model", 0),
    "a = Model()\na |= Linear(3)\n" + "a |= a\n" * 60: ("too large", 0),
    "a, b = Linear(3), Relu()\na, b = (a + a, b)\n" + "a, b = (a + a, b)\n" * 60: ("too large", 0),
    "a, b = Linear(3), Relu(), Relu()": ("only a model", 1),
    "a, b.c = Linear(3), Relu()": ("only a model", 1),
    "# \x0c \x85 \u2028\nFoo(3)": ("Foo", 2),
    "#" * (MOST_CHARACTERS + 1): ("too long", 0),
}


@pytest.mark.parametrize("text", REFUSED)
def test_other_code_is_refused_with_its_line(text: str) -> None:
    why, line = REFUSED[text]
    with pytest.raises(MithrilError, match=why) as caught:
        from_source(text)
    facts = dict(caught.value.diagnostics[0].facts)
    assert facts.get("line") == (str(line) if line else None)


def test_models_are_read_however_they_are_imported_and_composed() -> None:
    plain = Model() + Linear(3) + Relu()
    for text in (
        "from mithril_nb.models import Linear as L, Relu\nm = Model() + L(3) + Relu()",
        "import mithril_nb.models as mm\nm = mm.Model()\nm |= mm.Linear(3)\nm += mm.Relu()",
        "m = Model()\na = Linear(3)\nm |= a\nm |= Relu()(input=a.output)  # a comment\n",
    ):
        assert from_source(text).graph == plain.graph
    assert from_source("Linear(3)").graph == (Model() | Linear(3)).graph


def test_the_values_of_a_tuple_are_read_before_its_names_change() -> None:
    assert from_source("a, b = Linear(3), Relu()\na, b = b, a\nm = Model() + a").graph == (Model() + Relu()).graph
