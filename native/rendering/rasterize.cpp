// Triangle by triangle within its box, in bands of rows, with the depths of a band beside it. Triangles come in order, so
// that of equal depths the first stays.
#include "rendering/rasterize.h"

#include "core/parallel.h"
#include "core/scratch.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int64_t kBand = 16;

struct Box {
    int64_t left, right, top, bottom;  // without right and bottom
};

// The first and behind the last of `count` pixels at unit distances whose centres may lie between two places; a pixel
// more to either side, for rounding.
template <typename T>
void pixels(T low, T high, T unit, int64_t count, int64_t& first, int64_t& behind) {
    const double from = double(low) / unit + count * 0.5 - 2.5, to = double(high) / unit + count * 0.5 + 2.5;
    first = from > 0 ? from < count ? static_cast<int64_t>(from) : count : 0;
    behind = to < count ? to > 0 ? static_cast<int64_t>(to) : 0 : count;
}

template <typename T>
Box box_of(const T* corner, T unit, int64_t height, int64_t width) {
    T low[2] = {0, 0}, high[2] = {0, 0};
    for (int k = 0; k < 3; ++k, corner += 3) {
        if (!(corner[2] > 0)) return {0, width, 0, height};  // behind the eye it may be anywhere
        for (int axis = 0; axis < 2; ++axis) {
            const T at = axis ? -corner[1] / corner[2] : corner[0] / corner[2];
            if (!(at - at == 0)) return {0, width, 0, height};
            low[axis] = k == 0 || at < low[axis] ? at : low[axis];
            high[axis] = k == 0 || at > high[axis] ? at : high[axis];
        }
    }
    Box box{};
    pixels(low[0], high[0], unit, width, box.left, box.right);
    pixels(low[1], high[1], unit, height, box.top, box.bottom);
    return box;
}

}  // namespace

template <typename T>
bool rasterize(const T* sides, const T* depths, const T* corners, const T* rounding, const uint8_t* usable,
               int64_t batch, int64_t faces, int64_t height, int64_t width, double near, double far, int64_t* nearest,
               int threads) {
    const T unit = T(2) / T(height < width ? height : width);
    const T slack = 64 * (sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52));  // faces that share an edge leave no gap
    const T first = T(near), last = T(far);
    Buffer<Box> boxes(batch * faces);
    if (!boxes) return false;
    parallel_for(batch * faces, 2048, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) boxes.get()[i] = box_of(corners + 9 * i, unit, height, width);
    });
    const int64_t bands = (height + kBand - 1) / kBand;
    Enough enough;
    parallel_for(batch * bands, 1, threads, [&](int64_t begin, int64_t end) {
        Buffer<T> closest(kBand * width);
        if (!closest) {
            enough.fail();
            return;
        }
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t image = piece / bands, top = piece % bands * kBand;
            const int64_t bottom = top + kBand < height ? top + kBand : height;
            int64_t* out = nearest + (image * height + top) * width;
            for (int64_t i = 0; i < (bottom - top) * width; ++i) {
                closest.get()[i] = T(__builtin_inf());
                out[i] = -1;
            }
            for (int64_t face = 0; face < faces; ++face) {
                const int64_t at = image * faces + face;
                const Box box = boxes.get()[at];
                if (!usable[at] || box.bottom <= top || box.top >= bottom) continue;
                const T* side = sides + 9 * at;
                const T* depth = depths + 3 * at;
                const int64_t from = box.top > top ? box.top : top, to = box.bottom < bottom ? box.bottom : bottom;
                for (int64_t row = from; row < to; ++row) {
                    const T y = (T(height) / 2 - T(0.5) - T(row)) * unit;
                    const T base[3] = {side[1] * y + side[2], side[4] * y + side[5], side[7] * y + side[8]};
                    for (int64_t column = box.left; column < box.right; ++column) {
                        const T x = (T(column) + T(0.5) - T(width) / 2) * unit;
                        const T a = side[0] * x + base[0], b = side[3] * x + base[1], c = side[6] * x + base[2];
                        const T total = a + b + c;
                        if (!(__builtin_fabs(total) > rounding[at])) continue;
                        const T u = a / total, v = b / total, w = c / total;
                        if (!(u >= -slack && v >= -slack && w >= -slack)) continue;
                        const T z = u * depth[0] + v * depth[1] + w * depth[2];
                        T& least = closest.get()[(row - top) * width + column];
                        if (!(z >= first && z <= last && z < least)) continue;
                        least = z;
                        out[(row - top) * width + column] = face;
                    }
                }
            }
        }
    });
    return enough;
}

template bool rasterize(const float*, const float*, const float*, const float*, const uint8_t*, int64_t, int64_t,
                        int64_t, int64_t, double, double, int64_t*, int);
template bool rasterize(const double*, const double*, const double*, const double*, const uint8_t*, int64_t, int64_t,
                        int64_t, int64_t, double, double, int64_t*, int);

}  // namespace softly::SOFTLY_ISA
