// Encode and add: per-example gradients of a group of examples, their histograms, the profile of each, the clipped sum.
// Compiled once for each instruction set, NOISETTE_ISA names the variant.
#include "kernel.hpp"

#include <cmath>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace noisette::NOISETTE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

using V = float __attribute__((vector_size(4 * W)));
using I = int32_t __attribute__((vector_size(4 * W)));
using Half = float __attribute__((vector_size(2 * W)));
using D = double __attribute__((vector_size(4 * W)));
constexpr int H = W / 2;
constexpr uint32_t kInfinity = 0x7f800000u;

// x - 0 is x for every x, so that this is a broadcast and nothing more
inline V splat(float x) { return x - V{}; }
inline V load(const float* p) { V v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
inline I bits(V v) { I i; std::memcpy(&i, &v, sizeof i); return i & 0x7fffffff; }
inline uint32_t bits(float v) { uint32_t i; std::memcpy(&i, &v, sizeof i); return i & 0x7fffffffu; }

inline D load_double(const double* p) { D d; std::memcpy(&d, p, sizeof d); return d; }
inline void store(double* p, D d) { std::memcpy(p, &d, sizeof d); }
inline D widened(const float* p) {
  Half half;
  std::memcpy(&half, p, sizeof half);
  return __builtin_convertvector(half, D);
}

inline void add(D& low, D& high, V v) {
  Half a, b;
  std::memcpy(&a, &v, sizeof a);
  std::memcpy(&b, reinterpret_cast<const char*>(&v) + sizeof a, sizeof b);
  low += __builtin_convertvector(a, D);
  high += __builtin_convertvector(b, D);
}

inline V with_sign(V magnitude, V of) {
  I m, s;
  std::memcpy(&m, &magnitude, sizeof m);
  std::memcpy(&s, &of, sizeof s);
  const I joined = m | (s & INT32_MIN);
  V v;
  std::memcpy(&v, &joined, sizeof v);
  return v;
}

// The values of a piece, W at a time; a tail is filled up with zeros, which count nowhere.
struct Values {
  const float* at;
  V factor;
  bool scaled;
  V vector(int64_t i) const { const V v = load(at + i); return scaled ? v * factor : v; }
  V upto(int64_t i, int64_t stop) const {
    if (i + W <= stop) return vector(i);
    float part[W] = {};
    std::memcpy(part, at + i, static_cast<size_t>(stop - i) * sizeof(float));
    const V v = load(part);
    return scaled ? v * factor : v;
  }
};

inline Values values(const Piece& piece, const View& view, int64_t row) {
  if (!piece.outer) return {view.cols, V{}, false};
  return {view.cols, splat(view.rows[row]), true};
}

// ---- per-example gradients of a convolution ----------------------------------------------------------------------

// A tile of Q patch entries by N vectors of output channels stays in registers while the positions stream by.
template <int Q, int N>
inline void product_tile(const Layer& layer, const float* x, const float* g, int64_t channels, int64_t from,
                         int64_t to, float* out) {
  V sum[Q][N];
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sum[q][n] = load(out + q * channels + n * W);
  const int64_t step = layer.stride_w * layer.in;
  for (int64_t row = from; row < to; ++row) {
    const float* patch = x + row * layer.stride_h * layer.padded_w * layer.in;
    const float* end = g + row * layer.wide * channels;
    for (int64_t column = 0; column < layer.wide; ++column, patch += step, end += channels) {
      V e[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) e[n] = load(end + n * W);
#pragma GCC unroll 8
      for (int q = 0; q < Q; ++q) {
        const V p = splat(patch[q]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) sum[q][n] += p * e[n];
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store(out + q * channels + n * W, sum[q][n]);
}

template <int N>
inline void product(const Layer& layer, const float* x, const float* g, int64_t channels, int64_t from, int64_t to,
                    float* out, int64_t q) {
  switch (q) {
    case 1: return product_tile<1, N>(layer, x, g, channels, from, to, out);
    case 2: return product_tile<2, N>(layer, x, g, channels, from, to, out);
    case 3: return product_tile<3, N>(layer, x, g, channels, from, to, out);
    case 4: return product_tile<4, N>(layer, x, g, channels, from, to, out);
    case 5: return product_tile<5, N>(layer, x, g, channels, from, to, out);
    default: return product_tile<6, N>(layer, x, g, channels, from, to, out);
  }
}

// out (kh * kw * in, channels) += patches^T g, without writing the patches down: they are runs of the padded input.
void convolve(const Layer& layer, const float* x, const float* g, int64_t channels, float* out) {
  const int64_t run = layer.kernel_w * layer.in;
  const int64_t tiles = (run + 5) / 6;
  const int64_t position = (channels + layer.stride_h * layer.stride_w * layer.in) * static_cast<int64_t>(sizeof(float));
  int64_t rows = (24 << 10) / (position * layer.wide);  // what fits into the first cache
  rows = rows < 1 ? 1 : rows;
  for (int64_t from = 0; from < layer.high; from += rows) {
    const int64_t to = from + rows < layer.high ? from + rows : layer.high;
    for (int64_t k = 0; k < layer.kernel_h; ++k) {
      const float* line = x + k * layer.padded_w * layer.in;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t q = tile * run / tiles, next = (tile + 1) * run / tiles;
        float* row = out + (k * run + q) * channels;
        int64_t c = 0;
        for (; c + 2 * W <= channels; c += 2 * W)
          product<2>(layer, line + q, g + c, channels, from, to, row + c, next - q);
        for (; c < channels; c += W) product<1>(layer, line + q, g + c, channels, from, to, row + c, next - q);
      }
    }
  }
}

// The weight gradient (kh, kw, in, out) and, if wanted, the bias gradient (out) of one example.
void convolution(const Layer& layer, int64_t example, const Workspace& work, float* weight, float* bias) {
  const float* x = layer.x + example * layer.x_stride;
  const float* g = layer.g + example * layer.g_stride;
  const int64_t positions = layer.high * layer.wide;
  if (bias != nullptr) {
    int64_t c = 0;
    for (; c + W <= layer.out; c += W) {
      V sum{};
      for (int64_t t = 0; t < positions; ++t) sum += load(g + t * layer.out + c);
      store(bias + c, sum);
    }
    for (; c < layer.out; ++c) {
      float sum = 0.0f;
      for (int64_t t = 0; t < positions; ++t) sum += g[t * layer.out + c];
      bias[c] = sum;
    }
  }
  if (weight == nullptr) return;
  if (layer.padded_h != layer.height || layer.padded_w != layer.width) {
    const int64_t line = layer.padded_w * layer.in;
    std::memset(work.padded, 0, static_cast<size_t>(layer.padded_h * line) * sizeof(float));
    for (int64_t h = 0; h < layer.height; ++h)
      std::memcpy(work.padded + (h + layer.pad_top) * line + layer.pad_left * layer.in, x + h * layer.width * layer.in,
                  static_cast<size_t>(layer.width * layer.in) * sizeof(float));
    x = work.padded;
  }
  const int64_t entries = layer.kernel_h * layer.kernel_w * layer.in;
  const int64_t channels = (layer.out + W - 1) / W * W;
  if (channels == layer.out) {
    std::memset(weight, 0, static_cast<size_t>(entries * channels) * sizeof(float));
    return convolve(layer, x, g, channels, weight);
  }
  std::memset(work.ends, 0, static_cast<size_t>(positions * channels) * sizeof(float));
  for (int64_t t = 0; t < positions; ++t)
    std::memcpy(work.ends + t * channels, g + t * layer.out, static_cast<size_t>(layer.out) * sizeof(float));
  std::memset(work.product, 0, static_cast<size_t>(entries * channels) * sizeof(float));
  convolve(layer, x, work.ends, channels, work.product);
  for (int64_t q = 0; q < entries; ++q)
    std::memcpy(weight + q * layer.out, work.product + q * channels, static_cast<size_t>(layer.out) * sizeof(float));
}

// ---- whether a gradient is finite ---------------------------------------------------------------------------------

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

// ---- histograms -----------------------------------------------------------------------------------------------------

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

// Write those of W keys that are not zero, in order; how many.
inline int compress(I keys, uint32_t* out) {
#if defined(__AVX512F__)
  const __mmask16 mask = _mm512_test_epi32_mask((__m512i)keys, (__m512i)keys);
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, (__m512i)keys));
  return __builtin_popcount(mask);
#elif defined(__AVX2__)
  const int mask = 0xff ^ _mm256_movemask_ps((__m256)(keys == 0));
  const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kOrders.lanes[mask])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32((__m256i)keys, order));
  return __builtin_popcount(static_cast<unsigned>(mask));
#else
  int n = 0;
  for (int lane = 0; lane < W; ++lane) {
    out[n] = static_cast<uint32_t>(keys[lane]);
    n += keys[lane] != 0;
  }
  return n;
#endif
}

// Count the buckets of `n` values. Zeros, of which there are many, are left out: whatever is not counted lies below.
void count(const Values& v, int64_t n, uint32_t* histogram, Range& range) {
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
      filled += compress(key * kTurns, keys + filled);
    }
    // in turn, so that an increment need not wait for the one before it
    int i = 0;
    for (; i + kTurns <= filled; i += kTurns)
#pragma GCC unroll 4
      for (int turn = 0; turn < kTurns; ++turn) ++histogram[keys[i + turn] + static_cast<uint32_t>(turn)];
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

// Point `views` at the gradients of one example and count them while they are in the cache; false where a value is not
// finite.
bool prepare(const Job& job, int64_t example, float* gradients, View* views) {
  const Workspace& work = *job.work;
  const bool counted = job.plan->kind != Kind::l2;
  const Piece* piece = job.pieces;
  for (int64_t l = 0; l < job.layer_count; ++l) {
    const Layer& layer = job.layers[l];
    const float* x = layer.x + example * layer.x_stride;
    View made[2];
    int n = 0;
    if (layer.rule == Rule::dense) {
      made[n++] = {nullptr, x};
    } else if (layer.rule == Rule::linear) {
      const float* g = layer.g + example * layer.g_stride;
      if (layer.weight) made[n++] = {g, x};
      if (layer.bias) made[n++] = {nullptr, g};
    } else {
      const int64_t entries = layer.kernel_h * layer.kernel_w * layer.in * layer.out;
      float* weight = layer.weight ? gradients : nullptr;
      gradients += layer.weight ? entries : 0;
      float* bias = layer.bias ? gradients : nullptr;
      gradients += layer.bias ? layer.out : 0;
      convolution(layer, example, work, weight, bias);
      if (weight != nullptr) made[n++] = {nullptr, weight};
      if (bias != nullptr) made[n++] = {nullptr, bias};
    }
    for (int i = 0; i < n; ++i, ++piece, ++views) {
      *views = made[i];
      if (!(counted ? tally(*piece, made[i], work) : finite(*piece, made[i]))) return false;
    }
  }
  return true;
}

inline double edge(int64_t key) {
  const uint32_t pattern = static_cast<uint32_t>(key) << kDropped;
  float value;
  std::memcpy(&value, &pattern, sizeof value);
  return value;
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
    int64_t n = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      n += histogram[kTurns * key + turn];
      histogram[kTurns * key + turn] = 0;
    }
    keys[used] = static_cast<uint16_t>(key);
    sizes[used] = n;
    used += n != 0;  // rather than a branch that would often be guessed wrong
    counted += n;
  }
  work.ranges[block] = {};
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

// Clear the histograms of an example that is left out.
void forget(const Plan& plan, const Workspace& work) {
  for (int64_t block = 0; block < plan.count; ++block) {
    Range& range = work.ranges[block];
    uint32_t* histogram = work.histogram + block * kTurns * kBuckets;
    for (int64_t i = range.low * kTurns; i < (range.high + 1) * kTurns; ++i) histogram[i] = 0;
    range = {};
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

// ---- clipped sums ---------------------------------------------------------------------------------------------------

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
void add_bounded(const Values* v, const float* const* table, int64_t start, int64_t stop, double* total) {
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
    for (int n = 0; n < N; ++n) add(low, high, bounded<Snap>(v[n].vector(i), load(bound[n] + i - start)));
    store(total + i, low);
    store(total + i + H, high);
  }
  if (i == stop) return;
  for (int n = 0; n < N; ++n) {
    float part[W] = {};
    std::memcpy(part, bound[n] + i - start, static_cast<size_t>(stop - i) * sizeof(float));
    const V rest = bounded<Snap>(v[n].upto(i, stop), load(part));
    for (int64_t k = i; k < stop; ++k) total[k] += rest[k - i];
  }
}

template <bool Snap>
void add_bounded(const Values* v, const float* const* table, int64_t count, int64_t start, int64_t stop,
                 double* total) {
  for (; count >= 4; count -= 4, v += 4, table += 4) add_bounded<Snap, 4>(v, table, start, stop, total);
  if (count >= 2) {
    add_bounded<Snap, 2>(v, table, start, stop, total);
    count -= 2, v += 2, table += 2;
  }
  if (count == 1) add_bounded<Snap, 1>(v, table, start, stop, total);
}

void ranked(const Job& job, int64_t block, View* const* views, int64_t group) {
  const Workspace& work = *job.work;
  const Block& family = job.plan->blocks[block];
  const int64_t* used = work.used + block * work.group;
  const uint16_t* all_keys = work.keys + block * work.group * kBuckets;
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
  for (int64_t p = 0; p < job.piece_count; ++p) {
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
        if (job.plan->kind == Kind::snap) add_bounded<true>(v, table, count, start, stop, total);
        else add_bounded<false>(v, table, count, start, stop, total);
      }
    }
  }
  for (int64_t e = 0; e < group; ++e)
    for (int64_t i = 0; i < used[e]; ++i) work.table[e * kBuckets + all_keys[e * kBuckets + i]] = 0.0f;
}

double square(const float* v, int64_t n) {
  double sum = 0.0;
  for (int64_t start = 0; start < n; start += kTile) {  // tile by tile, so that rounding does not grow with n
    const int64_t stop = start + kTile < n ? start + kTile : n;
    D part[2] = {};
    int64_t i = start;
    for (; i + W <= stop; i += W) {
      const D a = widened(v + i), b = widened(v + i + H);
      part[0] += a * a;
      part[1] += b * b;
    }
    part[0] += part[1];
    double tile = 0.0;
    for (int lane = 0; lane < H; ++lane) tile += part[0][lane];
    for (; i < stop; ++i) tile += static_cast<double>(v[i]) * v[i];
    sum += tile;
  }
  return sum;
}

void add_scaled(const float* v, int64_t n, double factor, double* total) {
  int64_t i = 0;
  for (; i + H <= n; i += H) store(total + i, load_double(total + i) + factor * widened(v + i));
  for (; i < n; ++i) total[i] += factor * v[i];
}

void clipped(const Job& job, View* const* views, int64_t group) {
  double factor[kGroup];
  for (int64_t e = 0; e < group; ++e) {
    double sum = 0.0;
    for (int64_t p = 0; p < job.piece_count; ++p) {
      const Piece& piece = job.pieces[p];
      const double cols = square(views[e][p].cols, piece.cols);
      sum += piece.outer ? cols * square(views[e][p].rows, piece.rows) : cols;
    }
    const double norm = std::sqrt(sum);
    factor[e] = norm > job.plan->radius ? job.plan->radius / norm : 1.0;
  }
  for (int64_t p = 0; p < job.piece_count; ++p) {
    const Piece& piece = job.pieces[p];
    for (int64_t row = 0; row < piece.rows; ++row)
      for (int64_t start = 0; start < piece.cols; start += kTile) {
        const int64_t n = start + kTile < piece.cols ? kTile : piece.cols - start;
        double* total = job.total + piece.at + row * piece.cols + start;
        for (int64_t e = 0; e < group; ++e) {
          const View& view = views[e][p];
          const double scale = piece.outer ? factor[e] * view.rows[row] : factor[e];
          if (scale != 0.0) add_scaled(view.cols + start, n, scale, total);
        }
      }
  }
}

}  // namespace

void encode(const Job& job) {
  const Plan& plan = *job.plan;
  const Workspace& work = *job.work;
  int64_t example = job.first;
  while (example < job.last) {
    View* views[kGroup];
    int64_t group = 0;
    while (group < work.group && example < job.last) {
      View* mine = work.views + group * job.piece_count;
      if (!prepare(job, example++, work.gradients + group * work.dense, mine)) {
        forget(plan, work);  // it counts as zero: the next one takes its place
        continue;
      }
      for (int64_t block = 0; block < plan.count; ++block) survey(plan.blocks[block], work, block, group);
      views[group++] = mine;
    }
    if (group == 0) continue;
    if (plan.kind == Kind::l2) clipped(job, views, group);
    else
      for (int64_t block = 0; block < plan.count; ++block) ranked(job, block, views, group);
  }
}

}  // namespace noisette::NOISETTE_ISA
