"""The peaks of a machine are measured once, cached, and measured again if the cache is unusable."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stress import Stress

from mithril_nb.atomic_write import cache_folder
from mithril_nb.errors import UnknownOptionError
from mithril_nb.hardware import machines as module
from mithril_nb.hardware.machines import Machine, known_machine, machine
from mithril_nb.inspection import inspect_function as inspect

BEST, ROUNDS = module._best, module._ROUNDS


def rates(monkeypatch: pytest.MonkeyPatch, rate: float, copied: float) -> None:
    """Make every round return these rates."""
    monkeypatch.setattr(module, "matmul_rounds", lambda dtype: lambda: rate)
    monkeypatch.setattr(module, "copy_rounds", lambda platform: lambda: copied)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the measured peaks; measurements are fake and quick."""
    found: list[str] = []
    matmul_rounds, copy_rounds = module.matmul_rounds, module.copy_rounds

    def matmul(dtype: str) -> Callable[[], float]:
        found.append(dtype)
        return matmul_rounds(dtype)

    def copy(platform: str) -> Callable[[], float]:
        found.append("copy")
        return copy_rounds(platform)

    monkeypatch.setattr(module, "matmul_rounds", matmul)
    monkeypatch.setattr(module, "copy_rounds", copy)
    monkeypatch.setattr(module, "_ROUND_S", 0.0)
    monkeypatch.setattr(module, "_ROUNDS", (1, 1))
    monkeypatch.setattr(module, "_best", lambda rounds: (rounds(), True))
    monkeypatch.setattr(module, "_LONG_ENOUGH_S", 0.0)
    monkeypatch.setattr(module, "_COPIED_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(module, "_is_busy", lambda cores: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return found


def test_tests_do_not_use_the_users_cache() -> None:
    assert cache_folder().is_relative_to(tempfile.gettempdir())


def test_each_peak_is_measured_once(measured: list[str]) -> None:
    first = machine()
    assert measured == ["float32", "copy"]
    assert first.flops_per_s["float32"] > 0
    assert first.bytes_per_s > 0
    assert (first.platform, first.jax_version, first.source) == ("cpu", jax.__version__, "measured")
    again = machine()
    assert measured == ["float32", "copy"]
    assert again.flops_per_s == first.flops_per_s
    assert (again.measured_at, again.source) == (first.measured_at, "measured before, machines.json")
    assert machine(["bfloat16", "float32"]).flops_per_s.keys() == {"float32", "bfloat16"}
    assert measured == ["float32", "copy", "bfloat16"]
    machine(anew=True)
    assert measured[3:] == ["float32", "copy"]


def test_cache_keeps_the_best_rate(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_machine() is None
    for rate, copied in ((2e9, 3e9), (1e9, 4e9)):  # each rate is higher in one of them
        rates(monkeypatch, rate, copied)
        found = machine(anew=True)
    assert (found.flops_per_s, found.bytes_per_s) == ({"float32": 2e9}, 4e9)
    kept = known_machine()
    assert kept is not None
    assert (kept.flops_per_s, kept.source) == ({"float32": 2e9}, "measured before, machines.json")


def test_each_peak_keeps_its_own_date(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for day, rate, copied in ((1, 2e9, 3e9), (2, 1e9, 4e9), (3, 1e9, 1e9)):
        monkeypatch.setattr(module, "_now", lambda day=day: f"2026-11-0{day} 12:00 UTC")
        rates(monkeypatch, rate, copied)
        found.append(machine(anew=True))
    first, second = "2026-11-01 12:00 UTC", "2026-11-02 12:00 UTC"
    assert [one.measured_at for one in found] == [first, second, second]
    assert [one.dates for one in found] == [
        {"float32": first, "memory": first},
        {"float32": first, "memory": second},
        {"float32": first, "memory": second},
    ]
    assert f"(measured {first}, jax" in str(found[0])
    assert f"(measured from {first} to {second}, jax" in str(found[2])
    kept = known_machine()
    assert kept is not None
    assert (kept.dates, kept.measured_at) == (found[2].dates, second)


def test_each_peak_keeps_the_version_of_jax_that_measured_it(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, dtype in (("0.10.2", "float32"), ("0.12.0", "bfloat16")):
        monkeypatch.setattr(jax, "__version__", version)
        rates(monkeypatch, 2e9, 3e9)
        found = machine([dtype])
    assert (found.jax_versions, found.jax_version) == (
        {"float32": "0.10.2", "memory": "0.10.2", "bfloat16": "0.12.0"},
        found.jax_versions[max(found.dates, key=lambda name: found.dates[name])],
    )
    assert str(found).endswith(", jax 0.10.2 and 0.12.0)")
    monkeypatch.setattr(jax, "__version__", "0.13.0")
    assert str(known_machine()).endswith(", jax 0.10.2 and 0.12.0)"), "this version has measured nothing"
    file = cache_folder() / "machines.json"
    older = {key: {**entry} for key, entry in json.loads(file.read_text()).items()}
    for entry in older.values():  # cached before versions were stored per peak
        del entry["jax_versions"]
    file.write_text(json.dumps(older))
    assert str(known_machine()).endswith(f", jax {found.jax_version})")


def test_cached_peaks_without_dates_get_the_common_date(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_now", lambda: "2026-11-01 12:00 UTC")
    machine()
    file = cache_folder() / "machines.json"
    older = {key: {**entry} for key, entry in json.loads(file.read_text()).items()}
    for entry in older.values():
        del entry["dates"]
    file.write_text(json.dumps(older))
    monkeypatch.setattr(module, "_now", lambda: "2026-11-02 12:00 UTC")
    assert machine(["bfloat16"]).dates == {
        "float32": "2026-11-01 12:00 UTC",
        "memory": "2026-11-01 12:00 UTC",
        "bfloat16": "2026-11-02 12:00 UTC",
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"dtypes": "bfloat16"},
            "ml.machine does not accept dtypes='bfloat16'.\n    needs  a list of names of dtypes\n"
            '    Try: ml.machine(["bfloat16"])',
        ),
        (
            {"dtypes": ["flot"]},
            "ml.machine does not accept dtypes=['flot'].\n    needs  a list of names of dtypes\n"
            '    Try: ml.machine(["float32"])',
        ),
        (
            {"dtypes": 3},
            "ml.machine does not accept dtypes=3.\n    needs  a list of names of dtypes\n"
            '    Try: ml.machine(["float32"])',
        ),
        (
            {"device": "cpu"},
            "ml.machine does not accept device='cpu'.\n    needs    a jax.Device\n"
            f"    present  {', '.join(f'{one.platform}:{one.id}' for one in jax.devices())}\n"
            "    Try: ml.machine(device=jax.devices()[0])",
        ),
    ],
)
def test_invalid_dtypes_and_devices_are_rejected(options: dict[str, Any], text: str, measured: list[str]) -> None:
    with pytest.raises(UnknownOptionError) as refused:
        machine(**options)
    assert str(refused.value) == text
    assert measured == []


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"cpu": 3}', '{"cpu": {"platform": "cpu"}}', "\x00"])
def test_unreadable_cache_is_measured_again(text: str, measured: list[str]) -> None:
    cache_folder().mkdir(parents=True)
    (cache_folder() / "machines.json").write_text(text)
    assert machine().source == "measured"
    assert machine().source == "measured before, machines.json"
    assert measured == ["float32", "copy"]


@pytest.mark.parametrize(
    ("field", "value"), [("bytes_per_s", 0), ("flops_per_s", {}), ("flops_per_s", {"float32": "x"}), ("dates", "today")]
)
def test_impossible_peaks_are_measured_again(field: str, value: Any, measured: list[str]) -> None:
    machine()
    file = cache_folder() / "machines.json"
    broken = {key: {**entry, field: value} for key, entry in json.loads(file.read_text()).items()}
    file.write_text(json.dumps(broken))
    assert machine().source == "measured"
    assert measured == ["float32", "copy"] * 2


def test_other_settings_have_their_own_peaks(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setenv("NPROC", "1")
    assert machine().settings.endswith("NPROC=1")
    assert measured == ["float32", "copy"] * 2


def test_busy_peaks_are_measured_again_on_an_idle_machine(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_busy", lambda cores: True)
    rates(monkeypatch, 2e9, 3e9)
    first = machine()
    assert (first.source, first.busy) == ("measured on a busy machine", ("float32", "memory"))
    rates(monkeypatch, 4e9, 2e9)
    again = machine()
    assert again.flops_per_s == first.flops_per_s, "as long as it is busy it is not measured again"
    assert again.source == "measured before on a busy machine, machines.json"
    monkeypatch.setattr(module, "_is_busy", lambda cores: False)
    quiet = machine()
    assert (quiet.flops_per_s, quiet.bytes_per_s) == ({"float32": 4e9}, 3e9), "the best of both"
    assert (quiet.source, quiet.busy) == ("measured", ())
    monkeypatch.setattr(module, "_is_busy", lambda cores: True)
    rates(monkeypatch, 4.1e9, 1e9)
    assert machine(anew=True).busy == (), "the rate of an idle machine is final"
    rates(monkeypatch, 8e9, 1e9)
    assert machine(anew=True).busy == ("float32",), "a higher rate on a busy machine means that it was not idle before"


def test_roofline_notes_peaks_of_a_busy_machine(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspect(jnp.dot, jnp.zeros((8, 16)), jnp.zeros((16, 32)))
    for is_busy, source in ((True, "(measured before on a busy machine, machines.json)"), (False, "machines.json)")):
        monkeypatch.setattr(module, "_is_busy", lambda cores, is_busy=is_busy: is_busy)
        machine()
        text = str(found.cost().roofline())
        assert source in text
        assert ("busy" in text) == is_busy


def disturbed(random: np.random.Generator, peak: float, share: float) -> Callable[[], float]:
    """Rounds of which this share is disturbed and up to three times slower."""

    def rounds() -> float:
        lost = random.uniform(0.05, 0.66) if random.random() < share else random.uniform(0, 0.03)
        return peak * (1 - lost)

    return rounds


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8])
def test_noisy_rounds_agree_within_five_percent(share: float, stress: Stress) -> None:
    """Independent processes agree; rates that are marked as busy may be lower."""
    random = np.random.default_rng(int(share * 10))
    found = [module._best(disturbed(random, 1e11, share)) for _ in range(stress.size(short=200, long=20_000))]
    settled = [rate for rate, is_quiet in found if is_quiet]
    spread = 1 - min(settled) / max(settled)
    below = sum(rate < 0.95e11 for rate in settled) / len(settled)
    stress.report(share=share, settled=f"{len(settled) / len(found):.1%}", below=f"{below:.2%}", spread=f"{spread:.1%}")
    assert len(settled) > 0.8 * len(found)
    assert below < 0.05
    assert spread < 0.05 or share > 0.5


def test_cached_peaks_differ_by_less_than_five_percent(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is never idle, the first runs may raise the cached rates; later runs do not."""
    random = np.random.default_rng(1)
    monkeypatch.setattr(module, "_best", BEST)
    monkeypatch.setattr(module, "_ROUNDS", ROUNDS)
    noisy = disturbed(random, 1e11, 0.8)
    monkeypatch.setattr(module, "matmul_rounds", lambda dtype: noisy)
    monkeypatch.setattr(module, "copy_rounds", lambda platform: noisy)
    runs = [machine() for _ in range(12)]
    figures = [(one.flops_per_s["float32"], one.bytes_per_s) for one in runs]
    assert figures == sorted(figures, key=lambda pair: pair[0]), "never less than before"
    assert runs[-1].busy == ()
    for kept in zip(*figures[1:], strict=True):
        assert min(kept) > 0.95 * max(kept)
        assert max(kept) > 0.95e11


def test_concurrent_processes_keep_the_best_rates(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes its rates during the measurement."""

    def meanwhile(platform: str) -> Callable[[], float]:
        rates(monkeypatch, 5e9, 1e9)
        machine(["bfloat16", "float32"])
        return lambda: 3e9

    rates(monkeypatch, 4e9, 1e9)
    monkeypatch.setattr(module, "copy_rounds", meanwhile)
    monkeypatch.setattr(module, "_LOCK", nullcontext())
    found = machine()
    assert (found.flops_per_s, found.bytes_per_s) == ({"float32": 5e9, "bfloat16": 5e9}, 3e9)
    assert known_machine() == replace(found, source="measured before, machines.json")


def test_another_jax_version_uses_the_same_cache(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr(jax, "__version__", "0.99")
    assert machine().source == "measured before, machines.json"
    monkeypatch.setattr(module, "_processor", lambda: "another")
    assert machine().source == "measured"


def test_folder_instead_of_the_cache_file_is_ignored(measured: list[str]) -> None:
    (cache_folder() / "machines.json").mkdir(parents=True)
    assert machine().source == machine().source == "measured"
    assert [path.name for path in cache_folder().iterdir()] == ["machines.json"]


def test_dtype_without_a_peak_uses_the_highest() -> None:
    peaks = Machine("gpu", "H", 8, "0.10.2", "", {"float32": 1e13, "bfloat16": 4e14}, 3e12, "2026-11-22 07:35 UTC")
    assert (peaks.peak_of("float32"), peaks.peak_of("int8"), peaks.peak_of()) == (1e13, 4e14, 4e14)
    assert peaks.peaks("float32") == {"flops_per_s": 1e13, "bytes_per_s": 3e12}
    assert str(peaks) == (
        "H: 10,000.0 GFLOP/s float32 matmul, 400,000.0 GFLOP/s bfloat16 matmul, 3,000.0 GB/s "
        "(measured 2026-11-22 07:35 UTC, jax 0.10.2)"
    )
