// Second phase: whether a gradient is finite, and how many of its coordinates have each magnitude.
#pragma once
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

uint32_t largest(const float* v, int64_t n) {
  I most{};
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    const I b = bits(load(v + i));
    most = b > most ? b : most;
  }
  uint32_t found = 0;
  for (int lane = 0; lane < W; ++lane)
    if (static_cast<uint32_t>(most[lane]) > found) found = static_cast<uint32_t>(most[lane]);
  for (; i < n; ++i)
    if (bits(v[i]) > found) found = bits(v[i]);
  return found;
}

// Of an outer product the largest value is the product of the largest, so it need not be computed.
bool finite(const Piece& piece, const View& view) {
  const uint32_t c = largest(view.cols, piece.cols);
  if (c >= kInfinity) return false;
  if (!piece.outer) return true;
  const uint32_t r = largest(view.rows, piece.rows);
  if (r >= kInfinity) return false;
  float a, b;
  std::memcpy(&a, &r, sizeof a);
  std::memcpy(&b, &c, sizeof b);
  return bits(a * b) < kInfinity;
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// For every set of lanes, these lanes first.
struct Orders {
  uint8_t lanes[256][8];
};
constexpr Orders orders() {
  Orders all{};
  for (int mask = 0; mask < 256; ++mask)
    for (int lane = 0, n = 0; lane < 8; ++lane)
      if (mask >> lane & 1) all.lanes[mask][n++] = static_cast<uint8_t>(lane);
  return all;
}
constexpr Orders kOrders = orders();
#endif

// Write those of W values that are to be kept, in order; how many.
template <class T, class To>
inline int compress(I keep, T values, To* out) {
#if defined(__AVX512F__)
  const __mmask16 mask = _mm512_test_epi32_mask((__m512i)keep, (__m512i)keep);
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, (__m512i)values));
  return __builtin_popcount(mask);
#elif defined(__AVX2__)
  const int mask = _mm256_movemask_ps((__m256)keep);
  const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOrders.lanes[mask])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32((__m256i)values, order));
  return __builtin_popcount(static_cast<unsigned>(mask));
#else
  int n = 0;
  for (int lane = 0; lane < W; ++lane) {
    out[n] = static_cast<To>(values[lane]);
    n += keep[lane] != 0;
  }
  return n;
#endif
}

// Count the buckets of `n` values. Zeros, of which there are many, are left out: whatever is not counted lies below.
void count(const Values v, int64_t n, uint32_t* histogram, Range& range) {
  uint32_t keys[kTile + W];  // where the counters of each begin
  I low = I{} + range.low, high = I{} + range.high;
  for (int64_t start = 0; start < n; start += kTile) {
    const int64_t stop = start + kTile < n ? start + kTile : n;
    int filled = 0;
    for (int64_t i = start; i < stop; i += W) {
      const I key = bits(v.upto(i, stop)) >> kDropped;
      high = key > high ? key : high;
      const I raised = key == 0 ? I{} + static_cast<int32_t>(kBuckets) : key;
      low = raised < low ? raised : low;
      filled += compress(key != 0, key * kTurns, keys + filled);
    }
    // in turn, so that an increment need not wait for the one before it
    int i = 0;
    for (; i + kTurns <= filled; i += kTurns)
#pragma GCC unroll 4
      for (int turn = 0; turn < kTurns; ++turn) ++(histogram + turn)[keys[i + turn]];
    for (; i < filled; ++i) ++histogram[keys[i]];
  }
  for (int lane = 0; lane < W; ++lane) {
    if (low[lane] < range.low) range.low = low[lane];
    if (high[lane] > range.high) range.high = high[lane];
  }
}

// Count a piece of one example into the histogram of its block; false where a value is not finite.
bool tally(const Piece& piece, View view, const Workspace& work) {
  uint32_t* histogram = work.histogram + piece.block * kTurns * kBuckets;
  Range& range = work.ranges[piece.block];
  if (!piece.outer) {
    count(values(piece, view, 0), piece.cols, histogram, range);
    return range.high < static_cast<int32_t>(kInfinity >> kDropped);
  }
  if (!finite(piece, view)) return false;
  int64_t cols = 0;  // zeros count nowhere, so they are taken out of the input once for all rows
  for (int64_t i = 0; i < piece.cols; ++i) {
    work.nonzero[cols] = view.cols[i];
    cols += view.cols[i] != 0.0f;
  }
  view.cols = work.nonzero;
  for (int64_t row = 0; row < piece.rows; ++row)
    if (view.rows[row] != 0.0f) count(values(piece, view, row), cols, histogram, range);
  return true;
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
