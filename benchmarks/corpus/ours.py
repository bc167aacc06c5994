"""mithril_nb models: the three programs of training for each."""

from __future__ import annotations

from collections.abc import Callable

import mithril_nb as ml
from benchmarks.corpus.program import Make, Program
from benchmarks.plain import mlp
from mithril_nb.models import GPT, Model
from mithril_nb.train import programs as programs_of


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""

    def gpt() -> Model:
        if full:
            return GPT(vocabulary=50257, context=1024, layers=12, heads=12, width=768)
        return GPT(vocabulary=19, context=8, layers=2, heads=2, width=12)

    def wide() -> Model:
        return mlp((512, 256, 10) if full else (7, 11, 3))

    models = {
        "mithril_nb MLP": (wide, (128, 784) if full else (4, 5)),
        "mithril_nb GPT": (gpt, (2, 128) if full else (2, 5)),
    }
    return {
        f"{name}, {program}": lambda make=make, shape=shape, program=program: of_ours(make, shape, program)
        for name, (make, shape) in models.items()
        for program in ("forward", "train step")
    }


def of_ours(make: Callable[[], Model], shape: tuple[int, ...], program: str) -> Program:
    """Return a program of a model, compiled for an input shape."""
    physical = ml.compile(make(), ml.JaxBackend(), shapes={"input": list(shape)})
    found = programs_of(physical)[program]
    return found.function, found.specs
