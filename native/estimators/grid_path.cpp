// Dijkstra's algorithm. The cost of a step is that of the cell it leads to, so that a cell is settled by the first of
// its neighbours that leaves the heap: every cell enters it once, and no key ever decreases.
#include "estimators/grid_path.h"

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Entry {
    T distance_;
    int32_t steps_, cell_;

    Entry(T distance, int64_t steps, int64_t cell)
        : distance_(distance), steps_(static_cast<int32_t>(steps)), cell_(static_cast<int32_t>(cell)) {}
    T distance() const { return distance_; }
    int64_t steps() const { return steps_; }
    int64_t cell() const { return cell_; }
    bool operator<(const Entry& other) const {
        if (distance_ != other.distance_) return distance_ < other.distance_;
        if (steps_ != other.steps_) return steps_ < other.steps_;
        return cell_ < other.cell_;
    }
};

// The same in one number: those of floats that aren't negative are in the order of their bits. For up to 2^16 cells.
struct Packed {
    uint64_t bits;

    Packed(float distance, int64_t steps, int64_t cell) {
        uint32_t high;
        std::memcpy(&high, &distance, sizeof(high));
        bits = uint64_t{high} << 32 | static_cast<uint64_t>(steps) << 16 | static_cast<uint64_t>(cell);
    }
    float distance() const {
        const auto high = static_cast<uint32_t>(bits >> 32);
        float distance;
        std::memcpy(&distance, &high, sizeof(distance));
        return distance;
    }
    int64_t steps() const { return bits >> 16 & 0xffff; }
    int64_t cell() const { return bits & 0xffff; }
    bool operator<(const Packed& other) const { return bits < other.bits; }
};

template <typename Entry>
class Heap {
  public:
    explicit Heap(Entry* memory) : entries_(memory) {}

    bool empty() const { return size_ == 0; }
    void push(Entry entry) {
        int64_t at = size_++;
        while (at > 0) {
            const int64_t parent = (at - 1) / 2;
            if (!(entry < entries_[parent])) break;
            entries_[at] = entries_[parent];
            at = parent;
        }
        entries_[at] = entry;
    }
    Entry pop() {
        const Entry least = entries_[0], last = entries_[--size_];
        int64_t at = 0;
        for (int64_t child = 1; child < size_; child = 2 * at + 1) {
            if (child + 1 < size_ && entries_[child + 1] < entries_[child]) ++child;
            if (!(entries_[child] < last)) break;
            entries_[at] = entries_[child];
            at = child;
        }
        entries_[at] = last;
        return least;
    }

  private:
    Entry* entries_;
    int64_t size_ = 0;
};

// before[v]: the cell before v on the way to it, or -1. The grid has a border of one cell, which is never entered.
template <typename Entry, typename T>
bool settle(const T* costs, void* memory, int32_t* before, int64_t h, int64_t w) {
    const int64_t row = w + 2, source = row + 1, target = h * row + w;
    for (int64_t v = 0; v < (h + 2) * row; ++v) before[v] = 0;
    for (int64_t i = 1; i <= h; ++i) {
        for (int64_t j = 1; j <= w; ++j) before[i * row + j] = -1;
    }
    const int64_t around[8] = {-row - 1, -row, -row + 1, -1, 1, row - 1, row, row + 1};
    const auto cost = [&](int64_t v) {
        const T value = costs[(v / row - 1) * w + v % row - 1];
        return value > 0 ? value : T(0);  // no -0, whose bits are large
    };
    Heap<Entry> heap(static_cast<Entry*>(memory));
    before[source] = 0;
    if (cost(source) < T(HUGE_VAL)) heap.push({cost(source), 0, source});
    while (!heap.empty()) {
        const Entry next = heap.pop();
        if (next.cell() == target) return true;
        for (const int64_t step : around) {
            const int64_t v = next.cell() + step;
            if (before[v] != -1) continue;
            before[v] = static_cast<int32_t>(next.cell());
            const T distance = next.distance() + cost(v);
            if (distance < T(HUGE_VAL)) heap.push({distance, next.steps() + 1, v});
        }
    }
    return false;
}

template <typename T>
bool fine(const T* costs, int64_t n, bool clamped) {
    bool good = true;
    for (int64_t v = 0; v < n; ++v) good &= clamped ? costs[v] == costs[v] : costs[v] >= 0;
    return good;
}

}  // namespace

template <typename T>
bool grid_path(const T* costs, T* path, int64_t batch, int64_t h, int64_t w, bool clamped, int threads) {
    Enough enough;
    const int64_t n = h * w, framed = (h + 2) * (w + 2);
    parallel_for(batch, 1 + 1024 / n, threads, [&](int64_t begin, int64_t end) {
        auto* entries = static_cast<Entry<T>*>(scratch(framed * (sizeof(Entry<T>) + sizeof(int32_t))));
        if (entries == nullptr) return enough.fail();
        auto* before = reinterpret_cast<int32_t*>(entries + framed);
        const auto walk = [&](const T* grid) {
            if constexpr (sizeof(T) == sizeof(float)) {
                if (framed <= 0x10000) return settle<Packed>(grid, entries, before, h, w);
            }
            return settle<Entry<T>>(grid, entries, before, h, w);
        };
        for (int64_t b = begin; b < end; ++b) {
            const T* grid = costs + b * n;
            T* out = path + b * n;
            const bool found = fine(grid, n, clamped) && walk(grid);
            for (int64_t v = 0; v < n; ++v) out[v] = found ? T(0) : T(NAN);
            if (!found) continue;
            for (int64_t v = h * (w + 2) + w; v != 0; v = before[v]) out[(v / (w + 2) - 1) * w + v % (w + 2) - 1] = 1;
        }
    });
    return enough;
}

template bool grid_path(const float*, float*, int64_t, int64_t, int64_t, bool, int);
template bool grid_path(const double*, double*, int64_t, int64_t, int64_t, bool, int);

}  // namespace softly::SOFTLY_ISA
