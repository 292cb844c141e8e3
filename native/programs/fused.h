// Relaxed dynamic programming over grids: edit distances and shortest paths.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // Distances (n + 1, m + 1, batch) of all prefixes of two strings, where replacing letter i by letter j costs
    // costs[i, j] of (n, m, batch), and inserting or deleting one costs 1. The minimum is the mean under the softmin at
    // `steepness`. False without memory, as for all that follow.
    template <typename T>
    bool levenshtein(const T* costs, T* distances, int64_t n, int64_t m, int64_t batch, double steepness, int threads);

    template <typename T>
    bool levenshtein_backward(const T* costs, const T* grad, T* grad_costs, int64_t n, int64_t m, int64_t batch,
                              double steepness, int threads);

    // The path and the distances (2, h w, batch) of a grid whose cells cost costs (h w, batch) to enter, after `rounds`
    // rounds; see shortest_path_program in softly/algorithms/library/graphs.py, which this runs for a whole batch.
    template <typename T>
    bool shortest_path(const T* costs, T* out, int64_t h, int64_t w, int64_t rounds, int64_t batch, double steepness,
                       int threads);

    template <typename T>
    bool shortest_path_backward(const T* costs, const T* grad, T* grad_costs, int64_t h, int64_t w, int64_t rounds,
                                int64_t batch, double steepness, int threads);
)
