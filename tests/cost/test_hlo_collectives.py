"""Collectives in HLO text: groups in all forms, asynchronous pairs, and combined collectives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.cost import CostRow
from mithril_nb.cost.hlo.instruction_costs import groups_of, hlo_costs
from mithril_nb.stages.hlo.optimized import read_hlo
from mithril_nb.stages.hlo.syntax import attribute_pairs
from mithril_nb.stages.records import Stage
from mithril_nb.stages.trace.provenance.scopes import Tags

ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""


def costs(*lines: str, head: str = "HloModule step, num_partitions=8") -> dict[str, CostRow]:
    """The costs of the instructions of a program with a parameter `%p` of 100 floats, by name."""
    body = "\n".join(f"  {line}" for line in lines)
    text = f"{head}\n{ADD}\nENTRY %main (p: f32[100]) -> f32[100] {{\n  %p = f32[100] parameter(0)\n{body}\n}}\n"
    shown, instructions = read_hlo(text, Tags(set()), {}, {})
    return {one.id: one for one in hlo_costs(Stage("hlo", shown, instructions))[0]}


def sent(line: str, head: str = "HloModule step, num_partitions=8") -> tuple[int | None, int | None]:
    one = costs(f"ROOT %c = {line}", head=head)["c"]
    return one.payload_bytes, one.wire_bytes


@st.composite
def groupings(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    """Groups as an iota of some shape, perhaps transposed, in the text of HLO and by NumPy."""
    dims = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(dims))))
    every = np.arange(np.prod(dims)).reshape(dims).transpose(order)
    sizes = [size for size in range(1, every.size + 1) if every.size % size == 0]
    rows = every.reshape(-1, draw(st.sampled_from(sizes)))
    turned = f"T({','.join(map(str, order))})" if order != sorted(order) or draw(st.booleans()) else ""
    return f"[{rows.shape[0]},{rows.shape[1]}]<=[{','.join(map(str, dims))}]{turned}", rows


@given(groupings())
def test_groups_as_an_iota_and_as_lists(grouping: tuple[str, np.ndarray]) -> None:
    text, rows = grouping
    listed = "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"
    assert groups_of(text) == groups_of(listed) == rows.tolist()
    for groups in (text, listed):
        assert attribute_pairs(f", channel_id=1, replica_groups={groups}, dimensions={{0}}") == (
            ("channel_id", "1"), ("replica_groups", groups), ("dimensions", "{0}"),
        )  # fmt: skip


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_groups_as_axes_of_a_mesh(sizes: list[int], data: st.DataObject) -> None:
    grid = np.arange(np.prod(sizes)).reshape(sizes)
    chosen = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    kept = [axis for axis in range(len(sizes)) if axis not in chosen]
    rows = grid.transpose([*kept, *chosen]).reshape(-1, int(np.prod([sizes[axis] for axis in chosen])))
    quoted = data.draw(st.booleans())
    names = [f"'axis_{axis}'" if quoted else f"axis_{axis}" for axis in range(len(sizes))]
    order = data.draw(st.permutations(range(grid.size)))
    turned = f"[{','.join(map(str, sizes))}]T({','.join(map(str, reversed(range(len(sizes)))))})"
    devices, ids = data.draw(
        st.sampled_from([
            ("", np.arange(grid.size)),
            (f", device_ids=({turned})", grid.transpose().reshape(-1)),
            (f", device_ids=([{grid.size}]<={turned})", grid.transpose().reshape(-1)),
            (f", device_ids=({','.join(map(str, order))})", np.array(order)),
        ])
    )  # fmt: skip
    mesh = ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
    text = f"mesh[{mesh}]{devices} {{{','.join(names[axis] for axis in chosen)}}}"
    assert groups_of(text) == ids[rows].tolist()
    assert dict(attribute_pairs(f", replica_groups={text}, to_apply=%add")) == {
        "replica_groups": text, "to_apply": "%add",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{}", None), ("", None), ("{{0}}", [[0]]), ("{{0,1},{2}}", [[0, 1], [2]]),
        ("mesh['a'=8] {'a':(2)4}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=8] {'a':(1)2}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=4] {'b':(2)2,'a'}", [[0, 4, 1, 5], [2, 6, 3, 7]]),
        ("mesh['b'=8] {'b':(1)2,'b':(4)2}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['b'=8] {'b':(3)2}", None), ("mesh['a'=2], device_ids=(1,0,2) {'a'}", None),
        ("mesh['a'=2,'b'=3], device_ids=([2,4]T(1,0)) {'a'}", None), ("mesh['a'=2], device_ids=(?) {'a'}", None),
        ("mesh['a'=2,'b'=3] {'c'}", None), ("mesh['a'=2,'b'=3] {}", [[0], [1], [2], [3], [4], [5]]),
    ],
)  # fmt: skip
def test_groups_of_other_forms(text: str, groups: list[list[int]] | None) -> None:
    assert groups_of(text) == groups


@pytest.mark.parametrize(
    ("attributes", "head", "devices"),
    [
        ("replica_groups={}", "HloModule step, replica_count=4", 4),
        ("replica_groups={}", "HloModule step, replica_count=2, num_partitions=4", 2),
        ("replica_groups={}, channel_id=1", "HloModule step, replica_count=2, num_partitions=4", 8),
        ("replica_groups={{0},{1}}, channel_id=1", "HloModule step, replica_count=2, num_partitions=4", 4),
        ("replica_groups={}, channel_id=1, use_global_device_ids=true", "HloModule step, num_partitions=8", 8),
        ("replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true", "HloModule step", 2),
        ("replica_groups={{0,1},{2,3}}", "HloModule step", 2),
        ("replica_groups={}", "HloModule step", None),
        ("replica_groups={}, channel_id=1, use_global_device_ids=true", "HloModule step", None),
    ],
)
def test_group_modes(attributes: str, head: str, devices: int | None) -> None:
    found = sent(f"f32[100] all-reduce(%p), {attributes}, to_apply=%add", head)
    assert found == ((None, None) if devices is None else (400, -(-2 * (devices - 1) * 400 // devices)))


@pytest.mark.parametrize(
    ("line", "payload", "wire"),
    [
        ("f32[800] all-gather(%p), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, "
         "use_global_device_ids=true", 3200, 2800),
        ("f32[25] reduce-scatter(%p), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, "
         "use_global_device_ids=true, to_apply=%add", 400, 300),
        ("f32[100] all-to-all(%p), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}", 400, 300),
        ("f32[100] all-to-all(%p), channel_id=1, replica_groups={}, dimensions={0}", 400, 350),
        ("f32[100] collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}", 400, 400),
        ("f32[100] collective-permute(%p), channel_id=1, source_target_pairs={{0,0},{1,1}}", 0, 0),
        ("f32[100] collective-broadcast(%p), channel_id=1, replica_groups={{0,1,2,3}}", 400, 400),
        ("f32[100] ragged-all-to-all(%p, %p, %p, %p, %p, %p), replica_groups={{0,1}}", None, None),
        ("f32[100] all-reduce(%p), replica_groups={{0}}, to_apply=%add", 0, 0),
        ("f32[100] copy(%p)", 0, 0),
    ],
)  # fmt: skip
def test_each_collective(line: str, payload: int | None, wire: int | None) -> None:
    assert sent(line) == (payload, wire)


def test_asynchronous_collectives_count_once() -> None:
    groups = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
    found = costs(
        f"%reduced = f32[100] all-reduce-start(%p), {groups}, to_apply=%add",
        "%one = f32[100] all-reduce-done(%reduced)",
        f"%gathered = (f32[100], f32[400]) all-gather-start(%one), {groups}, dimensions={{0}}",
        "%two = f32[400] all-gather-done(%gathered)",
        "%moved = (f32[100], f32[100], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}",
        "ROOT %three = f32[100] collective-permute-done(%moved)",
    )
    assert {name: (one.payload_bytes, one.wire_bytes) for name, one in found.items() if one.wire_bytes} == {
        "reduced": (400, 600), "gathered": (1600, 1200), "moved": (400, 400),
    }  # fmt: skip
    assert all(one.flops is not None for one in found.values())
    assert found["reduced"].flops == 100


@pytest.mark.parametrize(
    ("start", "done", "operands", "results"),
    [
        ("(f32[100], f32[100], u32[]) copy-start(%p)", "f32[100] copy-done(%s)", 400, 400),
        ("(f32[100]{0:T(128)}, f32[100]{0:T(128)S(1)}, s32[]{:T(128)}) copy-start(%p)", "f32[100] copy-done(%s)", 400,
         400),
        ("((f32[100]), f32[25], u32[]) slice-start(%p), slice={[0:25]}", "f32[25] slice-done(%s)", 100, 100),
        ("(f32[100], f32[400]) all-gather-start(%p), dimensions={0}", "f32[400] all-gather-done(%s)", 400, 1600),
        ("((f32[100], f32[100]), (f32[400], f32[400])) all-gather-start(%p, %p), dimensions={0}",
         "(f32[400], f32[400]) all-gather-done(%s)", 800, 3200),
        ("f32[100] all-reduce-start(%p), to_apply=%add", "f32[100] all-reduce-done(%s)", 400, 400),
        ("(f32[100], f32[100], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}",
         "f32[100] collective-permute-done(%s)", 400, 400),
        ("(f32[100]{0:T(128)}, f32[100]{0:T(128)}) collective-permute-start(%p), source_target_pairs={{0,1}}",
         "f32[100] collective-permute-done(%s)", 400, 400),
    ],
)  # fmt: skip
def test_bytes_of_an_asynchronous_pair_count_once(start: str, done: str, operands: int, results: int) -> None:
    found = costs(f"%s = {start}", f"ROOT %d = {done}")
    assert (found["s"].bytes_accessed, found["d"].bytes_accessed) == (operands + results, 0)


@pytest.mark.parametrize(("opcode", "attribute"), [("async", "calls"), ("call", "to_apply")])
def test_an_asynchronous_wrapper_counts_what_it_runs(opcode: str, attribute: str) -> None:
    inner = """
%wrapped (q: f32[100]) -> f32[25] {
  %q = f32[100] parameter(0)
  ROOT %scattered = f32[25] reduce-scatter(%q), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%add
}
"""
    found = costs(
        f"%start = ((f32[100]), f32[25]) {opcode}-start(%p), {attribute}=%wrapped",
        f"ROOT %done = f32[25] {opcode}-done(%start)",
        head=f"HloModule step, replica_count=4\n{inner}",
    )
    assert [(name, one.payload_bytes, one.repeats) for name, one in found.items() if one.payload_bytes] == [
        ("scattered", 400, 1)
    ]
    assert all(one.flops == 0 for one in found.values())


def test_a_fusion_beside_others_counts_as_a_fusion() -> None:
    inner = """
%fused (q: f32[100]) -> f32[100] {
  %q = f32[100] parameter(0)
  ROOT %twice = f32[100] add(%q, %q)
}
"""
    head = f"HloModule step\n{inner}"
    beside = costs(
        "%start = ((f32[100]), f32[100], u32[]) fusion-start(%p), kind=kLoop, calls=%fused",
        "ROOT %done = f32[100] fusion-done(%start)",
        head=head,
    )
    usual = costs("ROOT %start = f32[100] fusion(%p), kind=kLoop, calls=%fused", head=head)
    figures = {name: (row.flops, row.bytes_accessed) for name, row in beside.items()}
    assert figures.pop("done") == (0, 0)
    assert figures == {name: (row.flops, row.bytes_accessed) for name, row in usual.items()}


def test_halves_of_complex_numbers_on_tpus_are_moved() -> None:
    found = costs(
        '%low = f32[100] custom-call(%p), custom_call_target="X64SplitLow"',
        'ROOT %both = c64[100] custom-call(%low, %low), custom_call_target="X64Combine"',
    )
    assert [(found[name].flops, found[name].bytes_accessed) for name in ("low", "both")] == [(0, 800), (0, 1600)]


def test_a_program_given_as_text_has_its_communication(tmp_path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(
        "HloModule step, is_scheduled=true, entry_computation_layout={(f32[100]{0})->f32[100]{0}}, replica_count=4\n"
        f"{ADD}\nENTRY %main (p: f32[100]) -> f32[100] {{\n  %p = f32[100]{{0}} parameter(0)\n"
        "  ROOT %c = f32[100]{0} all-reduce(%p), replica_groups={}, to_apply=%add\n}\n"
    )
    total = ml.inspect(path).cost("compiled").total
    assert (total.payload_bytes, total.wire_bytes) == (400, 600)
