// First phase, where a layer is a convolution: the gradient of one example.
#pragma once
#include "magnitude_histogram.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

constexpr int kTiles = 12;  // vectors of a tile: what fits into registers beside what they are made of

// R runs by N vectors of one channel's gradient stay in registers while the derivatives of that channel stream by.
template <int R, int N>
void tile(const Ends& ends, const float* x, int64_t line, bool first, float* out, int64_t width) {
  V sum[R][N] = {};
  for (int64_t i = 0; i < ends.count; ++i) {
    const float* patch = x + ends.at[i];
    const V g = splat(ends.value[i]);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
      for (int n = 0; n < N; ++n) sum[r][n] += g * load(patch + r * line + n * W);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
    for (int n = 0; n < N; ++n) {
      float* to = out + r * width + n * W;
      store(to, first ? sum[r][n] : load(to) + sum[r][n]);
    }
}

using Tile = void (*)(const Ends&, const float*, int64_t, bool, float*, int64_t);

template <int R, int N>
Tile tile_of(int64_t runs, int64_t vectors) {
  if (runs == R && vectors == N) return tile<R, N>;
  if constexpr (N > 1) return tile_of<R, N - 1>(runs, vectors);
  else if constexpr (R > 1) return tile_of<R - 1, kTiles / (R - 1)>(runs, vectors);
  else return nullptr;
}

template <int Bit, int... L>
inline void exchange(V& a, V& b, Lanes<L...>) {
  const V low = __builtin_shuffle(a, b, I{(L & Bit ? L - Bit + W : L)...});
  b = __builtin_shuffle(a, b, I{(L & Bit ? L + W : L + Bit)...});
  a = low;
}

// W rows become columns.
template <int Bit = 1>
inline void transpose(V* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i)
    if (!(i & Bit)) exchange<Bit>(rows[i], rows[i | Bit], AllLanes{});
  if constexpr (2 * Bit < W) transpose<2 * Bit>(rows);
}

// The derivatives at places `from` to `to` that are not zero, of every channel. Many are zero behind a maximum. Where the
// input is not finite all are kept, since zero times infinity is no number.
void collect(const Layer& layer, const float* g, bool all, int64_t from, int64_t to, const Workspace& work) {
  for (int64_t c = 0; c < layer.out; c += W) {
    const int64_t channels = c + W < layer.out ? W : layer.out - c;
    Ends* ends = work.ends + c;
    for (int64_t k = 0; k < channels; ++k) ends[k].count = 0;
    for (int64_t place = from; place < to; place += W) {
      const int64_t places = place + W < to ? W : to - place;
      const float* value = g + place * layer.out + c;
      V rows[W];
      if (places == W && channels == W) {
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) rows[i] = load(value + i * layer.out);
      } else {
        for (int64_t i = 0; i < W; ++i) rows[i] = V{};
        for (int64_t i = 0; i < places; ++i)
          std::memcpy(rows + i, value + i * layer.out, static_cast<size_t>(channels) * sizeof(float));
      }
      transpose(rows);
      I at;
      std::memcpy(&at, work.places + place, sizeof at);
      const I here = kLanes < static_cast<int32_t>(places);
      for (int64_t k = 0; k < channels; ++k) {
        const I keep = here & (all ? here : bits(rows[k]) != 0);
        compress(keep, at, ends[k].at + ends[k].count);
        ends[k].count += compress(keep, rows[k], ends[k].value + ends[k].count);
      }
    }
  }
}

// out (channels, kh, width) = the sum over places of derivatives times patches, which are never written down: they are
// runs of the padded input, of which a width is filled up to whole vectors.
void convolve(const Layer& layer, const float* x, const float* g, bool all, const Workspace& work, float* out) {
  const int64_t line = layer.padded_w * layer.in;
  const int64_t vectors = (layer.kernel_w * layer.in + W - 1) / W, width = vectors * W;
  const int64_t tiles = (vectors + kTiles - 1) / kTiles;
  const int64_t together = vectors < kTiles ? kTiles / vectors : 1;
  const int64_t reach = width / tiles * layer.wide < line ? width / tiles * layer.wide : line;
  int64_t rows = (24 << 10) / (reach * static_cast<int64_t>(sizeof(float)));  // what fits into the first cache
  rows = rows < 1 ? 1 : rows;
  const int64_t parts = (layer.high + rows - 1) / rows;
  for (int64_t row = 0; row < layer.high; ++row)
    for (int64_t column = 0; column < layer.wide; ++column)
      work.places[row * layer.wide + column] =
          static_cast<uint32_t>(row * layer.stride_h * line + column * layer.stride_w * layer.in);
  for (int64_t c = 0; c < layer.out; ++c) {
    work.ends[c].value = work.derivatives + c * (layer.high * layer.wide + W);
    work.ends[c].at = work.patches + c * (layer.high * layer.wide + W);
  }
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t from = layer.high * part / parts, to = layer.high * (part + 1) / parts;
    collect(layer, g, all, from * layer.wide, to * layer.wide, work);
    for (int64_t k = 0; k < layer.kernel_h; k += together) {
      const int64_t runs = k + together < layer.kernel_h ? together : layer.kernel_h - k;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t v = t * vectors / tiles, next = (t + 1) * vectors / tiles;
        const Tile sum = tile_of<kTiles, 1>(runs, next - v);
        for (int64_t c = 0; c < layer.out; ++c)
          sum(work.ends[c], x + k * line + v * W, line, part == 0, out + (c * layer.kernel_h + k) * width + v * W, width);
      }
    }
  }
}

// The weight gradient (out, kh, kw, in) of one example.
void convolution(const Layer& layer, int64_t example, const Workspace& work, float* weight) {
  const float* x = layer.x + example * layer.x_stride;
  const float* g = layer.g + example * layer.g_stride;
  const int64_t run = layer.kernel_w * layer.in, lines = layer.out * layer.kernel_h;
  const bool all = largest(x, layer.height * layer.width * layer.in) >= kInfinity;
  const bool whole = run % W == 0;  // else the last vector of a run reads what lies behind it
  if (!whole || layer.padded_h != layer.height || layer.padded_w != layer.width) {
    const int64_t line = layer.padded_w * layer.in;
    std::memset(work.padded, 0, static_cast<size_t>(layer.padded_h * line + W) * sizeof(float));
    for (int64_t h = 0; h < layer.height; ++h)
      std::memcpy(work.padded + (h + layer.pad_top) * line + layer.pad_left * layer.in, x + h * layer.width * layer.in,
                  static_cast<size_t>(layer.width * layer.in) * sizeof(float));
    x = work.padded;
  }
  if (whole) return convolve(layer, x, g, all, work, weight);
  convolve(layer, x, g, all, work, work.product);
  for (int64_t i = 0; i < lines; ++i)
    std::memcpy(weight + i * run, work.product + i * ((run + W - 1) / W * W), static_cast<size_t>(run) * sizeof(float));
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
