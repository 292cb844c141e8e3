// How the kernels run a comparator network: compiled once per network, for every instruction set.
//
// Comparators are numbered layer by layer; within a layer the plan chooses the order. Rows are the wires' rows of a
// matrix that is carried through the network, and a *run* is a number of like operations on them. Two consecutive
// layers are fused where they can be, since rows then stay in registers from one to the other: every wire has at
// most one comparator in each, so they connect the wires to cycles and paths. Where all connections stay within few
// wires, the layers of a stretch of the network run on one such set of wires before they run on the next.
#pragma once

#include <cstdint>

namespace softly {

struct Run {
    enum Kind : int32_t {
        quads,    // cycles of 4 wires r0..r3: (r0, r1) and (r2, r3), then (r1, r2) and (r3, r0)
        chains,   // paths: pairs (u, v), then links from the v of one pair to the u of the next
        singles,  // comparators on their own
    };
    Kind kind;
    int32_t count;   // of quads, pairs, comparators
    int32_t rows;    // where SortingPlan::rows has their wires: 4, 2, 2 each
    int32_t first;   // number of the first comparator of the first layer: 2, 1, 1 each
    int32_t second;  // quads: number of the first comparator of the second layer, 2 each
    int32_t links;   // chains: where SortingPlan::links has, for every pair, the comparator before it, or -1
};

inline constexpr int slots(Run::Kind kind) { return kind == Run::quads ? 4 : kind == Run::chains ? 2 : 1; }

// Part of a run on part of the columns.
struct Call {
    int32_t run;
    int32_t begin, end;        // which of the run's operations
    int32_t granule, granules;  // which of the strip's columns, in granules of 8 or 16
    int64_t slot;              // comparators times granules in the calls before this one
};

// The calls that carry the columns of P from the identity to the result, in strips of up to `granules` granules.
// What is zero by structure is left out: a column of P can be non-zero only on wires that its input can reach.
struct Schedule {
    int32_t strips;
    const int64_t* begin;  // strips + 1: where a strip's calls begin
    const Call* calls;
    const int64_t* slot;   // strips: comparators times granules in a strip
};

struct SortingPlan {
    int32_t n, depth, size, runs_count, outputs;
    const int32_t* wires;   // 2 * size
    const int32_t* layers;  // depth + 1: the comparators of layer l are layers[l] to layers[l + 1]
    const int32_t* output;  // outputs: the wires that are read at the end
    const Run* runs;
    const int32_t* rows;
    const int32_t* links;
};

// A plan for `depth` layers of comparators (i, j) on n wires, of which layer l has offsets[l] to offsets[l + 1], and
// of which the wires `output` are read. Comparators that cannot reach an output are left out. Kept until destroyed.
SortingPlan* create_sorting_plan(int64_t n, const int32_t* wires, const int32_t* offsets, int64_t depth,
                                 const int32_t* output, int64_t outputs);
void destroy_sorting_plan(SortingPlan* plan);

// Made at the first call for a width. granules is 1, 2 or 4, and each has 8 or 16 columns.
const Schedule& schedule(const SortingPlan& plan, int granules, int columns);

}  // namespace softly
