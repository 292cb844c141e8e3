// The backward pass of blended colours.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // The gradients in everything that blend() sees, of what it kept; in the steepness where that isn't null.
    bool blend_backward(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
                        const double* corners, const double* depths, const double* colors, int64_t height,
                        int64_t width, double steepness, int distribution, bool reversed, double shift, bool squared,
                        double cutoff, double near, double far, double sharpness, double dropped, const double* grad,
                        const double* kept, double* grad_polygons, double* grad_steepness, double* grad_corners,
                        double* grad_depths, double* grad_colors, double* grad_background, int threads);
)
