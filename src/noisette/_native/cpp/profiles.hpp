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

constexpr int64_t kFew = W < 16 ? 4 : 8;         // examples whose scores stay in registers
constexpr int64_t kBeside = kColumns / W;        // with those of so many vectors of profiles

// The profile of the highest cosine for each example of a group, the first of several.
void choose(const Block& family, const float* sums, int64_t group, int64_t* chosen) {
  for (int64_t e = 0; e < kGroup; ++e) chosen[e] = 0;
  if (family.profiles == 1) return;
  for (int64_t first = 0; first < group; first += kFew) {
    V best[kFew];
    I whose[kFew] = {};
    for (int64_t e = 0; e < kFew; ++e) best[e] = V{} - 1.0f;
    for (int64_t p = 0; p < family.columns; p += kColumns) {
      V score[kFew][kBeside] = {};
      for (int64_t k = 0; k < family.knots; ++k) {
        const float* knot = family.knot + k * family.columns + p;
#pragma GCC unroll 8
        for (int64_t e = 0; e < kFew; ++e) {
          const V sum = splat(sums[k * kGroup + first + e]);
#pragma GCC unroll 4
          for (int64_t b = 0; b < kBeside; ++b) score[e][b] += load(knot + b * W) * sum;
        }
      }
#pragma GCC unroll 8
      for (int64_t e = 0; e < kFew; ++e)
#pragma GCC unroll 4
        for (int64_t b = 0; b < kBeside; ++b) {
          const I higher = score[e][b] > best[e];
          best[e] = higher ? score[e][b] : best[e];
          whose[e] = higher ? kLanes + static_cast<int32_t>(p + b * W) : whose[e];
        }
    }
    for (int64_t e = 0; e < kFew; ++e) {
      float highest = -1.0f;
      for (int64_t lane = 0; lane < W; ++lane) {
        const int64_t mine = whose[e][lane];
        const bool higher = best[e][lane] > highest || (best[e][lane] == highest && mine < chosen[first + e]);
        if (mine >= family.profiles || !higher) continue;  // columns are filled up
        highest = best[e][lane];
        chosen[first + e] = mine;
      }
    }
  }
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
