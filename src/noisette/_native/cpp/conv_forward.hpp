// Convolutions of images with few channels, which libraries are slow at: what the variants share with the module that
// calls them.
#pragma once
#include <cstdint>

namespace noisette {

constexpr int64_t kFilters = 8;  // that go together, of which a convolution has a multiple

// Images are NHWC.
struct Filters {
  int64_t height, width, in, high, wide, out;  // of the input; of the output
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, padded_h, padded_w;
  const float *weight, *bias;  // (kernel_h, kernel_w, in, out), (out)
};

#define NOISETTE_FILTERS                                                                                        \
  /* Examples `from` to `to`; `padded` has room for one image, (padded_h, padded_w, in), and starts as zeros. */ \
  void filter(const Filters& how, int64_t from, int64_t to, const float* x, float* padded, float* out);

namespace plain { NOISETTE_FILTERS }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_FILTERS }
namespace avx512 { NOISETTE_FILTERS }
#endif

}  // namespace noisette
