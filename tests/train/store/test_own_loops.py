"""Loops of all libraries are tracked by at most five changed lines, with the same results, and continue bit for bit."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.train.store.tracking import TrackedRun

COMMON = """\
 import jax, jax.numpy as jnp, numpy as np, optax
+import mithril_nb as ml
 rng = np.random.default_rng(0)
 batches = [rng.normal(size=(8, 4)).astype(np.float32) for _ in range(5)]
"""
SCRIPTS = {
    "pure JAX": """\
 optimizer = optax.adam(1e-2)
 @jax.jit
 def step(w, held, x):
     loss, grads = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x) ** 2))(w)
     updates, held = optimizer.update(grads, held)
     return w + updates, held, loss
 w = jnp.eye(4) / 2
 held = optimizer.init(w)
+with ml.track("runs/own") as run:
+w, held = run.restore((w, held))
 for batch in BATCHES:
     w, held, loss = step(w, held, batch)
+    run.log({"loss": loss}, state=(w, held))
 final = w
""",
    "Equinox": """\
 import equinox as eqx
 optimizer = optax.adam(1e-2)
 @eqx.filter_jit
 def step(model, held, x):
     loss, grads = eqx.filter_value_and_grad(lambda model: jnp.mean((jax.vmap(model)(x) - x) ** 2))(model)
     updates, held = optimizer.update(grads, held)
     return eqx.apply_updates(model, updates), held, loss
 model = eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(0))
 held = optimizer.init(eqx.filter(model, eqx.is_array))
+with ml.track("runs/own") as run:
+model, held = run.restore((model, held))
 for batch in BATCHES:
     model, held, loss = step(model, held, batch)
+    run.log({"loss": loss}, state=(model, held))
 final = eqx.filter(model, eqx.is_array)
""",
    "linen": """\
 import flax.linen as nn
 from flax.training.train_state import TrainState
 model = nn.Dense(4)
 @jax.jit
 def step(state, x):
     loss, grads = jax.value_and_grad(lambda params: jnp.mean((state.apply_fn(params, x) - x) ** 2))(state.params)
     return state.apply_gradients(grads=grads), loss
 params = model.init(jax.random.key(0), batches[0])
 state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-2))
+with ml.track("runs/own") as run:
+state = run.restore(state)
 for batch in BATCHES:
     state, loss = step(state, batch)
+    run.log({"loss": loss}, state=state)
 final = state.params
""",
    "nnx": """\
 from flax import nnx
 class Net(nnx.Module):
     def __init__(self, rngs):
         self.dense, self.dropout = nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
     def __call__(self, x):
         return self.dropout(self.dense(x))
 @nnx.jit
 def step(model, optimizer, x):
     loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - x) ** 2))(model)
     optimizer.update(model, grads)
     return loss
 model = Net(nnx.Rngs(0))
 optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
+with ml.track("runs/own") as run:
+nnx.update((model, optimizer), run.restore(nnx.state((model, optimizer))))
 for batch in BATCHES:
     loss = step(model, optimizer, batch)
+    run.log({"loss": loss}, state=nnx.state((model, optimizer)))
 final = nnx.to_pure_dict(nnx.state(model, nnx.Param))
""",
    "a GAN": """\
 generator_optimizer, critic_optimizer = optax.adam(1e-2), optax.rmsprop(1e-2)
 def critic_loss(critic, generator, x, noise):
     real, fake = jnp.tanh(x @ critic["in"]) @ critic["out"], jnp.tanh(noise @ generator @ critic["in"]) @ critic["out"]
     return jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake))
 @jax.jit
 def step(state, x):
     generator, critic, generator_state, critic_state, key = state
     key, one, two = jax.random.split(key, 3)
     loss, grads = jax.value_and_grad(critic_loss)(critic, generator, x, jax.random.normal(one, (8, 2)))
     updates, critic_state = critic_optimizer.update(grads, critic_state)
     critic = optax.apply_updates(critic, updates)
     noise = jax.random.normal(two, (8, 2))
     grads = jax.grad(lambda generator: -critic_loss(critic, generator, x, noise))(generator)
     updates, generator_state = generator_optimizer.update(grads, generator_state)
     return (generator + updates, critic, generator_state, critic_state, key), loss
 generator, critic = jnp.ones((2, 4)), {"in": jnp.eye(4), "out": jnp.ones(4)}
 state = generator, critic, generator_optimizer.init(generator), critic_optimizer.init(critic), jax.random.key(0)
+with ml.track("runs/own") as run:
+state = run.restore(state)
 for batch in BATCHES:
     state, loss = step(state, batch)
+    run.log({"critic_loss": loss}, state=state)
 final = state[:2]
""",
    "PPO": """\
 optimizer = optax.adam(1e-2)
 def act(params, place, key):  # one of two directions on a line, whose middle is rewarded
     logits = jnp.stack([place, jnp.ones_like(place)]).T @ params
     action = jax.random.categorical(key, logits)
     return action, jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
 def loss_of(params, places, actions, before, advantages):
     logits = jnp.stack([places, jnp.ones_like(places)], -1) @ params
     ratio = jnp.exp(jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], -1)[..., 0] - before)
     return -jnp.mean(jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages))
 @jax.jit
 def rollout(params, place, key):
     def move(place, key):
         action, before = act(params, place, key)
         after = jnp.clip(place + 0.2 * (2 * action - 1), -1, 1)
         return after, (place, action, before, -jnp.abs(after))
     return jax.lax.scan(move, place, jax.random.split(key, 16))
 @jax.jit
 def update(params, held, batch):
     loss, grads = jax.value_and_grad(loss_of)(params, *batch)
     updates, held = optimizer.update(grads, held)
     return params + updates, held, loss
 params, place, key = jnp.zeros((2, 2)), jnp.linspace(-1, 1, 8), jax.random.key(0)
 held = optimizer.init(params)
+with ml.track("runs/own") as run:
+params, held, place, key = run.restore((params, held, place, key))
-for iteration in range(12):
+for iteration in run.steps(range(12), total=12):
     key, now = jax.random.split(key)
     place, (places, actions, before, rewards) = rollout(params, place, now)
     returns = jnp.cumsum(rewards[::-1], 0)[::-1]
     for _ in range(4):
         params, held, loss = update(params, held, (places, actions, before, returns - returns.mean()))
+    run.log({"reward": rewards.mean(), "loss": loss}, state=(params, held, place, key))
 final = params
""",
}


def scripts(name: str) -> tuple[str, str]:
    """Return the plain and the tracked script: `-` marks lines of the first, `+` lines of the second alone."""
    loop = "-for batch in batches * 2:\n+for batch in run.steps(batches, total=10):\n"
    lines = (COMMON + SCRIPTS[name].replace(" for batch in BATCHES:\n", loop)).splitlines()
    plain, tracked, indent = "", "", ""
    for line in lines:
        mark, text = line[0], line[1:]
        plain += f"{text}\n" * (mark != "+")
        tracked += f"{indent}{text}\n" * (mark != "-")
        indent = indent or "    " * text.startswith("with ml.track")
    return plain, tracked


@pytest.mark.parametrize("name", SCRIPTS)
def test_five_changed_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = scripts(name)
    stripped = ([line.strip() for line in text.splitlines()] for text in texts)  # `with` indents the loop
    changes = difflib.SequenceMatcher(None, *stripped, autojunk=False).get_opcodes()
    assert sum(max(end - at, to - since) for kind, at, end, since, to in changes if kind != "equal") <= 5

    def final(text: str) -> Any:
        Path("script.py").write_text(text)
        return runpy.run_path("script.py")["final"]

    expected = final(texts[0])
    jax.tree.map(np.testing.assert_array_equal, final(texts[1]), expected)
    whole = ml.runs()["own"]
    with monkeypatch.context() as patch:
        log = TrackedRun.log
        patch.setattr(
            TrackedRun, "log", lambda run, *args, **kwargs: (log(run, *args, **kwargs), run.step == 4 and run.stop())
        )
        final(texts[1])
    resumed = ml.runs()["own-2"]
    assert (whole.state, resumed.state, resumed.step) == ("done", "stopped", 4)
    jax.tree.map(np.testing.assert_array_equal, final(texts[1]), expected)
    assert resumed.state == "done"
    for column, values in whole.history.items():
        if column != "elapsed_s":
            np.testing.assert_array_equal(resumed.history[column], values)
