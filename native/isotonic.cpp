// With z and w in ascending order, the projection is z - v, where v is the isotonic (non-descending) regression of
// z - w: pool adjacent violators finds the blocks on which v is constant, in O(n). On a block B
//
//     L2:  v = mean_B z - mean_B w     d out_i = dz_i - mean_B dz + mean_B dw
//     KL:  v = lse_B z - lse_B w       d out_i = dz_i - sum_B softmax_B(z) dz + sum_B softmax_B(w) dw
//
// so that out is w itself on a block of one. Sums are in double and relative to the block's own entries: a large
// z or steepness costs no digits.
#include "isotonic.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "parallel.h"

namespace softly::SOFTLY_ISA {
namespace {

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

// A block of v: entries begin .. begin + count, and for KL the sums of exp(z - top_z) and exp(w - top_w).
struct Block {
    double level;          // v on the block; for L2 the sum of z - w over it
    double top_z, top_w;   // the largest entries, which are the last
    double sum_z, sum_w;
    int32_t begin, count;
};

// What one thread needs for a row of n.
template <typename T>
struct Scratch {
    double* z;
    double* w;
    Block* blocks;
    Item<T>* items;
    Item<T>* other;

    explicit Scratch(int64_t n) {
        const size_t count = static_cast<size_t>(n);
        blocks = static_cast<Block*>(std::malloc(count * (sizeof(Block) + 2 * sizeof(double) + 2 * sizeof(Item<T>))));
        if (blocks == nullptr) std::abort();  // some 100 bytes an entry are nothing beside the row's tensors
        z = reinterpret_cast<double*>(blocks + n);
        w = z + n;
        items = reinterpret_cast<Item<T>*>(w + n);
        other = items + n;
    }
    ~Scratch() { std::free(blocks); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

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

// Pools the entries of `next` into `block`, which lies directly before it.
inline void pool(Block& block, const Block& next, bool kl) {
    if (kl) {
        block.sum_z = next.sum_z + block.sum_z * std::exp(block.top_z - next.top_z);
        block.sum_w = next.sum_w + block.sum_w * std::exp(block.top_w - next.top_w);
        block.top_z = next.top_z;
        block.top_w = next.top_w;
        block.level = (block.top_z - block.top_w) + std::log(block.sum_z / block.sum_w);
    } else {
        block.level += next.level;
    }
    block.count += next.count;
}

// Pools adjacent violators; returns how many blocks are left. Equal levels are pooled too.
inline int64_t pool_violators(const double* z, const double* w, Block* blocks, int64_t n, bool kl) {
    int64_t top = -1;
    for (int64_t i = 0; i < n; ++i) {
        Block next{z[i] - w[i], z[i], w[i], 1.0, 1.0, static_cast<int32_t>(i), 1};
        while (top >= 0) {
            Block& last = blocks[top];
            const bool violated = kl ? last.level >= next.level : last.level * next.count >= next.level * last.count;
            if (!violated) break;
            pool(last, next, kl);
            next = last;
            --top;
        }
        blocks[++top] = next;
    }
    return top + 1;
}

template <typename T>
void project(const T* pair, T* out, int32_t* kept, int64_t n, bool kl, Scratch<T>& scratch) {
    int32_t *order_z = kept, *order_w = kept + n, *lengths = kept + 2 * n;
    double *z = scratch.z, *w = scratch.w;
    scratch.argsort(pair, order_z, n);
    scratch.argsort(pair + n, order_w, n);
    double check = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        z[i] = pair[order_z[i]];
        w[i] = pair[n + order_w[i]];
        check += z[i] - w[i];
        lengths[i] = 0;
    }
    if (check != check) {  // one NaN makes the whole row unknown
        lengths[0] = static_cast<int32_t>(n);
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(check);
        return;
    }
    const int64_t count = pool_violators(z, w, scratch.blocks, n, kl);
    for (int64_t b = 0; b < count; ++b) {
        const Block& block = scratch.blocks[b];
        const int32_t begin = block.begin, end = begin + block.count;
        lengths[begin] = block.count;
        if (block.count == 1) {
            out[order_z[begin]] = static_cast<T>(w[begin]);
            continue;
        }
        double shift = 0.0;
        if (kl) {
            shift = block.top_w + std::log(block.sum_w / block.sum_z);
        } else {
            for (int32_t i = begin; i < end; ++i) shift += w[i] - (z[i] - block.top_z);
            shift /= block.count;
        }
        for (int32_t i = begin; i < end; ++i) out[order_z[i]] = static_cast<T>((z[i] - block.top_z) + shift);
    }
}

// share[i] = softmax over the block of x, times total.
template <typename T>
inline void share(const T* x, const int32_t* order, int32_t count, double total, double* result) {
    double sum = 0.0;
    const double top = x[order[count - 1]];
    for (int32_t i = 0; i < count; ++i) sum += result[i] = std::exp(x[order[i]] - top);
    for (int32_t i = 0; i < count; ++i) result[i] *= total / sum;
}

template <typename T>
void differentiate(const T* pair, const T* grad, const int32_t* kept, T* grad_pair, int64_t n, bool kl,
                   Scratch<T>& scratch) {
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
        double *z = scratch.z, *w = scratch.w;
        if (kl) {
            share(pair, order_z, static_cast<int32_t>(count), total, z);
            share(pair + n, order_w, static_cast<int32_t>(count), total, w);
        } else {
            for (int64_t i = 0; i < count; ++i) z[i] = w[i] = total / count;
        }
        for (int64_t i = 0; i < count; ++i) {
            grad_pair[order_z[i]] = static_cast<T>(grad[order_z[i]] - z[i]);
            grad_pair[n + order_w[i]] = static_cast<T>(w[i]);
        }
    }
}

// So many entries are worth waking a thread for.
constexpr int64_t kGrain = 2048;

}  // namespace

template <typename T>
void permutahedron(const T* pairs, T* out, int32_t* kept, int64_t rows, int64_t n, bool kl, int threads) {
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(n);
        for (int64_t r = begin; r < end; ++r) project(pairs + 2 * r * n, out + r * n, kept + 3 * r * n, n, kl, scratch);
    });
}

template <typename T>
void permutahedron_backward(const T* pairs, const T* grad_out, const int32_t* kept, T* grad_pairs, int64_t rows,
                            int64_t n, bool kl, int threads) {
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(n);
        for (int64_t r = begin; r < end; ++r) {
            differentiate(pairs + 2 * r * n, grad_out + r * n, kept + 3 * r * n, grad_pairs + 2 * r * n, n, kl, scratch);
        }
    });
}

template void permutahedron(const float*, float*, int32_t*, int64_t, int64_t, bool, int);
template void permutahedron(const double*, double*, int32_t*, int64_t, int64_t, bool, int);
template void permutahedron_backward(const float*, const float*, const int32_t*, float*, int64_t, int64_t, bool, int);
template void permutahedron_backward(const double*, const double*, const int32_t*, double*, int64_t, int64_t, bool,
                                     int);

}  // namespace softly::SOFTLY_ISA
