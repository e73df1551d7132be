// Third phase: ranks from histograms, and the profile that is nearest to each example.
#pragma once
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

inline double edge(int64_t key) {
  const uint32_t pattern = static_cast<uint32_t>(key) << kDropped;
  float value;
  std::memcpy(&value, &pattern, sizeof value);
  return value;
}

void forget(const Workspace& work, int64_t block) {
  Range& range = work.ranges[block];
  if (range.low <= range.high)
    std::memset(work.histogram + (block * kBuckets + range.low) * kTurns, 0,
                static_cast<size_t>(range.high - range.low + 1) * kTurns * sizeof(uint32_t));
  range = {};
}

// From the histogram of a block, which is cleared: the buckets in use and how many coordinates lie below each; and the
// sums of magnitudes that a cosine needs.
void survey(const Block& family, const Workspace& work, int64_t block, int64_t slot) {
  const int64_t dim = family.end[family.knots - 1];
  uint32_t* histogram = work.histogram + block * kTurns * kBuckets;
  uint16_t* keys = work.keys + (block * work.group + slot) * kBuckets;
  int64_t* below = work.below + (block * work.group + slot) * kBuckets;
  int64_t* sizes = below + 1;  // each count stands where the next bucket's rank will be
  int64_t used = 1, counted = 0;
  keys[0] = 0;
  for (int64_t key = work.ranges[block].low; key <= work.ranges[block].high; ++key) {
    static_assert(kTurns == 4);
    uint64_t turns[2];  // two in a number, whose sums do not overflow either
    std::memcpy(turns, histogram + kTurns * key, sizeof turns);
    const uint64_t two = turns[0] + turns[1];
    const int64_t n = static_cast<int64_t>((two & 0xffffffffu) + (two >> 32));
    keys[used] = static_cast<uint16_t>(key);
    sizes[used] = n;
    used += n != 0;  // rather than a branch that would often be guessed wrong
    counted += n;
  }
  forget(work, block);
  below[0] = 0;
  sizes[0] = dim - counted;
  for (int64_t i = 1; i < used; ++i) below[i] += below[i - 1];
  work.used[block * work.group + slot] = used;
  if (family.profiles == 1) return;
  float* sums = work.sums + block * work.knots * kGroup + slot;
  const double top = used > 1 ? 1.0 / edge(keys[used - 1]) : 0.0;
  int64_t i = 0, rank = 0;
  for (int64_t k = 0; k < family.knots; ++k) {
    double sum = 0.0;
    while (rank < family.end[k]) {
      const int64_t last = i + 1 < used ? below[i + 1] : dim;
      const int64_t upto = last < family.end[k] ? last : family.end[k];
      sum += static_cast<double>(upto - rank) * (edge(keys[i]) * top);
      rank = upto;
      if (rank == last) ++i;
    }
    sums[k * kGroup] = static_cast<float>(sum);
  }
}

// The profile of the highest cosine for each example of a group; the table of profiles is read once for all.
void choose(const Block& family, const float* sums, int64_t group, int64_t* chosen) {
  float best[kGroup];
  for (int64_t e = 0; e < kGroup; ++e) {
    best[e] = -1.0f;
    chosen[e] = 0;
  }
  if (family.profiles == 1) return;
  for (int64_t p = 0; p < family.profiles; p += W) {
    V score[kGroup] = {};
    for (int64_t k = 0; k < family.knots; ++k) {
      const V knot = load(family.knot + k * family.columns + p);
#pragma GCC unroll 8
      for (int64_t e = 0; e < kGroup; ++e) score[e] += knot * splat(sums[k * kGroup + e]);
    }
    for (int64_t e = 0; e < group; ++e)
      for (int64_t lane = 0; lane < W && p + lane < family.profiles; ++lane)
        if (score[e][lane] > best[e]) {
          best[e] = score[e][lane];
          chosen[e] = p + lane;
        }
  }
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
