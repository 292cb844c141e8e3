// The distance changes as the closest point of the border moves: with its edge from a to b at the share t it is
// -(1 - t) r of a and -t r of b for the unit vector r from there to the pixel, negative outside. In the edge's own frame r
// is (line, over) / d, line along its normal and over along its direction, 0 but beyond its ends. So nothing is lost by
// cancellation where d is small, and at d = 0 the normal is taken. What is summed over pixels is in this frame.
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

    // Adds to `sums` (faces, corners, 4): of every edge the sums of line and over by d, and both times along.
    template <int corners>
    void flush(Entries<corners>& e, const Tile& tile, Cover<T> cover, T* sums, double* steepness) const {
        cover(scene.dial, e.d, e.count, e.p, e.q, e.f);
        scene.aggregate.slopes(scene.family, e.p, e.q, e.count, e.at, tile.state, e.f);
        const T scale = T(scene.dial.steepness);
        V change = S::zero();
        int i = 0;
        for (int polygon = 0; polygon < e.polygons; ++polygon) {
            V total[corners][4];
            for (auto& edge : total) {
                for (V& sum : edge) sum = S::zero();
            }
            for (; i < e.ends[polygon]; ++i) {
                const V d = e.d[i], size = S::abs(d);
                V w = e.f[i] * tile.factor[e.at[i]];
                if (steepness) change += w * (scene.dial.squared ? d * size : d);
                w *= scene.dial.squared ? 2 * size * scale : S::set(scale);
                const auto on = d == 0;
                const V inverse = -w / (on ? S::set(1) : d);
                const V line = on ? -w : inverse * e.line[i], over = on ? S::zero() : inverse * e.over[i];
                const V line_along = line * e.along[i], over_along = over * e.along[i];
                for (int k = 0; k < corners; ++k) {
                    const auto here = e.number[i] == T(k);
                    total[k][0] = here ? total[k][0] + line : total[k][0];
                    total[k][1] = here ? total[k][1] + line_along : total[k][1];
                    total[k][2] = here ? total[k][2] + over : total[k][2];
                    total[k][3] = here ? total[k][3] + over_along : total[k][3];
                }
            }
            T* to = sums + int64_t{e.faces[polygon]} * corners * 4;
            for (int k = 0; k < corners; ++k) {
                S::add_sums(total[k][0], total[k][1], total[k][2], total[k][3], to + 4 * k, to + 4 * k + 2);
            }
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

    // From the edges' frames to the corners.
    template <int corners>
    static void finish(const T* edge, const T* sums, int64_t parts, int64_t stride, T* grad) {
        for (int k = 0; k < 2 * corners; ++k) grad[k] = 0;
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            T total[4] = {};
            for (int64_t part = 0; part < parts; ++part) {
                for (int i = 0; i < 4; ++i) total[i] += sums[part * stride + 4 * k + i];
            }
            const T inverse = edge[kLength] > 0 ? 1 / edge[kLength] : T(0);
            const T line[2] = {total[0] - total[1] * inverse, total[1] * inverse};
            const T over[2] = {total[2] - total[3] * inverse, total[3] * inverse};
            for (int end = 0; end < 2; ++end) {
                T* to = grad + 2 * ((k + end) % corners);
                to[0] += line[end] * edge[kNx] + over[end] * edge[kTx];
                to[1] += line[end] * edge[kNy] + over[end] * edge[kTy];
            }
        }
    }
};

}  // namespace

template <typename T>
bool silhouette_backward(const T* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                         int64_t height, int64_t width, double steepness, int distribution, bool reversed, double shift,
                         bool squared, int aggregation, double parameter, double cutoff, const T* grad, const T* kept,
                         T* grad_polygons, T* grad_steepness, int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<T> scene(polygons, seen, batch, faces, corners, height, width, dial, aggregation, parameter, threads);
    if (!scene) return false;
    const Backward<T> pass{{scene}};
    using Bench = typename Backward<T>::Bench;
    // An image is the work of so many parts, every one with sums of its own: which squares it takes doesn't depend on
    // who is done first, so that the same call has the same result.
    const int64_t parts = threads > 1 && batch < 4 * threads ? threads : 1;
    const int64_t stride = faces * corners * 4;
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
    parallel_for(batch * faces, 2048, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t at = i / faces, face = i % faces;
            const T* edge = scene.edges(at) + face * corners * kEdge;
            const T* own = sums.get() + at * parts * stride + face * corners * 4;
            if (corners == 3) {
                Backward<T>::template finish<3>(edge, own, parts, stride, grad_polygons + i * 6);
            } else {
                Backward<T>::template finish<6>(edge, own, parts, stride, grad_polygons + i * 12);
            }
        }
    });
    if (grad_steepness) {
        double total = 0;
        for (int64_t i = 0; i < batch * parts; ++i) total += changes.get()[i];
        *grad_steepness = static_cast<T>(total);
    }
    return true;
}

#define SOFTLY_INSTANTIATE(T)                                                                                        \
    template bool silhouette_backward(const T*, const uint8_t*, int64_t, int64_t, int64_t, int64_t, int64_t, double, \
                                      int, bool, double, bool, int, double, double, const T*, const T*, T*, T*, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
