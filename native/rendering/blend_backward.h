// The backward pass of blended colours.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // The gradients in everything that blend() sees, of what it kept; in the steepness where that isn't null.
    template <typename T>
    bool blend_backward(const T* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
                        const T* corners, const T* depths, const T* colors, int64_t height, int64_t width,
                        double steepness, int distribution, bool reversed, double shift, bool squared, double cutoff,
                        double near, double far, double sharpness, const T* grad, const T* kept, T* grad_polygons,
                        T* grad_steepness, T* grad_corners, T* grad_depths, T* grad_colors, T* grad_background,
                        int threads);
)
