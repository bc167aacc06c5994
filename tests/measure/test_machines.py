"""The peaks of a machine are measured once, kept, and measured anew where what was kept is of no use."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import pytest

from mithril_nb.errors import UnknownOptionError
from mithril_nb.measure import machines as module
from mithril_nb.measure.machines import Machine, cache_folder, known_machine, machine


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which peaks are measured; each takes a moment here."""
    found: list[str] = []
    matmul_rate, copy_rate = module.matmul_rate, module.copy_rate

    def matmul(dtype: str) -> float:
        found.append(dtype)
        return matmul_rate(dtype)

    def copy(platform: str) -> float:
        found.append("copy")
        return copy_rate(platform)

    monkeypatch.setattr(module, "matmul_rate", matmul)
    monkeypatch.setattr(module, "copy_rate", copy)
    monkeypatch.setattr(module, "_BUDGET_S", 0.0)
    monkeypatch.setattr(module, "_LONG_ENOUGH_S", 0.0)
    monkeypatch.setattr(module, "_COPIED_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr(module, "_is_busy", lambda cores: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return found


def test_tests_leave_what_is_kept_for_the_user() -> None:
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


def test_the_best_of_what_was_ever_measured_is_kept(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_machine() is None
    for rate, copied in ((2e9, 3e9), (1e9, 4e9)):  # each is quicker in one of them
        monkeypatch.setattr(module, "matmul_rate", lambda dtype, rate=rate: rate)
        monkeypatch.setattr(module, "copy_rate", lambda platform, copied=copied: copied)
        found = machine(anew=True)
    assert (found.flops_per_s, found.bytes_per_s) == ({"float32": 2e9}, 4e9)
    kept = known_machine()
    assert kept is not None
    assert (kept.flops_per_s, kept.source) == ({"float32": 2e9}, "measured before, machines.json")


def test_each_peak_keeps_its_own_date(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for day, rate, copied in ((1, 2e9, 3e9), (2, 1e9, 4e9), (3, 1e9, 1e9)):
        monkeypatch.setattr(module, "_now", lambda day=day: f"2026-11-0{day} 12:00 UTC")
        monkeypatch.setattr(module, "matmul_rate", lambda dtype, rate=rate: rate)
        monkeypatch.setattr(module, "copy_rate", lambda platform, copied=copied: copied)
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


def test_peaks_that_were_kept_without_dates_have_theirs(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
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
            "ml.machine cannot take dtypes='bfloat16'.\n    needs  a list of names of dtypes\n"
            '    Try: ml.machine(["bfloat16"])',
        ),
        (
            {"dtypes": ["flot"]},
            "ml.machine cannot take dtypes=['flot'].\n    needs  a list of names of dtypes\n"
            '    Try: ml.machine(["float32"])',
        ),
        (
            {"dtypes": 3},
            'ml.machine cannot take dtypes=3.\n    needs  a list of names of dtypes\n    Try: ml.machine(["float32"])',
        ),
        (
            {"device": "cpu"},
            "ml.machine cannot take device='cpu'.\n    needs    a jax.Device\n"
            f"    present  {', '.join(f'{one.platform}:{one.id}' for one in jax.devices())}\n"
            "    Try: ml.machine(device=jax.devices()[0])",
        ),
    ],
)
def test_what_is_no_dtype_and_no_device_is_refused(options: dict[str, Any], text: str, measured: list[str]) -> None:
    with pytest.raises(UnknownOptionError) as refused:
        machine(**options)
    assert str(refused.value) == text
    assert measured == []


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"cpu": 3}', '{"cpu": {"platform": "cpu"}}', "\x00"])
def test_a_cache_that_cannot_be_read_is_measured_anew(text: str, measured: list[str]) -> None:
    cache_folder().mkdir(parents=True)
    (cache_folder() / "machines.json").write_text(text)
    assert machine().source == "measured"
    assert machine().source == "measured before, machines.json"
    assert measured == ["float32", "copy"]


@pytest.mark.parametrize(
    ("field", "value"), [("bytes_per_s", 0), ("flops_per_s", {}), ("flops_per_s", {"float32": "x"}), ("dates", "today")]
)
def test_peaks_that_cannot_be_are_measured_anew(field: str, value: Any, measured: list[str]) -> None:
    machine()
    file = cache_folder() / "machines.json"
    broken = {key: {**entry, field: value} for key, entry in json.loads(file.read_text()).items()}
    file.write_text(json.dumps(broken))
    assert machine().source == "measured"
    assert measured == ["float32", "copy"] * 2


def test_other_settings_are_another_machine(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setenv("NPROC", "1")
    assert machine().settings.endswith("NPROC=1")
    assert measured == ["float32", "copy"] * 2


def test_what_a_busy_machine_does_is_not_kept(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_busy", lambda cores: True)
    assert machine().source == "measured on a busy machine"
    assert not (cache_folder() / "machines.json").exists()


def test_a_folder_in_the_place_of_the_cache_is_done_without(measured: list[str]) -> None:
    (cache_folder() / "machines.json").mkdir(parents=True)
    assert machine().source == machine().source == "measured"
    assert [path.name for path in cache_folder().iterdir()] == ["machines.json"]


def test_a_dtype_without_a_peak_has_the_highest() -> None:
    peaks = Machine("gpu", "H", 8, "0.10.2", "", {"float32": 1e13, "bfloat16": 4e14}, 3e12, "2026-11-22 07:35 UTC")
    assert (peaks.peak_of("float32"), peaks.peak_of("int8"), peaks.peak_of()) == (1e13, 4e14, 4e14)
    assert str(peaks) == (
        "H: 10,000.0 GFLOP/s float32 matmul, 400,000.0 GFLOP/s bfloat16 matmul, 3,000.0 GB/s "
        "(measured 2026-11-22 07:35 UTC, jax 0.10.2)"
    )
