"""Questions about live programs: their answers against other counts, and what a question reveals."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from math import prod

import jax
import jax.numpy as jnp
import pytest
from fresh import run_fresh
from hypothesis import given
from hypothesis import strategies as st
from jax_programs import programs, spec
from process import EIGHT_DEVICES
from stress import is_long

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.display import render
from mithril_nb.errors import UnknownOptionError
from mithril_nb.teach import KINDS, candidates
from mithril_nb.teach.answers import Each, Number, Order, Spec, Unreadable, arithmetic
from mithril_nb.teach.fates import FATES, Fates
from mithril_nb.teach.question import Question

PROGRAMS = programs()
COUNTED = (*PROGRAMS, *(name for name in corpus() if not name.startswith("sharded")))
KINDS_OF_ONE_DEVICE = [kind for kind in KINDS if kind not in ("sharding", "stale")]


def inspected(name):
    fn, args = PROGRAMS[name] if name in PROGRAMS else corpus()[name]()
    return ml.inspect(fn, *args, name="program")


def mlp_step(params, x, y):
    def loss(params):
        hidden = jnp.tanh(x @ params["w"])
        return ((hidden @ params["v"] - y) ** 2).mean()

    return jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad, params, jax.grad(loss)(params))


STEP = ({"w": spec(12, 16), "v": spec(16, 3)}, spec(8, 12), spec(8, 3))


@pytest.fixture(scope="module")
def step():
    return ml.inspect(mlp_step, *STEP)


@pytest.mark.parametrize("kind", KINDS_OF_ONE_DEVICE)
def test_a_question_is_answered_once_and_its_truth_is_right(step, kind):
    for seed in range(3):
        question = ml.teach.ask(step, kind, seed)
        candidate = next(each for each in candidates([step], kind, seed) if each.agrees)
        assert (question.text, question.unavailable) == (candidate.text, None)
        truth = candidate.form.text(candidate.truth)
        assert question.check(candidate.truth)
        assert question.check(truth)
        if candidate.near:
            assert not question.check(candidate.near[0][0])
        # Until it is answered, its text, page and data contain no truth beyond its choices.
        shown = json.dumps(render(question)) + repr(question) + repr(ml.teach.ask(step, kind, seed))
        assert candidate.reason not in shown
        if candidate.form in (Spec(), Number("FLOP"), Number("B")):
            assert truth not in shown
        # Another question with the same text may have been answered by an earlier test.
        if question.result is None:
            result = question.predict(truth)
            assert (result.right, result.truth) == (True, truth)
            again = ml.teach.ask(step, kind, seed).predict(candidate.near[0][0] if candidate.near else truth)
            assert (again.right, again.answer) == (True, truth)


@pytest.mark.parametrize("kind", KINDS_OF_ONE_DEVICE)
def test_equal_seeds_give_equal_questions(step, kind):
    first, second = ml.teach.ask(step, kind, 3), ml.teach.ask(ml.inspect(mlp_step, *STEP), kind, 3)
    assert (first.text, first.code, first.choices) == (second.text, second.code, second.choices)
    questions = [first, *(ml.teach.ask(step, kind, seed) for seed in range(3))]
    assert len({(question.text, question.code, question.choices) for question in questions}) > 1


def test_flops_of_products_are_those_of_their_shapes(step):
    by_id = {equation.id: equation for equation in step.equations}
    seen = 0
    for seed in range(4):
        for candidate in candidates([step], "cost", seed):
            found = re.search(r"FLOPs does equation (\S+), `dot_general`", candidate.text)
            if found is None:
                continue
            equation = by_id[found[1]]
            (left, _), _ = equation.param["dimension_numbers"]
            contracted = prod(equation.inputs[0].shape[axis] for axis in left)
            assert candidate.truth == 2 * contracted * prod(equation.outputs[0].shape)
            seen += 1
    assert seen > 8


def test_a_formula_has_the_letters_whose_sizes_are_not_one():
    program = ml.inspect(lambda x, w, v: (x @ w @ v, jnp.einsum("bij,bkj->bik", x, x)),
                         spec(3, 5, 7), spec(7, 5), spec(5, 1))  # fmt: skip
    asked = {each.truth: each for seed in range(4) for each in candidates([program], "formula", seed)}
    assert {truth: each.agrees for truth, each in asked.items()} == {"2*M*N*K": True, "2*M*K": True, "2*B*M*N*K": True}
    question = Question("formula", asked["2*M*K"])
    assert "M = 15 is the size of the axes that only the left operand has, K = 5" in question.text
    assert [question.check(text) for text in ("2*M*K", "M*K*2", "2*15*5", "M*K", "M*(2*K - 1)")] == [
        True,
        True,
        *[False] * 3,
    ]
    assert "A sum of K products has K - 1 adds" in question.predict("M*(2*K - 1)").reason


def test_what_an_equation_reaches_is_what_changes_with_it():
    """Against NumPy-like evaluation: an equation needs another if its value changes when the other's result does."""

    def diamond(a, b):
        left = jnp.sin(a)
        right = jnp.cos(b)
        both = left * right
        alone = jnp.exp(b)
        return both + a, alone - right, jnp.tanh(left), both

    program = ml.inspect(diamond, spec(), spec())
    jaxpr = jax.make_jaxpr(diamond)(0.3, 0.7).jaxpr
    ids = [site.id for site in program.traced_program.top]

    def values(changed=None):
        known = dict(zip(jaxpr.invars, (0.3, 0.7), strict=True))
        for number, equation in enumerate(jaxpr.eqns):
            operands = [known.get(atom, getattr(atom, "val", None)) for atom in equation.invars]
            known[equation.outvars[0]] = equation.primitive.bind(*operands, **equation.params) + (number == changed)
        return [float(known[equation.outvars[0]]) for equation in jaxpr.eqns]

    before, seen = values(), set()
    for seed in range(12):
        for each in candidates([program], "flow", seed):
            assert each.agrees
            start = ids.index(re.search(r"result of equation (\S+),", each.text)[1])
            after = values(start)
            lines = dict(
                zip(each.form.choices, range(len(jaxpr.eqns) - len(each.form.choices), len(jaxpr.eqns)), strict=True)
            )
            if " need " in each.text:
                needing = [line for line, number in lines.items() if abs(after[number] - before[number]) > 1e-6]
                assert list(each.truth) == needing
            else:
                variable = jaxpr.eqns[start].outvars[0]
                assert list(each.truth) == [
                    line for line, number in lines.items() if variable in jaxpr.eqns[number].invars
                ]
            seen.add((start, " need " in each.text))
    assert len(seen) > 4


def test_all_products_are_asked_for_only_if_each_product_in_the_jaxpr_counts():
    def hessian_times(x, w, vector):
        return jax.jvp(lambda x: jax.grad(lambda x: (jnp.sin(w @ x) ** 2).sum())(x), (x,), (vector,))

    def asked(fn):
        program = ml.inspect(fn, spec(32), spec(32, 32), spec(32))
        first = [next(iter(candidates([program], "cost", seed))) for seed in range(12)]
        return {candidate.truth for candidate in first if "all `dot_general`" in candidate.text}

    assert asked(hessian_times) == {4 * 2 * 32 * 32}
    assert asked(lambda *args: hessian_times(*args)[1]) == set()  # the product of the gradient is unused


def test_fates_are_those_of_the_program_without_tags():
    """The optimized HLO of plain `jax.jit` has JAX's own names: no instruction for what was removed, and so on."""

    def net(x, w):
        left = jnp.tanh(x @ w)
        right = jnp.tanh(x @ w)  # merged
        unused = jnp.exp(x).sum()  # dropped
        del unused
        return jnp.sort(left + right, axis=0), jnp.cos(left * 1.0)

    program = ml.inspect(net, spec(8, 16), spec(16, 4))
    text = jax.jit(net).lower(spec(8, 16), spec(16, 4)).compile().as_text() or ""
    entry = text.partition("ENTRY ")[2]
    fates = defaultdict(set)
    for seed in range(4):
        for candidate in candidates([program], "fate", seed):
            primitive = re.search(r"`(\w+)`", candidate.text)
            assert primitive is not None
            if candidate.agrees:
                fates[primitive[1]].add(candidate.truth)
    assert fates["exp"] == {FATES["dropped"]}
    assert "exponential" not in text
    assert fates["sort"] == {FATES["kept"]}
    assert " sort(" in entry
    assert fates["cos"] == {FATES["fused"]}
    assert " cosine(" in text
    assert " cosine(" not in entry
    assert FATES["merged"] in fates["tanh"]
    assert text.count(" tanh(") == 1


def test_that_nothing_is_left_of_an_equation_is_no_simplification_if_an_equal_one_is_left():
    def fn(x, y):
        return jnp.sin(x + y) * jnp.cos(y + x), jnp.broadcast_to(x[:, None], (8, 5)).max(1)

    program = ml.inspect(fn, spec(8), spec(8))
    fates = Fates(program)
    _, _, swapped, _, _, column, rows, _ = program.equations
    outcomes = program.who_changed("jaxpr", swapped.id).outcomes
    assert fates.certain(swapped, outcomes) == outcomes[0]
    assert outcomes[0].became == "merged"
    assert fates.certain(swapped, [replace(outcomes[0], became="simplified", equations=())]) is None
    simplified = fates.certain(column, program.who_changed("jaxpr", column.id).outcomes)
    assert simplified is not None
    assert simplified.became == "simplified"
    assert fates.certain(rows, [simplified]) is None  # a broadcast of x is left


def test_retraces_are_counted_by_the_function_itself():
    traced = []

    def scaled(x, rate):
        traced.append(x.shape)
        return x * rate

    program = ml.inspect(scaled, spec(4, 3), spec())
    for seed in range(2):
        question = ml.teach.ask(program, "retrace", seed)
        assert len(question.items) == 5
        truth = next(each for each in candidates([program], "retrace", seed) if each.agrees).truth
        assert truth[0] == "trace"
        assert question.check(truth)
        assert not question.check(["hit"] * 5)
    assert traced


GLOBAL_RATE = 0.1


def updated(weights, x):
    print("traced")
    return weights - GLOBAL_RATE * x.sum(0)


def test_questions_about_weak_types_have_both_answers():
    weak = jax.ShapeDtypeStruct((), "float32", weak_type=True)
    program = ml.inspect(lambda x, scale: x * (scale * 2.0), spec(4), weak)
    asked = [each for seed in range(60) for each in islice(candidates([program], "spec", seed), 1)]
    truths = {("mul 2.0" in each.code or "2.0:" in each.code, each.truth) for each in asked if "weakly" in each.text}
    assert truths == {(True, "weakly typed"), (False, "not weakly typed")}
    assert all(each.agrees for each in asked)


def test_a_global_is_read_while_tracing(capsys):
    program = ml.inspect(updated, spec(3), spec(4, 3))
    capsys.readouterr()
    for seed in range(4):
        question = ml.teach.ask(program, "stale", seed)
        truth = next(each for each in candidates([program], "stale", seed) if each.agrees).truth
        assert question.choices == ("0.1", "0.2")
        # One set of arguments is new after the change, and may be repeated.
        assert 1 <= truth.count("0.2") <= 2
        assert question.check(truth)
        assert not question.check(["0.2"] * len(truth))
        text = question.code.split("GLOBAL_RATE = 0.2")
        earlier = [line.partition(". ")[2] for line in text[0].strip().split("\n")]
        later = [line.partition(". ")[2] for line in text[1].strip().split("\n")]
        assert truth == tuple("0.1" if call in earlier else "0.2" for call in later)
    assert GLOBAL_RATE == 0.1
    assert "no question" in (ml.teach.ask(ml.inspect(jnp.sin, spec(3)), "stale").unavailable or "")
    # The calls of these questions trace, but the program's own output stays out of the cell.
    capsys.readouterr()
    assert ml.teach.ask(ml.inspect(updated, spec(3), spec(5, 3)), "retrace").unavailable is None
    assert capsys.readouterr().out == ""


def test_calls_with_static_arguments():
    def power(x, n):
        return x**n

    codes = ["f(2.0, 3)", "f(5.0, 3)", "f(2.0, 4)", "f(2, 3)", "f(2.0, n=3)"]
    for seed in range(4):
        question = ml.teach.ask_calls(power, codes, seed, static_argnames="n")
        called = [line.partition(". ")[2] for line in question.code.split("\n")]
        assert called[0] == codes[0]
        kinds = [0 if code == codes[1] else codes.index(code) for code in called]  # only the value of x differs
        truth = ["hit" if kind in kinds[:at] else "trace" for at, kind in enumerate(kinds)]
        assert question.check(truth)
        assert not question.check(["trace"] * len(truth))
    nested = ml.teach.ask_calls(power, ["f(2.0, 3)", "f(f(2.0, 3), 3)", "f(2.0, 4)"], static_argnames="n")
    calls = [line.partition(". ")[2] for line in nested.code.split("\n")]
    reason = nested.predict(["hit"] * len(calls)).reason
    assert re.findall(r"Call (\d) traces", reason) == [
        str(1 + at) for at, call in enumerate(calls) if call == "f(2.0, 4)" and call not in calls[:at]
    ]
    failed = ml.teach.ask_calls(power, ["f(2, [])", "f(3, [])"], static_argnames="n")
    assert "a call fails with ValueError" in (failed.unavailable or "")
    with pytest.raises(UnknownOptionError, match="two or more"):
        ml.teach.ask_calls(power, ["f(2.0, 3)"])


def test_the_order_of_programs_by_memory():
    small, large = (ml.inspect(jnp.sin, spec(size, 8), name=f"sin_{size}") for size in (64, 512))
    question = ml.teach.ask([large, small], "memory")
    assert question.check("sin_64 < sin_512")
    assert not question.check(["sin_512", "sin_64"])


def test_what_cannot_be_asked_says_why_and_does_not_raise(step):
    missing = ml.teach.ask(step, "sharding")
    assert "arguments on a mesh" in (missing.unavailable or "")
    assert (missing.predict("all-reduce").right, missing.check("all-reduce")) == (None, False)
    assert "mesh" in render(missing)["text/html"]

    def broken(x):
        return x @ jnp.zeros(3)

    failed = ml.teach.ask(ml.inspect(broken, spec(4)), "cost")
    assert "cannot be traced" in (failed.unavailable or "")
    with pytest.raises(UnknownOptionError, match='kind="cost"'):
        ml.teach.ask(step, "costs")
    with pytest.raises(UnknownOptionError, match="needs an inspection"):
        ml.teach.ask(mlp_step, "cost")
    with pytest.raises(UnknownOptionError, match="different names"):
        ml.teach.ask([step, step], "memory")


@pytest.mark.parametrize("answer", [None, ..., "", "x", [], {}, float("nan"), True, object(), "4.2 GB", "1" * 5000])
def test_an_answer_of_another_form_is_no_answer(step, answer):
    seeds = (ml.teach.ask(step, "cost", seed) for seed in count())
    question = next(each for each in seeds if each.form == Number("FLOP") and each.result is None)
    result = question.predict(answer)
    assert (result.right, result.truth) == (None, "")
    assert question.check(answer) is False
    assert question.result is None


@given(st.integers(1, 10**15), st.sampled_from(["{}", "{:,}", "{:_}", "{} FLOP", "{}FLOPs", " {} "]))
def test_numbers_are_read_in_every_spelling(value, form):
    assert Number("FLOP").read(form.format(value)) == value
    assert Number("FLOP").read(f"{value / 1e6!r} MFLOP") == pytest.approx(value)


@given(st.text(max_size=40))
def test_texts_are_read_or_refused(text):
    for form in (Number("B"), Number(), Spec(), Order(("a", "b")), Each(("1", "2"), ("hit", "trace"))):
        with suppress(Unreadable):
            assert form.text(form.read(text))


@given(st.recursive(st.integers(0, 99).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
    lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"), max_leaves=8))  # fmt: skip
def test_arithmetic_is_that_of_python(text):
    assert arithmetic(text) == eval(text)


@pytest.mark.parametrize("name", COUNTED if is_long() else ["attention train step"])
def test_seeded_questions(stress, name):
    """Both oracles agree on all but the disagreements that are explained below."""
    program = inspected(name)
    seeds = range(stress.size(short=1, long=10))
    counts = Counter()
    for kind in KINDS_OF_ONE_DEVICE:
        for seed in seeds if kind != "retrace" else range(1):
            for candidate in islice(candidates([program], kind, seed), 20 if is_long() else 6):
                counts[kind, candidate.agrees] += 1
                assert candidate.agrees or is_explained(kind, candidate), (kind, candidate)
    stress.report(**{kind: f"{counts[kind, True]}/{counts[kind, False]}" for kind in KINDS_OF_ONE_DEVICE})
    assert counts["spec", True]
    assert counts["cost", True]


def is_explained(kind, candidate):
    """Return whether the second oracle is known to say nothing here, or to count another program."""
    if candidate.second is None:  # it could not be computed, as for a primitive that needs a mesh around it
        return True
    # XLA counts the program of one equation with its broadcasts of scalars and initial values.
    return kind == "cost" and "bytes" in candidate.text and candidate.second > candidate.truth


@pytest.mark.parametrize("primitive", ["tanh", "select_n"])
def test_an_answer_that_two_misconceptions_give_gets_neither(primitive):
    """A result of `tanh` has as many bytes as its operand, and one of `select` as the equation has elements."""
    size = 4 * 512
    program = ml.inspect(lambda x: jax.lax.select(x > 0, jnp.tanh(x), x), spec(512), name="ambiguous")
    sites = {equation.primitive: equation.id for equation in program.equations}
    candidate = next(
        each
        for seed in count()
        for each in candidates([program], "cost", seed)
        if f"bytes does equation {sites[primitive]}," in each.text
    )
    assert [Number("B").same(size, wrong) for wrong, _ in candidate.near].count(True) == 2
    result = Question("cost", candidate).predict(size)
    assert (result.right, result.reason) == (False, candidate.reason)
    [other] = [(wrong, why) for wrong, why in candidate.near if not Number("B").same(size, wrong)]
    assert candidate.misconception(other[0]) == other[1]


def test_an_edited_program_has_a_question_of_its_own():
    """Both have the same text; the answer to the first counts for the first alone."""
    first = ml.teach.ask(ml.inspect(lambda x: x @ x @ x, spec(5, 5), name="edited"), "count")
    second = ml.teach.ask(ml.inspect(lambda x: x @ x @ x @ x, spec(5, 5), name="edited"), "count")
    assert first.text == second.text
    assert (first.predict(2).right, second.predict(3).right) == (True, True)


def test_programs_with_random_keys_and_unusual_globals_raise_nothing():
    key = jax.random.key(0)
    program = ml.inspect(lambda key, x: x * jax.random.bernoulli(key, 0.5, x.shape), key, spec(4, 3), name="drop")
    for kind in KINDS_OF_ONE_DEVICE:
        assert ml.teach.ask(program, kind).text
        assert not any("key<" in candidate.text for candidate in islice(candidates([program], kind), 30))


def test_flops_of_a_branch_are_not_asked_for():
    program = ml.inspect(lambda c, x: jax.lax.cond(c, lambda x: x @ x, lambda x: x, x), spec(dtype="bool"), spec(4, 4))
    assert not any("dot_general" in candidate.text for candidate in candidates([program], "cost"))


def test_a_learning_rate_is_no_update():
    def step(params, x, t):
        rate = 0.1 * jnp.exp(-t)
        grads = jax.grad(lambda w: ((x @ w) ** 2).sum())(params)
        return params - rate * grads

    program = ml.inspect(step, spec(4, 2), spec(3, 4), spec())
    exp = next(equation for equation in program.equations if equation.primitive == "exp")
    asked = [candidate for candidate in candidates([program], "role") if candidate.agrees]
    assert asked
    assert not any(f"equation {exp.id}, " in candidate.text for candidate in asked)


COLLECTIVES = """
from itertools import islice
import jax, jax.numpy as jnp, mithril_nb as ml
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from mithril_nb.teach.asking import candidates

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

def spec(shape, *axes):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*axes)))

def network(params, x):
    with jax.named_scope("up"):
        hidden = jnp.tanh(x @ params["up"])
    with jax.named_scope("down"):
        return hidden @ params["down"]

def gradient(params, x):
    return jax.grad(lambda params: (network(params, x) ** 2).sum())(params)

x = spec((512, 256), "data")
whole = {"up": spec((256, 1024)), "down": spec((1024, 32))}
sharded = {"up": spec((256, 1024), "data"), "down": spec((1024, 32), "data")}

def texts(program):
    return {each.text.partition(" in `")[0]: each.truth for each in candidates([program], "sharding") if each.agrees}

# Both kinds of questions are asked, and the bytes of two combined collectives are those of both blocks.
combined = ml.inspect(gradient, whole, x, name="combined")
print(sorted({ml.teach.ask(combined, "sharding", seed).text.partition(" ")[0] for seed in range(20)}))
assert len(combined.mesh.collectives) == 1
print(texts(combined)["How many bytes does one device pass to the `all-reduce` of blocks `down` and `up`"])
# A block with two collectives of one kind and different bytes is not asked about.
several = ml.inspect(gradient, sharded, x, name="several")
sizes = {}
for each in several.mesh.collectives:
    sizes.setdefault((each.opcode, *sorted(path for path, _ in each.blocks)), set()).add(each.payload_bytes)
    assert all(id in several.traced_program.by_id for id in each.equations)
unclear = [key for key, payloads in sizes.items() if len(payloads) > 1]
assert unclear
for opcode, *blocks in unclear:
    names = " and ".join(f"`{block}`" for block in blocks)
    assert not any(f"`{opcode}` of block" in text and names in text for text in texts(several)), texts(several)
gathered = ml.inspect(network, sharded, x).mesh.collectives
print([(each.opcode, "for dot_general" in each.reason) for each in gathered])
biggest = ml.inspect(lambda x: x.max(0), x).mesh.collectives
print(biggest[0].reason)
"""


def test_bytes_of_a_collective_are_asked_only_if_it_is_clear_which():
    lines = run_fresh(COLLECTIVES, **EIGHT_DEVICES).splitlines()
    assert lines == [
        "['How', 'Which']",
        str(4 * (256 * 1024 + 1024 * 32)),
        "[('all-gather', True), ('all-gather', True)]",
        "the parts of a reduction over data are combined: reduce_max over a dimension that is split",
    ]
