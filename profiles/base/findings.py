"""Findings: whatever qprof has to say about a model, its data, a plan or a result, as linters say it.

A finding is a code of one table (`Code`), the sentence about this case, its subject, its figures and its
remedy. How grave it is follows from the code (`Severity`). The terminal prints `Finding.line`, documents in
JSON hold the fields; `docs/reference/findings.md` is printed from the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Figure = str | int | float
"""A name or a number that a sentence tells; numbers in the unit of the sentence."""


class Severity(StrEnum):
    """How grave a finding is, the gravest first: its exit code, and whether it is printed."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Severity:
        """Return the member; the word alone is its value."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    ALARM = "alarm", "a limit is not kept, or an output is worth nothing: exit code 1; always printed"
    DOUBT = (
        "doubt",
        "something speaks against all that was measured: exit code 1 where a limit was given; always printed",
    )
    WARNING = "warning", "to be looked at; the exit code stays; always printed"
    NOTE = (
        "note",
        "good to know; the exit code stays; a command prints the first two while it runs, the first of its "
        "result, and at its end the codes of the others; all with --verbose",
    )


class Code(StrEnum):
    """Each kind of finding: its word, how grave it is, and its meaning for the page of the documentation."""

    severity: Severity
    meaning: str

    def __new__(cls, word: str, severity: Severity, meaning: str) -> Code:
        """Return the member; the word alone is its value."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.severity = severity
        member.meaning = meaning
        return member

    # The data of a profile ------------------------------------------------------------------------------
    PIXELS = (
        "pixels",
        Severity.WARNING,
        "An input ranges over 0..255 as pixels do, and the model does not begin by scaling it. Samples "
        "that are not normalised as in training give ranges that are no use.",
    )
    CHANNELS_LAST = (
        "channels-last",
        Severity.WARNING,
        "The axes of an input look like NHWC, and the model does not begin by moving them.",
    )
    CONSTANT_INPUT = (
        "constant-input",
        Severity.WARNING,
        "A float input has one value everywhere, in every sample.",
    )
    ZERO_STATE = (
        "zero-state",
        Severity.WARNING,
        "A float input is zero or empty in all samples, as a state is at its start. Ranges of what it "
        "becomes with later steps were not seen.",
    )
    EQUAL_SAMPLES = "equal-samples", Severity.WARNING, "All samples are the same one."
    FEW_SAMPLES = "few-samples", Severity.NOTE, "Ranges of so few samples are seldom those of more."
    GROWING = (
        "growing",
        Severity.NOTE,
        "The last samples still widened the ranges: more would widen them further.",
    )
    ONE_SAMPLE = "one-sample", Severity.NOTE, "A single sample widens the range of a tensor much."
    OUTLIER = (
        "outlier",
        Severity.NOTE,
        "A sample alone sets unusually many limits of ranges: it may be damaged, or of another kind.",
    )

    # How samples are read, and what was left out --------------------------------------------------------
    RANDOM_DATA = (
        "random-data",
        Severity.WARNING,
        "A profile of random values (`random:N`): good for a smoke test, and no more. Gates refuse it.",
    )
    NON_FINITE = (
        "non-finite",
        Severity.WARNING,
        "NaN or Inf flowed through the model; they are left out of ranges and histograms.",
    )
    COUNTED_TWICE = (
        "counted-twice",
        Severity.WARNING,
        "Profiles that are merged seem to hold the same samples.",
    )
    SAMPLES_DRAWN = "samples-drawn", Severity.NOTE, "Some of the samples were drawn, spread over all of them."
    ROWS_LEFT_OUT = "rows-left-out", Severity.NOTE, "The last rows fill no batch of the model's fixed size."
    ARRAYS_LEFT_OUT = (
        "arrays-left-out",
        Severity.NOTE,
        "A sample holds arrays that are no inputs of the model.",
    )
    READING_ASSUMED = (
        "reading-assumed",
        Severity.NOTE,
        "How the data are read where nobody said it: columns, axes, windows, tokens. A recipe says "
        "otherwise.",
    )
    PARTLY_SCALED = (
        "partly-scaled",
        Severity.WARNING,
        "A recipe gives mean or std for some columns of an input, and none for others that are no flags of 0 "
        "and 1.",
    )
    LINKS_PASSED_OVER = "links-passed-over", Severity.NOTE, "A folder that links lead to again is read once."
    LINKED_FILES = "linked-files", Severity.NOTE, "A file under several names counts under each."
    CLASSES_NUMBERED = (
        "classes-numbered",
        Severity.NOTE,
        "Names of classes, of folders or of a column, were given numbers: those of the model must be the "
        "same.",
    )
    LABELS_AT_HAND = (
        "labels-at-hand",
        Severity.NOTE,
        "The data has a folder for each class of the model, a table with a column of labels, or pairs whose "
        "second part looks like classes.",
    )
    TRANSPARENT_PICTURE = "transparent-picture", Severity.NOTE, "Hidden colours of a picture are shown."
    SEVERAL_PAGES = "several-pages", Severity.NOTE, "Of a picture with several pages the first is taken."
    FILE_PASSED_OVER = (
        "file-passed-over",
        Severity.NOTE,
        "A file beside the model or the data, such as one of settings, cannot be used.",
    )
    OTHER_PROVIDER = (
        "other-provider",
        Severity.NOTE,
        "onnxruntime runs some nodes elsewhere than on the execution provider that was asked for.",
    )
    NUMPY_OBSERVERS = (
        "numpy-observers",
        Severity.NOTE,
        "The compiled kernels of the observers were not built.",
    )
    NOISE_UNMEASURED = (
        "noise-unmeasured",
        Severity.NOTE,
        "How noise travels through the model was not measured: quality is estimated less well.",
    )
    UNPROFILED_TENSOR = (
        "unprofiled-tensor",
        Severity.NOTE,
        "A tensor's values cannot be read while the model runs.",
    )
    NO_CHECK_SAMPLES = (
        "no-check-samples",
        Severity.NOTE,
        "No samples are kept beside the profile: quality will be estimated and not run.",
    )
    CHECK_SAMPLES_KEPT = (
        "check-samples-kept",
        Severity.NOTE,
        "A file holds some of the samples as they are: not to be published where they are private.",
    )
    PROFILE_KEPT = "profile-kept", Severity.NOTE, "The file of the profile, and whether it was used again."

    # The model as it was read and prepared --------------------------------------------------------------
    MODEL_MENDED = "model-mended", Severity.NOTE, "Something in the model's file was repaired."
    TYPES_INFERRED = (
        "types-inferred",
        Severity.NOTE,
        "Types or shapes that the model leaves out are inferred.",
    )
    CHECKER_REFUSES = (
        "checker-refuses",
        Severity.NOTE,
        "The ONNX checker refuses a model that onnxruntime loads.",
    )
    CONSTANTS_AS_INPUTS = (
        "constants-as-inputs",
        Severity.NOTE,
        "Weights that were listed as inputs are constants.",
    )
    IR_VERSION_RAISED = "ir-version-raised", Severity.NOTE, "The model is written in a later IR version."
    OPSET_RAISED = "opset-raised", Severity.NOTE, "The model is written in a later opset than it had."
    FUNCTIONS_INLINED = "functions-inlined", Severity.NOTE, "Calls of model-local functions became nodes."
    FUNCTION_OPSET = (
        "function-opset",
        Severity.NOTE,
        "A function is of another opset than the model, which holds.",
    )
    WIDENED = (
        "widened",
        Severity.NOTE,
        "A model in 16-bit floats computes in float32 where it is not quantized.",
    )

    # Gates ----------------------------------------------------------------------------------------------
    GATE_FAILED = "gate-failed", Severity.ALARM, "A limit that was given is not kept, as measured."
    GATE_NOT_PROVEN = (
        "gate-not-proven",
        Severity.ALARM,
        "A limit that was given is not shown to be kept: too few rows, a truth that does not fit, or no "
        "figure.",
    )

    # The result -----------------------------------------------------------------------------------------
    OUTPUT_DESTROYED = (
        "output-destroyed",
        Severity.ALARM,
        "An output is beyond doubt worth nothing, as measured on check samples: not finite, dead, of "
        "another shape, or ten times its limit off.",
    )

    # The plan -------------------------------------------------------------------------------------------
    STAYS_FLOAT = "stays-float", Severity.NOTE, "A node stays float, for a reason of its own; see below."
    RANGES_ONLY = (
        "ranges-only",
        Severity.NOTE,
        "The profile has no histograms: noise is estimated from ranges.",
    )
    UNCOMPARED_OUTPUT = (
        "uncompared-output",
        Severity.WARNING,
        "An output is a sequence or a map, or a node makes other values in each run: it is not compared.",
    )
    OUTPUT_KIND = (
        "output-kind",
        Severity.NOTE,
        "The kind of an output and the reason; unit and limit of its error follow from it.",
    )
    INT8_CACHES = (
        "int8-caches",
        Severity.WARNING,
        "Keys and values go in and out in int8: a program has to allocate them so.",
    )
    SLOW_TABLE = "slow-table", Severity.NOTE, "A table is in 8 bits for its size, and takes longer to read."
    NO_16_BIT_KERNEL = (
        "no-16-bit-kernel",
        Severity.NOTE,
        "Activations have 16 bits and no kernels on the target.",
    )
    STORED_TWICE = (
        "stored-twice",
        Severity.WARNING,
        "The file is larger than float: a weight is in it quantized and in float, for different nodes.",
    )
    STORED_AS_UINT8 = (
        "stored-as-uint8",
        Severity.NOTE,
        "Signed tensors are stored as uint8, as the kernels want.",
    )
    BELOW_WISH = "below-wish", Severity.WARNING, "An output is estimated to keep less than was asked for."
    INT8_SAVES_TOO_LITTLE = (
        "int8-saves-too-little",
        Severity.NOTE,
        "Arithmetic in int8 is predicted to save next to no time and left out.",
    )
    NO_CHANNELS = (
        "no-channels",
        Severity.NOTE,
        "The profile has no records of channels: no equalization and no bias correction.",
    )
    CHANNELS_BALANCED = (
        "channels-balanced",
        Severity.NOTE,
        "Channels are equalized, so that all use the range.",
    )
    WEIGHTS_ROUNDED = (
        "weights-rounded",
        Severity.NOTE,
        "Weights are rounded with samples, not to the nearest.",
    )
    ESTIMATED_ONLY = (
        "estimated-only",
        Severity.NOTE,
        "The plan was not run on check samples: its quality is estimated.",
    )
    BOLDER_PLAN = (
        "bolder-plan",
        Severity.NOTE,
        "Run on check samples, the plan had less noise than estimated.",
    )
    NOISY_PLAN = (
        "noisy-plan",
        Severity.NOTE,
        "Run on check samples, the first plan was too noisy, or another one keeps more; that is taken.",
    )
    WIDER_WEIGHTS = (
        "wider-weights",
        Severity.WARNING,
        "Run on check samples, weights of the bits that were asked for destroyed the model; they have 8.",
    )
    LIMIT_EXCEEDED = (
        "limit-exceeded",
        Severity.WARNING,
        "Run on check samples, an output is farther from float than its limit in every plan that was tried.",
    )
    STAYS_FLOAT32 = (
        "stays-float32",
        Severity.NOTE,
        "Nodes compute in float32 where the others that stay float compute in float16.",
    )
    FLOAT16_LOSES = (
        "float16-loses",
        Severity.WARNING,
        "With float16 in the place of float32 an output is farther from float than its limit, without any "
        "integers.",
    )
    NEAR_LIMIT = (
        "near-limit",
        Severity.NOTE,
        "An output is so near its limit that another processor may plan otherwise.",
    )
    RUNS_ELSEWHERE = (
        "runs-elsewhere",
        Severity.NOTE,
        "The target runs some of the float model's operators elsewhere or not at all.",
    )
    FREE_SHAPES = (
        "free-shapes",
        Severity.NOTE,
        "The target wants fixed shapes, and the model leaves some free.",
    )
    NOT_TEST_RUN = "not-test-run", Severity.NOTE, "The written model was loaded and not run."
    ESTIMATE_TOO_GOOD = "estimate-too-good", Severity.NOTE, "An output was measured below its estimated band."
    STEP_LEFT_OUT = (
        "step-left-out",
        Severity.WARNING,
        "A step that only improves the result failed by a fault of qprof and was left out.",
    )

    # Speed ----------------------------------------------------------------------------------------------
    SPEED_MEASURED = "speed-measured", Severity.NOTE, "How fast the model is, where and on what it was timed."
    FASTER_IN_FLOAT = (
        "faster-in-float",
        Severity.NOTE,
        "Nodes fall back to float, which is faster as measured.",
    )
    FASTER_OTHERWISE = (
        "faster-otherwise",
        Severity.NOTE,
        "A change of the plan made the model faster as measured.",
    )
    LEFT_IN_FLOAT = "left-in-float", Severity.WARNING, "The whole model is left in float, which is faster."
    FLOAT_IS_FASTER = (
        "float-is-faster",
        Severity.WARNING,
        "The quantized model is slower than float as measured.",
    )
    COMPUTED_IN_FLOAT = "computed-in-float", Severity.NOTE, "onnxruntime computes planned integers in float."
    EXECUTED_OTHERWISE = (
        "executed-otherwise",
        Severity.NOTE,
        "onnxruntime executes nodes otherwise than planned.",
    )
    CLIP_LEFT_OUT = (
        "clip-left-out",
        Severity.WARNING,
        "onnxruntime leaves out a Relu or Clip before floats of few bits, unless it is told not to.",
    )
    SLOW_SESSION = (
        "slow-session",
        Severity.WARNING,
        "Options that the model's file or genai_config.json beside it has for the session make int8 slow in "
        "onnxruntime.",
    )
    NOT_TIMED = "not-timed", Severity.NOTE, "The speed was not measured."

    # Two profiles ---------------------------------------------------------------------------------------
    OTHER_STRUCTURE = (
        "other-structure",
        Severity.NOTE,
        "Two profiles are of models of other structure: tensors are compared by name alone.",
    )
    OTHER_WEIGHTS = "other-weights", Severity.NOTE, "Two profiles are of one model with other weights."
    SAME_DATA = "same-data", Severity.NOTE, "Two profiles are of the same data: their drift is none."
    TENSORS_OF_ONE_PROFILE = (
        "tensors-of-one-profile",
        Severity.NOTE,
        "Tensors are in one of two profiles alone.",
    )

    PART_DRIFT = (
        "part-drift",
        Severity.WARNING,
        "A column of a table, a colour or another part of an input has other values than in the older "
        "profile.",
    )
    BAND_DRIFT = (
        "band-drift",
        Severity.WARNING,
        "A band of a signal has another level than in the older profile.",
    )
    BEYOND_RANGE = (
        "beyond-range",
        Severity.NOTE,
        "Samples have values of an input that the older profile has not: they are named.",
    )
    FOLDER_DRIFT = (
        "folder-drift",
        Severity.WARNING,
        "A folder of the data, such as a class of pictures, has another share than in the older profile.",
    )

    # Files of other tools -------------------------------------------------------------------------------
    IMPORT_LOSES = (
        "import-loses",
        Severity.NOTE,
        "A format of another tool cannot tell all that qprof would record.",
    )
    IMPORT_LEFT_OUT = "import-left-out", Severity.NOTE, "Entries of another tool's file were left out."
    IMPORT_ASSUMED = "import-assumed", Severity.NOTE, "How another tool's file was read, or completed."
    EXPORT_LOSES = (
        "export-loses",
        Severity.NOTE,
        "A format of another tool cannot hold all of a profile or plan.",
    )
    EXPORT_ASSUMED = "export-assumed", Severity.NOTE, "The header of a written file, as its reader wants it."

    # Reports --------------------------------------------------------------------------------------------
    REPORT_SOURCES = "report-sources", Severity.NOTE, "Which plan and profile the report was made from."
    REPORT_WITHOUT_ESTIMATES = (
        "report-without-estimates",
        Severity.NOTE,
        "Plan or profile of the quantized model were not found: the report has no estimates.",
    )

    # Two models that are compared -----------------------------------------------------------------------
    SWAPPED_MODELS = "swapped-models", Severity.DOUBT, "The first model is quantized and the second is not."
    FLOAT_IS_QUANTIZED = "float-is-quantized", Severity.DOUBT, "The float model is a quantized one itself."
    OTHER_FLOAT_MODEL = (
        "other-float-model",
        Severity.DOUBT,
        "The quantized model was made from another float model: one of other weights, or one that it "
        "cannot be of.",
    )
    NOTHING_QUANTIZED = "nothing-quantized", Severity.DOUBT, "No node of the quantized model is quantized."
    LARGER_THAN_FLOAT = "larger-than-float", Severity.DOUBT, "The quantized model is the larger file."
    SPEED_UNPROVEN = (
        "speed-unproven",
        Severity.DOUBT,
        "A speedup is asked for, and the speed was measured on another runtime than the model is for.",
    )
    SPEED_ELSEWHERE = (
        "speed-elsewhere",
        Severity.NOTE,
        "The speed was measured on another runtime than the model is for.",
    )
    OTHER_GRAPH = (
        "other-graph",
        Severity.NOTE,
        "The quantized model was made from another graph: nodes renamed, or exported anew.",
    )
    OTHER_PLAN = (
        "other-plan",
        Severity.WARNING,
        "The quantized model was written by another plan than the one given.",
    )
    OTHER_PROFILE = (
        "other-profile",
        Severity.WARNING,
        "The plan was made from another profile than the one given.",
    )
    EQUALIZED_LEFT_OUT = "equalized-left-out", Severity.NOTE, "Equalized tensors cannot be compared."
    DOUBTFUL_TRUTH = (
        "doubtful-truth",
        Severity.WARNING,
        "The float model does so badly that labels, metric or preprocessing may be at fault.",
    )
    SCORES_MOVED = (
        "scores-moved",
        Severity.NOTE,
        "Scores moved: a threshold of the float model is another one now.",
    )
    METRIC_ASSUMED = "metric-assumed", Severity.NOTE, "What the metric takes outputs and truth for."
    OWN_STATE = "own-state", Severity.NOTE, "Each model was fed its own state from step to step."
    TOKENS = "tokens", Severity.NOTE, "How often both models take the same token, and how fast they are."

    # The verdict on held-out samples --------------------------------------------------------------------
    MAIN_CAUSE = "main-cause", Severity.WARNING, "What costs most where the model is not good."
    NO_VERDICT = "no-verdict", Severity.WARNING, "Why there is no telling how good the model is."
    NO_INT8_ARITHMETIC = "no-int8-arithmetic", Severity.WARNING, "None of the multiply-adds is in integers."
    KEEP_FLOAT = (
        "keep-float",
        Severity.WARNING,
        "Int8 brings nothing here: the float model is the better one.",
    )
    SEEN_SAMPLES = (
        "seen-samples",
        Severity.WARNING,
        "Samples that made the profile or chose the plan judge the model, which flatters.",
    )
    FEW_HELD_OUT = "few-held-out", Severity.NOTE, "The held-out samples are few: more make the verdict surer."
    PROFILED_SAMPLES = (
        "profiled-samples",
        Severity.WARNING,
        "A model was judged on samples that its profile was made from, which flatters.",
    )
    CHOSEN_ON_HELD_OUT = (
        "chosen-on-held-out",
        Severity.NOTE,
        "Held-out samples chose the fix or the plan, which flatters a little.",
    )
    TARGET_MISSED = (
        "target-missed",
        Severity.WARNING,
        "No plan that was tried meets the target of `tune`, or none on the held-out samples.",
    )
    TARGET_UNVERIFIED = (
        "target-unverified",
        Severity.WARNING,
        "The target of `tune` is met as measured, and the held-out rows are too few to prove it.",
    )
    KEPT_FLOAT = "kept-float", Severity.NOTE, "Nodes that had to stay float for the target of `tune`."
    BUDGET_ENDED = "budget-ended", Severity.NOTE, "The time for the search ended before the search did."

    NO_FIX_TRIED = (
        "no-fix-tried",
        Severity.NOTE,
        "A model that is not good, of which no other settings were tried, and the reason.",
    )
    NO_BETTER_PLAN = (
        "no-better-plan",
        Severity.NOTE,
        "Other settings were tried, as their commands would make them, and none makes a better model.",
    )
    FALLBACK_TAKEN = (
        "fallback-taken",
        Severity.WARNING,
        "The model would be neither good nor worth it: weights alone are quantized, a fix is applied, or the "
        "float model is kept.",
    )

    # Settings -------------------------------------------------------------------------------------------
    TARGET_ASSUMED = (
        "target-assumed",
        Severity.NOTE,
        "Which target was taken where none was named, or that it is not this machine's.",
    )
    SETTING_FOLLOWS = "setting-follows", Severity.NOTE, "A setting that follows from another one."
    SETTING_UNREAD = (
        "setting-unread",
        Severity.WARNING,
        "A setting was given that nothing reads with the others as they are.",
    )
    LIMIT_OUT_OF_REACH = (
        "limit-out-of-reach",
        Severity.WARNING,
        "The labels are too few to show that a limit is kept, whatever they show.",
    )
    SATURATING_KERNELS = (
        "saturating-kernels",
        Severity.WARNING,
        "Int8 weights can saturate on this processor, which has no VNNI: figures are worse than elsewhere.",
    )


@dataclass(frozen=True)
class Finding:
    """One thing that qprof has to say.

    Attributes:
        code: the kind of finding.
        severity: how grave it is: that of the code.
        sentence: complete by itself, with the names and figures that a person needs.
        subject: name of the tensor, node, output, sample, file or option that it is about; "" for the whole.
        figures: the names and numbers of the sentence, for programs.
        remedy: what to do, or to ask oneself; "" where nothing need be done.
    """

    code: Code
    severity: Severity = field(init=False, default=Severity.NOTE)
    sentence: str
    subject: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    remedy: str = ""

    def __post_init__(self) -> None:
        """Take the severity of the code."""
        object.__setattr__(self, "severity", self.code.severity)

    @property
    def text(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    @property
    def coded_text(self) -> str:
        """The text after the code, under which the documentation lists findings."""
        return f"[{self.code}] {self.text}"

    @property
    def label(self) -> str:
        """The severity as people read it: an alarm in capitals, that of a gate as its result; or "cause"."""
        if self.code in _LABELS:
            return _LABELS[self.code]
        return self.severity.upper() if self.severity is Severity.ALARM else self.severity.value

    @property
    def line(self) -> str:
        """The finding as terminals show it, as in "note: 3 samples are few; give at least 32"."""
        return f"{self.label}: {self.text}"

    def __str__(self) -> str:
        return self.text


_LABELS: Mapping[Code, str] = {
    Code.GATE_FAILED: "FAILED",
    Code.GATE_NOT_PROVEN: "NOT PROVEN",
    Code.MAIN_CAUSE: "cause",
}


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, the gravest first; equally grave ones in the order of their making."""
    order = list(Severity)
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.severity)))


def listed(findings: Iterable[Finding], codes: bool = False) -> tuple[tuple[str, str], ...]:
    """Return label and text of each finding once, for `Presentation` and tables, the gravest first.

    With `codes`, the code goes before the text, as in "[few-samples] 3 samples are few".
    """
    return tuple((one.label, one.coded_text if codes else one.text) for one in gravest_first(findings))


def rest_text(findings: Iterable[Finding]) -> str:
    """Return how many findings are not printed, and their codes, the most frequent first."""
    counts = Counter(str(one.code) for one in findings)
    codes = (code if number == 1 else f"{number} {code}" for code, number in counts.most_common())
    return f"{counts.total()} more with --verbose: {', '.join(codes)}"


def of_severity(findings: Iterable[Finding], *severities: Severity) -> tuple[Finding, ...]:
    """Return the findings of these severities, in their order."""
    return tuple(finding for finding in findings if finding.severity in severities)
