// The backward pass of silhouettes.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // The gradient in the polygons, and where that isn't null in the steepness, of what silhouette() kept.
    template <typename T>
    bool silhouette_backward(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                             int64_t height, int64_t width, double steepness, int distribution, bool reversed,
                             double shift, bool squared, int aggregation, double parameter, double cutoff,
                             double error, const T* grad, const T* kept, T* grad_polygons, T* grad_steepness,
                             int threads);
)
