// A convolution, each example by itself. Compiled once for each instruction set.
#include "conv_forward.hpp"

#include <cstring>

namespace noisette::NOISETTE_ISA {
namespace {

using V = float __attribute__((vector_size(4 * kFilters)));

inline V load(const float* p) { V v; std::memcpy(&v, p, sizeof v); return v; }

constexpr int kTiles = 12;  // vectors of a tile: what fits into registers beside what they are made of

// P places beside each other by N vectors of filters stay in registers while the taps of a window stream by. A number is
// summed up in the same order whatever P is.
template <int P, int N>
void tile(const Filters& how, const float* x, const float* weight, const float* bias, float* out) {
  const int64_t run = how.kernel_w * how.in, line = how.padded_w * how.in, beside = how.stride_w * how.in;
  V sum[P][N];
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sum[p][n] = load(bias + n * kFilters);
  for (int64_t i = 0; i < how.kernel_h; ++i)
    for (int64_t r = 0; r < run; ++r, weight += how.out) {
      const float* value = x + i * line + r;
#pragma GCC unroll 12
      for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) sum[p][n] += (value[p * beside] - V{}) * load(weight + n * kFilters);
    }
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) std::memcpy(out + p * how.out + n * kFilters, &sum[p][n], sizeof(V));
}

using Tile = void (*)(const Filters&, const float*, const float*, const float*, float*);

template <int P, int N>
Tile tile_of(int64_t places) {
  if (places == P) return tile<P, N>;
  if constexpr (P > 1) return tile_of<P - 1, N>(places);
  else return nullptr;
}

}  // namespace

void filter(const Filters& how, int64_t from, int64_t to, const float* x, float* padded, float* out) {
  const int64_t line = how.padded_w * how.in, row = how.width * how.in;
  for (int64_t e = from; e < to; ++e) {
    for (int64_t h = 0; h < how.height; ++h)
      std::memcpy(padded + (h + how.pad_top) * line + how.pad_left * how.in, x + (e * how.height + h) * row,
                  static_cast<size_t>(row) * sizeof(float));
    for (int64_t c = 0, wide = 0; c < how.out; c += wide) {
      wide = how.out - c >= 2 * kFilters ? 2 * kFilters : kFilters;
      const int64_t most = kTiles * kFilters / wide, tiles = (how.wide + most - 1) / most;
      for (int64_t h = 0; h < how.high; ++h)
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t at = how.wide * t / tiles, places = how.wide * (t + 1) / tiles - at;
          const Tile run = wide > kFilters ? tile_of<kTiles / 2, 2>(places) : tile_of<kTiles, 1>(places);
          run(how, padded + h * how.stride_h * line + at * how.stride_w * how.in, how.weight + c, how.bias + c,
              out + ((e * how.high + h) * how.wide + at) * how.out + c);
        }
    }
  }
}

}  // namespace noisette::NOISETTE_ISA
