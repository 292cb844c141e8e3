// Which triangle is nearest at a pixel.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // nearest[b, y, x] of triangles (batch, faces), -1 where there is none: of those that are usable and that contain the
    // pixel's centre the first one with the least depth between near and far. corners (batch, faces, 3, 3) are homogeneous,
    // sides (batch, faces, 3, 3) the volumes per pixel (x, y, 1) opposite to each corner, depths (batch, faces, 3) those of
    // the corners; a triangle whose volume is no more than its rounding (batch, faces) has no inside. False where there is
    // no memory.
    template <typename T>
    bool rasterize(const T* sides, const T* depths, const T* corners, const T* rounding, const uint8_t* usable,
                   int64_t batch, int64_t faces, int64_t height, int64_t width, double near, double far,
                   int64_t* nearest, int threads);
)
