// Silhouettes of convex polygons: F(steepness * d) of every pixel and polygon, aggregated by a T-conorm.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // image[b, y, x] of polygons (batch, faces, corners, 2), corners 3 or 6; of a polygon b, f only where seen[b, f], or
    // with a null pointer everywhere. kept gets the states of the pixels, (2, batch, height, width), for the backward
    // pass. Polygons that change a pixel by no more than `error`, all together, are not looked at. False where there is
    // no memory.
    template <typename T>
    bool silhouette(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                    int64_t height, int64_t width, double steepness, int distribution, bool reversed, double shift,
                    bool squared, int aggregation, double parameter, double cutoff, double error, T* image, T* kept,
                    int threads);
)
