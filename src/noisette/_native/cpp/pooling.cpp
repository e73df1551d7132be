// Max-pooling and its way back, each example by itself. Compiled once for each instruction set.
#include "pooling.hpp"

#include <cstring>

namespace noisette::NOISETTE_ISA {
namespace {

using V = float __attribute__((vector_size(4 * kChannels)));
using I = int32_t __attribute__((vector_size(4 * kChannels)));

template <class T>
inline T read(const void* from) { T t; std::memcpy(&t, from, sizeof t); return t; }
template <class T>
inline void write(void* to, T t) { std::memcpy(to, &t, sizeof t); }

struct Span {
  int64_t first, last;  // one past it
  bool whole(int64_t size) const { return first == 0 && last == size; }
};

// The taps of window `at` that lie inside of the image.
inline Span inside(int64_t at, int64_t kernel, int64_t stride, int64_t pad, int64_t size) {
  const int64_t start = at * stride - pad, left = size - start;
  return {start < 0 ? -start : 0, kernel < left ? kernel : left};
}

// `visit(tap, where)` for all taps of a window: K by K, which a compiler can unroll, or those of spans where K is 0.
template <int K, class Visit>
inline void taps_of(const Pooling& how, Span rows, Span columns, const Visit& visit) {
  const int64_t line = how.width * how.channels;
  if (K > 0) {
#pragma GCC unroll 3
    for (int i = 0; i < K; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < K; ++j) visit(i * K + j, i * line + j * how.channels);
    return;
  }
  for (int64_t i = rows.first; i < rows.last; ++i)
    for (int64_t j = columns.first; j < columns.last; ++j)
      visit(static_cast<int32_t>(i * how.kernel_w + j), i * line + j * how.channels);
}

template <int K>
inline void largest(const Pooling& how, Span rows, Span columns, const float* x, float* out, int32_t* taps) {
  const int32_t first = static_cast<int32_t>(rows.first * how.kernel_w + columns.first);
  for (int64_t c = 0; c < how.channels; c += kChannels) {
    V best = V{} - __builtin_inff();
    I at = I{} + first;
    taps_of<K>(how, rows, columns, [&](int32_t tap, int64_t where) {
      const V v = read<V>(x + where + c);
      const I take = (v > best) | (v != v);
      best = take ? v : best;
      at = take ? I{} + tap : at;
    });
    write(out + c, best);
    write(taps + c, at);
  }
}

template <int K>
inline void back(const Pooling& how, Span rows, Span columns, const float* g, const int32_t* taps, float* out) {
  for (int64_t c = 0; c < how.channels; c += kChannels) {
    const V value = read<V>(g + c);
    const I at = read<I>(taps + c);
    taps_of<K>(how, rows, columns, [&](int32_t tap, int64_t where) {
      float* to = out + where + c;
      write(to, read<V>(to) + (at == tap ? value : V{}));
    });
  }
}

// `visit(k, rows, columns, window, image)` for every window of an example: k is its size, 0 where it is no small square
// or not all inside.
template <class Visit>
inline void windows_of(const Pooling& how, const Visit& visit) {
  const int64_t size = how.kernel_h == how.kernel_w && how.kernel_h <= 3 ? how.kernel_h : 0;
  for (int64_t h = 0; h < how.high; ++h) {
    const Span rows = inside(h, how.kernel_h, how.stride_h, how.pad_h, how.height);
    for (int64_t w = 0; w < how.wide; ++w) {
      const Span columns = inside(w, how.kernel_w, how.stride_w, how.pad_w, how.width);
      const int64_t corner = (h * how.stride_h - how.pad_h) * how.width + w * how.stride_w - how.pad_w;
      visit(rows.whole(size) && columns.whole(size) ? size : 0, rows, columns, (h * how.wide + w) * how.channels,
            corner * how.channels);
    }
  }
}

}  // namespace

void pool(const Pooling& how, int64_t from, int64_t to, const float* x, float* out, int32_t* taps) {
  const int64_t larger = how.height * how.width * how.channels, smaller = how.high * how.wide * how.channels;
  for (int64_t e = from; e < to; ++e)
    windows_of(how, [&](int64_t size, Span rows, Span columns, int64_t window, int64_t image) {
      const auto run = size == 2 ? largest<2> : size == 3 ? largest<3> : largest<0>;
      run(how, rows, columns, x + e * larger + image, out + e * smaller + window, taps + e * smaller + window);
    });
}

void unpool(const Pooling& how, int64_t from, int64_t to, const float* g, const int32_t* taps, float* out) {
  const int64_t larger = how.height * how.width * how.channels, smaller = how.high * how.wide * how.channels;
  for (int64_t e = from; e < to; ++e) {
    std::memset(out + e * larger, 0, static_cast<size_t>(larger) * sizeof(float));
    windows_of(how, [&](int64_t size, Span rows, Span columns, int64_t window, int64_t image) {
      const auto run = size == 2 ? back<2> : size == 3 ? back<3> : back<0>;
      run(how, rows, columns, g + e * smaller + window, taps + e * smaller + window, out + e * larger + image);
    });
  }
}

}  // namespace noisette::NOISETTE_ISA
