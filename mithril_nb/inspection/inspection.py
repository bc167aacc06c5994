"""The public class of a program at every stage, with its costs and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mithril_nb.emission.stage  # noqa: F401 - registers its stages
from mithril_nb.cost.costs import Cost
from mithril_nb.cost.counting import SOURCES, Costs, cost_of, costs_of
from mithril_nb.cost.memory.use import MemoryUse, best_memory_of
from mithril_nb.cost.mesh import MeshUse, mesh_of
from mithril_nb.display import draw, render
from mithril_nb.graph.query import Found
from mithril_nb.inspection.exports import exporter, inspection_data, save, written
from mithril_nb.inspection.finding import find_in
from mithril_nb.inspection.tour import Moment, Tour, check_block, tour_of
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.inspect_options import InspectOptions
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.stages.program_stages import ProgramStages
from mithril_nb.stages.trace.provenance.frames import Span
from mithril_nb.stages.trace.tracing import checked_params


class Inspection(ProgramStages):
    """A program at every stage between Python and the machine, with its costs. The program is not executed.

    Stages and costs are computed on first use and cached. They may be read from several threads.

    Attributes:
        name: Name of the program.
        stages: Names of the stages, in order.
        every_stage: Names of all stages, including stages that are only computed on request, such as `"numpy"`.
        arguments: The arguments; arrays are replaced by their shapes.
        device: The `jax.Device` to compile for; `None` for JAX's default.
        check_sizes: A function that receives a dict from the names of sizes, such as `"batch"`, to their values, and
            raises an error if the values are invalid; `None` if all values are valid.
        given: The lowered, compiled or exported program that the inspection was created from; `None` for a function.
    """

    @property
    def memory(self) -> MemoryUse:
        """The memory that one run of the program uses over time, and which block holds it. Compiles the program.

        If the program does not compile, the result is an estimate from the jaxpr, stated in its `notes`.
        `mithril_nb.cost.memory_of(inspection, "analytic")` returns this estimate for any program without compiling.

        Examples:
            >>> import jax.numpy as jnp
            >>> memory = inspect_function(jnp.dot, jnp.zeros((8, 16)), jnp.zeros((16, 32))).memory
            >>> memory.peak_bytes, sum(memory.at_peak.values())
            (3584, 3584)
        """
        return best_memory_of(self)

    @property
    def mesh(self) -> MeshUse:
        """How the program uses a mesh of devices: the slices of its arguments and results, and its collectives.

        Shown as a picture of the mesh for each array, with the slice that each device holds. Compiles the program.

        Raises:
            StageUnavailableError: The program does not compile, or runs on one device.

        Examples:
            ```python
            mesh = ml.device_mesh("v5e:2x4", data=2, model=4)
            w = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P(None, "model")))
            ml.inspect(jnp.dot, x, w, device="v5e:2x4").mesh["b"].bytes  # on one device
            ```
        """
        return mesh_of(self)

    def cost(self, source: str | None = None, *, trips: Mapping[str, int] | None = None) -> Cost:
        """Return the cost of one run of the program, by block, by role, and for each equation or instruction.

        A role is a part of a training step: forward, backward or update.

        Args:
            source: `"analytic"` counts equations with the rules of this package, multiplies loop bodies by the number
                of iterations, and needs no compiler. `"lowered"` and `"compiled"` count instructions as XLA does,
                before and after its passes, and include XLA's own count. `"predicted"` is `"compiled"` with the time
                that each instruction would take on the device of the program, if it is one of `ml.devices`; its notes
                state how the time is predicted. Default: `"analytic"`, or for a program
                without a jaxpr, such as a file of StableHLO or HLO, `"lowered"` or `"compiled"`.
            trips: Numbers of iterations of loops whose trip count is unknown, such as those of solvers, by line or
                block of the loop: `{"solver.py:12": 20}`. `ml.inspect` has the same option.

        Returns:
            The cost; its `notes` list what is unknown.

        Examples:
            >>> import jax.numpy as jnp
            >>> inspect_function(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).cost().total.flops
            48
        """
        return cost_of(self, source, trips)

    @property
    def flops(self) -> int | None:
        """FLOPs of one run of the program; a lower bound if the cost of some rows is unknown."""
        return self.cost().total.flops

    def costs(self, *sources: str) -> Costs:
        """Return the costs of one run of the program from several sources, side by side.

        Args:
            *sources: Sources of `cost`; by default all, which compiles the program.

        Returns:
            The costs by source, and the reason for each source that is unavailable.

        Examples:
            >>> import jax.numpy as jnp
            >>> found = inspect_function(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4))).costs("analytic", "lowered")
            >>> {name: cost.total.flops for name, cost in found.by_source.items()}
            {'analytic': 48, 'lowered': 48}
        """
        return costs_of(self, sources or SOURCES)

    def overlay(
        self,
        of: Any = "flops",
        graph: Any = None,
        expanded: str | Collection[str] | None = None,
        *,
        own: bool = False,
        title: str = "",
    ) -> Any:
        """Return the graph of the program with a value on each node, shown as text and as a bar or colour.

        An unknown value is hatched and shown as "?", never as 0.

        Args:
            of: The values to show: a column of the costs (`"flops"`, `"bytes_accessed"`, `"transcendentals"`,
                `"params"`, `"time_s"`, `"payload_bytes"`, `"wire_bytes"`), `"memory"` (compiles the program), `"role"`,
                `"dtype"` or `"sharding"`. Or measured times: the result of `ml.profile`. Or your own values: a dict
                from the path of each block to a number or text.
            graph: The graph to draw: the name of a stage, or the model that the program was built from. Default: the
                first stage, or `"hlo"` for measured times.
            expanded: Paths of the blocks whose contents to draw; `()` for none. Default: as many as fit.
            own: If true, the number of a block excludes the blocks inside it.
            title: Title of your own values, with their unit.

        Returns:
            A `mithril_nb.viz.costs.drawing.Drawing`: a picture in a notebook, text in `print`, a file by `save`.

        Examples:
            >>> import jax.numpy as jnp
            >>> program = inspect_function(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)), name="layer")
            >>> print(program.overlay("flops"))
            layer, graph: FLOPs
            node      FLOPs  share
            matmul  48 FLOP  100 %
            >>> print(program.overlay({"matmul": 0.25}, title="sparsity"))
            layer, graph: sparsity
            node    sparsity
            matmul      0.25
        """
        return draw(self, "overlay", of=of, graph=graph, expanded=expanded, own=own, title=title)

    def find(self, query: str, stage: str | None = None) -> Found:
        """Return the equations or instructions that match a query, with block, role, dtype, FLOPs, bytes and line.

        A query has one or more terms, separated by spaces. An instruction must match all of them.

        - `head`: the path of its block, its operation, or the kind of a block around it contains this text.
        - `kind:dot`: its operation, or the kind of a block around it, contains this text.
        - `block:head`: it is in this block, or in a block inside. `*` matches any text.
        - `role:backward`: it belongs to this part of a training step: forward, backward or update.
        - `dtype:f64`: it has a result with this dtype.
        - `line:train.py`: its line of Python contains this text.
        - `flops>1e6`: it has more FLOPs. Also `bytes` (read and written) and `memory` (size of the results), with `<`,
          `<=`, `=`, `>=` or `>`, and with numbers such as `2M` and `4KiB`.
        - `-dtype:f64`: it does not match the term after `-`.
        - `block:"lm head"`: quotes keep spaces.

        Args:
            query: The query. `""` matches every instruction.
            stage: One of `stages`; by default the jaxpr, or the stage at which the program begins.

        Returns:
            The matches in program order: a sequence, shown as a table.

        Examples:
            >>> import jax.numpy as jnp
            >>> def net(x, w):
            ...     return jnp.tanh(x @ w)
            >>> print(inspect_function(net, jnp.zeros((2, 3)), jnp.zeros((3, 4))).find("kind:dot flops>10 -dtype:f64"))
            1 of 4 instructions of jaxpr matches: kind:dot flops>10 -dtype:f64
            block  kind         id  role     dtype      FLOPs  bytes  memory
            net    dot_general  0   forward  float32  48 FLOP  104 B    32 B
        """
        return find_in(self, query, stage)

    def to_dict(self, *stages: str, passes: bool = True) -> dict[str, Any]:
        """Return the inspection as plain data; see `to_json`."""
        return inspection_data(self, stages or self.stages, passes)

    def to_json(self, *stages: str, passes: bool = True) -> str:
        """Return the inspection as JSON. Computes the stages that are not computed yet.

        The file `inspection/schema.json` of this package describes the data. It has `stages` with their texts and
        instructions, `equations`, `inputs`, `outputs`, `passes` with the text before and after each pass, `buffers` if
        `"hlo"` is among the stages, and `elapsed`, the seconds to trace, lower and compile. Instructions of two stages
        are linked if they share an equation.

        Args:
            *stages: Names of the stages; by default all.
            passes: True to include the passes of XLA, which may be large.

        Examples:
            >>> import json
            >>> import jax.numpy as jnp
            >>> data = json.loads(inspect_function(jnp.sin, jnp.zeros(3)).to_json("jaxpr", passes=False))
            >>> data["stages"][0]["instructions"][1]["opcode"]
            'sin'
        """
        return json.dumps(self.to_dict(*stages, passes=passes), allow_nan=False)

    def to_html(
        self,
        path: str | Path | None = None,
        stages: Sequence[str] | None = None,
        overlay: str | Mapping[str, Mapping[str, Any]] = "",
        devices: Sequence[Any] = (),
        tour: Sequence[Moment | Mapping[str, Any]] | Tour = (),
    ) -> str:
        """Return one HTML file with the graph, the linked lines of all stages, the passes and the costs.

        The file needs no kernel and no network. Computes the stages that are not computed yet.

        Args:
            path: Where to write the file; by default it is only returned.
            stages: Names of the stages to include; by default all. `["jaxpr", "stablehlo"]` needs no compiler.
            overlay: Values that the graph shows first; the page has a menu with others. A name that the method
                `overlay` accepts as `of`, except `"memory"`; or your own values by title:
                `{"sparsity": {"net/hidden": 0.25}}`.
            devices: Other devices, as in the method `on`. The page then has a menu of devices, and contains the program
                on each of them; a selected block or line stays selected.
            tour: Moments of a lecture, as in the method `tour`.

        Examples:
            >>> import jax.numpy as jnp
            >>> inspect_function(jnp.sin, jnp.zeros(3)).to_html(stages=["jaxpr"])[:15]
            '<!DOCTYPE html>'
        """
        return draw(
            self, "page", path=path, stages=stages, overlay=overlay, devices=devices, tour=tour_of(self, tour).data
        )

    def film(self, block: str) -> Any:
        """Return a film of one block: its lines in each stage from Python to machine code. Compiles the program.

        From stage to stage, linked lines move, and lines without a link appear or vanish. Buttons and keys play, pause
        and step. If the system asks for reduced motion, lines do not move.

        Args:
            block: Path of the block, such as `"net/layer_0"`.

        Returns:
            A `mithril_nb.viz.pages.film.Film`: a player in a notebook, text in `print`, an HTML file by `save`.

        Raises:
            UnknownOptionError: The program has no such block.

        Examples:
            >>> import jax.numpy as jnp
            >>> film = inspect_function(jnp.sin, jnp.zeros(3)).film("sin")
            >>> [(stage.name, len(stage.lines)) for stage in film.stages][2:4]
            [('jaxpr', 1), ('stablehlo', 2)]
        """
        check_block(self, block)
        return draw(self, "film", block=block)

    def tour(self, moments: Sequence[Moment | Mapping[str, Any]]) -> Tour:
        """Prepare a lecture: a list of moments that the presenter walks through, in the explorer or a saved page.

        Args:
            moments: Each is an `ml.teach.Moment`, or a dict with the names of its attributes.

        Returns:
            The tour. As the output of a cell it is an explorer that shows the lecture; `save` writes a page.

        Raises:
            UnknownOptionError: A moment has an unknown stage or block, or a line without equations.

        Examples:
            >>> import jax.numpy as jnp
            >>> p = inspect_function(jnp.sin, jnp.zeros(3))
            >>> moments = [{"stages": ["jaxpr", "stablehlo"], "line": ("jaxpr", 4), "caption": "One operation"}]
            >>> print(p.tour(moments))
            1  jaxpr, StableHLO  line 4 of jaxpr  One operation
        """
        return tour_of(self, moments)

    def save(self, path: str | Path) -> Path:
        """Write the inspection to a file, in the format of its suffix.

        Args:
            path: The file. Its suffix is `.html` for the page of `to_html`, `.json` for the data of `to_json`, `.mlir`
                for StableHLO, `.svg` or `.txt` for the graph of the first stage as a picture or text, or the suffix of
                a format that you registered with `mithril_nb.inspection.exporter`. To save a graph with values, call
                `overlay("flops").save("graph.svg")`.

        Returns:
            The path of the file.
        """
        return save(self, path)

    def save_executable(self, path: str | Path) -> Path:
        """Write the compiled program to a file, so that a process on the target starts it without compiling.

        Compiles the program again if it is for a device of `ml.devices`. The target needs the same version of JAX, and
        the device or topology of the program; it loads the file as in the example. Loading runs code of the file, as
        `pickle` does, so load only files that you trust.

        Args:
            path: The file.

        Returns:
            The path of the file.

        Raises:
            StageUnavailableError: The program does not compile, or JAX cannot serialize it, such as one with callbacks.

        Examples:
            ```python
            p = ml.inspect(step, params, x, device="v5e")
            p.save_executable("step.bin")

            # On the machine with the TPU, with JAX only:
            import pickle
            from jax.experimental.serialize_executable import deserialize_and_load
            with open("step.bin", "rb") as file:
                step = deserialize_and_load(*pickle.load(file), execution_devices=jax.devices()[:1])
            step(params, x)
            ```
        """
        return written(path, self.executable_file(), 'inspection.save_executable("program.bin")')


exporter(".html")(Inspection.to_html)
exporter(".json")(Inspection.to_json)


@exporter(".mlir")
def _mlir(inspection: Inspection) -> str:
    return inspection.lowered.as_text(debug_info=True)


@exporter(".svg")
def _svg(inspection: Inspection) -> str:
    return f"{render(inspection.graph())['image/svg+xml']}\n"


@exporter(".txt")
def _text(inspection: Inspection) -> str:
    return f"{render(inspection.graph())['text/plain']}\n"


def inspect_function(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    params: str | Sequence[str] = DEFAULT,
    device: Any | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    source: tuple[str, Mapping[int, str]] | None = None,
    kinds: Mapping[str, str] | None = None,
    check_sizes: Callable[[Mapping[str, int]], None] | None = None,
    requested_at: Span | None = None,
    trips: Mapping[str, int] | None = None,
) -> Inspection:
    """Inspect a JAX function at every stage of compilation, without running it.

    Args:
        fn: Any function that JAX can trace.
        *args: Arguments of `fn`: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        name: Name of the program; by default the name of the function.
        params: Name of the argument that holds the parameters, or of a part of one (`"state.params"`), or several;
            `()` if it has none. Default: the argument `params`; without it, the number of parameters is unknown.
        device: The `jax.Device` to compile for; by default JAX's default.
        compiler_options: Further options of XLA, as in `jax.jit`.
        source: A pair: the text of the stage `"python"`, and a dict from line numbers of the text to the path of the
            block that the line builds. Default: the source of the traced functions.
        kinds: Kind of each block, by path: `{"linear_0": "Linear"}`.
        check_sizes: A function that receives a dict from the names of sizes, such as `"batch"`, to their values, and
            raises an error if the values are invalid. By default, all values are valid.
        requested_at: The user's call for which this package built `fn`, such as a call of `fit`. Equations without a
            line of the user's code, such as those of an optimizer, get the line of this call.
        trips: Numbers of iterations of loops by line or block; see `Inspection.cost`.

    Returns:
        The inspection. Its stages are computed on first use.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def double(x):
        ...     return x + x
        >>> print(inspect_function(double, jax.ShapeDtypeStruct((3,), jnp.float32)).stage("jaxpr"))
        { lambda
            a:f32[3]  # x
          let
            b:f32[3] = add a a
          in (b) }
        <BLANKLINE>
    """
    holders = checked_params(fn, args, params, name)  # now, because the stages are computed later
    options = InspectOptions(
        name,
        holders,
        device,
        compiler_options,
        source,
        kinds,
        check_sizes=check_sizes,
        requested_at=requested_at,
        trips=trips,
    )
    return Inspection(fn, args, options)


def inspect_given(
    program: Given,
    *,
    name: str | None = None,
    params: str | Sequence[str] = DEFAULT,
    device: Any | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Inspect a program that starts at a later stage than Python.

    `name`: Name of the program; by default its own name. `params`: Name of the argument that holds the parameters, as
    in `inspect`. `device`: The `jax.Device` to compile for. `compiler_options`: Further XLA options.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from mithril_nb.stages.given.program import given_of_lowered
        >>> found = inspect_given(given_of_lowered(jax.jit(jnp.sin).lower(jnp.zeros(3))))
        >>> found.name, found.stage("jaxpr").unavailable
        ('sin', 'this program was given as a jax.stages.Lowered: it has no jaxpr')
    """
    holders = (params,) if isinstance(params, str) else tuple(params)
    if holders != (DEFAULT,):
        program.check_params(holders)
    program = replace(program, name=name or program.name)
    return Inspection(
        _not_a_function, (), InspectOptions(program.name, holders, device, compiler_options, given=program)
    )


# The stages of a function start with its trace, which `given` replaces.
def _not_a_function(*_: Any) -> None:
    raise AssertionError("a program that starts at a later stage is not traced")
