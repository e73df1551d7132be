// Gradients of an embedding: rows that an example names several times are added up first. Compiled once for each
// instruction set.
#include "embedding.hpp"

namespace noisette::NOISETTE_ISA {

void look_up(const Lookups& all) {
  for (int64_t e = 0; e < all.examples; ++e) {
    const int64_t at = e * all.positions;
    int64_t used = 0;
    for (int64_t t = 0; t < all.positions; ++t) {
      const int64_t row = all.index[at + t];
      const float* g = all.g + (at + t) * all.width;
      const bool fresh = all.slot[row] < 0;
      if (fresh) {
        all.slot[row] = static_cast<int32_t>(used);
        all.named[at + used++] = row;
      }
      double* sum = all.sums + (at + all.slot[row]) * all.width;
      if (fresh)
        for (int64_t i = 0; i < all.width; ++i) sum[i] = g[i];
      else
        for (int64_t i = 0; i < all.width; ++i) sum[i] += g[i];
    }
    double square = 0.0;
    for (int64_t k = 0; k < used; ++k) {
      const double* sum = all.sums + (at + k) * all.width;
      for (int64_t i = 0; i < all.width; ++i) square += sum[i] * sum[i];
      all.slot[all.named[at + k]] = -1;
    }
    all.used[e] = used;
    all.squares[e] = square;
  }
}

void add_rows(const Lookups& all, const double* weights, int64_t count, double step, double* total) {
  const double inverse = 1 / step;
  for (int64_t e = 0; e < count; ++e) {
    if (weights[e] == 0.0) continue;  // zero times NaN is NaN
    for (int64_t k = 0; k < all.used[e]; ++k) {
      const double* sum = all.sums + (e * all.positions + k) * all.width;
      double* row = total + all.named[e * all.positions + k] * all.width;
      for (int64_t i = 0; i < all.width; ++i) row[i] += __builtin_trunc(sum[i] * weights[e] * inverse) * step;
    }
  }
}

}  // namespace noisette::NOISETTE_ISA
