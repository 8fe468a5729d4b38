"""Clipped sums of per-example gradients from one backward pass.

`record` keeps, for every layer that owns parameters, what went in and where in the
graph it came out while a per-example loss was computed. One call of autograd then
gives, for example i, the gradient ``e_i`` of its loss at every output; with the input
``a_i`` this determines the gradient with respect to the layer's parameters, and a
`LayerGradients` answers five questions about it, of a linear layer without forming it:

- ``squared_norms``: ``|g_i|^2``, and a margin that covers rounding;
- ``unit_norms``: sum of the L1 norms of g_i's rows, and the squared L2 norm of every
  row over its L1 norm;
- ``unit_factors``: what every row of g_i is clipped by, which follows from these;
- ``weighted_sum``: sum_i s_i g_i, with one factor per example or per (example, row);
- ``per_example``: g_i itself, for a few rows at a time.

`register_rule` adds the `LayerGradients` of a layer; a layer without one goes through
`torch.func`.

Formal guarantees
-----------------
Rows whose factor is zero contribute exactly zero whatever they hold, inf and NaN
included. A row with an entry that counts beyond `LARGEST`, or not finite, is not
`finite`; callers give it the factor zero. Norms never fall short of the true norm by
more than their margin and the relative margin of `clipping`. Layers whose first axis is
not the batch are refused, and so are sums without one factor per row. Of a layer with a
rule of a user's own all of this holds as far as the rule is right (`privacy.trial`).

Sums over rows are computed in float64, except on a CPU for linear layers that are used
once and for thinned gradients.
A clipped row adds its gradient, of norm at most C, or the parts of it, one per use of
the layer, which can cancel; margins keep the sum of the parts' norms below
`LARGEST_SUM` times C. In whatever order, a float64 sum of K addends is off by less than
K 2^-53 times the sum of their norms. At most `ADDENDS` are added up at once, and these
sums then, so that n rows of T parts are added up with an error below ::

    n k (ADDENDS + n T / ADDENDS) 2^-53 C,    k = LARGEST_SUM, or 1 at T = 1:

2e-9 C for 4,096 rows at T = 1, 2e-7 C at T = 8.

These add up b = `BLOCK` rows in float32, the sums of `PAIRED` blocks by pairs in
float32 (thinned gradients and biases do not), and what comes of it in float64. An
addition of float32 is off by 2^-24 times its result. In whatever order, and be it
another one for each entry, the b - 1 additions of a block hold 2, 3, ..., b rows at
most; results that hold j of b rows, not the same for every entry, have norm at most
sqrt(j b) C (Cauchy and Schwarz). The b products of a block are rounded once each, and
it takes part in additions of all entries of 2b, 4b and 8b rows, of norm at most j C for
j rows.
Rows have places (`sampling`), so that one row more changes one block, and a second one
where it moves another row to the last array; what else is added up is the same to the
last bit. Each of the two is rounded twice, with the row and without it: the sum moves
by less than C plus ::

    2 * 2 (sqrt(2 b) + sqrt(3 b) + ... + sqrt(b b) + b + 14 b) 2^-24 C = 8.86e-4 C

at b = 64. Clipping leaves 9e-4 C unused. The rest is more than the errors of two sums
in float64 of up to a million rows at T = 1, or 100,000 at T = 8.

Edge cases: no rows give zero sums; a layer used T times in one forward pass has one
`LayerGradients` of T positions.
"""

from dpgenerative.privacy.gradients.convolution import ConvGradients
from dpgenerative.privacy.gradients.core import (
    LayerGradients,
    free_coordinates,
    layer_gradients,
    record,
    register_rule,
)
from dpgenerative.privacy.gradients.generic import GenericGradients
from dpgenerative.privacy.gradients.linear import (
    LinearGradients,
    LowRankGradients,
    LUGradients,
)

__all__ = [
    "ConvGradients",
    "GenericGradients",
    "LUGradients",
    "LayerGradients",
    "LinearGradients",
    "LowRankGradients",
    "free_coordinates",
    "layer_gradients",
    "record",
    "register_rule",
]
