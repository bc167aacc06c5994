"""Questions on pages without a kernel: the script reads answers as Python does, and reveals the same."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from axe import violations
from lab import Browser, watched_page

import mithril_nb as ml
from mithril_nb.teach import KINDS
from mithril_nb.teach.answers import Choice, Each, Formula, Number, Order, Several, Spec, Unreadable
from mithril_nb.teach.question import Candidate, Question
from tools.site.frozen import frozen_html

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "docs" / "javascripts" / "questions.js").read_text(encoding="utf-8")
FLOPS, COUNT = Number("FLOP"), Number()
NUMBERS = [
    "3211264",
    "3.2 MFLOP",
    "3.2MFLOPs",
    "3,211,264",
    "3_211_264",
    "2 * 32 * 784 * 64",
    "2*32*(700+84)*64",
    "3.3 MFLOP",
    "3.2 MFLOPS",
    "3.2 GB",
    "1e3",
    "3.21e6",
    "3.2 M",
    "2**21",
    "-2**2",
    "2**-1 * 6422528",
    "1.0000001**65",
    "2000000000**1",
    "7//2",
    "(1",
    "1 +",
    "0x10",
    "3,2",
    "0,200",
    "text",
    "3 211 264",
    ".5",
    "3.2112640 MFLOP",
    "2×1605632",
    "1/0",
    "--3211264",
    "3 GFLOP",
    "3.2112640m",
    "3136KiFLOP",
    "3136 kiFLOP",
    "3iFLOP",
    "2 * 3 MFLOP",
    "(2+3)M",
    "2 * 3 k",
    "3 211 k",
    "3 211.264 kFLOP",
    "007",
    "3 + 007",
    "00",
    "007.5",
    "003211.264k",
    "1e400k",
    "'3.2 MFLOP'",
    '"3.2 MFLOP"',
    "'2 * 32 * 784 * 64'",
    "' 3211264 '",
    "'3211264",
    "'3211264\"",
    "''",
    "'",
]
FORMULAS = [
    "2*B*M*K",
    "2·B·M·K",
    "K * (M + M) × B",
    "B*M*K*0.2*10",
    "B*M*K",
    "2*B*M*K*K/K",
    "2*8*16*4",
    "b*M*K",
    "2*B*M*N",
    "2 B M K",
    "2*B*M",
    "(B*M*K",
    "B/0",
    "B**65",
    "'2*B*M*K'",
    "constructor",
    "",
]
SPECS = [
    "float32[32, 64]",
    "f32[32,64]",
    "f32[ 32 , 64 ]",
    "f32[64,32]",
    "float32[]",
    "bf16[32,64]",
    "float32(32, 64)",
    "32, 64",
    "F32[32,64]",
    "f32[32 64]",
    "f32[32,64,]",
    "bool[3]",
    "x32[32,64]",
    "float32 [32, 64]",
    "'float32[32, 64]'",
    '"f32[32,64]"',
    "'f32[32,64]",
    "f32[032,64]",
    "f32[ ]",
    "pred8[3]",
    "((32, 64), 'float32')",
]


def asked(text: str, form: object, truth: object, near: tuple = ()) -> Question:
    return Question("test", Candidate(text, form, truth, truth, "Because <b> of `a < b`.", near))


def cases() -> list[tuple[Question, str]]:
    """Return questions with typed answers, right, wrong and unreadable."""
    near = ((1_605_632, "A multiply and an add count as two."),)
    flops = asked("How many?", FLOPS, 3_211_264, near)
    count = asked("How many equations?", COUNT, 7)
    twice = ((7, "The first reason."), (7.01, "The second reason."))
    bytes_ = asked("How many bytes?", Number("B"), 14, twice)
    spec = asked("Which spec?", Spec(), Spec().read("f32[32,64]"))
    formula = asked("Which formula?", Formula(("B", "M", "K")), "2*B*M*K", (("B*M*K", "They are two."),))
    return [
        *((formula, text) for text in FORMULAS),
        *((flops, text) for text in [*NUMBERS, "1605632"]),
        *((count, text) for text in ["7", "7.0", "3 + 4", "7.01", "seven", ""]),
        *((bytes_, text) for text in ["14 B", "7"]),
        *((spec, text) for text in SPECS),
    ]


def expected(question: Question, text: str) -> str:
    assert question.form is not None
    try:
        value = question.form.read(text)
    except Unreadable:
        return "unread"
    assert question.check(text) is question.form.same(value, question._candidate.truth)
    return "right" if question.check(text) else "wrong"


def page_of(tmp_path: Path, parts: list[str]) -> str:
    path = tmp_path / "page.html"
    head = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>page</title></head><body><main>'
    path.write_text(f'{head}{"".join(parts)}<p class="mnb-score"></p></main><script>{SCRIPT}</script></body></html>')
    return path.as_uri()


SUBMIT = """texts => [...document.querySelectorAll('form.mnb-predict')].map((form, number) => {
    form.querySelector('input[type=text]').value = texts[number];
    form.requestSubmit();
    const output = form.nextElementSibling;
    return [output.textContent, form.elements[0].disabled];
})"""


def test_typed_answers_mean_what_they_mean_in_python(chromium: Browser, tmp_path: Path) -> None:
    every = cases()
    with watched_page(
        chromium.context, page_of(tmp_path, [frozen_html(question) for question, _ in every]), 900
    ) as page:
        results = page.evaluate(SUBMIT, [text for _, text in every])
    wrong = []
    for (question, text), (output, is_locked) in zip(every, results, strict=True):
        shown = "right" if "✓" in output else "wrong" if "✗" in output else "unread"
        assert not re.search("The (first|second) reason", output)  # both may be meant
        if shown != expected(question, text) or is_locked != (shown != "unread"):
            wrong.append((text, shown, expected(question, text)))
    assert not wrong, wrong
    near = dict(zip([text for _, text in every], [output for output, _ in results], strict=True))["1605632"]
    assert "1,605,632 FLOP" in near
    assert "A multiply and an add count as two." in near


def test_questions_are_answered_by_mouse_and_counted(chromium: Browser, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="alert(1)">'
    parts = [
        asked("Which?", Choice((hostile, "b & c")), "b & c", ((hostile, "Not this."),)),
        asked("Each?", Each(("1.", "2."), ("hit", "trace")), ("trace", "hit")),
        asked("Order?", Order(("x", "y", "z")), ("z", "x", "y")),
        asked("Lines?", Several(("b = sin a", "c = cos a", "d = add b c")), ("b = sin a", "d = add b c")),
    ]
    with watched_page(chromium.context, page_of(tmp_path, list(map(frozen_html, parts))), 900) as page:
        assert violations(page, "main") == []
        forms = page.locator("form.mnb-predict")
        forms.nth(0).get_by_label(hostile).check()
        forms.nth(0).get_by_role("button").click()
        forms.nth(1).locator("input[value=trace]").first.check()
        forms.nth(1).get_by_role("button").click()  # the second item has no answer yet
        assert "✗" not in page.locator(".mnb-answer").nth(1).inner_text()
        forms.nth(1).locator("input[value=hit]").last.check()
        forms.nth(1).get_by_role("button").click()
        for number, name in enumerate("zxy"):
            forms.nth(2).locator("select").nth(number).select_option(name)
        forms.nth(2).get_by_role("button").click()
        forms.nth(3).get_by_role("button").click()  # no line is marked yet
        assert "✗" not in page.locator(".mnb-answer").nth(3).inner_text()
        for line in ("d = add b c", "b = sin a"):
            forms.nth(3).get_by_label(line).check()
        forms.nth(3).get_by_role("button").click()
        outputs = page.locator(".mnb-answer").all_inner_texts()
        assert [("✓" in output, "✗" in output) for output in outputs] == [(False, True), *[(True, False)] * 3]
        assert [text for text in (hostile, "Not this.", "b & c") if text not in outputs[0]] == []
        assert "z < x < y" in outputs[2]
        assert page.locator(".mnb-answer img").count() == 0
        assert page.locator(".mnb-score").inner_text() == "3 of 4 questions right at the first answer"
        assert forms.nth(0).get_by_role("button").is_disabled()


def test_the_truth_of_each_kind_of_question_is_right(chromium: Browser, tmp_path: Path) -> None:
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

    array = jax.ShapeDtypeStruct
    p = ml.inspect(step, array((16, 8), "float32"), array((4, 16), "float32"))
    questions = [ml.teach.ask(p, kind, seed) for kind in KINDS if kind != "sharding" for seed in range(2)]
    questions = [question for question in questions if question.unavailable is None]
    assert len({question.kind for question in questions}) >= 8
    fill = """() => [...document.querySelectorAll('form.mnb-predict')].map((form) => {
        const {truth, form: kind} = JSON.parse(form.nextElementSibling.nextElementSibling.textContent);
        const parts = kind === 'order' ? truth.split(' < ') : kind === 'each' ? truth.split(', ') : [truth];
        for (const text of form.querySelectorAll('[type=text]')) text.value = truth;
        [...form.querySelectorAll('fieldset')].forEach((set, at) =>
            [...set.querySelectorAll('input')].forEach((input, number) => (input.checked = kind === 'several'
                ? truth.split(', ').includes(`${number + 1}`) : input.value === parts[at])));
        [...form.querySelectorAll('select')].forEach((select, at) => (select.value = parts[at]));
        form.requestSubmit();
        return form.nextElementSibling.textContent;
    })"""
    with watched_page(chromium.context, page_of(tmp_path, list(map(frozen_html, questions))), 900) as page:
        outputs = page.evaluate(fill)
    assert [output for output in outputs if "✓" not in output] == []
    assert len(outputs) == len(questions)


@pytest.mark.parametrize("form", [FLOPS, Spec(), Choice(("a", "b"))])
def test_the_answers_close_no_script_element(form: object) -> None:
    truth = {Number: 1.0, Spec: Spec().read("f32[2]"), Choice: "a"}[type(form)]
    html = frozen_html(asked("</script><b>", form, truth))
    assert html.count("</script>") == 1
