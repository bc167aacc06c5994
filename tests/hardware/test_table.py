"""The table of devices, names with topologies, and devices of the user."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.errors import DeviceNotFoundError, UnknownOptionError
from mithril_nb.hardware import Device, as_device, device_named, devices, known_devices, register_device
from mithril_nb.hardware import device as module


@pytest.mark.parametrize("device", known_devices().values(), ids=str)
def test_figures_are_plausible(device):
    assert 2**33 < device.memory_bytes < 2**40
    assert 1e11 < device.bytes_per_s < 2e13
    names = ("bfloat16", "float8_e4m3fn")
    peaks = [device.flops_per_s[dtype] for dtype in names if dtype in device.flops_per_s]
    assert peaks == sorted(peaks)
    assert all(1e11 < peak < 2e16 for peak in device.flops_per_s.values())
    assert device.source
    assert device.title
    assert bool(device.target_config) == (device.platform == "cuda")


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p"])
def test_clock_of_a_tpu_is_that_of_its_matrix_units(name):
    units = {"v4": 8, "v5e": 4, "v5p": 8}[name]  # of 128 x 128, as Google Cloud's documentation says
    device = device_named(name)
    assert device.clock_hz == pytest.approx(device.flops_per_s["bfloat16"] / (units * 128 * 128 * 2), rel=0.01)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=3))
def test_number_of_devices_in_a_topology(sizes):
    device = device_named(f"h100:{'x'.join(map(str, sizes))}")
    assert device.count == math.prod(sizes)
    assert device_named(str(device)) == device


@pytest.mark.parametrize(("name", "topology"), [("h100", "1x1x1"), ("h100:8", "1x1x8"), ("h100:4x8", "1x4x8")])
def test_topology_of_gpus(name, topology):
    assert device_named(name).compiler_topology == topology


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h10", "no device 'h10'.\n    devices  a100, b200, h100, .*\n    Try: device=\"h100\""),
        ("", "no device ''"),
        ("v5e:0x4", "'0x4' is not a topology of 'v5e'"),
        ("v5e:4xx4", "'4xx4' is not a topology"),
        ("v5e:1x2x3x4", "'1x2x3x4' is not a topology"),
        ("v5e:3x5", "'3x5' is not .*\n.* multiples of 2x2.*\n.*nearest  4x4, 2x6, 2x4, 4x6\n.*device=\"v5e:4x4\""),
        ("v4:3x4x3", "nearest  4x4x3, 2x4x3\n"),
        ("v5e:4x4x4", "needs    2 numbers .*\n.*nearest  8x8\n"),
        ("v5e:9", "needs    2 numbers .*\n.*nearest  2x6\n"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(DeviceNotFoundError, match=message):
        ml.inspect(abs, 1.0, device=name)


def test_a_mesh_of_a_topology_that_is_none():
    with pytest.raises(DeviceNotFoundError, match="'3x5' is not a topology of 'v5e'"):
        ml.device_mesh("v5e:3x5", x=15)
    with pytest.raises(DeviceNotFoundError, match=r"does not cover v5e:4x4.\n    devices  16$"):
        ml.device_mesh("v5e:4x4", x=15)


def test_own_device_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_registered", {})
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "My \\"GPU\\""\nmemory_bytes = 1000\n[target]\ncore_count = 3\ncompute_capability = "8.6"\n'
    )
    device = Device.read(file)
    register_device(device)
    assert device_named("mine:2").count == 2
    assert [each.name for each in devices()][-1] == "mine"
    config = device.target_config
    assert "core_count: 3\n" in config
    assert "{ major: 8 minor: 6 }" in config
    assert "device_memory_size: 1000\n" in config
    assert 'device_description_str: "My ?GPU?"' in config


@pytest.mark.parametrize(
    ("text", "message"), [("flops = 3", "unknown key 'flops'"), ("a =", "because"), ('platform = "npu"', "'npu'")]
)
def test_files_that_describe_no_device(tmp_path, text, message):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UnknownOptionError, match=message):
        Device.read(file)


@pytest.mark.parametrize("name", ["", "cpu", "mine:8"])
def test_names_that_no_device_can_have(name):
    with pytest.raises(UnknownOptionError, match=f"a device cannot have the name {name!r}"):
        register_device(Device(name))


@pytest.mark.parametrize("value", [3, 2.5, ["h100"]])
def test_values_that_are_no_device(value):
    program = ml.inspect(abs, 1.0)
    for inspected in (program.on, lambda device: ml.inspect(abs, 1.0, device=device)):
        with pytest.raises(UnknownOptionError, match=r"the option device=.* is not valid"):
            inspected(value)


def test_a_gpu_without_a_target_does_not_compile():
    reason = ml.inspect(abs, 1.0, device=Device("mine", target={"core_count": 3})).stage("hlo").unavailable
    assert "no program compiles for 'mine': its target has no compute_capability" in reason


def test_devices_of_this_machine_are_those_of_jax():
    assert as_device("cpu").platform == "cpu"
    assert as_device(None) is None


def test_table(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    module.compiler_of.cache_clear()
    text, html = str(devices()), devices()._repr_mimebundle_()["text/html"]
    monkeypatch.undo()
    module.compiler_of.cache_clear()
    for device in devices():
        assert device.name in text
        assert device.title in html
    assert "mithril-nb devices install cuda" in text
    assert "unknown" in text
