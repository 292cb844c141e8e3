// Straight-line programs of elementwise operations over a batch, and their reverse pass.
#pragma once

#include "core/isa.h"

namespace softly {

// The operations, by their names; Python looks up their numbers.
#define SOFTLY_TAPE_OPERATIONS(X) \
    X(add) X(sub) X(mul) X(div) X(neg) X(lerp) X(sigmoid) X(exp) X(log) X(sqrt) X(tanh) X(abs) X(minimum) X(maximum) \
    X(less) X(less_equal) X(equal) X(select) X(atan2) X(sin) X(cos) X(ndtr) X(floor) X(sign) X(constant)             \
    X(log1p) X(expm1) X(pow)

enum class Operation : int {
#define SOFTLY_NAME(name) name,
    SOFTLY_TAPE_OPERATIONS(SOFTLY_NAME)
#undef SOFTLY_NAME
};

inline constexpr const char* operation_names[] = {
#define SOFTLY_NAME(name) #name,
    SOFTLY_TAPE_OPERATIONS(SOFTLY_NAME)
#undef SOFTLY_NAME
};

// One instruction: slot `to` from the slots a, b, c. Bit i of `active` says whether the i-th operand needs a gradient.
struct Instruction {
    int32_t operation, a, b, c, active;
};

}  // namespace softly

SOFTLY_DECLARE_WIDE(
    // Slots are rows of the batch: first the inputs, then the constants, then one for each instruction, in order.
    // x is (inputs, batch), out is (outputs, batch) and takes the slots that `outputs` lists. False without memory.
    template <typename T>
    bool tape(const Instruction* code, int64_t instructions, const double* constants, int64_t num_constants,
              const int32_t* outputs, int64_t num_outputs, const T* x, int64_t inputs, T* out, int64_t batch,
              int threads);

    // The gradient in x for the gradient `grad` of the outputs; runs the program again.
    template <typename T>
    bool tape_backward(const Instruction* code, int64_t instructions, const double* constants, int64_t num_constants,
                       const int32_t* outputs, int64_t num_outputs, const T* x, int64_t inputs, const T* grad,
                       T* grad_x, int64_t batch, int threads);
)
