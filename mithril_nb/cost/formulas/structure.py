"""Rules for calls, for moving data in a kernel or between devices, and for primitives of unknown cost."""

from __future__ import annotations

from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, no_bytes, of_items, opaque, rule, without_arithmetic
from mithril_nb.cost.formulas.sizes import count
from mithril_nb.stages.jax_versions import CALL_NAMES
from mithril_nb.stages.records import Equation

CALLS = CALL_NAMES | frozenset(
    "call call_hi_primitive_linearized call_jaxpr composite compute_on cond core_map custom_fusion "
    "custom_jvp_call_jaxpr custom_lin custom_linear_solve custom_partitioning custom_vmap_call emit_pipeline "
    "eval_jaxpr fusible jaxpr_call linear_call mpmd_map parallel_loop pipeline_body remat remat_opt run_scoped "
    "run_state scan shard_map stage while xla_metadata_call".split()
)
"""Primitives that contain jaxprs. The equations inside are counted, not the primitive itself."""

opaque("the function inside the call is not a jaxpr", *sorted(CALLS))
opaque("Python on the host", "pure_callback", "io_callback", "buffer_callback", "debug_callback")
opaque(
    "an opaque custom call",
    "cudnn_fusion", "elementwise_inline_asm", "elementwise_inline_asm_p", "ffi_call", "inline_mgpu", "inline_mgpu_p",
    "mosaic_gpu_p", "tpu_custom_call",
)  # fmt: skip
opaque("an exported program without a jaxpr", "call_exported")


without_arithmetic(
    "async_copy_scales_to_tmem", "async_copy_smem_to_tmem", "async_copy_sparse_metadata_to_tmem", "async_load",
    "async_prefetch", "async_store_smem", "async_store_tmem", "bitcast", "broadcast_to", "commit_tmem",
    "copy_gmem_to_smem", "copy_smem_to_gmem", "dma_start", "einshape_lo", "get", "iota_2x32_shape", "load",
    "masked_load", "masked_swap", "matmul_pop", "matmul_pop_fifo", "matmul_push_rhs", "mgpu_atomic_store",
    "multimem_store", "pack", "pack_dtype", "pack_elementwise", "roll", "store", "swap", "unpack",
    "unpack_dtype", "unpack_elementwise", "unstack", "wgmma_accumulator_deref", "wgmma_accumulator_deref_p",
    "wgmma_accumulator_store", "wgmma_accumulator_store_p", "zeros_like",
    note="moves data",
)  # fmt: skip


without_arithmetic(
    "add_dependency", "after_all", "axis_index", "barrier", "barrier_arrive", "barrier_arrive_and_wait",
    "barrier_test", "barrier_wait", "box_get", "box_set", "check", "commit_group", "commit_smem", "create_linear",
    "dce_sink", "debug_barrier", "debug_barrier_p", "delay", "dimension_size", "dma_wait", "empty_ref", "free_ref",
    "freeze", "from_edtype", "get_barrier_semaphore", "get_global", "griddepcontrol_launch_dependents",
    "griddepcontrol_wait", "has_memory_space", "inspect_sharding", "layout_cast", "layout_constraint", "log_extend",
    "log_read", "max_contiguous", "multiple_of", "new_box", "new_log", "new_ref", "num_programs", "pin",
    "print_layout", "program_id", "program_order", "query_cluster_cancel", "reduced_vary_cast", "reduced_vary_cast_p",
    "relayout", "remove_memory_space", "semaphore_read", "semaphore_signal", "semaphore_signal_multicast",
    "semaphore_signal_parallel", "semaphore_wait", "set_max_registers", "set_max_registers_p", "shape_assertion",
    "shard_alike", "tcgen05_commit_arrive", "tie", "to_edtype", "trace_value", "try_cluster_cancel", "unpin",
    "unreachable", "vary_unreduced_cast", "vary_unreduced_cast_p", "wait_gmem_to_smem", "wait_load_tmem",
    "wait_smem_to_gmem", "wgmma_wait", "with_memory_space_constraint", "xla_metadata_value",
    note="no arithmetic", moved=no_bytes,
)  # fmt: skip


@rule(
    "accum_grad_in_ref", "addupdate", "atomic_rmw", "sc_fetch_and_add",
    flops="updates", note="one addition for each element",
)  # fmt: skip
def update(equation: Equation) -> Letters:
    """One addition for each element that the equation adds to a `Ref`: `updates`."""
    return {"updates": count(equation.inputs[min(1, len(equation.inputs) - 1)])}


rule(
    "atomic_cas", "multimem_load_reduce", "all_reduce_ffs", "all_reduce_population_count", "stochastic_round", flops="n"
)(of_items)


@rule(
    "psum", "psum_invariant", "psum_invariant_start", "psum_start", "pmax", "pmin", "unreduced_pmax",
    "unreduced_pmin", "unreduced_psum", "unreduced_psum_start",
    flops="n", note="(N - 1)/N·n in a ring of N devices",
)  # fmt: skip
def all_reduce(equation: Equation) -> Letters | Formula:
    """One operation for each element of the result on each device: `n`, as XLA counts.

    A ring of `N` devices needs only `(N - 1)/N·n`. An integer in the param `axes` is a `vmap` axis: over it, the
    equation reduces `in` elements to `out` elements on the device, with `in - out` operations.
    Source: Chan et al., Collective communication: theory, practice, and experience, CCPE 19 (2007), §4.
    """
    letters = {"n": sum((count(spec) for spec in equation.outputs), start=0)}
    axes: Any = equation.param.get("axes", ())
    if not any(isinstance(axis, int) for axis in axes):
        return letters
    elements = sum((count(spec) for spec in equation.inputs), start=0)
    sizes = {"in": elements, "out": 0 if elements == 0 else letters["n"]}
    if all(isinstance(axis, int) for axis in axes):
        return Formula("in - out", sizes, note="on each device")
    return Formula("in - out + n", {**sizes, **letters}, note="on each device, then between devices")


@rule(
    "reduce_scatter", "reduce_scatter_start", "unreduced_reduce_scatter", "unreduced_reduce_scatter_start",
    flops="in - out", note="ring", xla="0",
)  # fmt: skip
def reduce_scatter(equation: Equation) -> Letters:
    """Additions of one device in a ring: `in - out`. The source is that of `all_reduce`; XLA counts 0."""
    return {"in": count(equation.inputs[0]), "out": count(equation.outputs[0])}


without_arithmetic(
    "all_gather", "all_gather_done", "all_gather_invariant", "all_gather_reduced", "all_gather_reduced_start",
    "all_gather_start", "all_to_all", "all_to_all_done", "all_to_all_start", "pbroadcast", "pbroadcast_done",
    "pbroadcast_dynamic", "pbroadcast_start", "ppermute", "ppermute_done", "ppermute_start", "precv", "preduced",
    "psend", "psum_done", "ragged_all_to_all", "reduce_scatter_done", "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    note="moves data between devices",
)  # fmt: skip
