// Shortest paths through grids of node weights.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // path[b, h, w] is 1 on the shortest path from the first to the last cell of costs[b, h, w], 0 elsewhere; a step
    // goes to one of the 8 cells around. Of paths of the same cost it takes that which has the fewest cells at every
    // cell, then that through the first cell. Costs below 0 count as 0 where `clamped`. NaN fills the path of a grid
    // that has a negative cost otherwise, a NaN, or no path of finite cost.
    template <typename T>
    bool grid_path(const T* costs, T* path, int64_t batch, int64_t h, int64_t w, bool clamped, int threads);
)
