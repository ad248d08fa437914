"""What a report says of tensors, nodes, noise and drift: frozen records, see `content.Report`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CalibratorChoice:
    """The range that one calibrator chooses for a tensor.

    Attributes:
        name: of the calibrator, or "plan" for the range that the plan has.
        low, high: the smallest and the largest value that is represented.
        clipped: share of the values outside by more than one step, 0 to 1.
        sqnr: expected, in dB, of quantizing this tensor alone; None where it has no signal.
    """

    name: str
    low: float
    high: float
    clipped: float
    sqnr: float | None


@dataclass(frozen=True)
class HistogramBins:
    """Counts in bins of equal width.

    Attributes:
        start: lower edge of the first bin.
        width: of a bin, a power of two but in an estimated histogram.
        counts: of the values.
    """

    start: float
    width: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Parameters:
    """How a tensor is quantized.

    Attributes:
        type: of the integers.
        scale: value of one step.
        zero_point: the integer that stands for 0.
        low, high: the smallest and the largest value that is represented.
        clipped: share of the values outside by more than one step, 0 to 1.
        sqnr: expected, in dB, of quantizing this tensor alone.
    """

    type: str
    scale: float
    zero_point: int
    low: float
    high: float
    clipped: float
    sqnr: float | None


@dataclass(frozen=True)
class TensorRecord:
    """One activation.

    Attributes:
        name: of the tensor.
        shape: as in "?x3x224x224".
        made_by: name of the node that makes it, "" for an input.
        operator: type of that node, "input" for an input.
        read_by: names of the nodes that read it.
        minimum, maximum: of the finite values.
        count: of the finite values; `zeros` of them are 0.
        zeros: see `count`.
        non_finite: values that are NaN or infinite.
        histogram: of the finite values; None without any.
        parameters: in the plan; None for a tensor that stays float.
        calibrators: what the calibrators choose, with the type and schema of the plan.
        following: operators of the function of all its readers by whose error the range was chosen, "" for
            none: what is clipped makes no difference after it.
        is_equalized: whether its channels were equalized: its histogram is estimated then.
        group: index of its shared-scale group; None for none.
        minimum_samples, maximum_samples: samples with the most extreme values, if the profile names them.
    """

    name: str
    shape: str
    made_by: str
    operator: str
    read_by: tuple[str, ...]
    minimum: float
    maximum: float
    count: int
    zeros: int
    non_finite: int
    histogram: HistogramBins | None
    parameters: Parameters | None
    calibrators: tuple[CalibratorChoice, ...]
    following: str = ""
    is_equalized: bool = False
    group: int | None = None
    minimum_samples: tuple[str, ...] = ()
    maximum_samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeRecord:
    """One node.

    Attributes:
        name, operator: of the node.
        kind: what becomes of it, as in the plan.
        reason: why it stays float, or a remark.
        code: of the reason; "" for none.
        inputs, outputs: names of the activations that it reads and makes.
        float_us: predicted microseconds in the float model; None where no times are known.
        planned_us: the same as it is planned, without conversions around it.
        quantized_us: of a float node, what it would take in int8.
        conversions_us: of a float node, what conversions around it would cost more in int8.
        multiply_adds: of one sample.
        noise: its share of the noise at the output with the lowest SQNR, 0 to 1; None where it adds none.
    """

    name: str
    operator: str
    kind: str
    reason: str
    code: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    float_us: float | None
    planned_us: float | None
    quantized_us: float | None
    conversions_us: float | None
    multiply_adds: float
    noise: float | None


@dataclass(frozen=True)
class NoisePart:
    """What one node adds to the noise at an output.

    Attributes:
        node: its name.
        share: of all noise there, 0 to 1.
        sqnr: in dB, of the output with the noise of this node alone.
    """

    node: str
    share: float
    sqnr: float


@dataclass(frozen=True)
class NoiseBudget:
    """Where the noise of an output comes from.

    Attributes:
        output: its name, or that of a tensor that it is put together from.
        sqnr: estimated in dB with all noise.
        limit: least that the plan allows, in dB; None for none.
        parts: of the nodes, the largest first.
    """

    output: str
    sqnr: float
    limit: float | None
    parts: tuple[NoisePart, ...]


@dataclass(frozen=True)
class TensorNoiseRecord:
    """Estimated and measured noise of one tensor, with all that was added upstream.

    Attributes:
        tensor: its name.
        operator: what makes it.
        estimated: SQNR in dB; None where it is not known.
        measured: SQNR in dB, after the function `after` where there is one; None where it could not be.
        drop: dB that the node which makes it adds, measured.
        is_quantized: whether the tensor holds integers.
        after: operators of the function that all its readers compute, "" for none.
        is_equalized: whether its channels were equalized: its SQNR says little then, as weights
            downstream take the scales back, and no estimate is given.
    """

    tensor: str
    operator: str
    estimated: float | None
    measured: float | None
    drop: float | None
    is_quantized: bool
    after: str = ""
    is_equalized: bool = False


@dataclass(frozen=True)
class FloatGroupRecord:
    """Nodes that stay float for one reason, priced.

    Attributes:
        code: of the reason.
        reason: in words.
        nodes: names.
        float_us: predicted microseconds that they take; None where no times are known.
        gain_us: microseconds that int8 would save in those that it would make faster, conversions included.
        multiply_adds: share of those of the model, 0 to 1.
    """

    code: str
    reason: str
    nodes: tuple[str, ...]
    float_us: float | None
    gain_us: float | None
    multiply_adds: float


@dataclass(frozen=True)
class SharedMember:
    """One tensor of a shared-scale group.

    Attributes:
        tensor: its name.
        low, high: its own calibrated range.
        sets_range: whether its range makes the common one.
        lost_db: dB that sharing costs it.
    """

    tensor: str
    low: float
    high: float
    sets_range: bool
    lost_db: float


@dataclass(frozen=True)
class SharedGroup:
    """Activations with one scale, and who forced it.

    Attributes:
        low, high: the common range.
        tied_by: names of the nodes that tied them.
        members: in graph order.
    """

    low: float
    high: float
    tied_by: tuple[str, ...]
    members: tuple[SharedMember, ...]


@dataclass(frozen=True)
class TensorDriftRecord:
    """How one tensor drifted.

    Attributes:
        tensor: its name.
        clipping: share of the new values that saturate, 0 to 1; None where it has none.
        range_growth: factor by which the range has grown.
        distance: Jensen-Shannon distance, 0 to 1; None where it could not be measured.
        failed: whether it exceeds a limit.
    """

    tensor: str
    clipping: float | None
    range_growth: float
    distance: float | None
    failed: bool = False


@dataclass(frozen=True)
class DriftRecord:
    """One profile of newer data against the one that the model was quantized with.

    Attributes:
        profile: name of the newer profile.
        samples: that it was made from.
        passed: whether it exceeds no limit.
        gated: whether there is any limit.
        tensors: those that drifted most, the worst first.
        notes: remarks.
    """

    profile: str
    samples: int
    passed: bool
    gated: bool
    tensors: tuple[TensorDriftRecord, ...]
    notes: tuple[str, ...] = ()
