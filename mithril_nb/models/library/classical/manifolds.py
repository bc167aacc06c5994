"""Multidimensional scaling and t-SNE: learn the coordinates of points from their distances or neighbours."""

from __future__ import annotations

from typing import Annotated, Literal

from mithril_nb.errors import UnknownOptionError
from mithril_nb.models.composite import Composite
from mithril_nb.models.library.classical.operators import Coordinates, DistanceMatrix, NormModifier, TsnePJoint
from mithril_nb.models.library.layers.windows import Size as Width
from mithril_nb.models.library.objectives import KLDivergence
from mithril_nb.models.library.operations import (
    Absolute,
    Add,
    Buffer,
    Divide,
    EyeComplement,
    Power,
    Size,
    Square,
    Subtract,
    Sum,
    Where,
)
from mithril_nb.models.model import Model, Placed
from mithril_nb.models.naming import input_names
from mithril_nb.models.op import Options, Range

__all__ = ["MDS", "TSNE", "DistanceEncoder", "EncoderDistanceMatrix", "MDSCore", "TSNECore"]
# Mithril's names of the three forms of input.
InputType = Literal["distances", "powers", "points"]
Perplexity = Annotated[float, Range(1.0, 1e6)]


class EncoderDistanceMatrix(Composite):
    """Minkowski distances between the points of `input1` and those of `input2`.

    The input `norm` is the order p of the norm. It may be a parameter: `NormModifier` keeps it between 1 and 5.

    Args:
        get_final_distance: If true, return the distances. If false, return the distances to the power of p.
        robust: If true, the gradient is finite where two points coincide; see `Power`.

    Examples:
        >>> [port.name for port in EncoderDistanceMatrix().inputs]
        ['norm', 'input1', 'input2']
    """

    get_final_distance: bool = True
    robust: bool = True

    category = "Classical"
    formula = "y[i, j] = (Σ_k |input1[i, k] - input2[j, k]| ^ p) ^ (1 / p)"

    def compose(self):
        # The order may be trained, and an update may leave the useful range.
        self |= (order := NormModifier())(input="norm")
        powers = DistanceMatrix()
        if not self.get_final_distance:
            self |= powers(left="input1", right="input2", norm=order.output, output="output")
            return
        self |= powers(left="input1", right="input2", norm=order.output)
        self |= Power(self.robust)(base=powers.output, exponent=1.0 / order.output, output="output")


class MDSCore(Composite):
    """Stress of multidimensional scaling: the error of `pred_distances` against `distances`, relative to `distances`.

    The input `norm` is the order p of the norm. For an order of 2, the result is like Kruskal's stress-1 (1964), which
    divides by the predicted distances instead. If all `distances` are 0, the divisor is 1.

    Args:
        exact_distances: If true, both inputs are distances. If false, they are distances to the power of p.
        robust: If true, the gradients of roots are finite at zero; see `Power`.

    Examples:
        >>> sorted(port.name for port in MDSCore().inputs)
        ['distances', 'norm', 'pred_distances']
    """

    exact_distances: bool = True
    robust: bool = True

    category = "Classical"
    formula = "y = (Σ |d - pred|^p / Σ d^p) ^ (1 / p)"

    def compose(self):
        self |= (order := NormModifier())(input="norm")
        self |= (root := Divide())(numerator=1.0, denominator=order.output)
        target, predicted = "distances", "pred_distances"
        if not self.exact_distances:
            self |= (wanted_root := Power(self.robust))(base="distances", exponent=root.output)
            self |= (found_root := Power(self.robust))(base="pred_distances", exponent=root.output)
            target, predicted = wanted_root.output, found_root.output
        self |= (difference := Subtract())(left=target, right=predicted)
        self |= (error := Absolute())(input=difference.output)
        self |= (errors := Power())(base=error.output, exponent=order.output)
        self |= (all_errors := Sum())(input=errors.output)
        self |= (powers := Power())(base=target, exponent=order.output)
        self |= (total := Sum())(input=powers.output)
        # Dividing by 0 would give NaN in the gradient even where the quotient is not used.
        self |= (norm := Where())(cond=total.output == 0, input1=1.0, input2=total.output)
        self |= (share := Divide())(numerator=all_errors.output, denominator=norm.output)
        self |= Power(self.robust)(base=share.output, exponent=root.output, output="output")


class TSNECore(Composite):
    """Loss of t-SNE (van der Maaten and Hinton, 2008).

    The loss is the Kullback-Leibler divergence of two distributions over pairs of points: the target `p_joint`, and the
    distribution that follows from `pred_distances` by Student's t-distribution.

    Args:
        exact_distances: If true, `distances` and `pred_distances` are distances. If false, they are squared distances.
        calculate_p_joint: If true, `TsnePJoint` computes `p_joint` from the input `distances` in each step. If false,
            `p_joint` is an input, which you can compute once before training.
        perplexity: Approximate number of neighbours of a point; used only with `calculate_p_joint`.

    Examples:
        >>> sorted(port.name for port in TSNECore().inputs)
        ['p_joint', 'pred_distances']
        >>> sorted(port.name for port in TSNECore(calculate_p_joint=True).inputs)
        ['distances', 'pred_distances']
    """

    exact_distances: bool = True
    calculate_p_joint: bool = False
    perplexity: Perplexity = 20.0

    category = "Classical"
    formula = "y = Σ p log(p / q), q[i, j] ∝ 1 / (1 + pred[i, j]²), i ≠ j"

    def compose(self):

        # `__ior__` by name: inside a function, `self |= ...` would make `self` a local variable.
        def squared(port: str) -> object:
            if not self.exact_distances:
                return port
            self.__ior__((square := Square())(input=port))
            return square.output

        if self.calculate_p_joint:
            joint = TsnePJoint()
            self |= joint(squared_distances=squared("distances"), target_perplexity=self.perplexity, output="p_joint")
        # Student's t-distribution with one degree of freedom: 1 / (1 + d²).
        self |= (beyond := Add())(left=squared("pred_distances"), right=1.0)
        self |= (size := Size(dim=0))(input="pred_distances")
        # A point is no neighbour of itself. The zeros also remove the diagonal from the sum.
        self |= (others := EyeComplement())(N=size.output)
        self |= (near := Divide())(numerator=others.output, denominator=beyond.output)
        self |= (total := Sum())(input=near.output)
        self |= (share := Divide())(numerator=near.output, denominator=total.output)
        self |= (each := KLDivergence())(input=share.output, target="p_joint")
        self |= Sum()(input=each.output, output="output")


class DistanceEncoder(Composite):
    """Learns the coordinates of points by a loss that compares distances: the common part of `MDS` and `TSNE`.

    Args:
        base_model: The loss, such as `MDSCore()`. It needs an input `pred_distances` and an output `output`. Inputs
            `distances` and `norm` are optional.
        input_type: Contents of `input`: `"distances"` between all points, `"powers"` for distances to the power of the
            norm's order, or `"points"`. With `"powers"`, the loss receives powers as `pred_distances` too.
        prediction_dim: Number of coordinates of a point; by default taken from the array connected to `coords`.

    Raises:
        UnknownOptionError: `base_model` is not a block with these ports, or `input_type` is invalid.

    Examples:
        >>> sorted(port.name for port in DistanceEncoder(MDSCore(), prediction_dim=2).inputs)
        ['coords', 'input', 'norm']
    """

    category = ""
    formula = "y = base(distances of input, distances of coords)"

    def __init__(
        self,
        base_model: Model,
        input_type: InputType = "distances",
        prediction_dim: Width | None = None,
        name: str | None = None,
    ):
        _check_base(base_model, input_type)
        super().__init__(name)
        self |= (points := Coordinates(prediction_dim))(input="input", coords="coords")
        # The loss compares powers with powers, which saves a root whose gradient at 0 is infinite.
        encoded = EncoderDistanceMatrix(get_final_distance=input_type != "powers")
        self |= encoded(input1=points.output, input2=points.output, norm="norm")
        takes = input_names(base_model.block)
        feeds: dict[str, object] = {port: port for port in takes}
        feeds["pred_distances"] = encoded.output
        if "distances" in takes:
            feeds["distances"] = "input"
            if input_type == "points":
                self |= (distances := EncoderDistanceMatrix())(input1="input", input2="input", norm="norm")
                feeds["distances"] = distances.output
        self |= base_model(**feeds, output="output")
        # A name for the result of the training. The distances read it too, so it is no output otherwise.
        self |= Buffer()(input=points.output, output="predicted_coords")


class MDS(Composite):
    """Multidimensional scaling: learns points with given distances, by minimising `output`.

    Args:
        prediction_dim: Number of coordinates of a point.
        input_type: Contents of `input`: `"distances"` between all points, `"powers"` for distances to the power of the
            norm's order, or `"points"`.
    """

    prediction_dim: Width
    input_type: InputType = "distances"

    category = "Classical"
    formula = "y = stress of the distances of coords"

    def compose(self):
        core = MDSCore(exact_distances=self.input_type != "powers")
        self |= _encoder(core, self.options)


class TSNE(Composite):
    """t-SNE: learns points with the same neighbours as given points, by minimising `output`.

    t-SNE uses the norm of order 2.

    Args:
        prediction_dim: Number of coordinates of a point.
        input_type: Contents of `input`: `"distances"` between all points, `"powers"` for squared distances, or
            `"points"`.
        preplexity: The same as `perplexity`, in Mithril's spelling.
        calculate_p_joint: If true, compute the target probabilities from the input in each step. If false, they are the
            input `p_joint`, see `TSNECore`.
        perplexity: Approximate number of neighbours of a point; by default `preplexity`.

    Examples:
        >>> TSNE(2, perplexity=5).options["perplexity"]
        5.0
    """

    prediction_dim: Width
    input_type: InputType = "distances"
    # Mithril's spelling, which its documents use.
    preplexity: Perplexity = 20.0
    calculate_p_joint: bool = False
    perplexity: Perplexity | None = None

    category = "Classical"
    formula = "y = Σ p log(p / q)"

    def compose(self):
        target = self.preplexity if self.perplexity is None else self.perplexity
        self |= _encoder(TSNECore(self.input_type != "powers", self.calculate_p_joint, target), self.options)


def _encoder(core: Model, options: Options) -> Placed:
    encoder = DistanceEncoder(core, options["input_type"], options["prediction_dim"])  # pyright: ignore
    return encoder(**{port.name: port.name for port in (*encoder.inputs, *encoder.outputs)})


def _check_base(base_model: object, input_type: object) -> None:
    call = "DistanceEncoder(MDSCore(), prediction_dim=2)"
    if not isinstance(base_model, Model):
        raise UnknownOptionError(
            f"DistanceEncoder cannot take base_model={base_model!r}.",
            (("needs", "a block that compares distances, such as MDSCore()"),),
            call,
        )
    ports = sorted(port.name for port in (*base_model.inputs, *base_model.outputs))
    if not {"pred_distances", "output"} <= set(ports):
        raise UnknownOptionError(
            f"DistanceEncoder cannot take {base_model.kind} as base_model.",
            (("needs", "the ports 'pred_distances' and 'output'"), ("has", ", ".join(ports) or "none")),
            call,
        )
    # Checked here, because `Literal` is checked only for attributes, and this block takes a block.
    if input_type not in ("distances", "powers", "points"):
        raise UnknownOptionError(
            f"DistanceEncoder cannot take input_type={input_type!r}.",
            (("needs", "one of 'distances', 'powers', 'points'"),),
            call,
        )
