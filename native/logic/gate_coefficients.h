// What sixteen weights make of a logic gate: the coefficients of a mixture of all gates.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // coefficients (n, 4) of the mixtures of sixteen gates by the softmax of weights (n, 16), and its gradient.
    template <typename T>
    void gate_coefficients(const T* weights, T* coefficients, int64_t n, int threads);
    template <typename T>
    void gate_coefficients_backward(const T* weights, const T* grad, T* grad_weights, int64_t n, int threads);
)
