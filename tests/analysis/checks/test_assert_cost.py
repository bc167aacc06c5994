"""`ml.assert_cost`: programs that pass, programs that fail, and the full text of each error."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_programs import on_host, spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.analysis.checks import _pair
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.errors import CostBoundError, StageUnavailableError, UnexpectedInputError, UnknownOptionError
from mithril_nb.models import GPT, Linear, Model, Relu

pytest_plugins = ("pytester",)


def network(x: Any, w: Any) -> Any:
    with jax.named_scope("net"):
        with jax.named_scope("linear"):
            x = x @ w
        return jnp.tanh(x) + 1


ARGS = spec(2, 8), spec(8, 4)
FLOPS = 2 * 2 * 8 * 4 + 2 * 4
BYTES = 4 * (2 * 8 + 8 * 4 + 2 * 4) + 4 * 4 * 2 * 4 + 4  # product; tanh, sum, and the number that is added


def broken(*args: Any, **options: Any) -> str:
    with pytest.raises(CostBoundError) as error:
        ml.assert_cost(*args, **options)
    assert isinstance(error.value, AssertionError)
    return str(error.value)


def test_a_program_within_its_bounds_passes() -> None:
    ml.assert_cost(network, *ARGS, flops=FLOPS, bytes_accessed=BYTES)
    found = ml.inspect(network, *ARGS, params="w")
    ml.assert_cost(found, flops=(FLOPS, FLOPS), bytes_accessed=(None, BYTES), params=(32, 32))
    ml.assert_cost(network, *ARGS, flops=np.int64(FLOPS), source="lowered")
    ml.assert_cost(network, *ARGS, flops=1e9)
    message = broken(network, *ARGS, bytes_accessed=(None, BYTES - 1))
    assert message.startswith("program 'network' reads and writes more bytes than allowed.\n")


def test_cost_above_the_bound_fails() -> None:
    assert broken(network, *ARGS, flops=FLOPS - 1) == (
        "program 'network' needs more FLOPs than allowed.\n"
        "    flops    136 (analytic)\n"
        "    bound    at most 135\n"
        "    over by  1 (0.7 %)\n"
        "    blocks   net/linear  128  94.1 %\n"
        "             net           8   5.9 %\n"
        '    details  print(inspection.cost("analytic"))\n'
        "    Try: flops=136  # if that is intended"
    )


def test_cost_below_the_bound_fails() -> None:
    assert broken(network, *ARGS, flops=(FLOPS + 64, 1000)) == (
        "program 'network' needs fewer FLOPs than it should.\n"
        "    flops     136 (analytic)\n"
        "    bound     from 200 to 1,000\n"
        "    under by  64 (32.0 %)\n"
        "    blocks    net/linear  128  94.1 %\n"
        "              net           8   5.9 %\n"
        '    details   print(inspection.cost("analytic"))\n'
        "    Try: flops=136  # if that is intended"
    )


def test_all_violations_are_reported_together() -> None:
    model = Model() + Linear(5) + Relu() + Linear(3)
    message = broken(model, shapes={"input": [2, 4]}, flops=0, bytes_accessed=10**6, params=42)
    assert message == (
        "program 'forward' needs more FLOPs than allowed.\n"
        "    flops    166 (analytic)\n"
        "    bound    at most 0\n"
        "    over by  166\n"
        "    blocks   linear_0  90  54.2 %\n"
        "             linear_1  66  39.8 %\n"
        "             relu_0    10   6.0 %\n"
        '    details  print(inspection.cost("analytic"))\n'
        "    Try: flops=166  # if that is intended\n"
        "program 'forward' has more parameters than allowed.\n"
        "    params   43 (analytic)\n"
        "    bound    at most 42\n"
        "    over by  1 (2.4 %)\n"
        "    blocks   linear_0  25  58.1 %\n"
        "             linear_1  18  41.9 %\n"
        '    details  print(inspection.cost("analytic"))\n'
        "    Try: params=43  # if that is intended"
    )


def test_the_peak_of_its_memory() -> None:
    def program(x: Any, w: Any) -> Any:
        with jax.named_scope("product"):
            return x @ w

    args = spec(16, 32), spec(32, 8)
    peak = 4 * (16 * 32 + 32 * 8 + 16 * 8)
    ml.assert_cost(program, *args, peak_bytes=(peak, peak), flops=2 * 16 * 32 * 8)
    assert broken(program, *args, peak_bytes=3000) == (
        "program 'program' holds more bytes at once than allowed.\n"
        "    peak_bytes  3,584 (compiled)\n"
        "    bound       at most 3,000\n"
        "    over by     584 (19.5 %)\n"
        "    blocks      (unattributed)  3,072  85.7 %\n"  # the arguments
        "                product           512  14.3 %\n"
        "    details     print(inspection.memory)\n"
        "    Try: peak_bytes=3_584  # if that is intended"
    )


def test_an_estimated_peak_fails() -> None:
    found = ml.inspect(lambda x: x @ x, spec(8, 8), name="program", compiler_options={"no_such_option": True})
    ml.assert_cost(found, flops=2 * 8**3)
    message = broken(found, peak_bytes=10**9).splitlines()
    assert message[:3] == [
        "program 'program' cannot be checked against its bound of bytes at once: their number is unknown.",
        "    peak_bytes  unknown (compiled)",
        "    bound       at most 1,000,000,000",
    ]
    assert message[3].startswith("    unknown     ")
    assert message[4:] == ["    Try: print(inspection.memory)  # and leave out peak_bytes="]


def test_a_model_takes_what_inspect_takes() -> None:
    gpt = GPT(vocabulary=19, context=8, layers=2, heads=2, width=12)
    shapes = {"input": [2, 5]}
    step = ml.inspect(gpt, shapes=shapes, optimizer="sgd").cost().total.flops
    ml.assert_cost(gpt, shapes=shapes, optimizer="sgd", flops=(step, step))
    message = broken(gpt, shapes=shapes, program="train step", name="small GPT", flops=1e3)
    assert message.startswith("program 'small GPT' needs more FLOPs than allowed.\n")
    assert "    bound    at most 1,000\n" in message
    assert message.splitlines()[-3].strip().startswith("and ")  # five blocks, and the number of others
    assert len(message.splitlines()) == 1 + 3 + 5 + 1 + 1 + 1


def test_an_unknown_figure_fails() -> None:
    def program(x: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < 3, lambda c: c @ c, x) + 1

    assert broken(program, spec(8, 8), flops=10**9, unknown="fail") == (
        "program 'program' cannot be checked against its bound of FLOPs: some FLOPs are unknown.\n"
        "    flops    at least 64 (analytic)\n"
        "    bound    at most 1,000,000,000\n"
        "    unknown  1 × reduce_sum: trip count unknown\n"
        "             1 × lt: trip count unknown\n"
        "             1 × dot_general: trip count unknown\n"
        "    blocks   program  64  100.0 %\n"
        '    details  print(inspection.cost("analytic"))\n'
        '    Try: unknown="warn"  # checks only the known FLOPs'
    )
    assert broken(program, spec(8, 8), params=0) == (
        "program 'program' cannot be checked against its bound of parameters: their number is unknown.\n"
        "    params   unknown (analytic)\n"
        "    bound    at most 0\n"
        "    unknown  the argument x is not called 'params'\n"
        '    Try: ml.inspect(program, *args, params="x")  # or params=() if it has none'
    )
    ml.assert_cost(ml.inspect(program, spec(8, 8), params=()), params=0)


def test_the_known_part_may_exceed_the_bound() -> None:
    message = broken(lambda x: on_host(x) @ x, spec(8, 8), flops=1000)
    assert message.splitlines()[:5] == [
        "program '<lambda>' needs more FLOPs than allowed.",
        "    flops    at least 1,024 (analytic)",
        "    bound    at most 1,000",
        "    over by  24 (2.4 %)",
        "    unknown  1 × pure_callback: no rule: Python on the host",
    ]


def half_known(x: Any) -> Any:
    return on_host(x) @ x + jnp.sin(on_host(x))


def test_a_partly_checked_bound_warns() -> None:
    message = (
        "program 'half_known': only the known FLOPs are checked.\n"
        "    flops       at least 1,088 (analytic)\n"
        "    bound       at most 2,000\n"
        "    unknown     2 × pure_callback: no rule: Python on the host\n"
        '    no warning  unknown="fail" or unknown="ignore"'
    )
    with pytest.warns(MithrilWarning) as warned:
        ml.assert_cost(half_known, spec(8, 8), flops=2_000)
    assert [str(one.message) for one in warned] == [message]
    assert warned[0].filename == __file__
    with pytest.warns(MithrilWarning) as warned:
        ml.assert_cost(half_known, spec(8, 8), flops=2_000, unknown="warn")
    assert [str(one.message) for one in warned] == [message]


def test_unknown_costs_may_fail_or_be_ignored(recwarn: pytest.WarningsRecorder) -> None:
    ml.assert_cost(half_known, spec(8, 8), flops=2_000, bytes_accessed=(1, 10_000), unknown="ignore")
    ml.assert_cost(half_known, spec(8, 8), flops=(1_500, 2_000), unknown="ignore")  # the rest may be in the callback
    assert broken(half_known, spec(8, 8), flops=2_000, unknown="fail") == (
        "program 'half_known' cannot be checked against its bound of FLOPs: some FLOPs are unknown.\n"
        "    flops    at least 1,088 (analytic)\n"
        "    bound    at most 2,000\n"
        "    unknown  2 × pure_callback: no rule: Python on the host\n"
        "    blocks   half_known  1,088  100.0 %\n"
        '    details  print(inspection.cost("analytic"))\n'
        '    Try: unknown="warn"  # checks only the known FLOPs'
    )
    for unknown in ("warn", "ignore", "fail"):
        assert broken(half_known, spec(8, 8), flops=1_000, unknown=unknown) == (
            "program 'half_known' needs more FLOPs than allowed.\n"
            "    flops    at least 1,088 (analytic)\n"
            "    bound    at most 1,000\n"
            "    over by  88 (8.8 %)\n"
            "    unknown  2 × pure_callback: no rule: Python on the host\n"
            "    blocks   half_known  1,088  100.0 %\n"
            '    details  print(inspection.cost("analytic"))\n'
            "    Try: flops=1_088  # if that is intended"
        )
    ml.assert_cost(half_known, spec(8, 8), bytes_accessed=10_000, unknown="fail")  # all bytes are known
    assert not recwarn.list


def test_an_invalid_action_for_unknown_costs_raises() -> None:
    assert message_of(lambda: ml.assert_cost(half_known, spec(8, 8), flops=2_000, unknown="warning")) == (
        "UnknownOptionError: "
        "ml.assert_cost does not accept unknown='warning'.\n    takes  fail, ignore, warn\n    Try: unknown=\"warn\""
    )


def test_symbolic_sizes_fail() -> None:
    sizes = {"input": ["batch", 4]}
    assert broken(Linear(8), shapes=sizes, flops=1_000) == (
        "program 'forward' cannot be checked against its bound of FLOPs: no number for batch.\n"
        "    flops  72·batch (analytic)\n"
        "    bound  at most 1,000\n"
        "    Try: inspection.cost().at(batch=32).total.flops"
    )
    assert broken(Linear(8), shapes=sizes, bytes_accessed=(10, 1e6)).splitlines()[-1] == (
        "    Try: inspection.cost().at(batch=32).total.bytes_accessed"
    )
    assert broken(Linear(8), shapes=sizes, peak_bytes=10) == (
        "program 'forward' cannot be checked against its bound of bytes at once: no number for batch.\n"
        "    peak_bytes  unknown (compiled)\n"
        "    bound       at most 10\n"
        "    Try: ml.inspect(program, *args)  # with a number for batch"
    )
    B, D = jax.export.symbolic_shape("B, D")
    message = broken(ml.inspect(network, spec(B, D), spec(D, 4), params="w"), params=(8, None), flops=1.5)
    assert message == (
        "program 'network' cannot be checked against its bound of FLOPs: no number for B, D.\n"
        "    flops  8·B·D + 4·B (analytic)\n"
        "    bound  at most 1.5\n"
        "    Try: inspection.cost().at(B=32, D=32).total.flops\n"
        "program 'network' cannot be checked against its bound of parameters: no number for B, D.\n"
        "    params  4·D (analytic)\n"
        "    bound   at least 8\n"
        "    Try: inspection.cost().at(B=32, D=32).total.params"
    )
    ml.assert_cost(Linear(8), shapes=sizes, params=40)  # the part without symbolic sizes is known


def test_symbolic_sizes_with_unknown_costs_fail() -> None:
    (B,) = jax.export.symbolic_shape("B")

    def program(x: Any, y: Any) -> Any:
        return on_host(y).sum() + 3 * x

    given = spec(B, 4), spec(5, 5)
    assert broken(program, *given, flops=1_000, bytes_accessed=1e9) == (
        "program 'program' cannot be checked against its bound of FLOPs: no number for B.\n"
        "    flops  8·B + 24 + unknown (1 × pure_callback: no rule: Python on the host) (analytic)\n"
        "    bound  at most 1,000\n"
        "    Try: inspection.cost().at(B=32).total.flops\n"
        "program 'program' cannot be checked against its bound of bytes: no number for B.\n"
        "    bytes_accessed  64·B + 312 (analytic)\n"
        "    bound           at most 1,000,000,000\n"
        "    Try: inspection.cost().at(B=32).total.bytes_accessed"
    )
    ml.assert_cost(program, spec(32, 4), given[1], bytes_accessed=1e9)
    assert (ml.inspect(program, *given).cost().at(B=32).total.bytes_accessed or 0) > 0
    message = broken(program, spec(32, 4), spec(5, 5), flops=1_000, unknown="fail")
    assert "unknown  1 × pure_callback: no rule" in message


def test_fully_unknown_costs_fail() -> None:
    message = broken(
        lambda x: lax.linalg.triangular_solve(x, x), spec(8, 8), flops=1000, source="lowered", unknown="fail"
    )
    assert message.startswith(
        "program '<lambda>' cannot be checked against its bound of FLOPs: some FLOPs are unknown.\n"
        "    flops    unknown (lowered)\n"
        "    bound    at most 1,000\n"
        "    unknown  1 × "
    )


@pytest.mark.parametrize("bound", [-1, True, float("nan"), (2, 1), (None, None), (1, 2, 3), ()])
def test_an_invalid_bound_raises(bound: Any) -> None:
    assert message_of(lambda: ml.assert_cost(network, *ARGS, flops=bound)) == (
        f"UnknownOptionError: ml.assert_cost does not accept flops={bound!r}.\n"
        "    needs  an upper bound, or a pair of lower and upper bound, neither negative\n"
        "    Try: flops=1_000_000  # or flops=(900_000, 1_000_000)"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16GiB", 2**34),
        ("16 GiB", 2**34),
        ("1.5 MB", 1_500_000),
        ("2KiB", 2048),
        ("12 B", 12),
        ("1e3", 1000),
        ("3k", 3000),
    ],
)
def test_texts_with_units_are_bounds(text: str, value: float) -> None:
    assert _pair("peak_bytes", text) == (None, value)
    assert _pair("bytes_accessed", (None, text)) == (None, value)
    assert _pair("peak_bytes", [text, 1e15]) == (value, 1e15)


def test_units_of_other_bounds() -> None:
    assert _pair("flops", "2.5 GFLOP") == _pair("flops", "2.5GFLOPs") == _pair("flops", "2.5 G") == (None, 2.5e9)
    assert _pair("params", ("7M", "7.5M")) == (7e6, 7.5e6)
    ml.assert_cost(network, *ARGS, flops="1 TFLOP", peak_bytes="1 GiB")
    assert "bound    at most 1\n" in broken(network, *ARGS, flops="0.001 kFLOP")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flops", "16 GiB"), ("flops", "2 FLOP/s"), ("flops", "3 s"), ("params", "2 MB"), ("peak_bytes", "16 Gb"),
        ("peak_bytes", "2 GFLOP"), ("peak_bytes", "1 6 GiB"), ("bytes_accessed", ""), ("peak_bytes", "-1 GiB"),
        ("peak_bytes", "GiB"), ("peak_bytes", "2 BB"),
    ],
)  # fmt: skip
def test_texts_without_a_valid_unit(name: str, text: str) -> None:
    message = message_of(lambda: ml.assert_cost(network, *ARGS, **{name: text}))
    assert message.startswith(
        f"UnknownOptionError: ml.assert_cost does not accept {name}={text!r}.\n    needs  a number, "
    )
    advice = message.rpartition("Try: ")[2]
    ml.assert_cost(ml.inspect(network, *ARGS, params=()), **eval(f"dict({advice})"))


def test_a_call_without_bounds_raises() -> None:
    with pytest.raises(UnknownOptionError) as error:
        ml.assert_cost(network, *ARGS)
    assert str(error.value).splitlines()[0] == "ml.assert_cost received no bound, so it would never fail."
    assert str(error.value).splitlines()[-1] == "    Try: ml.assert_cost(program, *args, flops=1_000_000)"


def test_a_misspelled_bound_raises() -> None:
    for target, args in ((network, ARGS), (ml.inspect(network, *ARGS), ())):
        with pytest.raises(UnknownOptionError) as error:
            ml.assert_cost(target, *args, flop=3)
        assert str(error.value) == (
            "ml.assert_cost takes no argument 'flop'.\n"
            "    bounds  flops, bytes_accessed, params, peak_bytes\n"
            "    Try: ml.assert_cost(program, *args, flops=1_000_000)"
        )
    with pytest.raises(UnexpectedInputError, match="unexpected keyword argument 'flop'"):
        ml.assert_cost(network, *ARGS, flop=3, flops=1e9)
    ml.assert_cost(lambda x, flop: x * flop, ARGS[0], flop=3.0, flops=1e9)  # it has such an argument


def test_arguments_for_an_inspection_raise() -> None:
    assert message_of(lambda: ml.assert_cost(ml.inspect(network, *ARGS), *ARGS, name="again", flops=1)) == (
        "UnknownOptionError: program 'network' already has its arguments; ml.assert_cost takes no others."
    )


def test_a_program_that_cannot_be_traced_raises() -> None:
    with pytest.raises(StageUnavailableError):
        ml.assert_cost(network, spec(2, 3), spec(8, 4), flops=1)


def test_in_a_file_that_pytest_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import jax
        import mithril_nb as ml
        from mithril_nb.models import Linear

        SHAPES = {"input": [32, 784]}

        def test_it_stays_as_small_as_it_is():
            ml.assert_cost(Linear(10), shapes=SHAPES, flops=502_080, params=7_850)

        def test_it_got_dearer():
            ml.assert_cost(Linear(20), shapes=SHAPES, flops=502_080)
    """)
    found = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    found.assert_outcomes(passed=1, failed=1)
    lines = ["E * program 'forward' needs more FLOPs than allowed.", "E *over by  502,080 (100.0 %)"]
    found.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(("given", "meant"), [("compile", "compiled"), ("guessed", "analytic"), (3, "analytic")])
def test_an_unknown_source_raises(given: Any, meant: str) -> None:
    assert message_of(lambda: ml.assert_cost(Linear(3), shapes={"input": [2, 5]}, flops=100, source=given)) == (
        f"UnknownOptionError: ml.assert_cost does not accept source={given!r}.\n"
        "    takes  analytic, lowered, compiled\n"
        f'    Try: source="{meant}"'
    )


@pytest.mark.parametrize("name", ["memory", "payload_bytes"])
def test_an_unknown_bound_is_named(name):
    assert message_of(lambda: ml.assert_cost(lambda x: x * 2, jnp.ones(3), **{name: 10})) == (
        f"UnknownOptionError: ml.assert_cost takes no argument {name!r}.\n"
        "    bounds  flops, bytes_accessed, params, peak_bytes\n"
        "    Try: ml.assert_cost(program, *args, flops=1_000_000)"
    )
