"""The advice in errors of training works."""

from __future__ import annotations

import pytest
from advice import check, chosen

DATA = """
        model, x, y = Linear(3), np.ones((6, 4), "float32"), np.array([0, 1, 2, 0, 1, 2])
        data, options = (x, y), dict(batch_size=3, epochs=1)"""
RUN = f"""{DATA}
        run = ml.fit(model, data, **options); run.wait()"""
FIT = "ml.fit(model, (x, y), **options)"

FIXED = """
        pm = ml.compile(Linear(4), shapes={"input": [4, 5]}, static_shapes=True)
        x, y = np.ones((8, 5), "float32"), np.zeros(8, int)
        def fit(samples, loss):
            ml.fit(pm, (x, y), loss=loss, batch_size=4, epochs=1, validation=(x[:samples], y[:samples])).wait()"""

FOLDER = f"""{DATA}
        import tempfile; folder = tempfile.mkdtemp(dir=".")
        ml.fit(model, data, checkpoint=folder, seed=1, **options).wait()"""

CHECKPOINTS = {
    "train/checkpoints/file.py:like": f"""{DATA}
        import tempfile; folder = tempfile.mkdtemp(dir=".")
        ml.fit(MLP(4, [8], 3), data, checkpoint=folder, seed=1, **options).wait()
        ml.fit(MLP(4, [9], 3), data, checkpoint=folder, resume=True, seed=1, **options).wait()
        """,
    "train/checkpoints/file.py:broken": f"""{FOLDER}
        import pathlib; files = [*pathlib.Path(folder).glob("*.safetensors")]
        for file in files: file.write_bytes(b"cut")
        ml.fit(model, data, checkpoint=folder, resume=True, **options).wait()
        """,
    "train/checkpoints/saver.py:Checkpoints.__post_init__": f"""{DATA}
        ml.fit(model, data, checkpoint=3, **options)
        """,
    "backends/backend.py:check_count | checkpoints": """
        Checkpoints = ml.Checkpoints
        ml.Checkpoints("a", keep=0)
        """,
    "train/checkpoints/saver.py:Checkpoints.__post_init__#2": """
        Checkpoints = ml.Checkpoints
        ml.Checkpoints("a", every_s=-1)
        """,
    "train/checkpoints/saver.py:Saver.reading": f"""{DATA}
        new_path("file").write_text("")
        ml.fit(model, data, checkpoint="file/runs", **options).wait()
        """,
    "train/checkpoints/resume.py:prepare": f"""{DATA}
        ml.fit(model, data, resume=True, **options)
        """,
    "train/checkpoints/resume.py:prepare#2": f"""{FOLDER}
        ml.fit(model, data, checkpoint=folder, seed=1, **options).wait()
        """,
    "train/checkpoints/resume.py:_restore": f"""{FOLDER}
        ml.fit(model, data, checkpoint=folder, resume=True, seed=1, batch_size=3, epochs=3).wait()
        ml.fit(model, data, checkpoint=folder, resume=True, seed=1, **options).wait()
        """,
    "train/checkpoints/resume.py:_another_run_error": f"""{FOLDER}
        ml.fit(model, data, checkpoint=folder, resume=True, seed=2, **options).wait()
        """,
    "train/checkpoints/saver.py:Saver._claim": """
        model, data = Linear(3), (np.ones((32, 4), "float32"), np.arange(32) % 3)
        import tempfile; folder = tempfile.mkdtemp(dir=".")
        run, other = (ml.fit(model, data, checkpoint=folder) for _ in range(2)); other.wait()
        run.wait()
        # Try: assert {}.wait().step == other.step
        """,
    "train/checkpoints/saver.py:Saver._write#2": f"""{DATA}
        import os, tempfile, warnings; folder = tempfile.mkdtemp(dir=".")
        def waited(run):
            with warnings.catch_warnings(action="ignore"):
                return run.wait()
        def check(run):
            for problem in run.errors:
                raise ml.errors.MithrilError(problem)
        run = ml.fit(model, data, checkpoint=folder, **options)
        os.rmdir(folder)
        check(waited(run))
        # Try: waited(run); os.mkdir(folder); check(waited(run.resume(epochs=1))); assert os.listdir(folder)
        """,
}

DATA_CASES = {
    "train/data.py:read_data": f"""{DATA}
        ml.fit(model, x)
        """,
    "train/data.py:read_data | validation": f"""{DATA}
        x_val, y_val = data
        ml.fit(model, data, validation=x, **options)
        """,
    "train/data.py:read_data#2": """
        model, x, y = Add(), np.ones((6, 4), "float32"), np.ones((6, 4), "float32")
        ml.fit(model, (x, y))
        # Try: ml.fit(model, {})
        # ...: x
        # ...: x
        """,
    "train/data.py:read_data#3": f"""{DATA}
        ml.fit(model, ({{"image": x, "more": x}}, y), **options)
        # Try: ml.fit(model, {{}}, **options)
        # ...: x
        """,
    "train/data.py:_check_lengths": f"""{DATA}
        ml.fit(model, (x, y[:5]), **options)
        """,
    "train/data.py:_check_lengths#2": f"""{DATA}
        ml.fit(model, (x[x[:, 0] > 3], y[x[:, 0] > 3]), **options)
        # Try: {{}}; ml.fit(model, (x[x[:, 0] < 3], y[x[:, 0] < 3]), **options)
        """,
    "train/data.py:_numbers#2": f"""{DATA}
        values = x.astype(str)
        ml.fit(model, (values, y), **options)
        # Try: ml.fit(model, ({{}}, y), **options)
        """,
    "train/data.py:_numbers": f"""{DATA}
        ml.fit(model, ([[1.0], [2.0, 3.0]], y[:2]), **options)
        # Try: x = [[1.0], [2.0, 3.0]]; {{}}; ml.fit(model, (x, y[:2]), batch_size=2)
        """,
    "train/data.py:_numbers | sequences of vectors": f"""{DATA}
        ml.fit(model, ([np.ones((3, 8)), np.ones((5, 8))], y[:2]), **options)
        # Try: ml.fit(model, (np.ones((2, 5, 8)), np.zeros((2, 5), int)), batch_size=2)
        """,
    "train/data.py:_checked_input": f"""{DATA}
        model = ml.compile(Linear(3), shapes={{"input": ["batch", 4]}})
        ml.fit(model, (x.reshape(6, 2, 2), y), **options)
        # Try: x = x.reshape(6, 2, 2); ml.fit(model, ({{}}, y), **options)
        """,
    "train/data.py:_checked_input#2": f"""{DATA}
        model, x = ml.compile(Model() | Embedding(5, 4) | Mean(axis=1), shapes={{"input": ["batch", 4]}}), x + 0.5
        ml.fit(Sequential(Embedding(5, 4), Mean(axis=1)), (x, y), **options)
        # Try: ml.fit(Sequential(Embedding(5, 4), Mean(axis=1)), ({{}}, y), **options)
        """,
    "train/data.py:_check_range": f"""{DATA}
        tokens = np.array([[1, 2], [3, 9]] * 3)
        ml.fit(Sequential(Embedding(num_embeddings=5, dim=4), Mean(axis=1)), (tokens, y), **options)
        """,
    "train/data.py:_check_finite": f"""{DATA}
        x[0, 0] = np.nan
        {FIT}
        """,
    "train/prepare.py:_labels + train/data.py:Problems.add": f"""{DATA}
        y = np.eye(3)[y]
        {FIT}
        """,
    "train/prepare.py:_labels#2": """
        x, y, options = np.ones((6, 2, 4), "float32"), np.zeros((6, 2, 1, 1), int), dict(batch_size=3)
        ml.fit(Linear(3), (x, y), **options)
        """,
    "train/prepare.py:_labels#3": f"""{DATA}
        y = y / 2
        ml.fit(model, (x, y), loss="cross_entropy", **options)
        """,
    "train/prepare.py:_labels#4": f"""{DATA}
        y = y + 5
        {FIT}
        """,
    "train/prepare.py:_labels#4 | too many classes": f"""{DATA}
        y = np.arange(6)
        {FIT}
        # Try: ml.fit({{}}, (x, y), **options)
        """,
    "train/prepare.py:_labels#4 | negative, and too many classes": f"""{DATA}
        y = np.arange(6) - 1
        {FIT}
        # Try: {{}}; ml.fit(Linear(6), (x, y), **options)
        """,
    "train/prepare.py:_binary": f"""{DATA}
        y = np.array([[0.0], [3.0]] * 3)
        ml.fit(Linear(1), (x, y), loss="binary_cross_entropy", **options)
        """,
    "train/data.py:_checked_input#3": f"""{DATA}
        model, x = Sequential(Embedding(5, 4), Mean(axis=1)), x.astype("int64") * 2**40
        {FIT}
        """,
    "train/prepare.py:_like_output": f"""{DATA}
        y = np.ones((6, 1, 3))
        ml.fit(model, (x, y), loss="mean_squared_error", **options)
        """,
    "train/prepare.py:check_targets": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(2)(input="x", output="b")
        ml.fit(model, (np.ones((6, 4)), np.ones((6, 3))), batch_size=3)
        """,
    "train/prepare.py:check_targets | targets by name": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(2)(input="x", output="b")
        ml.fit(model, (np.ones((6, 4)), {"more": np.ones(6), "b": np.ones((6, 2))}), batch_size=3, epochs=1).wait()
        """,
    "train/prepare.py:check_targets | targets by name, one output": """
        ml.fit(Linear(3), (np.ones((6, 4)), {"a": np.ones((6, 3))}), batch_size=3, epochs=1).wait()
        """,
    "train/prepare.py:check_targets | targets by name, a chosen output": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(2)(input="x", output="b")
        ml.fit(model, (np.ones((6, 4)), {"b": np.ones((6, 2))}), output="b", batch_size=3, epochs=1).wait()
        """,
    "train/losses.py:Loss.prediction": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(2)(input="x", output="b")
        ml.fit(model, (np.ones((6, 4)), np.array([0, 1] * 3)), batch_size=3, output="c")
        """,
    "train/fit.py:fit": f"""{DATA}
        ml.fit(model, data, validation=1.5, **options)
        """,
    "train/fit.py:fit#2": f"""{DATA}
        ml.fit(model, data, batch_size=9)
        """,
}

OPTIONS = {
    "train/run/events.py:History.rows": f"""{RUN}
        run.history["val_loss"]
        # Try: {{}}
        """,
    "train/fit.py:wants_accuracy": f"""{DATA}
        ml.fit(model, data, metrics=3, **options)
        """,
    "train/fit.py:wants_accuracy#2": f"""{DATA}
        ml.fit(model, data, metrics="f1", **options)
        """,
    "train/losses.py:resolve_loss": f"""{DATA}
        ml.fit(model, data, loss="cross_entopy", **options)
        """,
    "train/losses.py:resolve_loss#2": f"""{DATA}
        ml.fit(model, (x, np.ones((6, 3))), loss=lambda a, b, c: 0, **options)
        """,
    "train/losses.py:resolve_loss#3": f"""{DATA}
        ml.fit(model, (x, np.ones((6, 3))), loss=3, **options)
        """,
    "train/losses.py:loss_value": f"""{DATA}
        ml.fit(model, (x, np.ones((6, 3))), loss=lambda a, b: (a, b), **options)
        """,
    "train/optimizers.py:resolve_optimizer": f"""{DATA}
        ml.fit(model, data, optimizer=optax.adam(0.1), learning_rate=0.1, **options)
        """,
    "train/optimizers.py:check_rate": f"""{DATA}
        ml.fit(model, data, learning_rate=-1, **options)
        """,
    "train/optimizers.py:_check_schedule": f"""{DATA}
        ml.fit(model, data, learning_rate=lambda step: "fast", **options)
        """,
    "train/optimizers.py:_factory": f"""{DATA}
        ml.fit(model, data, optimizer="adm", **options)
        """,
    "train/optimizers.py:_factory#2": f"""{DATA}
        ml.fit(model, data, optimizer=3, **options)
        """,
    "train/optimizers.py:_transformation": f"""{DATA}
        ml.fit(model, data, optimizer=lambda rate: rate["a"], **options)
        """,
    "train/optimizers.py:_transformation | nothing": f"""{DATA}
        ml.fit(model, data, optimizer=lambda rate: None, **options)
        """,
    "backends/backend.py:check_count": f"""{DATA}
        ml.fit(model, data, batch_size=0)
        # Try: ml.fit(model, (np.ones((20, 4)), np.zeros(20, int)), {{}})
        """,
    "train/prepare.py:check_last_batch": f"""{FIXED}
        fit(7, lambda prediction, targets: prediction.mean())
        # Try: x, y = x[:7], y[:7]; {{}}; fit(len(x), lambda prediction, targets: prediction.mean())
        """,
    "train/prepare.py:check_last_batch | no full batch": f"""{FIXED}
        fit(3, lambda prediction, targets: prediction.mean())
        # Try: fit(3, lambda prediction, targets: prediction.mean(axis=-1))
        """,
    "train/prepare.py:checked_arrays": f"""{RUN}
        ml.fit(model, data, params=3, **options)
        """,
    "train/prepare.py:checked_arrays.array": f"""{RUN}
        ml.fit(model, data, params={{"weight": "w", "bias": "b"}}, **options)
        """,
    "train/checkpoints/folder_lock.py:FolderLock._in_use": f"""{DATA}
        from mithril_nb.train.checkpoints.folder_lock import FolderLock
        import time
        folder = new_path(f"run_{{time.time_ns()}}"); folder.mkdir(); lock = FolderLock(folder); lock.acquire()
        ml.fit(model, data, checkpoint=folder, **options)
        """,
    "train/step.py:concrete": """
        model, x = Relu(), np.ones((6, 4), "float32")
        ml.train.programs(ml.compile(model, shapes={"input": ["batch", "time"]}))
        # Try: ml.train.programs({})
        """,
    "train/trainable.py:_check_backend": f"""{DATA}
        backend = ml.JaxBackend(); pm = ml.compile(model, shapes={{"input": ["batch", 4]}})
        ml.fit(pm, data, backend=backend, **options)
        """,
    "train/trainable.py:as_trainable": """
        model, data = Linear(3), (np.ones((64, 64)), np.zeros(64, int))
        ml.fit("mlp", data)
        """,
    "train/run/loop.py:TrainingLoop.divergence": f"""{DATA}
        run = ml.fit(model, (x, np.ones((6, 3))), loss="mean_squared_error", optimizer="sgd", learning_rate=4.0, batch_size=6, epochs=300)
        run.wait()
        # Try: run.wait(raises=False) if 0 else None; {{}}; run.wait()
        """,
}

CASES = {**CHECKPOINTS, **DATA_CASES, **OPTIONS}


@pytest.mark.parametrize("case", chosen(CASES))
def test_advice_works(case: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(CASES, case)
