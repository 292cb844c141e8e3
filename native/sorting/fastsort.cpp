// With z and w in ascending order, the projection is z - v, where v is the isotonic (non-descending) regression of
// z - w: pool adjacent violators finds the blocks on which v is constant, in O(n). On a block B
//
//     L2:  v = mean_B z - mean_B w     d out_i = dz_i - mean_B dz + mean_B dw
//     KL:  v = lse_B z - lse_B w       d out_i = dz_i - sum_B softmax_B(z) dz + sum_B softmax_B(w) dw
//
// so that out is w itself on a block of one. A block's v is a ratio: of the sum of z - w to its length, or (in the
// exponential) of the sums of exp(z) and exp(w), so that pooling is adding. All is in double and out relative to
// entries of z: a large z or steepness costs no digits.
#include "sorting/fastsort.h"

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// So many entries are worth waking a thread for.
constexpr int64_t kGrain = 2048;

template <typename T>
struct Item;

template <>
struct Item<float> {
    uint32_t key;
    int32_t index;
};

template <>
struct Item<double> {
    uint64_t key;
    int32_t index;
};

// An integer that is ordered as x is.
template <typename T>
inline auto sortable(T x) {
    using Key = decltype(Item<T>::key);
    constexpr int sign = 8 * sizeof(T) - 1;
    const T positive = x + T(0);  // -0 and 0 are equal
    Key key;
    std::memcpy(&key, &positive, sizeof(T));
    return key >> sign ? static_cast<Key>(~key) : static_cast<Key>(key | Key(1) << sign);
}

// Entries begin .. the next block's begin of v, which is numerator / denominator there.
struct Block {
    double numerator, denominator;
    int64_t begin;
};

// A block of KL where exp overflows: v is level, and sums are those of exp(z - top_z) and exp(w - top_w).
struct WideBlock {
    double top_z, top_w, sum_z, sum_w, level;
    int64_t begin;
};

// What one thread needs for a row of n.
template <typename T>
struct Workspace {
    double *z, *w, *numerators, *denominators;
    WideBlock* wide;
    Block* blocks;
    Item<T>*items, *other;

    // Rounded up, so that vectors may run over the end.
    static int64_t padded(int64_t n) { return (n + 7) / 8 * 8; }
    static size_t bytes(int64_t n) {
        return padded(n) * (4 * sizeof(double) + sizeof(WideBlock) + sizeof(Block) + 2 * sizeof(Item<T>));
    }

    Workspace(void* memory, int64_t n) {
        const int64_t m = padded(n);
        z = static_cast<double*>(memory);
        w = z + m;
        numerators = w + m;
        denominators = numerators + m;
        wide = reinterpret_cast<WideBlock*>(denominators + m);
        blocks = reinterpret_cast<Block*>(wide + m);
        items = reinterpret_cast<Item<T>*>(blocks + m);
        other = items + m;
    }

    // The stable ascending order of x.
    void argsort(const T* x, int32_t* order, int64_t n) {
        bool sorted = true;
        for (int64_t i = 0; i < n; ++i) {
            items[i] = {sortable(x[i]), static_cast<int32_t>(i)};
            sorted = sorted && (i == 0 || items[i - 1].key <= items[i].key);
        }
        if (!sorted) n <= 48 ? insert(n) : distribute(n);
        for (int64_t i = 0; i < n; ++i) order[i] = items[i].index;
    }

  private:
    void insert(int64_t n) {
        for (int64_t i = 1; i < n; ++i) {
            const Item<T> item = items[i];
            int64_t j = i;
            for (; j > 0 && items[j - 1].key > item.key; --j) items[j] = items[j - 1];
            items[j] = item;
        }
    }

    // From the least significant byte to the most; a byte that all keys share takes no pass.
    void distribute(int64_t n) {
        constexpr int bytes = sizeof(T);
        uint32_t counts[bytes][256] = {};
        for (int64_t i = 0; i < n; ++i) {
            for (int b = 0; b < bytes; ++b) ++counts[b][items[i].key >> 8 * b & 255];
        }
        for (int b = 0; b < bytes; ++b) {
            uint32_t* place = counts[b];
            if (place[items[0].key >> 8 * b & 255] == n) continue;
            uint32_t before = 0;
            for (int digit = 0; digit < 256; ++digit) {
                const uint32_t count = place[digit];
                place[digit] = before;
                before += count;
            }
            for (int64_t i = 0; i < n; ++i) other[place[items[i].key >> 8 * b & 255]++] = items[i];
            Item<T>* swapped = items;
            items = other;
            other = swapped;
        }
    }
};

// out[i] = exp(x[i] - top), for x that is padded.
inline void exponentials(const double* x, double top, double* out, int64_t n) {
    using S = Simd<double>;
    for (int64_t i = 0; i < n; i += S::width) S::store(out + i, S::exp(S::load(x + i) - top));
}

// Both pools keep a stack of blocks: a new entry takes in the blocks before it whose v is no less than its own. They
// return how many blocks are left.
int64_t pool(const double* numerators, const double* denominators, Block* blocks, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        Block next{numerators[i], denominators[i], i};
        for (; count > 0; --count) {
            const Block& last = blocks[count - 1];
            if (last.numerator * next.denominator < next.numerator * last.denominator) break;
            next = {last.numerator + next.numerator, last.denominator + next.denominator, last.begin};
        }
        blocks[count++] = next;
    }
    return count;
}

int64_t pool_wide(const double* z, const double* w, WideBlock* blocks, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        WideBlock next{z[i], w[i], 1.0, 1.0, z[i] - w[i], i};
        for (; count > 0; --count) {
            const WideBlock& last = blocks[count - 1];
            if (last.level < next.level) break;
            next.sum_z += last.sum_z * std::exp(last.top_z - next.top_z);
            next.sum_w += last.sum_w * std::exp(last.top_w - next.top_w);
            next.level = (next.top_z - next.top_w) + std::log(next.sum_z / next.sum_w);
            next.begin = last.begin;
        }
        blocks[count++] = next;
    }
    return count;
}

template <typename T>
void project(const T* pair, T* out, int32_t* kept, int64_t n, bool kl, Workspace<T>& space) {
    int32_t *order_z = kept, *order_w = kept + n, *lengths = kept + 2 * n;
    double *z = space.z, *w = space.w;
    space.argsort(pair, order_z, n);
    space.argsort(pair + n, order_w, n);
    double check = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        z[i] = pair[order_z[i]];
        w[i] = pair[n + order_w[i]];
        space.numerators[i] = z[i] - w[i];
        space.denominators[i] = 1.0;
        check += space.numerators[i];
        lengths[i] = 0;
    }
    if (check != check) {  // one NaN makes the whole row unknown
        lengths[0] = static_cast<int32_t>(n);
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(check);
        return;
    }
    const double top_z = z[n - 1], top_w = w[n - 1];
    // Products of two exponentials are compared: they must not underflow.
    const bool wide = kl && !(top_z - z[0] < 300.0 && top_w - w[0] < 300.0);
    int64_t count;
    if (wide) {
        count = pool_wide(z, w, space.wide, n);
    } else {
        if (kl) {
            for (int64_t i = n; i < Workspace<T>::padded(n); ++i) z[i] = w[i] = 0.0;
            exponentials(z, top_z, space.numerators, n);
            exponentials(w, top_w, space.denominators, n);
        }
        count = pool(space.numerators, space.denominators, space.blocks, n);
    }
    int64_t end = n;
    for (int64_t b = count - 1; b >= 0; --b) {
        const int64_t begin = wide ? space.wide[b].begin : space.blocks[b].begin;
        lengths[begin] = static_cast<int32_t>(end - begin);
        // out = (z - base) + level
        double base = z[end - 1], level = 0.0;
        if (end - begin == 1) {
            level = w[begin];
        } else if (wide) {
            level = space.wide[b].top_w + std::log(space.wide[b].sum_w / space.wide[b].sum_z);
        } else if (kl) {
            base = top_z;
            level = top_w + std::log(space.blocks[b].denominator / space.blocks[b].numerator);
        } else {
            for (int64_t i = begin; i < end; ++i) level += w[i] - (z[i] - base);
            level /= end - begin;
        }
        for (int64_t i = begin; i < end; ++i) out[order_z[i]] = static_cast<T>((z[i] - base) + level);
        end = begin;
    }
}

// result[i] = total * softmax(x[order])[i], for x[order] in ascending order.
template <typename T>
void share(const T* x, const int32_t* order, int64_t count, double total, double* result) {
    for (int64_t i = 0; i < count; ++i) result[i] = x[order[i]];
    for (int64_t i = count; i < Workspace<T>::padded(count); ++i) result[i] = 0.0;
    exponentials(result, result[count - 1], result, count);
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum += result[i];
    for (int64_t i = 0; i < count; ++i) result[i] *= total / sum;
}

template <typename T>
void differentiate(const T* pair, const T* grad, const int32_t* kept, T* grad_pair, int64_t n, bool kl,
                   Workspace<T>& space) {
    for (int64_t begin = 0, count; begin < n; begin += count) {
        const int32_t *order_z = kept + begin, *order_w = order_z + n;
        count = kept[2 * n + begin];
        if (count == 1) {
            grad_pair[*order_z] = T(0);
            grad_pair[n + *order_w] = grad[*order_z];
            continue;
        }
        double total = 0.0;
        for (int64_t i = 0; i < count; ++i) total += grad[order_z[i]];
        double *z = space.z, *w = space.w;
        if (kl) {
            share(pair, order_z, count, total, z);
            share(pair + n, order_w, count, total, w);
        } else {
            for (int64_t i = 0; i < count; ++i) z[i] = w[i] = total / count;
        }
        for (int64_t i = 0; i < count; ++i) {
            grad_pair[order_z[i]] = static_cast<T>(grad[order_z[i]] - z[i]);
            grad_pair[n + order_w[i]] = static_cast<T>(w[i]);
        }
    }
}

// Calls body(row, workspace) for every row; false where there was no memory.
template <typename T, typename Body>
bool for_rows(int64_t rows, int64_t n, int threads, Body&& body) {
    Enough enough;
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        void* memory = scratch(Workspace<T>::bytes(n));
        if (memory == nullptr) return enough.fail();
        Workspace<T> space(memory, n);
        for (int64_t r = begin; r < end; ++r) body(r, space);
    });
    return enough;
}

}  // namespace

template <typename T>
bool permutahedron(const T* pairs, T* out, int32_t* kept, int64_t rows, int64_t n, bool kl, int threads) {
    return for_rows<T>(rows, n, threads, [&](int64_t r, Workspace<T>& space) {
        project(pairs + 2 * r * n, out + r * n, kept + 3 * r * n, n, kl, space);
    });
}

template <typename T>
bool permutahedron_backward(const T* pairs, const T* grad_out, const int32_t* kept, T* grad_pairs, int64_t rows,
                            int64_t n, bool kl, int threads) {
    return for_rows<T>(rows, n, threads, [&](int64_t r, Workspace<T>& space) {
        differentiate(pairs + 2 * r * n, grad_out + r * n, kept + 3 * r * n, grad_pairs + 2 * r * n, n, kl, space);
    });
}

template bool permutahedron(const float*, float*, int32_t*, int64_t, int64_t, bool, int);
template bool permutahedron(const double*, double*, int32_t*, int64_t, int64_t, bool, int);
template bool permutahedron_backward(const float*, const float*, const int32_t*, float*, int64_t, int64_t, bool, int);
template bool permutahedron_backward(const double*, const double*, const int32_t*, double*, int64_t, int64_t, bool,
                                     int);

}  // namespace softly::SOFTLY_ISA
