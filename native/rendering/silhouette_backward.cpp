#include "rendering/silhouette_backward.h"

#include <cstring>

#include "rendering/tiles.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Backward : Tiles<T> {
    using Base = Tiles<T>;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::Bench;
    using typename Base::S;
    using typename Base::V;

    // What the pixels of a tile need backward.
    struct Tile {
        V columns[4 * vectors], rows[4 * vectors], state[4 * vectors], factor[4 * vectors];
        bool wanted[4];
    };

    void load_tile(int64_t image, int64_t x, int64_t y, const T* grad, const T* kept, Tile& tile) const {
        const int64_t pixels = scene.height * scene.width;
        for (int block = 0; block < 4; ++block) {
            const int64_t left = x + block % 2 * kBlock, top = y + block / 2 * kBlock;
            T state[kBlock * kBlock] = {}, number[kBlock * kBlock] = {}, factor[kBlock * kBlock] = {};
            this->each_pixel(left, top, [&](int64_t pixel, int i) {
                const int64_t at = image * pixels + pixel;
                state[i] = kept[at];
                number[i] = kept[scene.batch * pixels + at];
                factor[i] = grad[at];
            });
            scene.family.scale(state, number, kBlock * kBlock, factor);
            bool wanted = false;
            for (const T one : factor) wanted |= one != 0;
            tile.wanted[block] = wanted;
            this->centres(left, top, tile.columns + block * vectors, tile.rows + block * vectors);
            for (int k = 0; k < vectors; ++k) {
                tile.state[block * vectors + k] = S::load(state + k * width);
                tile.factor[block * vectors + k] = S::load(factor + k * width);
            }
        }
    }

    template <int corners>
    struct Entries {
        static constexpr int most = kEntries * vectors;
        V d[most], p[most], q[most], f[most], number[most], line[most], over[most], along[most];
        int32_t at[most];  // the vector of the tile's pixels
        int32_t ends[kEntries];  // behind the last vector of each polygon
        int32_t faces[kEntries];
        int count = 0, polygons = 0;
    };

    // Adds to `sums` (faces, corners, 4), as of Border::Sums.
    template <int corners>
    void flush(Entries<corners>& e, const Tile& tile, Cover<T> cover, T* sums, double* steepness) const {
        cover(scene.dial, e.d, e.count, e.p, e.q, e.f);
        scene.aggregate.slopes(scene.family, e.p, e.q, e.count, e.at, tile.state, e.f);
        const T scale = T(scene.dial.steepness);
        V change = S::zero();
        int i = 0;
        for (int polygon = 0; polygon < e.polygons; ++polygon) {
            typename Border<T>::template Sums<corners> total;
            for (; i < e.ends[polygon]; ++i) {
                const V d = e.d[i], size = S::abs(d);
                V w = e.f[i] * tile.factor[e.at[i]];
                if (steepness) change += w * (scene.dial.squared ? d * size : d);
                w *= scene.dial.squared ? 2 * size * scale : S::set(scale);
                total.add(w, d, e.number[i], e.line[i], e.over[i], e.along[i]);
            }
            total.store(sums + int64_t{e.faces[polygon]} * corners * 4);
        }
        if (steepness) {
            for (int lane = 0; lane < width; ++lane) *steepness += change[lane];
        }
        e.count = e.polygons = 0;
    }

    template <int corners>
    void square(int64_t image, int64_t number, Bench& bench, const T* grad, const T* kept, T* sums,
                double* steepness) const {
        const auto cover = cover_of<T, true>(scene.dial.family);
        const T* edges = scene.edges(image);
        const int64_t across = this->squares_across();
        const int64_t left = number % across * kSquare, top = number / across * kSquare;
        const int64_t words = scene.padded / width;
        int64_t count = -1;
        this->each_tile(left, top, [&](int64_t x, int64_t y) {
            Tile tile;
            load_tile(image, x, y, grad, kept, tile);
            if (!(tile.wanted[0] || tile.wanted[1] || tile.wanted[2] || tile.wanted[3])) return;
            if (count < 0) count = this->gather_square(image, left, top, bench);
            this->list_blocks(x, y, count, tile.wanted, bench);
            Entries<corners> e;
            for (int64_t i = 0; i < count; i += width) {
                const uint32_t* listed = bench.listed + i / width;
                uint32_t bits = listed[0] | listed[words] | listed[2 * words] | listed[3 * words];
                for (; bits; bits &= bits - 1) {
                    const int lane = __builtin_ctz(bits);
                    const int32_t face = bench.near[i + lane];
                    const T* edge = edges + int64_t{face} * corners * kEdge;
                    for (int block = 0; block < 4; ++block) {
                        if (!(listed[block * words] >> lane & 1)) continue;
                        for (int k = 0; k < vectors; ++k) {
                            const int at = block * vectors + k;
                            const auto foot = Border<T>::template foot<corners>(edge, tile.columns[at], tile.rows[at]);
                            const int n = e.count++;
                            e.d[n] = foot.d;
                            e.number[n] = foot.number;
                            e.line[n] = foot.line;
                            e.over[n] = foot.over;
                            e.along[n] = foot.along;
                            e.at[n] = at;
                        }
                    }
                    e.faces[e.polygons] = face;
                    e.ends[e.polygons++] = e.count;
                    if (e.count + 4 * vectors > Entries<corners>::most || e.polygons == kEntries) {
                        flush<corners>(e, tile, cover, sums, steepness);
                    }
                }
            }
            if (e.count) flush<corners>(e, tile, cover, sums, steepness);
        });
    }
};

}  // namespace

template <typename T>
bool silhouette_backward(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                         int64_t height, int64_t width, double steepness, int distribution, bool reversed, double shift,
                         bool squared, int aggregation, double parameter, double cutoff, double error, const T* grad,
                         const T* kept, T* grad_polygons, T* grad_steepness, int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<T> scene(polygons, seen, batch, faces, corners, height, width, dial, aggregation, parameter, error,
                         threads);
    if (!scene) return false;
    const Backward<T> pass{{scene}};
    using Bench = typename Backward<T>::Bench;
    const int64_t stride = faces * corners * 4;
    const int64_t parts = pass.parts(threads, stride * sizeof(T));
    Buffer<T> sums(batch * parts * stride);
    Buffer<double> changes(batch * parts);
    if (!sums.get() || !changes.get()) return false;
    Enough enough;
    parallel_for(batch * parts, 1, threads, [&](int64_t begin, int64_t end) {
        Buffer<char> memory(Bench::bytes(scene.padded));
        if (!memory.get()) {
            enough.fail();
            return;
        }
        Bench bench(memory.get(), scene.padded);
        for (int64_t i = begin; i < end; ++i) {
            T* own = sums.get() + i * stride;
            std::memset(own, 0, sizeof(T) * stride);
            changes.get()[i] = 0;
            double* change = grad_steepness ? changes.get() + i : nullptr;
            for (int64_t square = i % parts; square < pass.squares(); square += parts) {
                if (corners == 3) {
                    pass.template square<3>(i / parts, square, bench, grad, kept, own, change);
                } else {
                    pass.template square<6>(i / parts, square, bench, grad, kept, own, change);
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
                const T* edge = scene.edges(at) + face * corners * kEdge;
                const T* own = sums.get() + at * parts * stride + face * corners * 4;
                if (corners == 3) {
                    Border<T>::template finish<3>(edge, own, parts, stride, grad_polygons + i * 6);
                } else {
                    Border<T>::template finish<6>(edge, own, parts, stride, grad_polygons + i * 12);
                }
            }
        },
        false);
    if (grad_steepness) {
        double total = 0;
        for (int64_t i = 0; i < batch * parts; ++i) total += changes.get()[i];
        *grad_steepness = static_cast<T>(total);
    }
    return true;
}

#define SOFTLY_INSTANTIATE(T)                                                                                        \
    template bool silhouette_backward<T>(const double*, const uint8_t*, int64_t, int64_t, int64_t, int64_t, int64_t, double, \
                                      int, bool, double, bool, int, double, double, double, const T*, const T*, T*,  \
                                      T*, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
