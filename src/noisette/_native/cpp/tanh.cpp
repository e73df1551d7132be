// tanh(x) = x P(x^2) / Q(x^2) up to 9, from where on it is 1 in single precision. Compiled once for each instruction set.
#include "tanh.hpp"

#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

// The least largest relative error that four powers over four can have up to 9, 2.1e-8, found by reweighted least
// squares. Both begin with 1, so that what is tiny stays what it is.
constexpr float kOver[] = {1, 0x1.120b0ep-3f, 0x1.ca2c1p-9f, 0x1.59c27ap-16f, 0x1.cada78p-27f};
constexpr float kUnder[] = {1, 0x1.de5adp-2f, 0x1.a7f7bcp-6f, 0x1.58858ep-12f, 0x1.a17eaap-21f};
constexpr float kEnd = 9;

inline V powers(const float (&factors)[5], V u) {
  V sum = splat(factors[4]);
  for (int i = 3; i >= 0; --i) sum = sum * u + factors[i];
  return sum;
}

inline V tangent(V x) {
  V y = x > kEnd ? splat(kEnd) : x;  // what is not a number stays so
  y = y < -kEnd ? splat(-kEnd) : y;
  const V u = y * y, found = y * powers(kOver, u) / powers(kUnder, u);
  const V low = found > 1 ? splat(1) : found;
  return low < -1 ? splat(-1) : low;
}

}  // namespace

void tangents(int64_t from, int64_t to, const float* x, float* out) {
  int64_t i = from;
  for (; i + W <= to; i += W) store(out + i, tangent(load(x + i)));
  if (i == to) return;
  float rest[W] = {};
  const size_t bytes = static_cast<size_t>(to - i) * sizeof(float);
  std::memcpy(rest, x + i, bytes);
  store(rest, tangent(load(rest)));
  std::memcpy(out + i, rest, bytes);
}

}  // namespace noisette::NOISETTE_ISA
