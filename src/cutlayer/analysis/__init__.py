"""The effect of compression at the cut: errors, gradient bias, error bounds (docs/reference/analysis.md).

Pure functions on tensors and models; models are copied, never changed. It knows codecs and split models, and
must not know training runs, data sets or the network.
"""

from cutlayer.analysis.bias import BiasTest, GradientError, bias_test, compare_gradients
from cutlayer.analysis.bounds import Conditions, alpha, bound_ms, bound_qu, bound_sp, conditions
from cutlayer.analysis.errors import CompressionError, compression_error
from cutlayer.analysis.gradients import Gradient, Probe, mean_gradient
from cutlayer.analysis.inner_product import InnerProduct, inner_product
from cutlayer.analysis.paired import PairedComparison, Spread, paired, pooled_spread
from cutlayer.analysis.rates import at_rate, rate
from cutlayer.analysis.statistics import Fit, Interval, mean_interval, power_law, share_interval

__all__ = [
    "BiasTest",
    "CompressionError",
    "Conditions",
    "Fit",
    "Gradient",
    "GradientError",
    "InnerProduct",
    "Interval",
    "PairedComparison",
    "Probe",
    "Spread",
    "alpha",
    "at_rate",
    "bias_test",
    "bound_ms",
    "bound_qu",
    "bound_sp",
    "compare_gradients",
    "compression_error",
    "conditions",
    "inner_product",
    "mean_gradient",
    "mean_interval",
    "paired",
    "pooled_spread",
    "power_law",
    "rate",
    "share_interval",
]
