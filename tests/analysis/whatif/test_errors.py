"""Refused settings and values, and programs that cannot be made."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np  # noqa: F401 - used in CASES
import pytest
from analysis.whatif.programs import perceptron, spec  # noqa: F401
from transcript import facts_of, read_transcript

from mithril_nb.analysis.whatif import sweep, what_if
from mithril_nb.errors import StageUnavailableError
from mithril_nb.models import Linear  # noqa: F401
from mithril_nb.targets import inspect
from mithril_nb.targets.options import OPTIONS


def double(x: Any) -> Any:
    return x + x


def needs(batch: int, width: int = 4) -> Any:
    return double, (spec(batch, width),)


def gives_nothing(batch: int = 8) -> Any:
    return batch


CASES = """
what_if(perceptron)(btch=16)
UnknownOptionError: perceptron() has no setting 'btch'.
    settings  batch, width, dtype, layers

what_if(Linear)
UnknownOptionError: cannot inspect <class 'mithril_nb.models.library.layers.linear.Linear'>.
    needs  a model, a function, a module, a traced, lowered or compiled program, or a file

what_if(perceptron)([16])
UnknownOptionError: settings must be keyword arguments or a dict with string keys, got [16].

what_if(double, spec(4, 3))(dtype=jnp.ones(1))
UnknownOptionError: floating-point arrays cannot be cast to 'Array([1.], dtype=float32)'.
    known  float16, bfloat16, float32, float64

what_if(double, spec(4, 3))(dtype={'x': [2, 'B']})
UnknownOptionError: floating-point arrays cannot be cast to "{'x': [2, 'B']}".
    known  float16, bfloat16, float32, float64

what_if(Linear(3), shapes={'input': [2, 4]}, optimiser='adam')
UnknownOptionError: ml.inspect takes no option 'optimiser', and the model has no input of this name.
    inputs   'input'
    options  <options>

what_if(perceptron)(kernel=3)
UnknownOptionError: perceptron() has no setting 'kernel'.
    settings  batch, width, dtype, layers

what_if(perceptron)(batch='large')
UnknownOptionError: setting 'batch' of perceptron() must be an integer of at least 0, not 'large'.
    current value  8

what_if(perceptron)(batch=-2)
UnknownOptionError: setting 'batch' of perceptron() must be an integer of at least 0, not -2.
    current value  8

what_if(needs)
UnknownOptionError: needs() needs a value for 'batch'.
    settings  batch, width

what_if(double, spec(4, 3))(btch=8)
UnknownOptionError: 'double' has no setting 'btch'.
    settings  batch, dtype, precision

what_if(double, spec(4, 3))(width=8)
UnknownOptionError: 'double' has no setting 'width'.
    settings  batch, dtype, precision

what_if(double, spec(4, 3), batch=8)
UnknownOptionError: batch=8 cannot be set with program 'double': pass them to the result of ml.what_if.
    settings  batch, dtype, precision

what_if(Linear(4), shapes={'input': (2, 3)}, remat=True)
UnknownOptionError: remat=True cannot be set with program 'Linear': pass them to the result of ml.what_if.
    settings  batch, dtype, precision, remat

what_if(gives_nothing)
UnknownOptionError: gives_nothing() must return a function and its arguments, got 8.
    or  a model and the shapes of its inputs, or the result of ml.inspect

what_if(double, spec(4, 3))(dtype='int32')
UnknownOptionError: floating-point arrays cannot be cast to 'int32'.
    known  float16, bfloat16, float32, float64

what_if(double, spec(4, 3))(dtype='float64')
UnknownOptionError: JAX creates no float64 arrays by default.
    because  jax_enable_x64 is off, so JAX would truncate them to 32 bits

what_if(perceptron)(precision='best')
UnknownOptionError: unknown precision 'best'.
    known  default, high, highest, bfloat16, tensorfloat32, float32

what_if(double, spec(4, 3))(remat=True)
UnknownOptionError: cannot set remat of program 'double': only a model has this setting.
    settings  batch, dtype, precision

what_if(lambda x, y: (x + 1, y + 1), spec(4, 3), spec(5, 3))(batch=8)
ShapeError: cannot determine the batch of '<lambda>': several first dims are possible.
    first dim 4  x (4, 3) float32
    first dim 5  y (5, 3) float32

what_if(double, spec())(batch=8)
ShapeError: cannot determine the batch of 'double': no first dim of all arrays of an argument can vary.

what_if(inspect(double, spec(4, 3)), spec(4, 3))
UnknownOptionError: program 'double' is already an inspection; it takes no further arguments or options.

what_if(Linear(3), shapes={'input': [4, 5]})({'linear.width': 3})
UnknownOptionError: program 'forward' has no setting 'linear.width'.
    settings   batch, input.1, dtype, remat
    of linear  dimension, use_bias, input_size

what_if(Linear(3), shapes={'input': [4, 5]})({'head.dimension': 3})
UnknownOptionError: program 'forward' has no setting 'head.dimension'.
    settings  batch, input.1, dtype, remat
    blocks    linear

what_if(Linear(3), shapes={'input': [4, 5]})(remat='yes')
UnknownOptionError: remat must be True or False, not 'yes'.

sweep(perceptron, batch=8)
UnknownOptionError: a sweep needs one or two settings given as lists, got none.
    settings  batch, width, dtype, layers

sweep(perceptron, batch=[8], width=[4], dtype=['float32'])
UnknownOptionError: a sweep needs one or two settings given as lists, got 'batch', 'width', 'dtype'.
    settings  batch, width, dtype, layers

sweep(perceptron, batch=[])
UnknownOptionError: the values of 'batch' must be a non-empty list, not [].

sweep(perceptron, batch=np.array(5))
UnknownOptionError: the values of 'batch' must be a non-empty list, not array(5).

sweep(perceptron, batch=[8, 2.5])
UnknownOptionError: setting 'batch' of perceptron() must be an integer of at least 0, not 2.5.
    current value  8

sweep(perceptron, batch=[8], source='measure')
UnknownOptionError: unknown source 'measure' for a sweep of 'perceptron'.
    sources  analytic, compiled, measured

sweep(perceptron, batch=[8], source='guessed')
UnknownOptionError: unknown source 'guessed' for a sweep of 'perceptron'.
    sources  analytic, compiled, measured
"""


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(code: str, facts: str) -> None:
    assert facts_of(code, globals()) == facts.replace("<options>", ", ".join(OPTIONS))


def test_errors_of_a_users_function_are_raised() -> None:
    def make(batch: int = 8) -> Any:
        if batch > 8:
            raise ValueError("too many")
        return double, (spec(batch, 3),)

    found = what_if(make)
    for _ in range(2):
        with pytest.raises(ValueError, match="too many"):
            found(batch=9)
    assert found(batch=7).delta.flops == -3


def test_a_program_that_cannot_be_traced_raises() -> None:
    def make(width: int = 4) -> Any:
        return jnp.matmul, (spec(2, width), spec(4, 3))

    with pytest.raises(StageUnavailableError, match="cannot be traced"):
        what_if(make)(width=5)


def test_a_program_that_xla_rejects_has_analytic_figures() -> None:
    def make(batch: int = 8) -> Any:
        return inspect(double, spec(batch, 3), compiler_options={"xla_no_such_flag": "1"})

    change = what_if(make)(batch=16)
    assert change.delta.flops == 24
    later = change.compiled
    with pytest.raises(Exception, match="xla_no_such_flag"):
        later.result(60)
    assert later.is_done
    assert repr(later) == "Future(failed; .result() raises the error)"
    (point,) = sweep(make, batch=[8], source="compiled").points
    assert point.flops is None
    assert "xla_no_such_flag" in point.reasons["flops"]
