// Last phase of an encoder with profiles: every coordinate within the bound of its rank, summed.
#pragma once
#include "profiles.hpp"
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

// In steps of the grid, rounded toward zero, so that it stays in the image; `bound` is in steps as well.
template <bool Snap>
inline I bounded(V v, V bound, V inverse) {
  if (Snap) return __builtin_convertvector(v == 0.0f ? V{} : with_sign(bound, v), I);
  const V steps = v * inverse, least = -bound;
  const V above = steps > least ? steps : least;
  return __builtin_convertvector(above < bound ? above : bound, I);
}

// Add the bounded values of a group of examples, at most a tile. They are added up as whole numbers of steps: a group is
// small enough for that, and the total is read and written once for all of them.
template <bool Snap>
void add_bounded(const Values* v, const float* const* table, int64_t count, int64_t start, int64_t stop, double step,
                 double* total) {
  const V inverse = splat(static_cast<float>(1 / step));
  I sums[kTile / W];
  for (int64_t n = 0; n < count; ++n) {
    const Values mine = v[n];
    uint32_t keys[kTile];
    float bound[kTile];
    for (int64_t i = start; i < stop; i += W) {
      const I key = bits(mine.upto(i, stop)) >> kDropped;
      std::memcpy(keys + i - start, &key, sizeof key);
    }
    // looked up one by one, which is faster than a gather; whole vectors, of which a tail has keys of zero
    for (int64_t i = 0; i < (stop - start + W - 1) / W * W; ++i) bound[i] = table[n][keys[i]];
    for (int64_t i = start; i < stop; i += W) {
      I& sum = sums[(i - start) / W];
      sum = (n > 0 ? sum : I{}) + bounded<Snap>(mine.upto(i, stop), load(bound + i - start), inverse);
    }
  }
  int64_t i = start;
  for (; i + W <= stop; i += W) {
    Whole half[2];
    std::memcpy(half, sums + (i - start) / W, sizeof half);
    for (int h = 0; h < 2; ++h) {
      double* to = total + i + h * H;
      store(to, load_double(to) + __builtin_convertvector(half[h], D) * step);
    }
  }
  for (; i < stop; ++i) total[i] += sums[(i - start) / W][(i - start) % W] * step;
}

void ranked(const Job& job, int64_t block, View* const* views, int64_t group) {
  const Workspace& work = *job.work;
  const Block& family = job.plan->blocks[block];
  const int64_t* used = work.used + block * work.group;
  const uint16_t* all_keys = work.keys + block * work.group * kBuckets;
  const double step = job.plan->step, inverse = 1 / step;
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
      table[keys[i]] = levels[level] * static_cast<float>(inverse);
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
      if (count == 0) continue;
      double* total = job.total + piece.at + row * piece.cols;
      for (int64_t start = 0; start < piece.cols; start += kTile) {
        const int64_t stop = start + kTile < piece.cols ? start + kTile : piece.cols;
        if (job.plan->kind == Kind::snap) add_bounded<true>(v, table, count, start, stop, step, total);
        else add_bounded<false>(v, table, count, start, stop, step, total);
      }
    }
  }
  for (int64_t e = 0; e < group; ++e)
    for (int64_t i = 0; i < used[e]; ++i) work.table[e * kBuckets + all_keys[e * kBuckets + i]] = 0.0f;
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
