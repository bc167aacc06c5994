"""For each puzzle of the sets: three right solutions of different kinds, and two wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jit = jax.jit


def unrolled(h, w, count=50):
    for _ in range(count):
        h = jnp.tanh(h @ w)
    return h


def total(w, x):
    return jnp.tanh(x @ w).sum()


def in_groups(x, w, inner, outer):
    def part(w, h):
        return lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, length=inner)[0]

    def whole(w):
        return lax.scan(jax.checkpoint(lambda h, _: (part(w, h), None)), x, None, length=outer)[0].sum()

    return jax.grad(whole)(w)


def second_order(y, t):
    return 2 * t * (1 - y**2) ** 2 - 4 * t * y**2 * (1 - y**2)


def stateful():
    calls = iter(range(10**6))
    return lambda x, rate: x * rate * (1 if next(calls) < 1 else 2)


def by_steps(x):
    h, rows = jnp.zeros(5), []
    for row in x:
        h = 0.9 * h + row
        rows.append(h)
    return jnp.stack(rows)


def python_halvings(n):
    count = 0
    while n > 0:
        n, count = n // 2, count + 1
    return jnp.int32(count)


SOLUTIONS = {
    "scaled": (
        [jit(lambda x, rate: x * rate), jit(jnp.multiply), lambda x, rate: rate * x],
        [lambda x, rate: jit(lambda x: x * rate)(x), stateful()],
    ),
    "power": (
        [
            jit(lambda x, n: x**n),
            jit(lambda x, n: lax.fori_loop(0, n, lambda _, y: y * x, jnp.ones_like(x))),
            jit(lambda x, n: jnp.where(jnp.arange(9)[:, None] < n, x, 1).prod(0)),
        ],
        [lambda x, n: jit(lambda x, n: x**n, static_argnums=1)(x, int(n)), jit(lambda x, n: jnp.exp(n * jnp.log(x)))],
    ),
    "chosen": (
        [
            jit(lambda x, flag: jnp.where(flag, jnp.sin(x), jnp.cos(x))),
            jit(lambda x, flag: lax.cond(flag, jnp.sin, jnp.cos, x)),
            jit(lambda x, flag: lax.select(jnp.broadcast_to(flag, x.shape), jnp.sin(x), jnp.cos(x))),
        ],
        [
            jit(lambda x, flag: jnp.sin(x) if flag else jnp.cos(x)),
            jit(lambda x, flag: lax.cond(flag, jnp.cos, jnp.sin, x)),
        ],
    ),
    "mean_of_first": (
        [
            jit(lambda x, n: jnp.where(jnp.arange(16)[:, None] < n, x, 0).sum(0) / n),
            jit(lambda x, n: (jnp.arange(16) < n).astype(x.dtype) @ x / n),
            jit(lambda x, n: jnp.cumsum(x, 0)[n - 1] / n),
        ],
        [lambda x, n: jit(lambda x, n: x[:n].mean(0), static_argnums=1)(x, int(n)), jit(lambda x, n: x.sum(0) / n)],
    ),
    "fifty_steps": (
        [
            lambda h, w: lax.fori_loop(0, 50, lambda _, h: jnp.tanh(h @ w), h),
            lambda h, w: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, length=50)[0],
            lambda h, w: lax.while_loop(lambda s: s[0] < 50, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w)), (0, h))[1],
        ],
        [unrolled, lambda h, w: lax.fori_loop(0, 49, lambda _, h: jnp.tanh(h @ w), h)],
    ),
    "running_sums": (
        [
            lambda x: jnp.cumsum(x * x),
            lambda x: lax.cumsum(x**2),
            lambda x: np.tri(64, dtype="float32") @ x**2,
        ],
        [lambda x: jnp.stack([(x[: n + 1] ** 2).sum() for n in range(64)]), lambda x: jnp.cumsum(x) ** 2],
    ),
    "decayed": (
        [
            lambda x: lax.scan(lambda h, row: (0.9 * h + row,) * 2, jnp.zeros(5), x)[1],
            lambda x: np.tril(0.9 ** np.subtract.outer(np.arange(40), np.arange(40))).astype("float32") @ x,
            lambda x: lax.scan(lambda h, row: (row + h * 0.9, row + h * 0.9), x[0] * 0, x)[1],
        ],
        [by_steps, lambda x: 0.9 * jnp.cumsum(x, 0)],
    ),
    "halvings": (
        [
            jit(lambda n: lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] // 2, s[1] + 1), (n, 0))[1]),
            jit(lambda n: 32 - lax.clz(n)),
            jit(lambda n: (n >= 2 ** jnp.arange(31)).sum().astype("int32")),
        ],
        [lambda n: jit(python_halvings, static_argnums=0)(int(n)), jit(lambda n: 31 - lax.clz(n))],
    ),
    "rows_of_table": (
        [
            lambda table, ids: table[ids - 1],
            lambda table, ids: jnp.take(table, ids - 1, axis=0),
            lambda table, ids: (ids[:, None] == np.arange(1, 10)).astype("float32") @ table,
        ],
        [lambda table, ids: jnp.stack([table[i - 1] for i in ids]), lambda table, ids: table[ids]],
    ),
    "stepped": (
        [
            lambda params, grads: jax.tree.map(lambda p, g: p - 0.1 * g, params, grads),
            lambda params, grads: {name: params[name] - 0.1 * grads[name] for name in params},
            lambda params, grads: {"b": params["b"] - 0.1 * grads["b"], "a": params["a"] - 0.1 * grads["a"]},
        ],
        [
            lambda params, grads: [params[name] - 0.1 * grads[name] for name in params],
            lambda params, grads: jax.tree.map(lambda p, g: p + 0.1 * g, params, grads),
        ],
    ),
    "derivatives": (
        [
            lambda x: 2 * x * jnp.cos(x**2),
            lambda x: jax.grad(lambda x: jnp.sin(x**2).sum())(x),
            lambda x: jax.vmap(jax.grad(lambda x: jnp.sin(x**2)))(x),
        ],
        [lambda x: jnp.diag(jax.jacobian(lambda x: jnp.sin(x**2))(x)), lambda x: jnp.cos(x**2)],
    ),
    "weight_gradient": (
        [
            lambda w, x: jax.grad(total)(w, x),
            lambda w, x: x.T @ (1 - jnp.tanh(x @ w) ** 2),
            lambda w, x: jax.vjp(lambda w: total(w, x), w)[1](jnp.float32(1))[0],
        ],
        [
            lambda w, x: (lambda by_w, by_x: by_w + 0 * by_x.sum())(*jax.grad(total, (0, 1))(w, x)),
            lambda w, x: x.T @ (1 - jnp.tanh(x @ w)),
        ],
    ),
    "value_and_gradient": (
        [
            lambda w, x: jax.value_and_grad(total)(w, x),
            lambda w, x: (lambda y: (y.sum(), x.T @ (1 - y**2)))(jnp.tanh(x @ w)),
            lambda w, x: (lambda value, pull: (value, pull(jnp.float32(1))[0]))(*jax.vjp(lambda w: total(w, x), w)),
        ],
        [lambda w, x: (total(w, x), jax.grad(total)(w, x)), lambda w, x: jax.value_and_grad(total)(w, x)[::-1]],
    ),
    "gradients_by_row": (
        [
            lambda w, x: jax.vmap(jax.grad(lambda w, row: jnp.tanh(row @ w) ** 2), (None, 0))(w, x),
            lambda w, x: (lambda y: (2 * y * (1 - y**2))[:, None] * x)(jnp.tanh(x @ w)),
            lambda w, x: jax.jacobian(lambda w: jnp.tanh(x @ w) ** 2)(w),
        ],
        [
            lambda w, x: jnp.stack([jax.grad(lambda w, row: jnp.tanh(row @ w) ** 2)(w, row) for row in x]),
            lambda w, x: jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w),
        ],
    ),
    "along": (
        [
            lambda x, v, w: jax.jvp(lambda x: jnp.tanh(w @ x), (x,), (v,))[1],
            lambda x, v, w: (1 - jnp.tanh(w @ x) ** 2) * (w @ v),
            lambda x, v, w: jax.linearize(lambda x: jnp.tanh(w @ x), x)[1](v),
        ],
        [lambda x, v, w: jax.jacfwd(lambda x: jnp.tanh(w @ x))(x) @ v, lambda x, v, w: jnp.tanh(w @ v)],
    ),
    "curvature_along": (
        [
            lambda x, v, w: jax.jvp(jax.grad(lambda x: (jnp.tanh(w @ x) ** 2).sum()), (x,), (v,))[1],
            lambda x, v, w: jax.grad(lambda x: jax.jvp(lambda x: (jnp.tanh(w @ x) ** 2).sum(), (x,), (v,))[1])(x),
            lambda x, v, w: second_order(jnp.tanh(w @ x), w @ v) @ w,
        ],
        [
            lambda x, v, w: jax.hessian(lambda x: (jnp.tanh(w @ x) ** 2).sum())(x) @ v,
            lambda x, v, w: jax.jvp(lambda x: jnp.tanh(w @ x) ** 2, (x,), (v,))[1],
        ],
    ),
    "gradient_of_one_side": (
        [
            lambda x, t: 2 * (jnp.sin(x) - t * x.sum()) * jnp.cos(x),
            lambda x, t: jax.grad(lambda x: ((jnp.sin(x) - lax.stop_gradient(t * x.sum())) ** 2).sum())(x),
            lambda x, t: jax.grad(lambda x, goal: ((jnp.sin(x) - goal) ** 2).sum())(x, t * x.sum()),
        ],
        [
            lambda x, t: jax.grad(lambda x: ((jnp.sin(x) - t * x.sum()) ** 2).sum())(x),
            lambda x, t: lax.stop_gradient(jax.grad(lambda x: (jnp.sin(x) - t * x.sum()).sum())(x)),
        ],
    ),
    "all_dots": (
        [
            lambda rows, others: rows @ others.T,
            lambda rows, others: jnp.einsum("ik,jk->ij", rows, others),
            lambda rows, others: lax.dot_general(rows, others, (((1,), (1,)), ((), ()))),
        ],
        [
            lambda rows, others: jnp.stack([jnp.stack([row @ other for other in others]) for row in rows]),
            lambda rows, others: others @ rows.T,
        ],
    ),
    "pulled_back": (
        [
            lambda x, w: 3 * (w @ x) ** 2 @ w,
            lambda x, w: jax.grad(lambda x: ((w @ x) ** 3).sum())(x),
            lambda x, w: w.T @ (3 * (w @ x) ** 2),
        ],
        [lambda x, w: 3 * (w @ x) ** 2 @ jax.jacobian(lambda x: w @ x)(x), lambda x, w: 3 * (w @ x) @ w],
    ),
    "deep_gradient": (
        [
            lambda x, w: in_groups(x, w, 1, 12),
            lambda x, w: in_groups(x, w, 3, 4),
            lambda x, w: in_groups(x, w, 2, 6),
        ],
        [
            lambda x, w: jax.grad(lambda w: unrolled(x, w, 12).sum())(w),
            lambda x, w: in_groups(x, w, 1, 11),
        ],
    ),
    "chain_of_products": (
        [
            lambda a, b, x: a @ (b @ x),
            lambda a, b, x: jnp.linalg.multi_dot([a, b, x]),
            lambda a, b, x: jnp.einsum("ij,jk,k->i", a, b, x, optimize="optimal"),
        ],
        [lambda a, b, x: (a @ b) @ x, lambda a, b, x: b @ (a @ x)],
    ),
    "trace_of_product": (
        [
            lambda a, b: (a * b.T).sum(),
            lambda a, b: jnp.einsum("ij,ji->", a, b),
            lambda a, b: jnp.vdot(a, b.T),
        ],
        [lambda a, b: jnp.trace(a @ b), lambda a, b: jnp.trace(a) * jnp.trace(b)],
    ),
    "scaled_rows": (
        [
            lambda d, a: d[:, None] * a,
            lambda d, a: jnp.einsum("i,ij->ij", d, a),
            lambda d, a: (a.T * d).T,
        ],
        [lambda d, a: jnp.diag(d) @ a, lambda d, a: a * d],
    ),
    "low_rank": (
        [
            lambda u, v, x: u @ (v @ x),
            lambda u, v, x: jnp.linalg.multi_dot([u, v, x]),
            lambda u, v, x: ((v @ x).T @ u.T).T,
        ],
        [lambda u, v, x: (u @ v) @ x, lambda u, v, x: u @ (u.T @ x)],
    ),
    "embedded": (
        [
            lambda table, ids: table[ids],
            lambda table, ids: jnp.take(table, ids, axis=0, mode="clip"),
            lambda table, ids: jax.vmap(lambda i: lax.dynamic_index_in_dim(table, i, keepdims=False))(ids),
        ],
        [lambda table, ids: jax.nn.one_hot(ids, 200) @ table, lambda table, ids: table[ids - 1]],
    ),
    "rank_one_update": (
        [
            lambda a, u, x: a @ x + u * (u @ x),
            lambda a, u, x: a @ x + (x @ u) * u,
            lambda a, u, x: jnp.dot(a, x) + jnp.vdot(u, x) * u,
        ],
        [lambda a, u, x: (a + jnp.outer(u, u)) @ x, lambda a, u, x: a @ x + u * x],
    ),
    "never_whole": (
        [
            lambda u, v, x: u @ (v @ x),
            jit(lambda u, v, x: jnp.einsum("ik,kl->il", u, v @ x)),
            lambda u, v, x: ((v @ x).T @ u.T).T,
        ],
        [lambda u, v, x: (u @ v) @ x, lambda u, v, x: u @ (u.T @ x)],
    ),
    "distances": (
        [
            lambda x, y: (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T,
            lambda x, y: (x**2).sum(1, keepdims=True) - 2 * (x @ y.T) + (y**2).sum(1),
            lambda x, y: jnp.vecdot(x, x)[:, None] + jnp.vecdot(y, y) + x @ (-2 * y).T,
        ],
        [
            lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1),
            lambda x, y: (x**2).sum(1)[:, None] + (y**2).sum(1) - x @ y.T,
        ],
    ),
    "updated_in_place": (
        [
            jit(lambda param, grad: param - 0.1 * grad, donate_argnums=0),
            jit(lambda param, grad: -0.1 * grad + param, donate_argnames="param"),
            jit(lambda param, grad: jax.tree.map(lambda p, g: p - 0.1 * g, param, grad), donate_argnums=(0,)),
        ],
        [jit(lambda param, grad: param - 0.1 * grad), jit(lambda param, grad: param - grad, donate_argnums=0)],
    ),
    "second_moments": (
        [
            lambda x: x.T @ x / 64,
            lambda x: jnp.einsum("ni,nj->ij", x, x) / x.shape[0],
            lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ()))) / 64,
        ],
        [lambda x: (x[:, :, None] * x[:, None, :]).mean(0), lambda x: x.T @ x],
    ),
}  # fmt: skip
