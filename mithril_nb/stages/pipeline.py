"""The stages of one program: traced, lowered and compiled on first use, and cached."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import jax

from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware import Device, compile_remotely
from mithril_nb.stages import jax_jit
from mithril_nb.stages.executables import compiled_elsewhere, file_of_compiled
from mithril_nb.stages.failure import Failure, failure_of
from mithril_nb.stages.given.jax_modules import lowered_text
from mithril_nb.stages.given.locations import as_inferred
from mithril_nb.stages.given.program import GivenNames
from mithril_nb.stages.graph.block_graph import outline
from mithril_nb.stages.hlo.module import with_trip_counts
from mithril_nb.stages.hlo.optimized import read_hlo
from mithril_nb.stages.hlo.stablehlo import read_stablehlo
from mithril_nb.stages.hlo.stablehlo_module import traced_in_module
from mithril_nb.stages.inspect_options import InspectOptions, with_numbers
from mithril_nb.stages.jax_versions import lowering_for
from mithril_nb.stages.once import Once, paused_collector
from mithril_nb.stages.records import Instruction, Read, Stage
from mithril_nb.stages.stage_kinds import STAGE_KINDS, StageKind
from mithril_nb.stages.trace.dataflow import Value, dataflow
from mithril_nb.stages.trace.equations import each_equation
from mithril_nb.stages.trace.jaxpr_text import print_jaxpr
from mithril_nb.stages.trace.python_source import (
    lines_of_file,
    source_of_functions,
    source_of_instructions,
    source_of_model,
)
from mithril_nb.stages.trace.traced import Program
from mithril_nb.stages.trace.tracing import Trace, trace, trace_up_to_failure
from mithril_nb.stages.xla.compilation import Compilation
from mithril_nb.stages.xla.kernel_code import llvm_lines
from mithril_nb.stages.xla.kernels import AsmLine, Kernel, Owners, listing, read_kernels
from mithril_nb.stages.xla.launches import read_launches
from mithril_nb.stages.xla.memory import Buffer, LiveRanges, read_buffers, read_live_ranges
from mithril_nb.stages.xla.mosaic import read_mosaic

# Of JAX's errors about a primitive without a lowering for a platform, and about a callback to this machine's Python.
_NO_RULE = re.compile(r"rule for primitive '(\w+)' not found")
_OTHER_PLATFORM = "is different from the lowering platform"
_CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print"})
_NO_KERNELS = "this platform writes no LLVM IR for its kernels"
_NO_FILES_OF_TPU = "the compiler for TPUs writes no files: no passes, no memory plan, no kernels"
_ONLY_LIBRARY = "this program has no separate kernel: all of its work is done in libraries"


class Pipeline:
    """The results of tracing, lowering and compiling one program.

    Each attribute is a `Once`, unless stated otherwise: its value is computed on first use.

    Attributes:
        traced: The jaxpr as JAX returned it.
        program: The jaxpr with its provenance: block, role and source line of each equation.
        names: The object that links later stages to equations: `program`. If the user passed the program in lowered or
            compiled form, the `GivenNames` of this form.
        values: The arrays of the jaxpr, each with the equations that produce and use it.
        lowered: The StableHLO module, with a tag on each op that names its equation.
        compilation: The compilation by XLA and the files that XLA writes; not a `Once`.
        compiled: The executable.
        optimized: An executable with the same optimized HLO as `compiled`, but perhaps without machine code.
        buffers: The buffers of the executable.
        live_ranges: The live ranges of the values in these buffers.
        kernels: The kernels in the machine code, in the order of the HLO.
        owners: The HLO instructions that each kernel runs.
        stages: A dict from the name of each stage, such as `"jaxpr"`, to the `Once` of the stage.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], options: InspectOptions):
        self._fn, self._args, self._options, self._given = fn, args, options, options.given
        # Stages may be computed in another thread, where JAX's context managers are not active.
        self._context = jax_jit.context_now()
        self.traced = Once(self._trace)
        self.program = Once(self._analyse)
        self.names: Once[Program | GivenNames] = Once(
            lambda: self.program.get() if self._given is None else self._given.names(options.params)
        )
        self.values: Once[tuple[Value, ...]] = Once(lambda: dataflow(self.program.get()))
        self.lowered = Once(self._lower)
        self.compilation = Compilation(
            Once(self._in_numbers),
            options.compiler_options or {},
            lambda: self.platform == "cpu",
            self._writes_passes,
            self._read_hlo,
            self._compile,
            self._why_no_files,
        )
        self.compiled, self.optimized = self.compilation.compiled, self.compilation.optimized
        if self._given is not None and not self._given.is_compiled_here:
            self.compiled = self.optimized = Once(self._given_compiled)
        self.buffers: Once[tuple[Buffer, ...]] = Once(lambda: read_buffers(self.compilation.plan.get()))
        self.live_ranges: Once[LiveRanges] = Once(lambda: read_live_ranges(self.compilation.plan.get()))
        self.kernels: Once[tuple[Kernel, ...]] = Once(
            lambda: read_kernels(
                self.compilation.dump.get(), [line.id for line in self.stages["hlo"].get().instructions]
            )
        )
        self.owners = Once(self._find_owners)
        self._failed = Once(self._up_to_failure)
        self.stages = {name: Once(partial(self._guard, kind)) for name, kind in STAGE_KINDS.items()}

    def share_trace(self, other: Pipeline) -> None:
        """Use the traced program of `other`: that of the same function and arguments for another device."""
        self.traced, self.program, self.values = other.traced, other.program, other.values
        for name in ("python", "graph", "jaxpr"):
            self.stages[name] = other.stages[name]

    @property
    def elapsed(self) -> Mapping[str, float]:
        """A dict from the name of each step that has run to the seconds that JAX took for it."""
        steps = {"trace": self.traced, "lower": self.lowered, "compile": self.compiled}
        if self.compilation.has_module_alone:
            steps["optimize"] = self.optimized
        return {name: once.elapsed_s for name, once in steps.items() if once.is_made}

    def _trace(self) -> Trace:
        if self._given is not None:
            raise self._given.error()
        with self._on_device(), paused_collector():
            return trace(self._fn, self._args, self._options.name)

    def _analyse(self) -> Program:
        with paused_collector():
            own = self._options
            return Program(self.traced.get(), own.params, own.source, own.requested_at, own.ports, own.kinds, own.trips)

    def _given_compiled(self) -> Any:
        assert self._given is not None
        if self._given.compiled is None:
            raise self._given.error("hlo")
        return self._given.compiled

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        device = self._options.device
        is_here = isinstance(device, jax.Device)
        with self._context(), jax.default_device(device) if is_here else nullcontext():
            yield

    def _lower(self) -> jax.stages.Lowered:
        if self._given is not None:
            if self._given.lowered is None:
                raise self._given.error("stablehlo")
            return self._given.lowered
        # Only the tags are needed here. The rest of the provenance is computed while XLA compiles.
        traced = self.traced.get()
        with self._on_device(), paused_collector():
            device = self._elsewhere
            kernels = nullcontext() if device is None else lowering_for(device.platform, device.title)
            try:
                with kernels:
                    tagged = traced.tags.tag(traced.closed)
                return jax_jit.converted_once(traced.lower(tagged, device and device.platform))
            except (ValueError, NotImplementedError) as error:
                if jax_jit.NO_DEVICES in str(error):
                    raise StageUnavailableError(
                        f"program {traced.name!r} is for a mesh without devices.", (), 'device="v5e:4x4"  # the devices'
                    ) from None
                if self._elsewhere is not None:
                    self._refuse_equation(error)
                raise

    def _refuse_equation(self, error: Exception) -> None:
        """Raise an error that names the equation which has no form on the device, if JAX's error is about one."""
        missing = _NO_RULE.search(str(error))
        names = {missing[1]} if missing else _CALLBACKS if _OTHER_PLATFORM in str(error) else set[str]()
        equation = next((each for each in self.program.get().equations if each.primitive in names), None)
        if equation is not None:
            raise StageUnavailableError(
                f"{equation.primitive} of program {self.traced.get().name!r} does not run on {self._elsewhere}.",
                (("equation", equation.id), ("line", equation.source or "unknown"), ("JAX", str(error))),
            ) from error

    @property
    def _elsewhere(self) -> Device | None:
        device = self._options.device
        return device if isinstance(device, Device) else None

    def _compile(self, lowered: jax.stages.Lowered, options: Mapping[str, Any]) -> Any:
        if self._elsewhere is None or self._given is not None:
            return lowered.compile(compiler_options=dict(options) or None)
        return compile_remotely(self._elsewhere, jax_jit.bytecode(lowered), options, jax_jit.compile_facts(lowered))

    def executable_file(self) -> bytes:
        """Return the contents of a file with the compiled program, for `serialize_executable.deserialize_and_load`."""
        self._in_numbers()  # raises if sizes have no number
        if self._elsewhere is None:
            return file_of_compiled(self.compiled.get())
        options = self._options.compiler_options or {}
        with self._on_device():
            return compiled_elsewhere(self.traced.get(), self._args, self.lowered.get(), self._elsewhere, options)

    def _in_numbers(self) -> jax.stages.Lowered:
        if self._given is not None and not self._given.is_compiled_here:
            raise self._given.error("compile")
        sizes = self._sizes_without_numbers
        if sizes:
            name = self.traced.get().name if self._given is None else self._given.name
            raise StageUnavailableError(
                f"program {name!r} does not compile: XLA needs a number for each size.",
                (("no number", ", ".join(sizes)),),
                with_numbers(sizes, self._options.check_sizes),
            )
        return self.lowered.get()

    @property
    def _sizes_without_numbers(self) -> tuple[str, ...]:
        return self.traced.get().sizes_without_numbers if self._given is None else self._given.sizes

    def _writes_passes(self) -> bool:
        """Return whether XLA must write its passes even if they were not requested."""
        # On a CPU, this is the case for gradients of convolutions: XLA gives them no op name, so the passes are
        # needed to find their equations. On other platforms, XLA picks the fastest machine code by autotuning. A
        # second compilation, to get the passes later, may pick different code.
        # A compiler without its device cannot measure, so it always picks the same code.
        if self._elsewhere is not None:
            return False
        if self.platform != "cpu" or self._given is not None:
            return self.platform != "cpu"
        convolution = "conv_general_dilated"
        if all(equation.primitive.name != convolution for equation in each_equation(self.traced.get().closed.jaxpr)):
            return False  # without waiting for the provenance
        return any(
            equation.primitive == convolution and equation.role == "backward"
            for equation in self.program.get().equations
        )

    def _why_no_files(self) -> str:
        return _NO_FILES_OF_TPU if self._elsewhere is not None and self.platform == "tpu" else ""

    @property
    def platform(self) -> str:
        """Name of the platform that the program is compiled for, such as `"cpu"` or `"cuda"`."""
        return jax.default_backend() if self._options.device is None else self._options.device.platform

    # Stages

    def _guard(self, kind: StageKind) -> Stage:
        name = kind.name
        reason = None if self._given is None or name == "python" else self._given.reason(kind.basis)
        if reason is None and kind.platforms and self.platform not in kind.platforms:
            reason = f"programs for {self.platform} have no {kind.description}"
        if reason is not None:
            return Stage(name, "", unavailable=reason)
        try:
            sizes = self._sizes_without_numbers if kind.needs_numbers else ()
            if sizes:
                return Stage(
                    name, "", unavailable=f"XLA needs a number for each size, and has none for {', '.join(sizes)}"
                )
            if kind.is_machine_code:
                if why := self._why_no_files():
                    return Stage(name, "", unavailable=why)
                self.compilation.want()
            if kind.needs == "compile":  # takes long, so the garbage collector stays on for other threads
                self._reach(kind.needs)
            with paused_collector():
                self._reach(kind.needs)
                if kind.make is None:
                    return getattr(self, f"_make_{name}")()
                return _timed(name, partial(kind.make, self))
        except Exception as error:
            if self._given is not None or not self.traced.has_failed:
                return Stage(name, "", unavailable=failure_of(error).text)
            if kind.needs != "trace" or kind.make is not None:
                return Stage(name, "", unavailable=failure_of(error, in_trace=True).text)
            return self._partial(name)

    def _reach(self, needed: str) -> None:
        # Each step is timed separately.
        for step, once in (("trace", self.names), ("lower", self.lowered), ("compile", self.optimized)):
            # A program that the user gives as compiled has no lowered form.
            if step != "lower" or self._given is None or self._given.lowered is not None:
                once.get()
            if step == needed:
                return
            if step == "lower":
                _ = self.names.get().by_id  # in parallel with XLA, if it already compiles in a thread

    def _up_to_failure(self) -> tuple[Program | None, Failure]:
        try:
            self.traced.get()
        except Exception as first:
            with self._on_device():
                partial_trace, error = trace_up_to_failure(self._fn, self._args, self._options.name, first)
        else:
            raise AssertionError("only a program that cannot be traced has a failure")
        program = None if partial_trace is None else Program(partial_trace, self._options.params, self._options.source)
        return program, failure_of(error, in_trace=True)

    def _partial(self, name: str) -> Stage:
        program, failure = self._failed.get()
        if program is None:
            return Stage(name, "", unavailable=failure.text)
        text, instructions = self._printed(program)
        if name == "jaxpr":
            # A failing function has no results, so the line that returns them is removed.
            text = text.rpartition("\n  in (")[0] + "\n" + "".join(f"    !! {line}\n" for line in failure.lines)
        elif name == "graph":
            text, instructions = self._outlined(program, instructions)
            text = text if instructions else ""  # a table without rows
        else:
            text, instructions = self._sourced(program, failure)
        return Stage(name, text, instructions, unavailable=failure.text)

    def _make_python(self) -> Stage:
        given = self._given
        if given is None:
            return _timed("python", lambda: self._sourced(self.program.get()))
        stage = self.stages[given.stages[0]].get()
        if not any(instruction.source for instruction in stage.instructions):
            return Stage("python", "", unavailable=stage.unavailable or given.reason("python"))
        files = given.lines.files
        if not any(map(lines_of_file, files.values())):
            reason = f"the Python files of this program are not available: {', '.join(files)}"
            return Stage("python", "", unavailable=reason)
        equations = self.names.get().by_id
        return _timed("python", lambda: as_inferred(source_of_instructions(stage.instructions, files, equations)))

    def _sourced(self, program: Program, failure: Failure | None = None) -> Read:
        if self._options.source is not None:
            return source_of_model(*self._options.source, program.equations, program.source_lines)
        return source_of_functions(program.source_lines, program.equations, failure)

    def _make_graph(self) -> Stage:
        program, jaxpr = self.program.get(), self.stages["jaxpr"].get()
        return _timed("graph", lambda: self._outlined(program, jaxpr.instructions))

    def _outlined(self, program: Program, printed: tuple[Instruction, ...]) -> Read:
        calls = [equation.id for equation in program.equations if equation.is_call]
        return outline(printed, calls, self._options.kinds or {})

    def _make_jaxpr(self) -> Stage:
        program = self.program.get()
        return Stage.shown_later("jaxpr", lambda: self._printed(program), program.instructions, self.traced.elapsed_s)

    def _printed(self, program: Program) -> Read:
        read = print_jaxpr(program.trace, program.top, program.by_id, lambda index: program.inputs[index].block)
        return with_trip_counts("jaxpr", read, program.equations)

    def _make_stablehlo(self) -> Stage:
        lowered = self.lowered.get()
        if self._given is not None:
            names, lines = self.names.get(), self._given.lines
            return _timed(
                "stablehlo",
                lambda: as_inferred(read_stablehlo(lowered_text(lowered), names.tags, names.by_id, lines)),
                self.lowered.elapsed_s,
            )
        program = self.program.get()
        traced = Once(
            lambda: traced_in_module(lowered.compiler_ir("stablehlo"), program.tags, program.ids, program.outside)
        )
        return Stage.shown_later(
            "stablehlo",
            lambda: with_trip_counts(
                "stablehlo",
                read_stablehlo(lowered_text(lowered), program.tags, program.by_id),
                program.equations,
            ),
            lambda: None if (links := traced.get()) is None else zip(*links, strict=True),
            self.lowered.elapsed_s,
        )

    def _make_hlo_before(self) -> Stage:
        lowered = self.lowered.get()
        return _timed("hlo_before", lambda: self._read_hlo(lowered_text(lowered, "hlo")))

    def begin_compiling(self) -> None:
        """Lower the program, then start compiling `optimized` in a thread."""
        with suppress(Exception):
            self.lowered.get()  # runs in Python, so a caller that continued meanwhile would slow it down
        self.compilation.begin()

    def hlo_ahead(self) -> Stage | None:
        """Return the optimized HLO while XLA generates machine code; `None` if it is not available until the end."""
        read = self.compilation.read_early()
        return None if read is None else Stage("hlo", *read)

    def _make_hlo(self) -> Stage:
        text = self.optimized.get().as_text()
        if not text:
            return Stage("hlo", "", unavailable="this platform gives no text for its executables")
        start = time.perf_counter()
        is_given = self._given is not None and not self._given.is_compiled_here
        read, was_ahead = (self._read_hlo(text), False) if is_given else self.compilation.hlo(text)
        # If the text was read while XLA generated code, reading it took no extra time.
        late = 0.0 if was_ahead else time.perf_counter() - start
        return Stage("hlo", *read, self.optimized.elapsed_s + late)

    def _read_hlo(self, text: str, op_names: Mapping[str, str] | None = None) -> Read:
        names = self.names.get()
        inputs = {array.name: (index, array.block) for index, array in enumerate(names.inputs)}
        lines = None
        if self._given is not None:
            lines = self._given.lines
            if self._given.stages[0] == "stablehlo":  # contains all files, so their labels never depend on read order
                self.stages["stablehlo"].get()
        read = read_hlo(text, names.tags, names.by_id, inputs, names.contractions_behind, op_names, lines)
        read = with_trip_counts("hlo", read, names.by_id.values())
        return read if self._given is None else as_inferred(read)  # names are less certain than tags

    def _make_launches(self) -> Stage:
        hlo, notes = self.stages["hlo"].get(), getattr(self.optimized.get(), "notes", ())
        return _timed("launches", lambda: read_launches(self.compilation.plan.get(), hlo.instructions, notes))

    def _make_mosaic(self) -> Stage:
        hlo, names, module = self.stages["hlo"].get(), self.names.get(), self.optimized.get().as_text() or ""
        return _timed("mosaic", lambda: read_mosaic(module, hlo.instructions, names.tags, names.by_id))

    def _find_owners(self) -> Owners:
        hlo = self.stages["hlo"].get()
        launches = () if self.platform == "cpu" else self.stages["launches"].get().instructions
        return Owners(hlo.text, hlo.instructions, launches)

    def _make_llvm(self) -> Stage:
        return self._listed("llvm", lambda kernel: llvm_lines(kernel.llvm, kernel.name), "; {}: {} instructions")

    def _make_asm(self) -> Stage:
        return self._listed("asm", _code, "{}:  ; {} instructions")

    def _make_sass(self) -> Stage:
        kernels = self.kernels.get()
        with ThreadPoolExecutor() as pool:  # each kernel takes the tools half a second
            code = dict(zip(kernels, pool.map(lambda kernel: kernel.sass, kernels), strict=True))
        return self._listed("sass", code.__getitem__, "{}:  // {} instructions")

    def _listed(self, name: str, lines_of: Callable[[Kernel], Any], title: str) -> Stage:
        hlo, kernels = self.stages["hlo"].get(), self.kernels.get()
        if not kernels:
            # A custom fusion is a call of a library: on CPUs of YNNPACK, for matrix products.
            fusions = [
                dict(instruction.attributes) for instruction in hlo.instructions if "fusion" in instruction.opcode
            ]
            has_fusions = any(fusion.get("kind") != "kCustom" for fusion in fusions)
            return Stage(name, "", unavailable=_NO_KERNELS if has_fusions else _ONLY_LIBRARY)
        return _timed(name, lambda: listing(kernels, self.owners.get(), lines_of, title))


def _timed(name: str, make: Callable[[], Read], before_s: float = 0.0) -> Stage:
    start = time.perf_counter()
    text, instructions = make()
    return Stage(name, text, instructions, before_s + time.perf_counter() - start)


def _code(kernel: Kernel) -> list[AsmLine]:
    try:
        return kernel.asm
    except (LookupError, ValueError) as error:
        return [(f"  ; {error}", "", ())]
