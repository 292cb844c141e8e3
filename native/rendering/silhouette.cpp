#include "rendering/silhouette.h"

#include "rendering/tiles.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Forward : Tiles<T> {
    using Base = Tiles<T>;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::Bench;
    using typename Base::S;
    using typename Base::V;

    template <int corners>
    void block(int64_t image, int64_t x, int64_t y, int part, int64_t count, const Bench& bench, Cover<T> cover, T* out,
               T* kept) const {
        const T* edges = scene.edges(image);
        V columns[vectors], rows[vectors], state[vectors], number[vectors];
        V d[kEntries * vectors], p[kEntries * vectors], q[kEntries * vectors];
        this->centres(x, y, columns, rows);
        for (int k = 0; k < vectors; ++k) {
            state[k] = S::set(scene.family.neutral());
            number[k] = S::zero();
        }
        int entries = 0;
        const auto flush = [&] {
            cover(scene.dial, d, entries * vectors, p, q, nullptr);
            scene.aggregate.gather(scene.family, p, q, entries, vectors, state, number);
            entries = 0;
        };
        const uint32_t* listed = bench.listed + part * (scene.padded / width);
        for (int64_t i = 0; i < count; i += width) {
            for (uint32_t bits = listed[i / width]; bits; bits &= bits - 1) {
                const T* edge = edges + int64_t{bench.near[i + __builtin_ctz(bits)]} * corners * kEdge;
                for (int k = 0; k < vectors; ++k) {
                    d[entries * vectors + k] = Border<T>::template distance<corners>(edge, columns[k], rows[k]);
                }
                if (++entries == kEntries) flush();
            }
        }
        if (entries) flush();
        T values[2][kBlock * kBlock];
        for (int k = 0; k < vectors; ++k) {
            S::store(values[0] + k * width, state[k]);
            S::store(values[1] + k * width, number[k]);
        }
        const int64_t pixels = scene.height * scene.width;
        T found[kBlock * kBlock];
        scene.family.values(values[0], kBlock * kBlock, found);
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            out[image * pixels + pixel] = found[i];
            kept[image * pixels + pixel] = values[0][i];
            kept[(scene.batch + image) * pixels + pixel] = values[1][i];
        });
    }

    template <int corners>
    void square(int64_t image, int64_t number, Bench& bench, T* out, T* kept) const {
        const auto cover = cover_of<T, false>(scene.dial.family);
        const int64_t across = this->squares_across();
        const int64_t left = number % across * kSquare, top = number / across * kSquare;
        const int64_t count = this->gather_square(image, left, top, bench);
        this->each_tile(left, top, [&](int64_t x, int64_t y) {
            this->list_blocks(x, y, count, {true, true, true, true}, bench);
            for (int part = 0; part < 4; ++part) {
                const int64_t u = x + part % 2 * kBlock, v = y + part / 2 * kBlock;
                if (u < scene.width && v < scene.height) {
                    block<corners>(image, u, v, part, count, bench, cover, out, kept);
                }
            }
        });
    }
};

}  // namespace

template <typename T>
bool silhouette(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                int64_t height, int64_t width, double steepness, int distribution, bool reversed, double shift,
                bool squared, int aggregation, double parameter, double cutoff, double error, T* image, T* kept,
                int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<T> scene(polygons, seen, batch, faces, corners, height, width, dial, aggregation, parameter, error,
                         threads);
    if (!scene) return false;
    const Forward<T> pass{{scene}};
    using Bench = typename Forward<T>::Bench;
    return pass.template each_square<Bench>(threads, [&](int64_t at, int64_t square, Bench& bench) {
        if (corners == 3) {
            pass.template square<3>(at, square, bench, image, kept);
        } else {
            pass.template square<6>(at, square, bench, image, kept);
        }
    });
}

#define SOFTLY_INSTANTIATE(T)                                                                                    \
    template bool silhouette<T>(const double*, const uint8_t*, int64_t, int64_t, int64_t, int64_t, int64_t, double, int, \
                             bool, double, bool, int, double, double, double, T*, T*, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
