// The largest value of every window of an image: what the variants share with the module that calls them.
#pragma once
#include <cstdint>

namespace noisette {

constexpr int64_t kChannels = 8;  // that go together, of which an image has a multiple

// Images are NHWC; a window that reaches over a margin is what lies inside.
struct Pooling {
  int64_t height, width, channels, high, wide;  // of the input; of the output
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

#define NOISETTE_POOLING                                                                                               \
  /* Windows of examples `from` to `to`: the largest of each, and its tap, the first of several, the last that is NaN. */ \
  void pool(const Pooling& how, int64_t from, int64_t to, const float* x, float* out, int32_t* taps);                  \
  /* The way back: what is derived at outputs, `g`, is added up where their values came from. */                       \
  void unpool(const Pooling& how, int64_t from, int64_t to, const float* g, const int32_t* taps, float* out);

namespace plain { NOISETTE_POOLING }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_POOLING }
namespace avx512 { NOISETTE_POOLING }
#endif

}  // namespace noisette
