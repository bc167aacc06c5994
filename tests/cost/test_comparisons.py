"""Costs against XLA's and against each other: differences are itemised, and savings listed by fusion."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_programs import programs, spec
from raised import message_of

from mithril_nb.cost import Cost, Figures
from mithril_nb.cost.comparison import CostChange
from mithril_nb.errors import UnknownOptionError
from mithril_nb.figures import OF_XLA
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.bundles import bundle


@pytest.fixture(scope="module")
def step() -> Inspection:
    fn, args = programs()["mlp train step"]
    return inspect(fn, *args, name="step")


@pytest.mark.parametrize("field", OF_XLA)
@pytest.mark.parametrize("source", ["lowered", "compiled"])
def test_nothing_is_left_between_our_sum_and_xlas(step: Inspection, source: str, field: str) -> None:
    found = step.cost(source).difference(of=field)
    assert (found.ours, found.theirs, found.field) == (source, f"XLA {source}", field)
    if (source, field) == ("compiled", "bytes_accessed"):  # XLA counts all logits from which the loss gathers
        assert {row.opcode for row in found.differing} == {"gather", "scatter"}
        assert -2 * 128 * 10 * 4 * 3 < found.total < 0
    else:
        assert found.is_rounding
        assert found.differing == ()
    assert sum(row.ours or 0 for row in found.rows) == found.our_total


def test_equations_and_instructions_count_the_same_primitives_the_same(step: Inspection) -> None:
    found = step.cost().difference(step.cost("lowered"))
    rows = {row.opcode: (row.ours, row.theirs) for row in found.rows}
    products = 2 * 128 * (2 * 784 * 512 + 3 * 512 * 256 + 3 * 256 * 10)
    assert rows["dot_general"] == (products, products)
    assert sum(row.flops or 0 for row in step.cost("compiled").rows if row.opcode == "dot") == products
    assert sum(ours - theirs for ours, theirs in rows.values()) == found.total == 0
    assert found.differing == ()


def test_library_calls_are_listed() -> None:
    found = inspect(lambda x: jnp.linalg.cholesky(x @ x), spec(4, 4), name="factor")
    (row,) = found.cost("lowered").difference().differing
    assert (row.opcode, row.count, row.ours, row.theirs) == ("custom-call", 1, None, None)
    assert row.reason.startswith("XLA counts -1 for each")
    against = found.cost().difference(found.cost("lowered"))
    (row,) = against.differing
    assert (row.opcode, row.ours, row.reason) == ("cholesky", 21, "lowered: 1 not counted (no rule: a library call)")
    assert against.total == 21 - (row.theirs or 0)  # XLA's own instructions that set zeros and the sign of an error


def test_rows_that_only_one_side_has_are_listed() -> None:
    """All of the difference is in the rows, whether the other side counts 0 or the row is unknown there."""
    found = inspect(lambda x: (jnp.linalg.qr(x)[0] @ x, jnp.sort(x)), spec(50, 50))
    for source in ("lowered", "compiled"):
        difference = found.cost().difference(found.cost(source))
        unknown = {row.opcode: row for row in difference.differing if row.theirs is None}
        assert "qr" in unknown
        assert unknown["qr"].reason.startswith(f"{source}: ")
        assert difference.total == sum((row.ours or 0) - (row.theirs or 0) for row in difference.differing)
        assert next(line for line in str(difference).splitlines() if line.startswith("qr ")).split()[-1] == "unknown"


def test_a_switch_is_itemised_if_xla_counts_differently() -> None:
    def fn(index, x):
        return lax.switch(index, [lambda x: x @ x, jnp.tanh, lambda x: x + 1], x)

    cost = inspect(fn, spec(dtype="int32"), spec(16, 16)).cost("lowered")
    assert cost.difference().total == 0
    found = cost.difference(of="transcendentals")
    assert (found.our_total, found.their_total, found.total, found.relative) == (0, 256, -256, -1.0)
    assert [(row.opcode, row.reason[:22]) for row in found.differing] == [("conditional", "XLA also counts the op")]


def test_a_difference_as_text_and_as_data() -> None:
    cost = inspect(lambda x, w: jnp.tanh(x @ w), spec(2, 3), spec(3, 4), name="layer").cost("lowered")
    found = cost.difference()
    assert str(found) == (
        "layer: FLOPs, lowered against XLA lowered; each loop counts as one iteration\n"
        "opcode  count  ours  theirs  difference\n"
        "dot         1    48\n"
        "total            48      48           0"
    )
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["our_total"], data["their_total"], data["total"], data["relative"]) == (48, 48, 0, 0.0)
    assert data["rows"] == [{"opcode": "dot", "count": 1, "ours": 48, "theirs": None, "reason": ""}]


def test_a_platform_without_xla_figures() -> None:
    cost = Cost("step", "lowered", (), {}, (), Figures(None, None, None), Figures())
    found = cost.difference()
    assert (found.total, found.relative, found.is_rounding) == (None, None, False)
    assert str(found).splitlines()[-1].split() == ["total", "0", "unknown", "unknown"]


def test_messages(step: Inspection) -> None:
    assert message_of(lambda: step.cost().difference(of="time")) == (
        "UnknownOptionError: cannot compare the costs of 'step' by 'time'.\n"
        "    known  flops, transcendentals, bytes_accessed\n"
        '    Try: of="flops"'
    )
    with pytest.raises(UnknownOptionError) as error:
        step.cost().difference(step.cost("lowered"), of="bytes")
    assert str(error.value).endswith('    Try: of="bytes_accessed"')
    assert step.cost().difference(step.cost("lowered"), of="bytes_accessed").total is not None
    assert message_of(lambda: step.cost().difference()) == (
        "UnknownOptionError: analytic costs of 'step' cannot be compared in this way.\n"
        "    needs  analytic costs and others, or lowered or compiled costs alone\n"
        '    Try: inspection.cost().difference(inspection.cost("lowered"))'
    )


def test_a_comparison_adds_up(step: Inspection) -> None:
    before, after = step.cost("lowered"), step.cost("compiled")
    found = before.compare(after)
    assert (found.before, found.after) == ("step: lowered", "step: compiled")
    assert found.by_block.keys() == before.by_block.keys() | after.by_block.keys()
    for field in OF_XLA:
        parts = [change.delta for change in (*found.by_block.values(), found.unattributed)]
        assert sum(getattr(part, field) for part in parts) == getattr(found.total.delta, field)
    assert found.total.delta.bytes_accessed == after.total.bytes_accessed - before.total.bytes_accessed < 0
    assert found.total.delta.params == 0
    data = json.loads(json.dumps(found.to_dict()))
    assert data["by_block"]["linear_0"]["delta"]["flops"] == found.by_block["linear_0"].delta.flops
    assert str(found).splitlines()[0] == "step: lowered -> step: compiled"


def test_a_fusion_saves_its_intermediate_values() -> None:
    def fn(x, y):
        with jax.named_scope("sum"):
            z = x + y
        with jax.named_scope("squash"):
            return jnp.tanh(z) * y

    cost = inspect(fn, spec(1000), spec(1000)).cost("compiled")
    (fusion,) = cost.fusions
    # One by one, the three access 3 + 2 + 3 arrays. Fused, they read two and write one.
    assert (fusion.count, fusion.alone, fusion.bytes_accessed, fusion.saved) == (3, 8 * 4000, 3 * 4000, 5 * 4000)
    assert {path for path, _ in fusion.blocks} == {"sum", "squash"}
    lowered = inspect(fn, spec(1000), spec(1000)).cost("lowered")
    found = lowered.compare(cost)
    assert found.saved_by_fusion == -found.total.delta.bytes_accessed == 20_000
    assert str(found).endswith(
        "fusions: 1, bytes saved: 20,000\n"
        f"{'fusion':<{len(fusion.id)}}  instructions  bytes alone   fused   saved\n"
        f"{fusion.id}             3       32,000  12,000  20,000"
    )


def test_fusions_that_save_more_than_the_total_have_a_note() -> None:
    def fn(x):
        y = x * 2 + 1
        return y.sum(0), y.sum(1)  # y is cheap, so each sum recomputes it

    program = inspect(fn, spec(40, 50), name="sums")
    found = program.cost("lowered").compare(program.cost("compiled"))
    saved, less = found.saved_by_fusion, -(found.total.delta.bytes_accessed or 0)
    assert saved is not None
    assert saved > less > 0
    (note,) = found.notes
    assert note == (
        f"Fusion saves {saved:,} bytes compared with running the compiled instructions one by one. Other changes by "
        f"the compiler add {saved - less:,} bytes. Together, compilation saves {less:,} bytes."
    )
    assert str(found).endswith(f"\n{note}")
    assert note in bundle(found)["text/html"]
    other = inspect(fn, spec(20, 50), name="sums").cost("compiled")
    assert other.compare(program.cost("compiled")).notes == (), "both are fused: there is nothing to explain"
    assert program.cost("compiled").compare(other).notes == ()


def test_the_note_on_fusion_is_right_for_every_sign() -> None:
    program = inspect(lambda x: jnp.tanh(x * 2 + 1), spec(40, 50))
    found = program.cost("lowered").compare(program.cost("compiled"))
    saved, after = found.saved_by_fusion, found.total.after.bytes_accessed
    assert saved is not None
    assert after is not None

    def sentences(delta: int) -> list[str]:
        before = replace(found.total.before, bytes_accessed=after - delta)
        return [*replace(found, total=CostChange(before, found.total.after)).notes]

    start = (
        f"Fusion saves {saved:,} bytes compared with running the compiled instructions one by one. Other changes by "
    )
    start += "the compiler "
    assert sentences(5) == [f"{start}add {saved + 5:,} bytes. Together, compilation adds 5 bytes."]
    assert sentences(-5) == [f"{start}add {saved - 5:,} bytes. Together, compilation saves 5 bytes."]
    assert sentences(-saved - 7) == [f"{start}save 7 bytes. Together, compilation saves {saved + 7:,} bytes."]
    assert sentences(-saved) == []


def test_bytes_outside_of_fusions_are_exact() -> None:
    program = inspect(lambda x: (jnp.tanh(x) * 2 + 1, x), spec(64, 64))
    cost = program.cost("compiled")
    (note,) = program.cost("lowered").compare(cost).notes
    (copy,) = (row for row in cost.rows if row.opcode == "copy")
    assert f"the compiler add {copy.bytes_accessed:,} bytes." in note


def test_a_fusion_in_a_loop_saves_in_each_iteration() -> None:
    def fn(x):
        return lax.scan(lambda c, _: (jnp.tanh(c) * 2 + c, None), x, None, length=7)[0]

    cost = inspect(fn, spec(1000)).cost("compiled")
    rows = {row.id: row for row in cost.rows}
    largest = max(cost.fusions, key=lambda fusion: fusion.saved or 0)
    assert (largest.bytes_accessed, rows[largest.id].repeats) == (7 * 2 * 4000, 7)
    assert largest.alone == largest.bytes_accessed + (largest.saved or 0)
    # Unfused, three intermediate arrays are written and read, and the argument is read once.
    assert (largest.saved or 0) // 7 >= 6 * 4000
    assert (largest.saved or 0) % 7 == 0


def test_only_equations_have_a_difference_by_primitive() -> None:
    program = inspect(lambda x: jnp.tanh(x) @ x.T, spec(64, 64), name="layer")
    for source, other in (("lowered", "compiled"), ("compiled", "lowered"), ("lowered", "analytic")):
        with pytest.raises(UnknownOptionError, match=f"{source} costs of 'layer' cannot be compared in this way"):
            program.cost(source).difference(program.cost(other))


def test_partly_unknown_figures_have_no_difference() -> None:
    known, part = Figures(10, 1, 100), Figures(20, None, 90, unknown=1)
    delta = CostChange(known, part).delta
    assert (delta.flops, delta.transcendentals, delta.bytes_accessed) == (None, None, -10)
    assert CostChange(known, Figures(20, 1, None, unknown_bytes=2)).delta == Figures(10, 0, None)
    assert CostChange(Figures(time_s=2.0), Figures(time_s=0.5)).delta.time_s == -1.5


def test_costs_of_other_programs_compare_too() -> None:
    small, large = (inspect(jnp.matmul, spec(2, size), spec(size, 4), name=f"of {size}").cost() for size in (3, 5))
    found = small.compare(large)
    assert (found.total.delta.flops, found.fusions, found.saved_by_fusion) == (2 * 2 * 2 * 4, (), 0)
    assert str(found) == (
        "of 3: analytic -> of 5: analytic\n"
        "block           FLOPs before  after  change  bytes before  after  change\n"
        "matmul                    48     80     +32           104    152     +48\n"
        "(unattributed)             0      0       0             0      0       0\n"
        "total                     48     80     +32           104    152     +48"
    )


def test_a_comparison_is_made_into_plain_data_as_any_dataclass() -> None:
    costs = inspect(lambda x: x @ x, spec(4, 4)).costs()
    found = asdict(costs["lowered"].compare(costs["compiled"]))
    assert set(found["by_block"]) == set(costs["compiled"].compare(costs["lowered"]).by_block)


def test_reasons_for_complex_numbers_are_not_given_for_real_ones() -> None:
    def fn(x):
        x = jnp.abs(x)
        return x @ x.T, x.sum(0), x[:3] * 2

    for dtype, is_given in (("float32", False), ("complex64", True)):
        program = inspect(fn, jax.ShapeDtypeStruct((64, 32), dtype))
        reasons = {row.opcode: row.reason for row in program.cost().difference(program.cost("lowered")).rows}
        compiled = {row.opcode: row.reason for row in program.cost().difference(program.cost("compiled")).rows}
        assert any("for complex numbers" in one for one in (*reasons.values(), *compiled.values())) is is_given


def test_equations_that_the_lowering_removes_explain_a_difference() -> None:
    zeros = np.zeros((8, 4), "float32")

    def program(x: Any) -> Any:
        return (x + 0) * 1 + zeros + 2

    found = inspect(program, spec(8, 4))
    flops, moved = (found.cost().difference(found.cost("lowered"), of=field) for field in ("flops", "bytes_accessed"))
    assert [(row.opcode, row.ours, row.theirs, row.reason) for row in flops.differing] == [
        ("add", 64, 32, "1 of these equations, 32 FLOPs, have no instruction: JAX's lowering removes them"),
    ]  # fmt: skip
    reasons = {row.opcode: row.reason for row in moved.differing}
    assert reasons["mul"] == "1 of these equations, 260 bytes, have no instruction: JAX's lowering removes them"
    # Otherwise another reason or none.
    other = inspect(lambda x: jnp.cumsum(x, 0) + 1, spec(8, 4))
    (row,) = other.cost().difference(other.cost("lowered")).differing
    assert row.reason.startswith("XLA counts a window")
