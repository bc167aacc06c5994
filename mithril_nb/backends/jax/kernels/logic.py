"""Comparisons, logic, `where`, and bit shifts."""

from __future__ import annotations

import jax.numpy as jnp

from mithril_nb.backends.jax.kernels.arithmetic import elementwise

for _op, _function in {
    "greater": jnp.greater,
    "less": jnp.less,
    "greater_equal": jnp.greater_equal,
    "less_equal": jnp.less_equal,
    "equal": jnp.equal,
    "not_equal": jnp.not_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}.items():
    elementwise(_op, _function, "left", "right")

elementwise("is_nan", jnp.isnan, "input")
elementwise("logical_not", jnp.logical_not, "input")
elementwise("shift_left", jnp.left_shift, "input", "shift")
elementwise("shift_right", jnp.right_shift, "input", "shift")
elementwise("where", jnp.where, "cond", "input1", "input2")
