"""Our own XLA options, if an XLA version does not support them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mithril_nb.stages.xla.dump import FILES, KERNELS, compile_with


@pytest.fixture(autouse=True)
def nothing_refused_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mithril_nb.stages.xla.dump._unknown", set())


def test_only_unsupported_options_are_dropped() -> None:
    tried = []

    def compile(options: Mapping[str, Any]) -> Mapping[str, Any]:
        tried.append(set(options))
        for name in ("xla_dump_emitter_re", "xla_dump_compact_gte"):
            if name in options:
                raise RuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'")
        return options

    asked = {**FILES, **KERNELS, "xla_dump_to": "here"}
    told = compile_with(asked, {"xla_cpu_enable_fast_math": True}, compile)
    assert told == {"xla_cpu_enable_fast_math": True, "xla_dump_to": "here"}
    assert tried[0] == asked.keys() | {"xla_cpu_enable_fast_math"}
    assert len(tried) == 3
    compile_with(asked, {}, compile)
    assert tried[3:] == [{"xla_dump_to"}], "an unsupported option is passed only once"


def test_user_options_are_kept() -> None:
    def compile(options: Mapping[str, Any]) -> None:
        if options["xla_dump_emitter_re"] != "llvm|mlir":
            raise AssertionError(options)
        raise RuntimeError("No such compile option: 'xla_dump_emitter_re'")

    with pytest.raises(RuntimeError, match="No such compile option: 'xla_dump_emitter_re'"):
        compile_with(KERNELS, {"xla_dump_emitter_re": "llvm|mlir"}, compile)


def test_other_compiler_errors_are_raised_unchanged() -> None:
    count = []

    def compile(options: Mapping[str, Any]) -> None:
        count.append(1)
        raise ValueError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(ValueError, match="RESOURCE_EXHAUSTED"):
        compile_with(KERNELS, {}, compile)
    assert len(count) == 1
