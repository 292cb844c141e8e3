// Pixels are seen in tiles of 8 by 8, each four blocks of 4 by 4. A block looks at the polygons whose boxes are close
// enough to matter: the boxes' distances bound from above what a polygon adds to a pixel, and as many of them are
// dropped as together change the pixel by no more than an error that is fixed beforehand, 1e-5 in single precision and
// less than its rounding in double. Blocks choose from what is close enough to their square of 32 by 32.
//
// The distance of a point from the border of a polygon is the least of those from its edges, and within the polygon the
// least of those from their lines. With m the former and l the latter, positive inside, it is 2 max(l, 0) - m: inside m
// is l, and a point that seems to be inside of a sliver by rounding alone, where l is 0, is still outside.
//
// Backward, the distance changes as the closest point of the border moves: with its edge from a to b at the share t it
// is -(1 - t) r of a and -t r of b for the unit vector r from there to the pixel, negative outside. In the edge's own
// frame r is (line, over) / d, line along its normal and over along its direction, 0 but beyond its ends. So nothing is
// lost by cancellation where d is small, and at d = 0 the normal is taken. What is summed over pixels is in this frame.
#include "rendering/silhouette.h"

#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"
#include "rendering/aggregation.h"
#include "rendering/coverage.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int kTile = 8, kBlock = 4, kSquare = 32;
constexpr int kShells = 8;    // distances beyond which a polygon adds at most the budget / 8^j
constexpr int kEntries = 32;  // blocks of pixels that are taken through distributions and T-conorms at once

template <typename T>
constexpr double kError = sizeof(T) == 4 ? 1e-5 : 1e-16;

template <typename T>
constexpr T kFar = sizeof(T) == 4 ? T(1e18) : T(1e150);

// An edge: its beginning, direction, normal to the inside, length, and what keeps it from deciding what is inside.
enum : int { kAx, kAy, kTx, kTy, kNx, kNy, kLength, kAside, kEdge };

// The polygons of a call, made ready.
template <typename T>
struct Scene {
    using S = Simd<T>;
    using V = typename S::V;

    int64_t batch, faces, padded, corners, height, width;
    T unit;         // of a pixel
    T* edges;       // (batch, padded, corners, kEdge)
    T* boxes;       // (batch, 4, padded): x from, x to, y from, y to
    T shells[kShells], costs[kShells];
    T square_budget, block_budget;

    T column(int64_t x) const { return (T(x) + T(0.5) - T(width) / 2) * unit; }
    T row(int64_t y) const { return (T(height) / 2 - T(0.5) - T(y)) * unit; }

    void prepare(const T* polygon, bool seen, T* edge, T* box) const {
        T low[2] = {kFar<T>, kFar<T>}, high[2] = {-kFar<T>, -kFar<T>};
        T turn = 0;
        for (int64_t k = 0; k < corners; ++k) {
            const T* a = polygon + 2 * k;
            const T* b = polygon + 2 * ((k + 1) % corners);
            for (int axis = 0; axis < 2; ++axis) {
                low[axis] = a[axis] < low[axis] ? a[axis] : low[axis];
                high[axis] = a[axis] > high[axis] ? a[axis] : high[axis];
            }
            turn += (a[0] - polygon[0]) * (b[1] - polygon[1]) - (a[1] - polygon[1]) * (b[0] - polygon[0]);
        }
        const T sign = turn < 0 ? T(-1) : T(1);
        for (int64_t k = 0; k < corners; ++k, edge += kEdge) {
            const T* a = polygon + 2 * k;
            const T* b = polygon + 2 * ((k + 1) % corners);
            const T ex = b[0] - a[0], ey = b[1] - a[1], square = ex * ex + ey * ey;
            const bool single = !(square > Format<T>::smallest_normal);
            const T length = single ? T(0) : root(square), inverse = single ? T(0) : 1 / length;
            edge[kAx] = a[0];
            edge[kAy] = a[1];
            edge[kTx] = single ? T(1) : ex * inverse;
            edge[kTy] = single ? T(0) : ey * inverse;
            edge[kNx] = -sign * edge[kTy];
            edge[kNy] = sign * edge[kTx];
            edge[kLength] = length;
            edge[kAside] = single && corners > 3 ? kFar<T> : T(0);
        }
        // Nothing is close to the box of what isn't seen.
        box[0] = seen ? low[0] : 4 * kFar<T>;
        box[padded] = seen ? high[0] : 4 * kFar<T>;
        box[2 * padded] = seen ? low[1] : 4 * kFar<T>;
        box[3 * padded] = seen ? high[1] : 4 * kFar<T>;
    }

    static T root(T x) { return sizeof(T) == 4 ? T(__builtin_sqrtf(x)) : T(__builtin_sqrt(x)); }
};

template <typename T>
struct Renderer {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;
    static constexpr int vectors = kBlock * kBlock / width > 0 ? kBlock * kBlock / width : 1;  // of a block
    static_assert(width <= kBlock * kBlock);

    const Scene<T>& scene;
    const Dial& dial;
    const Family<T>& family;
    Aggregate<T> aggregate;

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

    template <int corners>
    static V distance(const T* edge, V x, V y) {
        V least = S::set(kFar<T> * kFar<T>), low = S::set(kFar<T>);
#pragma GCC unroll 6
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            const V ux = x - edge[kAx], uy = y - edge[kAy];
            const V along = ux * edge[kTx] + uy * edge[kTy], line = ux * edge[kNx] + uy * edge[kNy];
            const V over = along - S::min(S::max(along, S::zero()), S::set(edge[kLength]));
            least = S::min(least, line * line + over * over);
            low = S::min(low, corners > 3 ? line + edge[kAside] : line);
        }
        return 2 * S::max(low, S::zero()) - S::sqrt(least);
    }

    // Where the closest point of the border is, too: the edge's number, and in its frame.
    // Where the closest point of the border is, too: the edge's number, and in its frame.
    struct Foot {
        V d, number, line, over, along;
    };

    template <int corners>
    static Foot foot(const T* edge, V x, V y) {
        V least = S::set(kFar<T> * kFar<T>), low = S::set(kFar<T>);
        V number = S::zero(), line = S::zero(), over = S::zero(), along = S::zero();
#pragma GCC unroll 6
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            const V ux = x - edge[kAx], uy = y - edge[kAy];
            const V at = ux * edge[kTx] + uy * edge[kTy], from = ux * edge[kNx] + uy * edge[kNy];
            const V held = S::min(S::max(at, S::zero()), S::set(edge[kLength])), beyond = at - held;
            const V square = from * from + beyond * beyond;
            const auto closer = square < least;
            least = S::min(square, least);
            number = closer ? S::set(T(k)) : number;
            line = closer ? from : line;
            over = closer ? beyond : over;
            along = closer ? held : along;
            low = S::min(low, corners > 3 ? from + edge[kAside] : from);
        }
        return {2 * S::max(low, S::zero()) - S::sqrt(least), number, line, over, along};
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
        const T* boxes = scene.boxes + image * 4 * padded;
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

    int64_t squares_across() const { return (scene.width + kSquare - 1) / kSquare; }
    int64_t squares() const { return squares_across() * ((scene.height + kSquare - 1) / kSquare); }

    template <int corners>
    void forward_block(int64_t image, int64_t x, int64_t y, int block, int64_t count, const Bench& bench,
                       Cover<T> cover, T* out, T* kept) const {
        const T* edges = scene.edges + image * scene.padded * corners * kEdge;
        V columns[vectors], rows[vectors], state[vectors], number[vectors];
        V d[kEntries * vectors], p[kEntries * vectors], q[kEntries * vectors];
        centres(x, y, columns, rows);
        for (int k = 0; k < vectors; ++k) {
            state[k] = S::set(family.neutral());
            number[k] = S::zero();
        }
        int entries = 0;
        const auto flush = [&] {
            cover(dial, d, entries * vectors, p, q, nullptr);
            aggregate.gather(family, p, q, entries, vectors, state, number);
            entries = 0;
        };
        const uint32_t* listed = bench.listed + block * (scene.padded / width);
        for (int64_t i = 0; i < count; i += width) {
            for (uint32_t bits = listed[i / width]; bits; bits &= bits - 1) {
                const T* edge = edges + int64_t{bench.near[i + __builtin_ctz(bits)]} * corners * kEdge;
                for (int k = 0; k < vectors; ++k) {
                    d[entries * vectors + k] = distance<corners>(edge, columns[k], rows[k]);
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
        family.values(values[0], kBlock * kBlock, found);
        each_pixel(x, y, [&](int64_t pixel, int i) {
            out[image * pixels + pixel] = found[i];
            kept[image * pixels + pixel] = values[0][i];
            kept[(scene.batch + image) * pixels + pixel] = values[1][i];
        });
    }

    template <int corners>
    void forward(int64_t image, int64_t square, Bench& bench, T* out, T* kept) const {
        const auto cover = cover_of<T, false>(dial.family);
        const int64_t left = square % squares_across() * kSquare, top = square / squares_across() * kSquare;
        const int64_t count = gather_square(image, left, top, bench);
        each_tile(left, top, [&](int64_t x, int64_t y) {
            list_blocks(x, y, count, {true, true, true, true}, bench);
            for (int block = 0; block < 4; ++block) {
                const int64_t u = x + block % 2 * kBlock, v = y + block / 2 * kBlock;
                if (u < scene.width && v < scene.height) {
                    forward_block<corners>(image, u, v, block, count, bench, cover, out, kept);
                }
            }
        });
    }

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
            each_pixel(left, top, [&](int64_t pixel, int i) {
                const int64_t at = image * pixels + pixel;
                state[i] = kept[at];
                number[i] = kept[scene.batch * pixels + at];
                factor[i] = grad[at];
            });
            family.scale(state, number, kBlock * kBlock, factor);
            bool wanted = false;
            for (const T one : factor) wanted |= one != 0;
            tile.wanted[block] = wanted;
            centres(left, top, tile.columns + block * vectors, tile.rows + block * vectors);
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
        int32_t at[most];         // the vector of the tile's pixels
        int32_t ends[kEntries];   // behind the last vector of each polygon
        int32_t faces[kEntries];
        int count = 0, polygons = 0;
    };

    // Adds to `sums` (faces, corners, 4): of every edge the sums of line and over by d, and both times along.
    template <int corners>
    void flush(Entries<corners>& e, const Tile& tile, Cover<T> cover, T* sums, double* steepness) const {
        cover(dial, e.d, e.count, e.p, e.q, e.f);
        aggregate.slopes(family, e.p, e.q, e.count, e.at, tile.state, e.f);
        const T scale = T(dial.steepness);
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
                if (steepness) change += w * (dial.squared ? d * size : d);
                w *= dial.squared ? 2 * size * scale : S::set(scale);
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
    void backward(int64_t image, int64_t square, Bench& bench, const T* grad, const T* kept, T* sums,
                  double* steepness) const {
        const auto cover = cover_of<T, true>(dial.family);
        const T* edges = scene.edges + image * scene.padded * corners * kEdge;
        const int64_t left = square % squares_across() * kSquare, top = square / squares_across() * kSquare;
        const int64_t words = scene.padded / width;
        int64_t count = -1;
        each_tile(left, top, [&](int64_t x, int64_t y) {
            Tile tile;
            load_tile(image, x, y, grad, kept, tile);
            if (!(tile.wanted[0] || tile.wanted[1] || tile.wanted[2] || tile.wanted[3])) return;
            if (count < 0) count = gather_square(image, left, top, bench);
            list_blocks(x, y, count, tile.wanted, bench);
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
                            const Foot foot = Renderer::foot<corners>(edge, tile.columns[at], tile.rows[at]);
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

// The squared distances beyond which a polygon changes a state by no more than the costs.
template <typename T>
void find_shells(Scene<T>& scene, const Dial& dial, const Family<T>& family) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr int padded = (kShells + S::width - 1) / S::width * S::width, vectors = padded / S::width;
    const auto cover = cover_of<T, false>(dial.family);
    const auto weight = aggregate_of<T>(family.kind).weight;
    // A small part of the budget is for what squares drop, the rest for what blocks do. Where the probability is 0 beyond an end,
    // as of uniform distributions, nothing but that is dropped: their derivative doesn't fade towards it.
    const double budget = ends_below(dial.family, dial.reversed) ? 0 : family.budget(kError<T>);
    T costs[padded] = {};
    double cost = budget;
    for (int j = 0; j < kShells; ++j, cost /= 8) costs[j] = T(cost);
    scene.square_budget = T(budget / 16);
    scene.block_budget = T(budget * 15 / 16);
    T low[padded], high[padded];
    for (int j = 0; j < padded; ++j) low[j] = -60, high[j] = 60;  // of the distance's logarithm
    for (int step = 0; step < 40; ++step) {
        for (int k = 0; k < vectors; ++k) {
            V a = S::load(low + k * S::width), b = S::load(high + k * S::width), p, q;
            const V middle = (a + b) * T(0.5);
            const V d = -S::exp(middle * T(0.69314718055994530942));
            cover(dial, &d, 1, &p, &q, nullptr);
            const auto enough = weight(family, p, q) <= S::load(costs + k * S::width);
            S::store(low + k * S::width, enough ? a : middle);
            S::store(high + k * S::width, enough ? middle : b);
        }
    }
    for (int j = 0; j < kShells; ++j) {
        const double distance = __builtin_exp2(high[j]) * 1.00001;
        scene.shells[j] = high[j] > 59 ? kFar<T> * kFar<T> : T(distance * distance);
        scene.costs[j] = costs[j];
    }
}

template <typename T>
Scene<T> make_scene(const T* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                    int64_t height, int64_t width, T* edges, T* boxes, int threads) {
    Scene<T> scene{};
    scene.batch = batch;
    scene.faces = faces;
    scene.padded = (faces + Simd<T>::width - 1) / Simd<T>::width * Simd<T>::width;
    scene.corners = corners;
    scene.height = height;
    scene.width = width;
    scene.unit = T(2) / T(height < width ? height : width);
    scene.edges = edges;
    scene.boxes = boxes;
    parallel_for(batch * scene.padded, 2048, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t image = i / scene.padded, face = i % scene.padded;
            T* box = boxes + image * 4 * scene.padded + face;
            if (face >= faces) {
                for (int side = 0; side < 4; ++side) box[side * scene.padded] = 4 * kFar<T>;
            } else {
                const int64_t at = image * faces + face;
                scene.prepare(polygons + at * corners * 2, !seen || seen[at], edges + i * corners * kEdge, box);
            }
        }
    });
    return scene;
}

}  // namespace

template <typename T>
bool silhouette(const T* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners, int64_t height,
                int64_t width, double steepness, int distribution, bool reversed, double shift, bool squared,
                int aggregation, double parameter, double cutoff, T* image, T* kept, int threads) {
    const int64_t padded = (faces + Simd<T>::width - 1) / Simd<T>::width * Simd<T>::width;
    Buffer<T> edges(batch * padded * corners * kEdge), boxes(batch * padded * 4);
    if (!edges.get() || !boxes.get()) return false;
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Family<T> family(aggregation, parameter);
    Scene<T> scene =
        make_scene(polygons, seen, batch, faces, corners, height, width, edges.get(), boxes.get(), threads);
    find_shells(scene, dial, family);
    const Renderer<T> renderer{scene, dial, family, aggregate_of<T>(family.kind)};
    using Bench = typename Renderer<T>::Bench;
    Enough enough;
    parallel_for(batch * renderer.squares(), 1, threads, [&](int64_t begin, int64_t end) {
        Buffer<char> memory(Bench::bytes(padded));
        if (!memory.get()) {
            enough.fail();
            return;
        }
        Bench bench(memory.get(), padded);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t at = i / renderer.squares(), square = i % renderer.squares();
            if (corners == 3) {
                renderer.template forward<3>(at, square, bench, image, kept);
            } else {
                renderer.template forward<6>(at, square, bench, image, kept);
            }
        }
    });
    return enough;
}

template <typename T>
bool silhouette_backward(const T* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners,
                         int64_t height, int64_t width, double steepness, int distribution, bool reversed,
                         double shift, bool squared, int aggregation, double parameter, double cutoff, const T* grad,
                         const T* kept, T* grad_polygons, T* grad_steepness, int threads) {
    const int64_t padded = (faces + Simd<T>::width - 1) / Simd<T>::width * Simd<T>::width;
    Buffer<T> edges(batch * padded * corners * kEdge), boxes(batch * padded * 4);
    if (!edges.get() || !boxes.get()) return false;
    const Dial dial{steepness, shift, cutoff, distribution, reversed, squared, cutoff >= 0};
    const Family<T> family(aggregation, parameter);
    Scene<T> scene =
        make_scene(polygons, seen, batch, faces, corners, height, width, edges.get(), boxes.get(), threads);
    find_shells(scene, dial, family);
    const Renderer<T> renderer{scene, dial, family, aggregate_of<T>(family.kind)};
    using Bench = typename Renderer<T>::Bench;
    // An image is the work of so many parts, every one with sums of its own: which squares it takes doesn't depend on
    // who is done first, so that the same call has the same result.
    const int64_t parts = threads > 1 && batch < 4 * threads ? threads : 1;
    const int64_t stride = faces * corners * 4;
    Buffer<T> sums(batch * parts * stride);
    Buffer<double> changes(batch * parts);
    if (!sums.get() || !changes.get()) return false;
    Enough enough;
    parallel_for(batch * parts, 1, threads, [&](int64_t begin, int64_t end) {
        Buffer<char> memory(Bench::bytes(padded));
        if (!memory.get()) {
            enough.fail();
            return;
        }
        Bench bench(memory.get(), padded);
        for (int64_t i = begin; i < end; ++i) {
            T* own = sums.get() + i * stride;
            std::memset(own, 0, sizeof(T) * stride);
            changes.get()[i] = 0;
            double* change = grad_steepness ? changes.get() + i : nullptr;
            for (int64_t square = i % parts; square < renderer.squares(); square += parts) {
                if (corners == 3) {
                    renderer.template backward<3>(i / parts, square, bench, grad, kept, own, change);
                } else {
                    renderer.template backward<6>(i / parts, square, bench, grad, kept, own, change);
                }
            }
        }
    });
    if (!enough) return false;
    parallel_for(batch * faces, 2048, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t at = i / faces, face = i % faces;
            const T* edge = edges.get() + (at * padded + face) * corners * kEdge;
            const T* own = sums.get() + at * parts * stride + face * corners * 4;
            if (corners == 3) {
                Renderer<T>::template finish<3>(edge, own, parts, stride, grad_polygons + i * 6);
            } else {
                Renderer<T>::template finish<6>(edge, own, parts, stride, grad_polygons + i * 12);
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
    template bool silhouette(const T*, const uint8_t*, int64_t, int64_t, int64_t, int64_t, int64_t, double, int,     \
                             bool, double, bool, int, double, double, T*, T*, int);                                  \
    template bool silhouette_backward(const T*, const uint8_t*, int64_t, int64_t, int64_t, int64_t, int64_t, double, \
                                      int, bool, double, bool, int, double, double, const T*, const T*, T*, T*, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
