#include "rendering/blend.h"

#include "rendering/layers.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Forward : Layers<T> {
    using Base = Layers<T>;
    using Base::Base;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::Bench;
    using typename Base::S;
    using typename Base::V;

    // The pixels of a block: the greatest exponent so far, and by exp of it the sums of shares and colours.
    struct Pixels {
        V columns[vectors], rows[vectors], top[vectors], total[vectors], colors[3][vectors];
    };

    struct Entries {
        V d[kEntries * vectors], p[kEntries * vectors], q[kEntries * vectors];
        int32_t faces[kEntries];
        int count = 0;
    };

    void flush(int64_t image, Entries& e, Pixels& pixels) const {
        this->cover(scene.dial, e.d, e.count * vectors, e.p, e.q, nullptr);
        for (int entry = 0; entry < e.count; ++entry) {
            const int64_t at = image * scene.faces + e.faces[entry];
            for (int k = 0; k < vectors; ++k) {
                const V log = this->log_of(e.p[entry * vectors + k]);
                if (!S::bits(log > T(0.5) * kNowhere<T>)) continue;
                const Surface<T> surface(this->corners + 9 * at, this->depths + 3 * at, this->range, pixels.columns[k],
                                         pixels.rows[k]);
                const V value = log + this->sharpness * (surface.closeness - T(kBehind));
                const V top = S::max(pixels.top[k], value);
                const V fade = S::exp(pixels.top[k] - top), share = S::exp(value - top);
                pixels.top[k] = top;
                pixels.total[k] = pixels.total[k] * fade + share;
                for (int c = 0; c < 3; ++c) {
                    pixels.colors[c][k] = pixels.colors[c][k] * fade + share * surface.color(this->colors + 9 * at, c);
                }
            }
        }
        e.count = 0;
    }

    template <int sides>
    void block(int64_t image, int64_t x, int64_t y, int64_t count, Bench& bench, const T* background, T* out,
               T* kept) const {
        const int64_t size = scene.height * scene.width;
        const T* edges = scene.edges(image);
        Pixels pixels;
        this->centres(x, y, pixels.columns, pixels.rows);
        T values[3][kBlock * kBlock] = {};
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            for (int c = 0; c < 3; ++c) values[c][i] = background[(image * 3 + c) * size + pixel];
        });
        for (int k = 0; k < vectors; ++k) {
            pixels.top[k] = S::zero();
            pixels.total[k] = S::set(1);
            for (int c = 0; c < 3; ++c) pixels.colors[c][k] = S::load(values[c] + k * width);
        }
        if (count) {
            Entries e;
            const auto add = [&](int64_t i) {
                const int32_t face = bench.near[i];
                const T* edge = edges + int64_t{face} * sides * kEdge;
                for (int k = 0; k < vectors; ++k) {
                    e.d[e.count * vectors + k] =
                        Border<T>::template distance<sides>(edge, pixels.columns[k], pixels.rows[k]);
                }
                e.faces[e.count++] = face;
            };
            const int64_t first = this->bound_block(x, y, count, bench);
            add(first);
            flush(image, e, pixels);
            T limit = this->least(pixels.top, vectors) - this->slack;
            for (int64_t i = 0; i < count; i += width) {
                for (uint32_t bits = S::bits(S::load(bench.most + i) >= limit); bits; bits &= bits - 1) {
                    const int64_t near = i + __builtin_ctz(bits);
                    if (near == first) continue;
                    add(near);
                    if (e.count < kEntries) continue;
                    flush(image, e, pixels);
                    limit = this->least(pixels.top, vectors) - this->slack;
                }
            }
            if (e.count) flush(image, e, pixels);
        }
        T state[2][kBlock * kBlock];
        for (int k = 0; k < vectors; ++k) {
            S::store(state[0] + k * width, pixels.top[k]);
            S::store(state[1] + k * width, pixels.total[k]);
            for (int c = 0; c < 3; ++c) S::store(values[c] + k * width, pixels.colors[c][k] / pixels.total[k]);
        }
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            for (int c = 0; c < 3; ++c) {
                out[(image * 3 + c) * size + pixel] = values[c][i];
                kept[((2 + c) * scene.batch + image) * size + pixel] = values[c][i];
            }
            for (int n = 0; n < 2; ++n) kept[(n * scene.batch + image) * size + pixel] = state[n][i];
        });
    }

    template <int sides>
    void square(int64_t image, int64_t number, Bench& bench, const T* background, T* out, T* kept) const {
        const int64_t across = this->squares_across();
        const int64_t left = number % across * kSquare, top = number / across * kSquare;
        const int64_t count = this->gather_square(image, left, top, bench);
        this->each_block(left, top,
                         [&](int64_t x, int64_t y) { block<sides>(image, x, y, count, bench, background, out, kept); });
    }
};

}  // namespace

bool blend(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
           const double* corners, const double* depths, const double* colors, const double* background, int64_t height,
           int64_t width, double steepness, int distribution, bool reversed, double shift, bool squared, double cutoff,
           double near, double far, double sharpness, double dropped, double* image, double* kept, int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<double> scene(polygons, seen, batch, faces, sides, height, width, dial, total, 1, dropped, threads);
    Buffer<double> reach(batch * 2 * scene.padded);
    if (!scene || !reach) return false;
    const Forward<double> pass(scene, corners, depths, colors, seen, Range(near, far), sharpness, dropped, reach.get());
    using Bench = typename Forward<double>::Bench;
    return pass.each_square<Bench>(threads, [&](int64_t at, int64_t square, Bench& bench) {
        if (sides == 3) {
            pass.template square<3>(at, square, bench, background, image, kept);
        } else {
            pass.template square<6>(at, square, bench, background, image, kept);
        }
    });
}

}  // namespace softly::SOFTLY_ISA
