// Colours of pixels, blended over depth: the softmax over how close faces are, weighted by how much they cover.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // image[b, c, y, x] of polygons (batch, faces, sides, 2), sides 3 or 6, which are what is seen of triangles with
    // homogeneous corners (batch, faces, 3, 3), depths (batch, faces, 3) and colours (batch, faces, 3, 3), before a
    // background (batch, 3, height, width); of a face only where seen[b, f], or with a null pointer everywhere. kept gets
    // what the backward pass needs, (5, batch, height, width). Shares up to `dropped`, all together, are not looked at.
    // False where there is no memory.
    bool blend(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
               const double* corners, const double* depths, const double* colors, const double* background,
               int64_t height, int64_t width, double steepness, int distribution, bool reversed, double shift,
               bool squared, double cutoff, double near, double far, double sharpness, double dropped, double* image,
               double* kept, int threads);
)
