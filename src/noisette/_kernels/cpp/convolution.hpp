// First phase, where a layer is a convolution: the gradient of one example.
#pragma once
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

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

// The weight gradient (kh, kw, in, out) of one example.
void convolution(const Layer& layer, int64_t example, const Workspace& work, float* weight) {
  const float* x = layer.x + example * layer.x_stride;
  const float* g = layer.g + example * layer.g_stride;
  const int64_t positions = layer.high * layer.wide;
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

}  // namespace
}  // namespace noisette::NOISETTE_ISA
