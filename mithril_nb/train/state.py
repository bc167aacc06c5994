"""The state of a run: everything that changes while it trains, and the way back to params that are known to be good."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from mithril_nb.errors import Diagnostic
from mithril_nb.train.events import TrainingEvent
from mithril_nb.train.step import Carried

RunState = Literal["idle", "running", "paused", "stopped", "done", "failed"]

KEEP_EVERY_S = 30.0
"""A copy of the params is taken at each epoch's start, and in long epochs this often."""

_copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
_all_finite = jax.jit(lambda leaves: jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])))


def copied(tree: Any) -> Any:
    """Return a copy of a tree of arrays that shares no memory with it: a step may overwrite one of them."""
    return _copy(tree)


class Kept(NamedTuple):
    """Params to go back to."""

    step: int
    params: Any
    opt_state: Any


@dataclass
class State:
    """What a run is at.

    Attributes:
        params: The params after `step` steps.
        opt_state: The optimizer's state with them; with the model's own beside it, if it has one, a `Carried`.
        epochs: After how many epochs the run is done.
        learning_rate: What the next step uses.
        step: Steps taken.
        name: What the run is doing.
        is_lent: Whether somebody else holds the arrays, so that the next step may not overwrite them.
        kept: Params that gave a finite loss, or those the run began with.
        candidate: A copy of params whose loss is not known yet.
        kept_at: When it was taken.
        unrecorded: The last step of an epoch whose validation is still to come.
        elapsed_s: Seconds of training.
        latest: The last event.
        validation_loss: What the last validation gave.
        validation_accuracy: The same.
        problem: Why the run failed.
        saver: Takes the run's checkpoints, if it has any.
    """

    params: Any
    opt_state: Any
    epochs: int
    learning_rate: float
    step: int = 0
    name: RunState = "idle"
    is_lent: bool = True
    kept: Kept | None = None
    candidate: Kept | None = None
    kept_at: float = 0.0
    unrecorded: TrainingEvent | None = None
    elapsed_s: float = 0.0
    latest: TrainingEvent | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    problem: Diagnostic | None = None
    saver: Any = None

    @property
    def model_state(self) -> dict[str, Any]:
        """The model's own state; empty if it has none."""
        return self.opt_state.model_state if isinstance(self.opt_state, Carried) else {}

    def keep(self, *, is_epoch_start: bool) -> None:
        """Take a copy of the params, if it is time to."""
        now = time.perf_counter()
        if is_epoch_start or now - self.kept_at > KEEP_EVERY_S:
            self.candidate = Kept(self.step, *copied((self.params, self.opt_state)))
            self.kept = self.kept or self.candidate
            self.kept_at = now

    def confirm(self, step: int) -> None:
        """Take note that the loss of a step was finite: the params before it were good."""
        if self.candidate is not None and self.candidate.step < step:
            self.kept, self.candidate = self.candidate, None

    def own(self) -> None:
        """Make sure that nobody else holds the arrays, before a step overwrites them."""
        if self.is_lent:
            self.params, self.opt_state = copied((self.params, self.opt_state))
            self.is_lent = False

    def go_back(self, *, is_diverged: bool) -> None:
        """Go back to the kept params, unless the present ones are still there and sound."""
        leaves = jax.tree.leaves((self.params, self.opt_state))
        floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
        # A step that failed half way has used its arguments up, or left NaN in its results.
        is_sound = not is_diverged and not any(leaf.is_deleted() for leaf in leaves) and bool(_all_finite(floats))
        if not is_sound and self.kept is not None:
            self.step, self.params, self.opt_state = self.kept
            self.is_lent, self.unrecorded = True, None
            if self.saver is not None:
                self.saver.went_back()
        self.candidate = None
