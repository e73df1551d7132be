// The hyperbolic tangent: what the variants share with the module that calls them.
#pragma once
#include <cstdint>

namespace noisette {

#define NOISETTE_TANGENTS                                                                          \
  /* out[i] = tanh(x[i]) for `from` <= i < `to`, whatever lies beside it: to 6 units in the last place */ \
  void tangents(int64_t from, int64_t to, const float* x, float* out);

namespace plain { NOISETTE_TANGENTS }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_TANGENTS }
namespace avx512 { NOISETTE_TANGENTS }
#endif

}  // namespace noisette
