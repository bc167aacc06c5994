"""Training as a stream of events over explicit state; optimizers and losses are optax's."""

from mithril_nb.train.checkpoints.saver import Checkpoints
from mithril_nb.train.fit import fit
from mithril_nb.train.learning_rates import LearningRates, find_lr
from mithril_nb.train.losses import LOSSES, Loss
from mithril_nb.train.metrics import patience
from mithril_nb.train.optimizers import Optimizer, resolve_optimizer
from mithril_nb.train.processes import Processes, distributed
from mithril_nb.train.run.events import COLUMNS, CURVES, History, TrainingEvent
from mithril_nb.train.run.handle import Run
from mithril_nb.train.step import Program, loss_function, programs, train_step
from mithril_nb.train.trainable import Trainable, as_trainable

__all__ = [
    "COLUMNS",
    "CURVES",
    "LOSSES",
    "Checkpoints",
    "History",
    "LearningRates",
    "Loss",
    "Optimizer",
    "Processes",
    "Program",
    "Run",
    "Trainable",
    "TrainingEvent",
    "as_trainable",
    "distributed",
    "find_lr",
    "fit",
    "loss_function",
    "patience",
    "programs",
    "resolve_optimizer",
    "train_step",
]
