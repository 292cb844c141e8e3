// Which faces have a part in which pixels, where their colours are computed elsewhere.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // How many of the faces that `blend` would blend have a part in pixels, counts (batch, height · width); and then with
    // starts (batch, height · width), where in found those of every pixel are to be written. Faces that have parts up to
    // `dropped`, all together, are left out. With a null pointer for starts found isn't touched, otherwise counts isn't.
    // False where there is no memory.
    bool contenders(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
                    const double* corners, const double* depths, int64_t height, int64_t width, double steepness,
                    int distribution, bool reversed, double shift, bool squared, double cutoff, double near, double far,
                    double sharpness, double dropped, int64_t* counts, const int64_t* starts, int64_t* found,
                    int threads);
)
