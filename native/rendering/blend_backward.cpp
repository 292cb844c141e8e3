// With a face's share s of a pixel, its colour c and that of the pixel C, a gradient g of the pixel is s g of c and
// s g (c - C) of the exponent, log p + sharpness * closeness.
#include "rendering/blend_backward.h"

#include <cstring>

#include "rendering/layers.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int kRest = 9 + 3 + 9;  // sums of a face behind those of its edges: corners, depths, colours

template <typename T>
struct Backward : Layers<T> {
    using Base = Layers<T>;
    using Base::Base;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::Bench;
    using typename Base::S;
    using typename Base::V;

    struct Pixels {
        V columns[vectors], rows[vectors], top[vectors], scale[vectors], colors[3][vectors], grad[3][vectors];
    };

    struct Entries {
        V d[kEntries * vectors], p[kEntries * vectors], q[kEntries * vectors], f[kEntries * vectors];
        typename Border<T>::Foot feet[kEntries * vectors];
        int32_t faces[kEntries];
        int count = 0;
    };

    // Adds to `sums` (faces, 4 sides + kRest).
    template <int sides>
    void flush(int64_t image, Entries& e, const Pixels& pixels, T* sums, double* steepness) const {
        this->cover_slope(scene.dial, e.d, e.count * vectors, e.p, e.q, e.f);
        const T dial = T(scene.dial.steepness);
        V change = S::zero();
        for (int entry = 0; entry < e.count; ++entry) {
            const int64_t at = image * scene.faces + e.faces[entry];
            const T* colors = this->colors + 9 * at;
            typename Border<T>::template Sums<sides> border;
            V rest[kRest];
            for (V& sum : rest) sum = S::zero();
            bool some = false;
            for (int k = 0; k < vectors; ++k) {
                const int i = entry * vectors + k;
                const V log = this->log_of(e.p[i]);
                const auto there = log > T(0.5) * kNowhere<T>;
                if (!S::bits(there)) continue;
                some = true;
                const V x = pixels.columns[k], y = pixels.rows[k];
                const Surface<T> surface(this->corners + 9 * at, this->depths + 3 * at, this->range, x, y);
                const V value = log + this->sharpness * (surface.closeness - T(kBehind));
                const V share = S::exp(value - pixels.top[k]) * pixels.scale[k];
                V by_value = S::zero(), by_color[3];
                for (int c = 0; c < 3; ++c) {
                    by_color[c] = share * pixels.grad[c][k];
                    by_value += by_color[c] * (surface.color(colors, c) - pixels.colors[c][k]);
                }
                V by_weight[3], by_corner[9], by_depth[3];
                for (int n = 0; n < 3; ++n) {
                    by_weight[n] = S::zero();
                    for (int c = 0; c < 3; ++c) {
                        by_weight[n] += by_color[c] * colors[3 * n + c];
                        rest[12 + 3 * n + c] += by_color[c] * surface.weight[n];
                    }
                }
                surface.pull(this->depths + 3 * at, this->range, x, y, by_weight, by_value * this->sharpness, by_corner,
                             by_depth);
                for (int n = 0; n < 9; ++n) rest[n] += by_corner[n];
                for (int n = 0; n < 3; ++n) rest[9 + n] += by_depth[n];
                const V d = e.d[i], size = S::abs(d);
                V w = there ? by_value * e.f[i] / (there ? e.p[i] : S::set(1)) : S::zero();
                if (steepness) change += w * (scene.dial.squared ? d * size : d);
                w *= scene.dial.squared ? 2 * size * dial : S::set(dial);
                const auto& foot = e.feet[i];
                border.add(w, d, foot.number, foot.line, foot.over, foot.along);
            }
            if (!some) continue;
            T* to = sums + int64_t{e.faces[entry]} * (4 * sides + kRest);
            border.store(to);
            to += 4 * sides;
            for (int n = 0; n + 1 < kRest; n += 2) S::add(to + n, S::sums(rest[n], rest[n + 1]));
            to[kRest - 1] += S::sums(rest[kRest - 1], S::zero())[0];
        }
        if (steepness) {
            for (int lane = 0; lane < width; ++lane) *steepness += change[lane];
        }
        e.count = 0;
    }

    template <int sides>
    void block(int64_t image, int64_t x, int64_t y, int64_t count, Bench& bench, const T* grad, const T* kept,
               T* grad_background, T* sums, double* steepness) const {
        const int64_t size = scene.height * scene.width;
        const T* edges = scene.edges(image);
        T values[8][kBlock * kBlock] = {};  // top, total, colours, gradients
        for (int i = 0; i < kBlock * kBlock; ++i) values[0][i] = -kNowhere<T>, values[1][i] = 1;  // beyond the image
        bool wanted = false;
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            for (int n = 0; n < 5; ++n) values[n][i] = kept[(n * scene.batch + image) * size + pixel];
            for (int c = 0; c < 3; ++c) {
                values[5 + c][i] = grad[(image * 3 + c) * size + pixel];
                wanted |= values[5 + c][i] != 0;
            }
        });
        Pixels pixels;
        for (int k = 0; k < vectors; ++k) {
            pixels.top[k] = S::load(values[0] + k * width);
            pixels.scale[k] = 1 / S::load(values[1] + k * width);
            const V share = S::exp(-pixels.top[k]) * pixels.scale[k];
            for (int c = 0; c < 3; ++c) {
                pixels.colors[c][k] = S::load(values[2 + c] + k * width);
                pixels.grad[c][k] = S::load(values[5 + c] + k * width);
                S::store(values[5 + c] + k * width, share * pixels.grad[c][k]);
            }
        }
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            for (int c = 0; c < 3; ++c) grad_background[(image * 3 + c) * size + pixel] = values[5 + c][i];
        });
        if (!wanted || !count) return;
        this->centres(x, y, pixels.columns, pixels.rows);
        this->bound_block(x, y, count, bench);
        const T limit = this->least(pixels.top, vectors) - this->slack;
        Entries e;
        for (int64_t i = 0; i < count; i += width) {
            for (uint32_t bits = S::bits(S::load(bench.most + i) >= limit); bits; bits &= bits - 1) {
                const int32_t face = bench.near[i + __builtin_ctz(bits)];
                const T* edge = edges + int64_t{face} * sides * kEdge;
                for (int k = 0; k < vectors; ++k) {
                    const int n = e.count * vectors + k;
                    e.feet[n] = Border<T>::template foot<sides>(edge, pixels.columns[k], pixels.rows[k]);
                    e.d[n] = e.feet[n].d;
                }
                e.faces[e.count++] = face;
                if (e.count == kEntries) flush<sides>(image, e, pixels, sums, steepness);
            }
        }
        if (e.count) flush<sides>(image, e, pixels, sums, steepness);
    }

    template <int sides>
    void square(int64_t image, int64_t number, Bench& bench, const T* grad, const T* kept, T* grad_background, T* sums,
                double* steepness) const {
        const int64_t across = this->squares_across();
        const int64_t left = number % across * kSquare, top = number / across * kSquare;
        const int64_t count = this->gather_square(image, left, top, bench);
        this->each_block(left, top, [&](int64_t x, int64_t y) {
            block<sides>(image, x, y, count, bench, grad, kept, grad_background, sums, steepness);
        });
    }
};

}  // namespace

bool blend_backward(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
                    const double* corners, const double* depths, const double* colors, int64_t height, int64_t width,
                    double steepness, int distribution, bool reversed, double shift, bool squared, double cutoff,
                    double near, double far, double sharpness, double dropped, const double* grad, const double* kept,
                    double* grad_polygons, double* grad_steepness, double* grad_corners, double* grad_depths,
                    double* grad_colors, double* grad_background, int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<double> scene(polygons, seen, batch, faces, sides, height, width, dial, total, 1, dropped, threads);
    Buffer<double> reach(batch * 2 * scene.padded);
    if (!scene || !reach) return false;
    const Backward<double> pass(scene, corners, depths, colors, seen, Range(near, far), sharpness, dropped,
                                reach.get());
    using Bench = typename Backward<double>::Bench;
    const int64_t each = 4 * sides + kRest, stride = faces * each;
    const int64_t parts = pass.parts(threads, stride * sizeof(double));
    Buffer<double> sums(batch * parts * stride);
    Buffer<double> changes(batch * parts);
    if (!sums || !changes) return false;
    Enough enough;
    parallel_for(batch * parts, 1, threads, [&](int64_t begin, int64_t end) {
        Buffer<char> memory(Bench::bytes(scene.padded));
        if (!memory) {
            enough.fail();
            return;
        }
        Bench bench(memory.get(), scene.padded);
        for (int64_t i = begin; i < end; ++i) {
            double* own = sums.get() + i * stride;
            std::memset(own, 0, sizeof(double) * stride);
            changes.get()[i] = 0;
            double* change = grad_steepness ? changes.get() + i : nullptr;
            for (int64_t square = i % parts; square < pass.squares(); square += parts) {
                if (sides == 3) {
                    pass.template square<3>(i / parts, square, bench, grad, kept, grad_background, own, change);
                } else {
                    pass.template square<6>(i / parts, square, bench, grad, kept, grad_background, own, change);
                }
            }
        }
    });
    if (!enough) return false;
    parallel_for(
        batch * faces, kFacesAtOnce, threads,
        [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t at = i / faces, face = i % faces;
                const double* edge = scene.edges(at) + face * sides * kEdge;
                const double* own = sums.get() + at * parts * stride + face * each;
                if (sides == 3) {
                    Border<double>::template finish<3>(edge, own, parts, stride, grad_polygons + i * 6);
                } else {
                    Border<double>::template finish<6>(edge, own, parts, stride, grad_polygons + i * 12);
                }
                double rest[kRest] = {};
                for (int64_t part = 0; part < parts; ++part) {
                    for (int n = 0; n < kRest; ++n) rest[n] += own[part * stride + 4 * sides + n];
                }
                std::memcpy(grad_corners + 9 * i, rest, 9 * sizeof(double));
                std::memcpy(grad_depths + 3 * i, rest + 9, 3 * sizeof(double));
                std::memcpy(grad_colors + 9 * i, rest + 12, 9 * sizeof(double));
            }
        },
        false);
    if (grad_steepness) {
        double total = 0;
        for (int64_t i = 0; i < batch * parts; ++i) total += changes.get()[i];
        *grad_steepness = total;
    }
    return true;
}

}  // namespace softly::SOFTLY_ISA
