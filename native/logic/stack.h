// Layers of relaxed logic gates, forward and backward. A gate is c0 + c1 a + c2 b + c3 ab of two rows below it.
#pragma once

#include "core/isa.h"

namespace softly {

// Half precision that only memory sees: what is computed with is float.
struct Bfloat16 {
    uint16_t bits;
};

template <typename S>
struct Computed {
    using type = S;
};
template <>
struct Computed<Bfloat16> {
    using type = float;
};

}  // namespace softly

SOFTLY_DECLARE(
    // A stack of layers over `batch` examples. `rows` is (inputs, batch); layer l has sizes[l] gates, whose inputs
    // are rows of the layer below, sizes[l] first ones and as many second ones at wires[l]; coefficients is (gates, 4) over all layers. `out` is
    // (gates of the last layer, batch), or with groups > 0 the sums of as many equal groups of them, (groups, batch).
    // Returns whether all wires lead to a row that exists and memory sufficed (1), or the first of the two failed (-1),
    // or the second (0); then nothing is written.
    template <typename S>
    int logic_forward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* const* wires,
                      const int64_t* sizes, int64_t depth, int64_t inputs, int64_t batch, int64_t groups,
                      typename Computed<S>::type* out, int threads);

    // Gradients of the same, from `grad` of the shape of `out`: grad_coefficients, and grad_rows unless it is null.
    // factors[l] multiplies the gradient in the inputs of layer l.
    template <typename S>
    int logic_backward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* const* wires,
                       const int64_t* sizes, const double* factors, int64_t depth, int64_t inputs, int64_t batch,
                       int64_t groups, const typename Computed<S>::type* grad, S* grad_rows,
                       typename Computed<S>::type* grad_coefficients, int threads);
)
