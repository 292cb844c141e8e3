// Pixels are seen in tiles of 8 by 8, each four blocks of 4 by 4. A block looks at the polygons whose boxes are close
// enough to matter, which it chooses from those that are close enough to its square of 32 by 32.
#pragma once

#include "rendering/scene.h"

namespace softly::SOFTLY_ISA {

constexpr int kTile = 8, kBlock = 4, kSquare = 32;
constexpr int kEntries = 32;  // blocks of pixels that are taken through distributions and T-conorms at once

template <typename T>
struct Tiles {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;
    static constexpr int vectors = kBlock * kBlock / width > 0 ? kBlock * kBlock / width : 1;  // of a block
    static_assert(width <= kBlock * kBlock);

    const Scene<T>& scene;

    // What of `count` boxes is so far from a rectangle that it can be dropped: its squared distances, of which those
    // above the result.
    T close(const T* boxes, int64_t stride, int64_t count, T x0, T x1, T y0, T y1, T budget, T* squares) const {
        V more[kShells];
        for (V& shell : more) shell = S::zero();
        for (int64_t i = 0; i < count; i += width) {
            const V dx = S::max(S::max(S::load(boxes + i) - x1, x0 - S::load(boxes + stride + i)), S::zero());
            const V dy =
                S::max(S::max(S::load(boxes + 2 * stride + i) - y1, y0 - S::load(boxes + 3 * stride + i)), S::zero());
            const V square = dx * dx + dy * dy;
            S::store(squares + i, square);
            for (int j = 0; j < kShells; ++j) more[j] += square > scene.shells[j] ? S::set(1) : S::zero();
        }
        T beyond = 0, spent = 0, chosen = kFar<T> * kFar<T>;
        for (int j = kShells - 1; j >= 0; --j) {
            T number = 0;
            for (int lane = 0; lane < width; ++lane) number += more[j][lane];
            spent += (number - beyond) * scene.costs[j];
            if (spent > budget) break;
            beyond = number;
            chosen = scene.shells[j];
        }
        return chosen;
    }

    // The memory of a thread.
    struct Bench {
        int32_t* near;     // polygons that are close to the square
        T* boxes;          // theirs, (4, padded)
        T* squares;        // (padded)
        uint32_t* listed;  // (4 blocks, padded / width)
        static size_t bytes(int64_t padded) {
            return static_cast<size_t>(padded) * (sizeof(int32_t) + 5 * sizeof(T) + 4 * sizeof(uint32_t));
        }
        Bench(char* memory, int64_t padded) {
            boxes = reinterpret_cast<T*>(memory);
            squares = boxes + 4 * padded;
            near = reinterpret_cast<int32_t*>(squares + padded);
            listed = reinterpret_cast<uint32_t*>(near + padded);
        }
    };

    // The polygons that are close to a square of pixels, and how many.
    int64_t gather_square(int64_t image, int64_t x, int64_t y, Bench& bench) const {
        const int64_t padded = scene.padded;
        const T* boxes = scene.boxes(image);
        const int64_t right = x + kSquare < scene.width ? x + kSquare : scene.width;
        const int64_t bottom = y + kSquare < scene.height ? y + kSquare : scene.height;
        const T limit = close(boxes, padded, padded, scene.column(x), scene.column(right - 1), scene.row(bottom - 1),
                              scene.row(y), scene.square_budget, bench.squares);
        int64_t count = 0;
        for (int64_t i = 0; i < padded; i += width) {
            for (uint32_t bits = S::bits(S::load(bench.squares + i) <= limit); bits; bits &= bits - 1) {
                const int64_t f = i + __builtin_ctz(bits);
                bench.near[count] = static_cast<int32_t>(f);
                for (int side = 0; side < 4; ++side) bench.boxes[side * padded + count] = boxes[side * padded + f];
                ++count;
            }
        }
        for (int64_t i = count; i % width; ++i) {
            for (int side = 0; side < 4; ++side) bench.boxes[side * padded + i] = 4 * kFar<T>;
        }
        return count;
    }

    // Which of them each block of a tile looks at: as bits, of vectors of them.
    void list_blocks(int64_t x, int64_t y, int64_t count, const bool (&wanted)[4], Bench& bench) const {
        const int64_t padded = scene.padded, words = padded / width;
        for (int block = 0; block < 4; ++block) {
            const int64_t left = x + block % 2 * kBlock, top = y + block / 2 * kBlock;
            uint32_t* listed = bench.listed + block * words;
            if (!wanted[block] || left >= scene.width || top >= scene.height) {
                for (int64_t i = 0; i < count; i += width) listed[i / width] = 0;
                continue;
            }
            const T limit = close(bench.boxes, padded, count, scene.column(left), scene.column(left + kBlock - 1),
                                  scene.row(top + kBlock - 1), scene.row(top), scene.block_budget, bench.squares);
            for (int64_t i = 0; i < count; i += width) {
                listed[i / width] = S::bits(S::load(bench.squares + i) <= limit);
            }
        }
    }

    // The centres of a block's pixels, row by row.
    void centres(int64_t x, int64_t y, V* columns, V* rows) const {
        T values[2][kBlock * kBlock];
        for (int i = 0; i < kBlock * kBlock; ++i) {
            values[0][i] = scene.column(x + i % kBlock);
            values[1][i] = scene.row(y + i / kBlock);
        }
        for (int k = 0; k < vectors; ++k) {
            columns[k] = S::load(values[0] + k * width);
            rows[k] = S::load(values[1] + k * width);
        }
    }

    template <typename F>
    void each_pixel(int64_t x, int64_t y, F&& f) const {
        for (int i = 0; i < kBlock * kBlock; ++i) {
            const int64_t column = x + i % kBlock, row = y + i / kBlock;
            if (column < scene.width && row < scene.height) f(row * scene.width + column, i);
        }
    }

    // Calls f(x, y) for the tiles of a square.
    template <typename F>
    void each_tile(int64_t x, int64_t y, F&& f) const {
        for (int64_t v = y; v < y + kSquare && v < scene.height; v += kTile) {
            for (int64_t u = x; u < x + kSquare && u < scene.width; u += kTile) f(u, v);
        }
    }

    // And for its blocks.
    template <typename F>
    void each_block(int64_t x, int64_t y, F&& f) const {
        for (int64_t v = y; v < y + kSquare && v < scene.height; v += kBlock) {
            for (int64_t u = x; u < x + kSquare && u < scene.width; u += kBlock) f(u, v);
        }
    }

    // Calls f(image, square, bench) for the squares of all images, each thread with a bench of its own. False where there
    // is no memory for that.
    template <typename Bench, typename F>
    bool each_square(int threads, F&& f) const {
        Enough enough;
        parallel_for(
            scene.batch * squares(), 1, threads,
            [&](int64_t begin, int64_t end) {
                Buffer<char> memory(Bench::bytes(scene.padded));
                if (!memory) {
                    enough.fail();
                    return;
                }
                Bench bench(memory.get(), scene.padded);
                for (int64_t i = begin; i < end; ++i) f(i / squares(), i % squares(), bench);
            },
            false);
        return enough;
    }

    int64_t squares_across() const { return (scene.width + kSquare - 1) / kSquare; }
    int64_t squares() const { return squares_across() * ((scene.height + kSquare - 1) / kSquare); }

    // An image is the work of so many parts, every one with sums of its own, which take so many bytes: which squares a
    // part takes doesn't depend on who is done first, so that the same call has the same result. More of them than
    // threads, as far as there is little to sum up, so that no thread waits long for the last.
    int64_t parts(int threads, int64_t bytes) const {
        constexpr int64_t most = int64_t{4} << 20;
        const int64_t pieces = 4 * int64_t{threads};
        if (threads <= 1 || scene.batch >= pieces) return 1;
        int64_t count = (pieces + scene.batch - 1) / scene.batch;
        while (count > threads && count * bytes > most) count /= 2;
        return count < squares() ? count : squares();
    }
};

}  // namespace softly::SOFTLY_ISA
