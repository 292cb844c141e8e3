// Rows of activations in memory, of which kernels take a few columns at a time: what stack.cpp goes through.
#pragma once

#include "logic/stack.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// Vectors of examples that are in registers at once.
constexpr int kChunk = 4;

template <typename S>
struct Memory {
    using T = typename Computed<S>::type;
    using V = typename Simd<T>::V;
    static constexpr int width = Simd<T>::width;

    static V load(const S* from) {
        if constexpr (sizeof(S) == 2) {
            typedef uint16_t Halves __attribute__((vector_size(2 * width)));
            Halves halves;
            __builtin_memcpy(&halves, from, sizeof halves);
            return (V)(__builtin_convertvector(halves, typename Simd<T>::U) << 16);
        } else {
            return Simd<T>::load(from);
        }
    }
    static void store(S* to, V value) {
        if constexpr (sizeof(S) == 2) {
            using U = typename Simd<T>::U;
            typedef uint16_t Halves __attribute__((vector_size(2 * width)));
            const U bits = (U)value, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            const U quiet = (bits >> 16) | 0x40;  // rounding would turn some NaN into infinity
            const Halves halves = __builtin_convertvector(value == value ? rounded : quiet, Halves);
            __builtin_memcpy(to, &halves, sizeof halves);
        } else {
            Simd<T>::store(to, value);
        }
    }
};

// A number of columns, at least one vector, that the compiler knows where `vectors` is not 0.
template <int vectors, int width>
struct Columns {
    int64_t number;

    explicit Columns(int64_t number) : number(vectors ? vectors * width : number) {}

    // Between rows of these columns in memory of our own: whole cache lines.
    int64_t stride() const { return vectors ? number : (number + 15) / 16 * 16; }

    // Calls body.operator()<count>(column, known) from left to right. The last vector ends with the last column and may
    // begin with some, `known` of them, that others had.
    template <typename F>
    void in_chunks(const F& body) const {
        if constexpr (vectors) {
            body.template operator()<vectors>(0, 0);
        } else {
            int64_t at = 0;
            for (; at + kChunk * width <= number; at += kChunk * width) body.template operator()<kChunk>(at, 0);
            for (; at + width <= number; at += width) body.template operator()<1>(at, 0);
            if (at < number) body.template operator()<1>(number - width, static_cast<int>(at + width - number));
        }
    }
};

template <typename S, typename F>
void with_columns(int64_t number, const F& body) {
    constexpr int width = Memory<S>::width;
    if (number == kChunk * width) {
        body(Columns<kChunk, width>(number));
    } else if (number == width) {
        body(Columns<1, width>(number));
    } else {
        body(Columns<0, width>(number));
    }
}

}  // namespace
}  // namespace softly::SOFTLY_ISA
