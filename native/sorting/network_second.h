// Second derivatives of the matrices of relaxed comparator networks.
#pragma once

#include "core/isa.h"
#include "sorting/plan.h"

SOFTLY_DECLARE_WIDE(
    // Of the matrices P of x[b, n], for gradients grad[b, n, n] of P and directions u[b, n]: hessian[b, n], the
    // derivative along u of the gradient of <grad, P> in x, and pushed[b, n, n], the derivative of P along u. Knows the
    // gaussian, the logistic, the hyperbolic secant and the Cauchy distribution; the plan has all wires for outputs.
    // False without memory.
    template <typename T>
    bool network_second(const SortingPlan* plan, int distribution, double steepness, const T* x, const T* grad,
                        const T* u, T* hessian, T* pushed, int64_t batch, int threads);
)
