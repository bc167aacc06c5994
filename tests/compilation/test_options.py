"""Options of `compile` have an effect, or report by name why not, with full messages."""

import re
import warnings

import jax
import numpy as np
import pytest
from transcript import facts_of, read_transcript, without_advice

import mithril_nb as ml
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, Add, Embedding, Linear, Log, Model, Relu, Tanh

X = np.linspace(-1, 1, 15, dtype="float32").reshape(5, 3)
ONES = {"output": np.ones((5, 2), "float32")}
BACKEND = ml.JaxBackend()
FIVE = {"input": [5, 3]}


def test_params_are_donated_if_gradients_replace_them():
    pm = ml.compile(MLP(3, [4], 2), BACKEND, jit_options={"donate_argnums": (0,)})
    params = pm.randomize_params(0)
    pm.evaluate(params, {"input": X})
    assert not params["linear_0.weight"].is_deleted(), "outputs alone have no use for their memory"
    _, gradients = pm.evaluate(params, {"input": X}, ONES)
    assert params["linear_0.weight"].is_deleted()
    expected = ml.compile(MLP(3, [4], 2), BACKEND).evaluate(pm.randomize_params(0), {"input": X}, ONES)[1]
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-6)


def test_xla_computation_is_kept_on_request():
    kept = ml.compile(Linear(2), BACKEND, shapes=FIVE, jit_options={"xla_computation": True})
    assert "stablehlo.dot_general" in kept.xla_computation
    assert ml.compile(Linear(2), BACKEND, shapes=FIVE).xla_computation is None
    data = {"input": np.linspace(-1, 1, 900, dtype="float32").reshape(300, 3)}
    kept = ml.compile(Linear(2), BACKEND, constants=data, jit_options={"xla_computation": True})
    assert "elided" in kept.stablehlo.text
    assert "elided" not in kept.xla_computation


def test_without_fusion_no_operations_are_fused():
    def longest(**options):
        """The most operations, without its arguments, that one fusion holds."""
        pm = ml.compile(Model() + Tanh() + Relu(), BACKEND, shapes=FIVE, **options)
        text = pm._run.lower({}, {"input": X}, None).compile().as_text()
        bodies = re.findall(r"^%fused\S* .*?^}|^%wrapped\S* .*?^}", text, re.S | re.M)
        return max(sum(" = " in one and " parameter(" not in one for one in body.splitlines()) for body in bodies)

    assert longest() > 1
    assert longest(optimizations={"fusion": True, "buffer_reuse": True, "layout_optimization": True}) > 1
    assert longest(optimizations={"fusion": False}) == 1


def test_scatter_gradients_work_without_fusion():
    pm = ml.compile(Embedding(5, 2), BACKEND, shapes={"input": [3]}, optimizations={"fusion": False})
    rows = np.array([1, 1, 4], "int32")
    _, gradients = pm.evaluate(pm.randomize_params(0), {"input": rows}, {"output": np.ones((3, 2), "float32")})
    assert gradients["weight"][:, 0].tolist() == [0, 2, 0, 0, 1]


def test_flags_of_the_backend_reach_its_programs():
    backend = ml.JaxBackend(xla_flags=["--xla_cpu_enable_fast_math=true", "xla_backend_optimization_level=0"])
    assert backend.compiler_options == {"xla_cpu_enable_fast_math": "True", "xla_backend_optimization_level": "0"}
    pm = ml.compile(Linear(2), backend, shapes=FIVE)
    assert dict(pm.options.compiler_options) == backend.compiler_options
    assert pm.evaluate(pm.randomize_params(0), {"input": X})["output"].shape == (5, 2)
    broken = ml.compile(Linear(2), BACKEND, shapes=FIVE)
    object.__setattr__(broken.options, "compiler_options", {"xla_nonsense": "1"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_nonsense'"):
        broken._jitted()(broken.randomize_params(0), {"input": X})


def test_constants_are_no_longer_inputs():
    pm = ml.compile(Model() | Add()(left="x", right="rate", output="y"), BACKEND, constants={"rate": [1.0, 2.0, 3.0]})
    assert list(pm.input_specs) == ["x"]
    np.testing.assert_allclose(pm.evaluate({}, {"x": X})["y"], X + np.array([1, 2, 3]))
    rows = ml.compile(Embedding(4, 3), BACKEND, constants={"input": np.array([3, 1])})
    params = rows.randomize_params(0)
    np.testing.assert_array_equal(rows.evaluate(params, {})["output"], params["weight"][np.array([3, 1])])


def test_frozen_params_have_no_gradient():
    pm = ml.compile(MLP(3, [4], 2), BACKEND, frozen=["linear_0"])
    _, gradients = pm.evaluate(pm.randomize_params(0), {"input": X}, ONES)
    assert {name: bool(np.any(one)) for name, one in gradients.items()} == {
        "linear_0.weight": False, "linear_0.bias": False, "linear_1.weight": True, "linear_1.bias": True,
    }  # fmt: skip
    assert [one.name for one in pm.parameters if not one.is_trainable] == ["linear_0.weight", "linear_0.bias"]
    both = ml.compile(MLP(3, [4], 2), BACKEND, frozen=["linear_0"], trainable=["linear_0.bias"])
    assert [one.name for one in both.parameters if not one.is_trainable] == ["linear_0.weight"]


def test_static_shapes_reject_other_shapes():
    declared = ml.compile(Linear(2), BACKEND, shapes=FIVE, static_shapes=True)
    params = declared.randomize_params(0)
    first = ml.compile(Linear(2), BACKEND, static_shapes=True)
    named = ml.compile(Linear(2), BACKEND, shapes={"input": ["batch", 3]}, static_shapes=True)
    for pm in (declared, first, named):
        assert pm.evaluate(params, {"input": X})["output"].shape == (5, 2)
        with pytest.raises(MithrilError) as error:
            pm.evaluate(params, {"input": X[:2]})
        assert without_advice(str(error.value)) == (
            "the shape of input 'input' differs from the compiled shape.\n"
            "    given         (2, 3)\n"
            "    compiled for  (5, 3)"
        )
        assert pm.evaluate(params, {"input": X})["output"].shape == (5, 2)


def test_call_uses_own_params():
    pm = ml.compile(Model() | Linear(2)(input="image", output="logits"), ml.JaxBackend(seed=1))
    first = pm(X)
    assert first.shape == (5, 2)
    np.testing.assert_array_equal(pm(image=X), first)
    np.testing.assert_array_equal(pm({"image": X}), first)
    assert {name: one.shape for name, one in pm.params.items()} == {"linear_0.weight": (3, 2), "linear_0.bias": (2,)}
    pm.params = {name: 0 * one for name, one in pm.params.items()}
    assert not np.any(pm(X))
    two = Model() | Linear(2)(input="x", output="a") | Linear(3)(input="x", output="b")
    assert {name: one.shape for name, one in two.compile(BACKEND)(X).items()} == {"a": (5, 2), "b": (5, 3)}


def test_debug_names_the_block_with_nan():
    model = Model() | Linear(3, name="before")
    model += Log()
    watched = ml.compile(model, ml.JaxBackend(debug=True), shapes=FIVE)
    params = {"before.weight": np.eye(3, dtype="float32"), "before.bias": np.zeros(3, "float32")}
    assert watched.evaluate(params, {"input": np.ones((5, 3), "float32")})["output"].shape == (5, 3)
    assert facts_of(lambda: watched.evaluate(params, {"input": X})) == (
        "NotANumberError: 'log_0.output' is NaN.\n    input  (5, 3) from -1 to 1"
    )
    assert np.isnan(ml.compile(model, BACKEND).evaluate(params, {"input": X})["output"]).any()


def test_debug_compares_shapes_with_inferred_ones():
    backend = ml.JaxBackend(debug=True)
    backend.register_op("relu")(lambda x: x[:1])
    assert facts_of(lambda: ml.compile(Model() | Relu(), backend).evaluate({}, {"input": X})) == (
        "ShapeError: the shape of 'relu_0.output' differs from the inferred shape.\n"
        "    inferred  (5, 3)\n"
        "    computed  (1, 3)\n"
        "    cause     the function that computes the output, or the rule that infers the shape"
    )


def test_plain_model_call_skips_python():
    pm = ml.compile(MLP(3, [4], 2), BACKEND, static_shapes=True, jit_options={"xla_computation": True})
    assert pm.evaluate is pm._run
    assert type(pm.evaluate) is type(jax.jit(abs))


WARNED = [
    (
        {"jit_options": {"static_argnums": (0, 1)}},
        "jit_options['static_argnums'] has no effect on 'params' and 'inputs': a dict of arrays cannot be static. "
        "The attributes of blocks are always static.",
    ),
    (
        {"jit_options": {"donate_argnums": 0}, "jit": False},
        "jit_options['donate_argnums'] has no effect: jit=False, and only a jitted program can reuse memory.",
    ),
    (
        {"tpu_options": {"replicate_inputs": True}},
        "tpu_options['replicate_inputs'] has no effect: the backend has one device, not a device_mesh.",
    ),
    (
        {"tpu_options": {"allow_spmd": False}},
        "tpu_options['allow_spmd'] has no effect: JAX compiles every program on several devices as SPMD.",
    ),
    (
        {"optimizations": {"buffer_reuse": False}},
        "optimizations['buffer_reuse']=False has no effect: XLA always reuses buffers.",
    ),
    (
        {"optimizations": {"layout_optimization": False}},
        "optimizations['layout_optimization']=False has no effect: XLA always chooses layouts.",
    ),
    (
        {"optimizations": {"fusion": True}, "jit": False},
        "optimizations['fusion'] has no effect: jit=False, and XLA sees one operation at a time.",
    ),
]


@pytest.mark.parametrize(("options", "text"), WARNED)
def test_options_without_effect_warn_once(options, text):
    with pytest.warns(MithrilWarning) as warned:
        ml.compile(Relu(), BACKEND, **options)
    assert [str(one.message) for one in warned] == [text]
    assert warned[0].filename == __file__


def test_flag_for_another_platform_warns():
    with pytest.warns(MithrilWarning) as warned:
        backend = ml.JaxBackend(xla_flags=["--xla_gpu_autotune_level=4"])
    assert [str(one.message) for one in warned] == [
        "the XLA flag 'xla_gpu_autotune_level' has no effect: it is for GPUs, and this backend runs on cpu."
    ]
    assert backend.compiler_options == {}


def test_effective_options_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ml.compile(
            Relu(),
            BACKEND,
            jit_options={"donate_argnums": (0,), "xla_computation": True, "static_argnums": None},
            tpu_options={"allow_spmd": True},
            static_shapes=False,
            optimizations={"fusion": True, "buffer_reuse": True, "layout_optimization": True},
        )


CASES = """
ml.compile(Relu(), jit_options={"donate_argnum": 0})
UnknownOptionError: jit_options has no option 'donate_argnum'.
    takes  a dict with static_argnums, donate_argnums, xla_computation

ml.compile(Relu(), optimizations=["fusion"])
UnknownOptionError: optimizations has no option ['fusion'].
    takes  a dict with fusion, buffer_reuse, layout_optimization

ml.compile(Relu(), tpu_options={"zzz": 1})
UnknownOptionError: tpu_options has no option 'zzz'.
    takes  a dict with replicate_inputs, allow_spmd

ml.compile(Relu(), jit_options={"donate_argnums": (3,)})
UnknownOptionError: jit_options['donate_argnums']=(3,) must contain positions of arguments of evaluate.
    arguments  0 params, 1 inputs, 2 output_gradients

ml.compile(Relu(), optimizations={"fusion": "yes"})
UnknownOptionError: optimizations['fusion']='yes' must be a bool.
    needs  True or False

ml.compile(Relu(), static_shapes="batch")
UnknownOptionError: static_shapes='batch' must be a bool.
    needs  True or False

ml.compile(Relu(), constants={"x": 1.0})
UnexpectedInputError: the model has no input 'x'.
    inputs  'input'

ml.compile(Relu(), constants={"input": "one"})
UnknownOptionError: the constant for input 'input' is not an array of numbers.
    given  'one'

ml.compile(MLP(3, [4], 2), frozen="linear_0")
UnknownOptionError: frozen='linear_0' is not a list of names.

ml.compile(MLP(3, [4], 2), frozen=["linear_0"], trainable=["linear_0"])
UnknownOptionError: 'linear_0' is in both frozen and trainable.

ml.JaxBackend(xla_flags="--xla_foo")
UnknownOptionError: xla_flags='--xla_foo' is not a list of flags.
    needs  a list of strings

ml.JaxBackend(xla_flags=["--xla_foo=1"])
UnknownOptionError: XLA rejects the flag '--xla_foo=1'.
    because  No such compile option: 'xla_foo'

ml.JaxBackend(xla_flags=["--xla_force_host_platform_device_count=8"])
UnknownOptionError: the XLA flag 'xla_force_host_platform_device_count' comes too late: JAX reads it only at the start.

ml.JaxBackend(device_mesh=2)
DeviceNotFoundError: device_mesh=(2,) needs 2 devices, but only 1 is available.
    present  cpu:0

ml.JaxBackend(debug="yes")
UnknownOptionError: debug='yes' must be a bool.
    needs  True or False

BACKEND.set_platform("tpu")
DeviceNotFoundError: no device 'tpu' on backend 'jax'.
    present  cpu:0

BACKEND.ones(2, dtype="float64")
UnknownOptionError: JAX creates arrays of float64 only in its x64 mode, which is off.
    because  JAX uses 32 bits by default, and would truncate these

BACKEND.array(["a", "b"])
UnknownOptionError: cannot convert the value to an array.
    given  ['a', 'b']
    needs  numbers, or nested lists of numbers of equal lengths

BACKEND.matmul(BACKEND.ones(3, 4), BACKEND.ones(3, 4))
ShapeError: matmul does not accept these arguments.
    given    (3, 4) float32, (3, 4) float32
    because  dot_general requires contracting dimensions to have the same shape, got (4,) and (3,).

BACKEND.cross_entropy(BACKEND.ones(3, 4), BACKEND.ones(3))
ShapeError: cross_entropy does not accept targets of shape (3,) float32.
    logits  (3, 4) float32
    needs   (3,) integers, or (3, 4) probabilities
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(CASES))
def test_message(code, message):
    assert facts_of(code, globals()) == message


def test_stages_use_the_options():
    def text(**options):
        return ml.compile(Model() + Tanh() + Relu(), BACKEND, shapes=FIVE, **options).hlo.text

    assert "fused_computation" in text()
    assert "fused_computation" not in text(optimizations={"fusion": False})


def test_trained_input_has_its_declared_shape():
    pm = ml.compile(Add(), BACKEND, shapes={"left": [2, 3], "right": [2, 3]}, trainable=["right"])
    assert [str(one.spec) for one in pm.parameters] == ["(2, 3) float32"]
    assert pm.input_names == ("left",)
    with pytest.raises(MithrilError, match="frozen=5 is not a list of names"):
        ml.compile(Add(), BACKEND, frozen=5)  # pyright: ignore


def test_backend_flags_are_merged_with_options():
    backend = ml.JaxBackend(xla_flags=["--xla_disable_hlo_passes=algsimp"])
    pm = ml.compile(Linear(2), backend, optimizations={"fusion": False})
    assert pm.options.compiler_options["xla_disable_hlo_passes"].startswith("algsimp,fusion")
