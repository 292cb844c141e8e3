#include "rendering/contenders.h"

#include "rendering/layers.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Contest : Layers<T> {
    using Base = Layers<T>;
    using Base::Base;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::S;
    using typename Base::V;
    static constexpr int pixels = vectors * width;  // of a block, and what a vector has beyond

    // Of faces that were looked at: the exponents of their shares in the pixels of a block.
    struct Bench : Base::Bench {
        T* values;  // (padded, pixels)
        int32_t* faces;
        static size_t bytes(int64_t padded) {
            return Base::Bench::bytes(padded) + static_cast<size_t>(padded) * (pixels * sizeof(T) + sizeof(int32_t));
        }
        Bench(char* memory, int64_t padded)
            : Base::Bench(memory + static_cast<size_t>(padded) * (pixels * sizeof(T) + sizeof(int32_t)), padded),
              values(reinterpret_cast<T*>(memory)),
              faces(reinterpret_cast<int32_t*>(values + padded * pixels)) {}
    };

    struct Block {
        V columns[vectors], rows[vectors], top[vectors];
        int64_t count = 0;  // of the faces that were looked at
        int waiting = 0;    // of them, the last ones, which have distances alone so far
    };

    void flush(int64_t image, Block& block, Bench& bench) const {
        V d[kEntries * vectors], p[kEntries * vectors], q[kEntries * vectors];
        const int64_t begin = block.count - block.waiting;
        for (int i = 0; i < block.waiting * vectors; ++i) d[i] = S::load(bench.values + begin * pixels + i * width);
        this->cover(scene.dial, d, block.waiting * vectors, p, q, nullptr);
        for (int entry = 0; entry < block.waiting; ++entry) {
            const int64_t at = image * scene.faces + bench.faces[begin + entry];
            for (int k = 0; k < vectors; ++k) {
                V value = this->log_of(p[entry * vectors + k]);
                if (S::bits(value > T(0.5) * kNowhere<T>)) {
                    const Surface<T> surface(this->corners + 9 * at, this->depths + 3 * at, this->range,
                                             block.columns[k], block.rows[k]);
                    value += this->sharpness * (surface.closeness - T(kBehind));
                    block.top[k] = S::max(block.top[k], value);
                }
                S::store(bench.values + (begin + entry) * pixels + k * width, value);
            }
        }
        block.waiting = 0;
    }

    template <int sides>
    void look(int64_t image, int64_t near, Block& block, Bench& bench) const {
        const int32_t face = bench.near[near];
        const T* edge = scene.edges(image) + int64_t{face} * sides * kEdge;
        for (int k = 0; k < vectors; ++k) {
            S::store(bench.values + block.count * pixels + k * width,
                     Border<T>::template distance<sides>(edge, block.columns[k], block.rows[k]));
        }
        bench.faces[block.count++] = face;
        if (++block.waiting == kEntries) flush(image, block, bench);
    }

    template <int sides>
    void block(int64_t image, int64_t x, int64_t y, int64_t count, Bench& bench, int64_t* counts, const int64_t* starts,
               int64_t* found) const {
        Block block;
        this->centres(x, y, block.columns, block.rows);
        for (int k = 0; k < vectors; ++k) block.top[k] = S::zero();  // of the background
        if (count) {
            const int64_t first = this->bound_block(x, y, count, bench);
            look<sides>(image, first, block, bench);
            flush(image, block, bench);
            T limit = this->least(block.top, vectors) - this->slack;
            for (int64_t i = 0; i < count; i += width) {
                for (uint32_t bits = S::bits(S::load(bench.most + i) >= limit); bits; bits &= bits - 1) {
                    const int64_t near = i + __builtin_ctz(bits);
                    if (near == first) continue;
                    look<sides>(image, near, block, bench);
                    if (!block.waiting) limit = this->least(block.top, vectors) - this->slack;
                }
            }
            if (block.waiting) flush(image, block, bench);
        }
        T top[pixels];
        for (int k = 0; k < vectors; ++k) S::store(top + k * width, block.top[k]);
        this->each_pixel(x, y, [&](int64_t pixel, int i) {
            const int64_t at = image * scene.height * scene.width + pixel;
            const T least = top[i] - this->slack;
            int64_t number = 0;
            for (int64_t n = 0; n < block.count; ++n) {
                if (!(bench.values[n * pixels + i] >= least)) continue;
                if (starts) found[starts[at] + number] = bench.faces[n];
                ++number;
            }
            if (!starts) counts[at] = number;
        });
    }

    template <int sides>
    void square(int64_t image, int64_t number, Bench& bench, int64_t* counts, const int64_t* starts,
                int64_t* found) const {
        const int64_t across = this->squares_across();
        const int64_t left = number % across * kSquare, top = number / across * kSquare;
        const int64_t count = this->gather_square(image, left, top, bench);
        this->each_block(left, top,
                         [&](int64_t x, int64_t y) { block<sides>(image, x, y, count, bench, counts, starts, found); });
    }
};

}  // namespace

bool contenders(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t sides,
                const double* corners, const double* depths, int64_t height, int64_t width, double steepness,
                int distribution, bool reversed, double shift, bool squared, double cutoff, double near, double far,
                double sharpness, double dropped, int64_t* counts, const int64_t* starts, int64_t* found, int threads) {
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Scene<double> scene(polygons, seen, batch, faces, sides, height, width, dial, total, 1, dropped, threads);
    Buffer<double> reach(batch * 2 * scene.padded);
    if (!scene || !reach) return false;
    const Contest<double> contest(scene, corners, depths, nullptr, seen, Range(near, far), sharpness, dropped,
                                  reach.get());
    using Bench = Contest<double>::Bench;
    return contest.each_square<Bench>(threads, [&](int64_t at, int64_t square, Bench& bench) {
        if (sides == 3) {
            contest.square<3>(at, square, bench, counts, starts, found);
        } else {
            contest.square<6>(at, square, bench, counts, starts, found);
        }
    });
}

}  // namespace softly::SOFTLY_ISA
