"""The commonest mistakes when people compose, give shapes, compile, train, save and load: each function makes one."""

import jax.numpy as jnp
import numpy as np
import optax

import mithril_nb as ml
from mithril_nb.models import (
    GPT,
    MLP,
    Add,
    Composite,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Embedding,
    GroupNorm,
    IOKey,
    Linear,
    MatrixMultiply,
    MaxPool2d,
    Model,
    MultiHeadAttention,
    OneHot,
    Operator,
    Relu,
    Reshape,
    Sequential,
    Softmax,
    SquaredError,
)

X, LABELS = np.ones((6, 4), "float32"), np.array([0, 1, 2, 0, 1, 2])
NAN = np.where(np.arange(24).reshape(6, 4) == 9, np.nan, X)
COMPILED = ml.compile(MLP(4, [8], 3), shapes={"input": ["batch", 4]})
PARAMS = COMPILED.randomize_params(0)


class Magnitude(Operator):
    def compute(self, inputs):
        return {"output": inputs["input"] if inputs["input"].sum() > 0 else -inputs["input"]}


class Twice(Operator):
    def multiply(self, inputs):
        return {"output": 2 * inputs["input"]}


class Encoder(Composite):
    def __init__(self, width: int, depth: int = 2, name: str | None = None):
        super().__init__(name, depth=depth)


# Compose


def abbreviate_an_argument():
    GPT(vocab=256, layers=3, dim=4, heads=4)


def use_an_argument_that_does_not_exist():
    Linear(64, width=1)


def omit_a_required_argument():
    OneHot()


def write_a_number_as_text():
    Linear("64")


def choose_an_unknown_activation():
    MLP(4, [8], 3, activation="swish")


def give_three_sizes_for_a_window_in_two_dimensions():
    Conv2d(3, (1, 2, 3))


def write_an_unknown_padding():
    Conv2d(3, padding="full")


def give_a_percentage_for_a_probability():
    Dropout(50)


def split_a_width_into_heads_that_do_not_divide_it():
    MultiHeadAttention(10, 4)


def define_an_operator_without_compute():
    Twice()


def omit_an_argument_in_the_call_of_super():
    Encoder(3)


def add_a_class_instead_of_a_block():
    Model() + Linear


def add_the_name_of_a_block():
    Sequential(Linear(5), "relu")


def branch_on_the_values_of_an_array():
    ml.compile(Magnitude(), shapes={"input": [4, 3]})


def name_an_unknown_operation():
    ml.op("gelo")


def connect_a_port_that_does_not_exist():
    Linear(4)(inputs="x")


def connect_a_port_to_a_class():
    Relu()(input=Linear)


def connect_a_block_that_is_not_part_of_the_model():
    Model() | Relu()(input=Linear(3).output)


def use_a_name_of_a_block_twice():
    Model() | Relu(name="act") | Linear(3, name="act")


def give_two_outputs_one_name():
    model = Model() | Linear(3)(input="x", output="logits")
    model |= Relu()(input="x", output="logits")


def close_a_cycle():
    model = Model() | Linear(3)(input="x", output="logits")
    model |= Relu()(input="logits", output="x")


def read_a_connection_that_does_not_exist():
    model = Model() | Linear(3)(input="x", output="logits")
    model["logit"]


def expose_an_input():
    model = Model() | Linear(3)(input="x", output="logits")
    model.expose_keys("x")


def merge_two_outputs():
    model = Model() | Linear(3)(input="x", output="logits")
    (model | Linear(3)(output="b")).merge_connections("logits", "b")


def rename_to_a_name_with_a_dot():
    model = Model() | Linear(3)(input="x", output="logits")
    model.rename_keys(x="encoder.x")


def declare_one_input_twice_with_different_shapes():
    first, second = IOKey("x", shape=["b", 3]), IOKey("x", shape=["b", 4])
    Model() | Linear(2)(input=first, output="y") | Linear(2)(input=second, output="z")


# Give shapes


def connect_blocks_of_different_widths():
    ml.compile(Model() + Linear(64) + Relu() + Linear(10, input_size=128), shapes={"input": [32, 784]})


def give_an_input_of_another_width():
    ml.compile(Linear(10, input_size=128), shapes={"input": [32, 784]})


def make_two_mistakes_at_once():
    model = Model() | Linear(3)(input="x", output="logits")
    model |= Linear(4, input_size=4)(input="logits")
    ml.compile(model | Add()(left="logits", right="x"), shapes={"x": ["n", 7]})


def give_a_vector_to_a_convolution():
    ml.compile(Conv2d(3), shapes={"input": [2, 7]})


def give_an_image_with_other_channels():
    ml.compile(Conv2d(3, in_channels=3), shapes={"input": [2, 1, 8, 8]})


def use_a_window_larger_than_the_image():
    ml.compile(Model() + MaxPool2d(2) + MaxPool2d(4), shapes={"input": [2, 1, 6, 6]})


def use_an_axis_that_does_not_exist():
    ml.compile(Softmax(2), shapes={"input": [2, 1]})


def add_arrays_that_do_not_broadcast():
    ml.compile(Add(), shapes={"left": [2, 3, 4], "right": [2, 1]})


def multiply_matrices_that_do_not_fit():
    ml.compile(MatrixMultiply(), shapes={"left": [2, 4, 5], "right": [3, 6]})


def reshape_to_another_number_of_items():
    ml.compile(Reshape((4, 6)), shapes={"input": [3, 4]})


def join_arrays_of_different_lengths():
    ml.compile(Concat(2, axis=-1), shapes={"input1": [2, 3], "input2": [4, 3]})


def normalize_groups_that_do_not_divide_the_channels():
    ml.compile(GroupNorm(), shapes={"input": [2, 12, 3]})


def look_up_floating_point_numbers():
    ml.compile(Model() + Linear(3) + Embedding(3, 4), shapes={"input": [2, 3]})


def pass_targets_that_would_broadcast():
    ml.compile(SquaredError(), shapes={"input": [3], "target": [3, 1]})


def put_the_classes_last():
    ml.compile(CrossEntropy(), shapes={"input": [8, 5, 10], "target": [8, 5]})


def give_a_shape_without_a_name():
    ml.compile(Linear(3), shapes=[32, 784])


def give_a_shape_as_text():
    ml.compile(Linear(3), shapes={"input": "32, 784"})


def use_none_for_an_unknown_size():
    ml.compile(Linear(3), shapes={"input": [None, 784]})


def give_a_shape_to_an_input_that_does_not_exist():
    model = Model() | Linear(3)(input="x", output="logits")
    ml.compile(model, shapes={"image": [32, 784]})


def declare_another_shape_than_a_block_returns():
    ml.compile((Model() | Linear(3)(output="y")).set_shapes(y=[2, 4]), shapes={"input": [2, 5]})


# Compile, evaluate and inspect


def compile_a_class():
    ml.compile(Linear)


def name_the_backend():
    ml.compile(Linear(3), "jax")


def use_an_option_that_does_not_exist():
    ml.compile(Linear(3), shape={"input": [1]})


def misspell_an_option_of_a_backend():
    ml.JaxBackend(devce="cpu")


def choose_a_device_that_is_absent():
    ml.JaxBackend(device="gpu")


def misspell_a_dtype():
    ml.JaxBackend(dtype="float31")


def create_params_before_the_shapes_are_known():
    ml.compile(Model() + Linear(3)).randomize_params()


def omit_the_params():
    COMPILED.evaluate({}, {"input": X})


def use_params_of_another_width():
    COMPILED.evaluate(PARAMS, {"input": X[:, :3]})


def omit_an_input():
    COMPILED.evaluate(PARAMS, {})


def use_a_name_of_an_input_that_does_not_exist():
    COMPILED.evaluate(PARAMS, {"image": X})


def pass_an_array_without_a_name():
    COMPILED.evaluate(PARAMS, X)


def train_dropout_without_a_key():
    ml.compile(Dropout(0.5)).forward({}, {"input": X}, training=True)


def inspect_a_model_without_shapes():
    ml.inspect(Linear(3))


def inspect_a_function_without_an_argument():
    ml.inspect(lambda x, y: x @ y, X)


def misspell_an_option_of_inspect():
    ml.inspect(Linear(3), X, optimiser="adam")


def call_the_memory_of_an_inspection():
    ml.inspect(jnp.sin, X).memory()


# Train


def pass_targets_outside_of_a_pair():
    ml.fit(COMPILED, X, LABELS)


def pass_batches_instead_of_arrays():
    ml.fit(COMPILED, iter([(X, LABELS)]))


def train_a_function_without_params():
    ml.fit(lambda params, x: x @ params, (X, LABELS))


def count_steps_instead_of_epochs():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, max_steps=100)


def validate_as_in_another_library():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, validate_every=2)


def watch_a_history():
    ml.watch(ml.fit(COMPILED, (X, LABELS), batch_size=3).history)


def misspell_an_option_of_fit():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, epoch=3)


def misspell_the_loss():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, loss="cros_entropy")


def misspell_the_optimizer():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, optimizer="adams")


def request_an_unknown_metric():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, metrics=["f2"])


def pass_a_rate_beside_an_optimizer_that_has_one():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, optimizer=optax.adam(1e-3), learning_rate=1e-2)


def use_a_batch_larger_than_the_data():
    ml.fit(COMPILED, (X, LABELS))


def pass_inputs_and_targets_of_different_lengths():
    ml.fit(COMPILED, (X, LABELS[:5]))


def train_on_nan():
    ml.fit(COMPILED, (NAN, LABELS), batch_size=3)


def train_on_another_width():
    ml.fit(COMPILED, (X[:, :3], LABELS), batch_size=3)


def use_labels_that_start_at_one():
    ml.fit(COMPILED, (X, LABELS + 1), batch_size=3)


def pass_labels_as_floats():
    ml.fit(COMPILED, (X, LABELS.astype(float)), batch_size=3)


def pass_one_hot_targets():
    ml.fit(COMPILED, (X, np.eye(3)[LABELS]), batch_size=3)


def train_a_regression_with_the_default_loss():
    ml.fit(Linear(1), (X, X[:, :1]), batch_size=3)


def resume_without_a_folder():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, resume=True)


def train_in_the_folder_of_a_run():
    ml.fit(COMPILED, (X, LABELS), batch_size=3, epochs=1, checkpoint="runs").wait()
    ml.fit(COMPILED, (X, LABELS), batch_size=3, epochs=1, checkpoint="runs")


# Save and load


def save_to_a_folder_that_does_not_exist():
    model = Model() | Linear(3)(input="x", output="logits")
    ml.save(model, "models/model.json")


def load_a_file_that_does_not_exist():
    ml.load("modle.json")


def load_params_as_a_model():
    ml.save_params({"weight": X}, "params.safetensors")
    ml.load("params.safetensors")


def load_a_model_as_params():
    model = Model() | Linear(3)(input="x", output="logits")
    ml.save(model, "model.json")
    ml.load_params("model.json")
