"""The public names of `qprof_onnx`, and where each is defined, for the lazy loader and for checkers."""

from .profiles.base.errors import (
    ConfigError as ConfigError,
)
from .profiles.base.errors import (
    DataError as DataError,
)
from .profiles.base.errors import (
    ModelError as ModelError,
)
from .profiles.base.errors import (
    PlanError as PlanError,
)
from .profiles.base.errors import (
    ProfileError as ProfileError,
)
from .profiles.base.errors import (
    QprofError as QprofError,
)
from .profiles.base.version import __version__ as __version__
from .profiles.records.merge import merge_files as merge_files
from .profiles.records.profile import (
    Profile as Profile,
)
from .profiles.records.profile import (
    TensorProfile as TensorProfile,
)
from .profiles.records.store import (
    load_profile as load_profile,
)
from .profiles.records.store import (
    save_profile as save_profile,
)
from .quantizer.evaluation.evaluate import (
    Evaluation as Evaluation,
)
from .quantizer.evaluation.evaluate import (
    evaluate as evaluate,
)
from .quantizer.evaluation.gates import Gate as Gate
from .quantizer.evaluation.layers import (
    LayerReport as LayerReport,
)
from .quantizer.evaluation.layers import (
    compare_layers as compare_layers,
)
from .quantizer.pipeline.drift_check import diff as diff
from .quantizer.pipeline.explanation import explain as explain
from .quantizer.pipeline.profiling import (
    dump_profile as dump_profile,
)
from .quantizer.pipeline.profiling import (
    instrument as instrument,
)
from .quantizer.pipeline.quantization import (
    QuantizeResult as QuantizeResult,
)
from .quantizer.pipeline.quantization import (
    Summary as Summary,
)
from .quantizer.pipeline.quantization import (
    quantize as quantize,
)
from .quantizer.pipeline.run_settings import RunSettings as RunSettings
from .quantizer.plan.plan import QuantPlan as QuantPlan
from .quantizer.plan.store import (
    load_plan as load_plan,
)
from .quantizer.plan.store import (
    save_plan as save_plan,
)
from .quantizer.speed.float_fallback import SpeedDemand as SpeedDemand
from .quantizer.targets.config import QuantConfig as QuantConfig
from .quantizer.targets.loading import (
    load_recipe as load_recipe,
)
from .quantizer.targets.packaged import (
    target_names as target_names,
)
from .quantizer.targets.target import (
    Recipe as Recipe,
)
from .quantizer.targets.target import (
    Target as Target,
)
from .quantizer.tuning.evidence import Evidence as Evidence
from .quantizer.tuning.result import (
    Promise as Promise,
)
from .quantizer.tuning.result import (
    TuneResult as TuneResult,
)
from .quantizer.tuning.sensitivity import (
    Sensitivities as Sensitivities,
)
from .quantizer.tuning.sensitivity import (
    sensitivity as sensitivity,
)
from .quantizer.tuning.tune import tune as tune
