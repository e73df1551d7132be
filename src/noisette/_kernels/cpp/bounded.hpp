// Last phase of an encoder with profiles: every coordinate within the bound of its rank, summed.
#pragma once
#include "profiles.hpp"
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

template <bool Snap>
inline V bounded(V v, V bound) {
  if (Snap) {
    const I zero = v == 0.0f;
    return zero ? V{} : with_sign(bound, v);
  }
  const I pattern = bits(v);
  V magnitude;
  std::memcpy(&magnitude, &pattern, sizeof magnitude);
  return with_sign(magnitude < bound ? magnitude : bound, v);
}

// Add the bounded values of N examples, at most a tile, so that the total is read and written once for all of them.
template <bool Snap, int N>
void add_bounded(const Values* v, const float* const* table, int64_t start, int64_t stop, Steps steps, double* total) {
  float bound[N][kTile];
  for (int n = 0; n < N; ++n) {
    uint32_t keys[kTile];
    for (int64_t i = start; i < stop; i += W) {
      const I key = bits(v[n].upto(i, stop)) >> kDropped;
      std::memcpy(keys + i - start, &key, sizeof key);
    }
    // looked up one by one, which is faster than a gather
    for (int64_t i = 0; i < stop - start; ++i) bound[n][i] = table[n][keys[i]];
  }
  int64_t i = start;
  for (; i + W <= stop; i += W) {
    D low = load_double(total + i), high = load_double(total + i + H);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) steps.add(low, high, bounded<Snap>(v[n].vector(i), load(bound[n] + i - start)));
    store(total + i, low);
    store(total + i + H, high);
  }
  if (i == stop) return;
  for (int n = 0; n < N; ++n) {
    float part[W] = {};
    std::memcpy(part, bound[n] + i - start, static_cast<size_t>(stop - i) * sizeof(float));
    const V rest = bounded<Snap>(v[n].upto(i, stop), load(part));
    for (int64_t k = i; k < stop; ++k) total[k] += steps.of(rest[k - i]);
  }
}

template <bool Snap>
void add_bounded(const Values* v, const float* const* table, int64_t count, int64_t start, int64_t stop, Steps steps,
                 double* total) {
  for (; count >= 4; count -= 4, v += 4, table += 4) add_bounded<Snap, 4>(v, table, start, stop, steps, total);
  if (count >= 2) {
    add_bounded<Snap, 2>(v, table, start, stop, steps, total);
    count -= 2, v += 2, table += 2;
  }
  if (count == 1) add_bounded<Snap, 1>(v, table, start, stop, steps, total);
}

void ranked(const Job& job, int64_t block, View* const* views, int64_t group) {
  const Workspace& work = *job.work;
  const Block& family = job.plan->blocks[block];
  const int64_t* used = work.used + block * work.group;
  const uint16_t* all_keys = work.keys + block * work.group * kBuckets;
  const Steps grid = steps(*job.plan);
  int64_t chosen[kGroup];
  choose(family, work.sums + block * work.knots * kGroup, group, chosen);
  for (int64_t e = 0; e < group; ++e) {
    const float* levels = family.level + chosen[e] * family.levels;
    const uint16_t* keys = all_keys + e * kBuckets;
    const int64_t* below = work.below + (block * work.group + e) * kBuckets;
    float* table = work.table + e * kBuckets;
    int64_t level = 0;
    for (int64_t i = 0; i < used[e]; ++i) {
      // the lowest rank of a bucket decides, so that no coordinate gets more than its exact rank allows
      while (level + 1 < family.levels && family.start[level + 1] <= below[i]) ++level;
      table[keys[i]] = levels[level];
    }
  }
  for (int64_t p = 0; p < job.count; ++p) {
    const Piece& piece = job.pieces[p];
    if (piece.block != block) continue;
    for (int64_t row = 0; row < piece.rows; ++row) {
      Values v[kGroup];
      const float* table[kGroup];
      int64_t count = 0;
      for (int64_t e = 0; e < group; ++e) {
        if (piece.outer && views[e][p].rows[row] == 0.0f) continue;
        v[count] = values(piece, views[e][p], row);
        table[count++] = work.table + e * kBuckets;
      }
      double* total = job.total + piece.at + row * piece.cols;
      for (int64_t start = 0; start < piece.cols; start += kTile) {
        const int64_t stop = start + kTile < piece.cols ? start + kTile : piece.cols;
        if (job.plan->kind == Kind::snap) add_bounded<true>(v, table, count, start, stop, grid, total);
        else add_bounded<false>(v, table, count, start, stop, grid, total);
      }
    }
  }
  for (int64_t e = 0; e < group; ++e)
    for (int64_t i = 0; i < used[e]; ++i) work.table[e * kBuckets + all_keys[e * kBuckets + i]] = 0.0f;
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
