"""What `explain` says of a tensor or a node: plain records."""

from __future__ import annotations

from dataclasses import dataclass

from ...profiles.base.presentation import Presentation, Presented, Table, decibels
from ..numerics.affine import QuantParams


@dataclass(frozen=True)
class Member:
    """One tensor of a shared-scale group.

    Attributes:
        name: of the tensor.
        own_range: its own calibrated range.
        sets_range: whether its range makes the common one.
        lost_db: dB lost to sharing: the step grows with the width of the range. 0 for a common range that is
            narrower, because a clip downstream discards what is outside.
        sqnr_db: expected SQNR with the parameters of the plan; None without a profile, and where all readers
            discard a part of the values (Relu, Clip, ...), whose loss is not noise.
        own_sqnr_db: the same with parameters from its own range.
    """

    name: str
    own_range: tuple[float, float]
    sets_range: bool
    lost_db: float
    sqnr_db: float | None = None
    own_sqnr_db: float | None = None


@dataclass(frozen=True)
class Neighbour:
    """A node that makes or reads the tensor.

    Attributes:
        node, operator: its name and type.
        makes: whether it makes the tensor; otherwise it reads it.
        kind: of the node in the plan, as in `NodePlan`.
        reason: why it stays float, or a remark.
    """

    node: str
    operator: str
    makes: bool
    kind: str
    reason: str


@dataclass(frozen=True)
class Observed:
    """The values of a tensor, and how its readers use them.

    Attributes:
        minimum, maximum: of the values in the profile, or of a constant.
        is_constant: whether the tensor is a constant of the model.
        clipped: share of the values that saturate by more than one step with the parameters of the plan, 0 to
            1; None for a float tensor, a constant, and a profile with Glow's coarse bins.
        effective_range: interval outside which no reader distinguishes values, such as 0 and inf before a
            Relu; None where the readers use all observed values.
        following_function: operators of the activation function that the readers compute, if the calibrator
            minimises the error after it; else empty.
    """

    minimum: float
    maximum: float
    is_constant: bool
    clipped: float | None
    effective_range: tuple[float, float] | None
    following_function: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class TensorExplanation(Presented):
    """Why one tensor of a plan has its parameters.

    Attributes:
        tensor: its name.
        params: its parameters; None for a tensor that stays float.
        calibrator: that chose the ranges of the plan.
        range: the common range of its shared-scale group; None when it shares its scale with no other tensor.
        tied_by: names of the nodes that tied the group.
        members: of the group, in graph order.
        neighbours: the nodes around the tensor, the one that makes it first; None without a model.
        observed: its values; None without a profile or, for a constant, a model.
        sqnr_db: expected SQNR with the parameters of the plan; None without a profile.
        remarks: what to know of the files that were given.
    """

    tensor: str
    params: QuantParams | None
    calibrator: str
    range: tuple[float, float] | None
    tied_by: tuple[str, ...]
    members: tuple[Member, ...]
    neighbours: tuple[Neighbour, ...] | None
    observed: Observed | None
    sqnr_db: float | None
    remarks: tuple[str, ...] = ()

    def headline(self) -> str:
        """Return the tensor, its type and scale, and how many share it."""
        if self.params is None:
            return f"{self.tensor} stays float"
        scales = self.params.scale
        scale = f"scale {scales[0]:.6g}" if len(scales) == 1 else f"{len(scales)} scales"
        shared = f", shared by {len(self.members)}" if self.members else ""
        return f"{self.tensor}: {self.params.qtype.name}, {scale}{shared}"

    def presentation(self) -> Presentation:
        """Return the expected SQNR, the tensors that share the parameters, and the nodes around it."""
        members = tuple(
            (
                m.name,
                f"{m.own_range[0]:.6g} .. {m.own_range[1]:.6g}",
                "yes" if m.sets_range else "",
                f"{m.lost_db:.2f}",
                decibels(m.sqnr_db),
            )
            for m in self.members
        )
        nodes = tuple(
            (n.node, n.operator, "output" if n.makes else "input", n.kind, n.reason)
            for n in self.neighbours or ()
        )
        member_header = ("tensor", "own range", "sets the range", "lost dB", "SQNR dB")
        node_header = ("node", "operator", "the tensor is its", "kind", "reason")
        tables = [Table(member_header, members)] if members else []
        tables += [Table(node_header, nodes, left=5)] if nodes else []
        facts = () if self.sqnr_db is None else (("expected SQNR", f"{decibels(self.sqnr_db)} dB"),)
        remarks = tuple(("remark", remark) for remark in self.remarks)
        return Presentation((*facts, *remarks), tuple(tables))


@dataclass(frozen=True)
class Operand:
    """An input or output of a node.

    Attributes:
        index: position among the inputs or outputs.
        tensor: its name.
        params: that the node reads or writes it with; None for float.
        converted: whether these are not the parameters that the tensor is stored with.
    """

    index: int
    tensor: str
    params: QuantParams | None
    converted: bool


@dataclass(frozen=True, repr=False)
class NodeExplanation(Presented):
    """Why one node of a plan is quantized or float.

    Attributes:
        node: its name.
        operator: its type; None without a model.
        kind: of the node in the plan, as in `NodePlan`.
        implementation: how it is written, as in `NodePlan`; "" for the usual way.
        reason: why it stays float, or a remark.
        inputs, outputs: its operands; None without a model.
    """

    node: str
    operator: str | None
    kind: str
    implementation: str
    reason: str
    inputs: tuple[Operand, ...] | None
    outputs: tuple[Operand, ...] | None

    def headline(self) -> str:
        """Return the node and its kind."""
        return f"{self.node}: {self.kind}"

    def presentation(self) -> Presentation:
        """Return the reason, and the operands with their types."""
        operands = [*((o, "input") for o in self.inputs or ()), *((o, "output") for o in self.outputs or ())]
        rows = tuple(
            (o.tensor, f"{side} {o.index}", "float" if o.params is None else o.params.qtype.name)
            for o, side in operands
        )
        facts = [("operator", self.operator or "")] if self.operator else []
        facts += [("why", self.reason)] if self.reason else []
        return Presentation(tuple(facts), (Table(("tensor", "operand", "type"), rows),) if rows else ())
