"""Solutions of the puzzles of lesson 13, and wrong tries with the reason that the puzzle gives."""

import jax
import jax.numpy as jnp


def _error(vectors, point, measured):
    return (jnp.sin(vectors @ point).sum() - measured) ** 2


def gradient_norms(vectors, points, measured):
    gradients = jax.vmap(jax.grad(_error), in_axes=(None, 0, 0))(vectors, points, measured)
    return (gradients**2).sum(axis=(1, 2))


@jax.jit
def gradient_norms_on_paper(vectors, points, measured):
    phases = points @ vectors.T
    errors = 2 * (jnp.sin(phases).sum(axis=1) - measured)
    return errors**2 * (jnp.cos(phases) ** 2).sum(axis=1) * (points**2).sum(axis=1)


def gradient_norms_by_scan(vectors, points, measured):
    def norm(example):
        return (jax.grad(_error)(vectors, *example) ** 2).sum()

    return jax.lax.map(norm, (points, measured))


def _example_by_example(vectors, points, measured):
    norms = [(jax.grad(_error)(vectors, *pair) ** 2).sum() for pair in zip(points, measured, strict=True)]
    return jnp.stack(norms)


def _all_at_once(vectors, points, measured):
    def errors(vectors):
        return jax.vmap(_error, in_axes=(None, 0, 0))(vectors, points, measured)

    return (jax.jacrev(errors)(vectors) ** 2).sum(axis=(1, 2))


def _in_numpy(vectors, points, measured):
    return jax.pure_callback(gradient_norms, jax.ShapeDtypeStruct((16,), "float32"), vectors, points, measured)


def without_matrix(x, weight, vector):
    _, along = jax.jvp(lambda x: jnp.sin(weight @ x), (x,), (vector,))
    _, back = jax.vjp(lambda x: jnp.sin(weight @ x), x)
    return back(along)[0]


@jax.jit
def without_matrix_by_linearize(x, weight, vector):
    _, linear = jax.linearize(lambda x: jnp.sin(weight @ x), x)
    return jax.linear_transpose(linear, vector)(linear(vector))[0]


def without_matrix_on_paper(x, weight, vector):
    slope = jnp.cos(weight @ x)
    return weight.T @ (slope**2 * (weight @ vector))


def _with_jacfwd(x, weight, vector):
    jacobian = jax.jacfwd(lambda x: jnp.sin(weight @ x))(x)
    return jacobian.T @ (jacobian @ vector)


def _layer(weight, x):
    return jnp.cos(jnp.sin(jnp.cos(x @ weight)))


def _gradient(body, weight, x):
    def total(weight):
        return (jax.lax.scan(lambda x, _: (body(weight, x), None), x, length=16)[0] ** 2).mean()

    return jax.grad(total)(weight)


def forgetful(weight, x):
    return _gradient(jax.checkpoint(_layer), weight, x)


@jax.jit
def forgetful_in_two_loops(weight, x):
    """Keep the input of each layer, and run the backward pass as a loop of its own."""
    last, inputs = jax.lax.scan(lambda x, _: (_layer(weight, x), x), x, length=16)

    def back(state, x):
        cotangent, gradient = state
        by_weight, by_x = jax.vjp(_layer, weight, x)[1](cotangent)
        return (by_x, gradient + by_weight), None

    start = 2 * last / last.size, jnp.zeros_like(weight)
    return jax.lax.scan(back, start, inputs, reverse=True)[0][1]


def forgetful_by_groups(weight, x):
    def total(weight):
        @jax.checkpoint
        def group(x, _):
            return jax.lax.scan(lambda x, _: (_layer(weight, x), None), x, length=4)

        return (jax.lax.scan(group, x, length=4)[0] ** 2).mean()

    return jax.grad(total)(weight)


def _in_python(weight, x):
    def total(weight):
        h = x
        for _ in range(16):
            h = _layer(weight, h)
        return (h**2).mean()

    return jax.grad(total)(weight)


def _products_kept(weight, x):
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return _gradient(jax.checkpoint(_layer, policy=policy), weight, x)


def _around_the_loop(weight, x):
    def total(weight):
        return (jax.lax.scan(lambda x, _: (_layer(weight, x), None), x, length=16)[0] ** 2).mean()

    return jax.grad(jax.checkpoint(total))(weight)


RIGHT = {
    "each_gradient": (gradient_norms, gradient_norms_on_paper, gradient_norms_by_scan),
    "never_there": (without_matrix, without_matrix_by_linearize, without_matrix_on_paper),
    "less_memory": (forgetful, forgetful_in_two_loops, forgetful_by_groups),
}
WRONG = {
    "each_gradient": (
        (_example_by_example, "equations, and at most"),
        (_all_at_once, "FLOPs, and at most"),
        (_in_numpy, "FLOPs"),
        (lambda vectors, points, measured: (jax.grad(lambda v: jax.vmap(_error, (None, 0, 0))(
            v, points, measured).sum())(vectors) ** 2).sum(), r"should be float32\[16\]"),
        (lambda vectors, points, measured: jnp.sqrt(gradient_norms(vectors, points, measured)), "element .* should be"),
        (lambda vectors, points, measured: jax.vmap(_error, (None, 0, 0))(vectors, points, measured) ** 2,
         "element .* should be"),
        (lambda vectors, points, measured: jax.vmap(jax.grad(_error))(vectors, points, measured),
         "it raises ValueError"),
    ),
    "never_there": (
        (_with_jacfwd, "FLOPs, and at most"),
        (lambda x, weight, vector: jax.jvp(lambda x: jnp.sin(weight @ x), (x,), (vector,))[1], "element .* should be"),
        (lambda x, weight, vector: jax.hessian(lambda x: jnp.sin(weight @ x).sum())(x) @ vector,
         "element .* should be"),
        (lambda x, weight, vector: jax.vjp(lambda x: jnp.sin(weight @ x), x)[1](vector)[0], "element .* should be"),
        (lambda x, weight, vector: without_matrix(x, weight, vector)[None], r"should be float32\[48\]"),
    ),
    "less_memory": (
        (lambda weight, x: _gradient(_layer, weight, x), "bytes at its peak, and at most"),
        (_in_python, "bytes at its peak, and at most"),
        (_products_kept, "bytes at its peak, and at most"),
        (_around_the_loop, "bytes at its peak, and at most"),
        (lambda weight, x: forgetful(weight, x[:1024]), "element .* should be"),
        (lambda weight, x: forgetful(weight, x).astype("bfloat16").astype("float32"), "element .* should be"),
        (lambda weight, x: jax.lax.stop_gradient(forgetful(weight, x)).T, "element .* should be"),
    ),
}  # fmt: skip
