// Words as numbers, logarithms of uniforms, and cosine and sine of a turn, in double precision.
// Polynomials interpolate at Chebyshev's points, found with 60 digits; tests/unit/noise/test_sampling_error.py holds what comes of
// them to mpmath.
#pragma once
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

using U = uint64_t __attribute__((vector_size(4 * W)));

inline U load_words(const uint64_t* p) { U u; std::memcpy(&u, p, sizeof u); return u; }
inline U pattern(D d) { U u; std::memcpy(&u, &d, sizeof u); return u; }
inline D number(U u) { D d; std::memcpy(&d, &u, sizeof d); return d; }

// Whole numbers below 2^52, exact: the mantissa of 2^52 and so much more.
inline D small(U u) { return number(u | uint64_t{0x4330000000000000}) - 0x1p52; }
constexpr uint64_t kLow = 0xffffffffu;

// To the nearest double: both halves are exact, and their sum rounds once.
inline D as_double(U u) { return small(u >> 32) * 0x1p32 + small(u & kLow); }

inline D root(D d) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(d);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(d);
#else
  for (int lane = 0; lane < H; ++lane) d[lane] = std::sqrt(d[lane]);
  return d;
#endif
}

template <int N>
inline D polynomial(const double (&c)[N], D z) {
  D p = z * c[N - 1] + c[N - 2];
#pragma GCC unroll 8
  for (int k = N - 3; k >= 0; --k) p = p * z + c[k];
  return p;
}

constexpr double kLog2High = 0x1.62e42fefa38p-1, kLog2Low = 0x1.ef35793c7673p-45;  // its first 42 bits, and 53 more

// The logarithm of numbers from 2^-129 to 1, right up to 4 units of 2^-53 of itself, also next to 1.
// u = 2^k m with m between the roots of 1/2 and 2; log m = 2 atanh(s) with s = (m - 1) / (m + 1).
inline D log_of_uniform(D u) {
  static constexpr double c[] = {0x1.5555555555558p-2, 0x1.99999999952e2p-3, 0x1.2492492df1492p-3, 0x1.c71c62e57fa3fp-4,
                                 0x1.7462b4ab4c062p-4, 0x1.39fe60617ce73p-4, 0x1.2b584add1c619p-4};
  constexpr uint64_t half_root = 0x3fe6a09e667f3bcd, mantissa = (uint64_t{1} << 52) - 1;
  constexpr int up = 200;  // so that exponents are not negative
  const U shifted = pattern(u) - half_root + (uint64_t{up} << 52);
  const D k = small(shifted >> 52) - up;
  const D m = number(pattern(u) - ((shifted & ~mantissa) - (uint64_t{up} << 52)));
  const D s = (m - 1.0) / (m + 1.0), z = s * s, twice = s + s;
  const D part = twice + twice * z * polynomial(c, z);
  return k * kLog2High + (k * kLog2Low + part);
}

// exp(t) - 1 for t from 0 to 709, right up to 3 units of 2^-53 of itself where t is: t = k log 2 + r.
inline D exp_less_one(D t) {
  static constexpr double c[] = {0x1.0000000000000p-1,  0x1.5555555555557p-3,  0x1.5555555555556p-5,
                                 0x1.11111111100bep-7,  0x1.6c16c16c162c3p-10, 0x1.a01a01abf85abp-13,
                                 0x1.a01a01a6e1e2ap-16, 0x1.71de01fdbf9cap-19, 0x1.27e4db46cddd1p-22,
                                 0x1.af4e554377204p-26, 0x1.1f7340dbc337ep-29};
  const D moved = t * 0x1.71547652b82fep0 + 0x1.8p52, k = moved - 0x1.8p52;  // the last bits of `moved` count k
  const D r = (t - k * kLog2High) - k * kLog2Low;
  const D power = number((pattern(moved) << 52) + (uint64_t{1023} << 52));
  return power * (r + r * r * polynomial(c, r)) + (power - 1.0);
}

// Of sin(y pi / 4) and cos(y pi / 4), |y| at most 1, polynomials in y^2: the former without a factor y, the latter
// without its 1 and a factor y^2.
constexpr double kSine[] = {0x1.921fb54442d18p-1,   -0x1.4abbce625be41p-4, 0x1.466bc677587f8p-9, -0x1.32d2cce2e5b19p-15,
                            0x1.50782fda12d96p-22, -0x1.e30071afc3e59p-30, 0x1.e3f38399551bfp-38};
constexpr double kCosine[] = {-0x1.3bd3cc9be45dep-2,  0x1.03c1f081b5ac0p-6, -0x1.55d3c7e3cb241p-12, 0x1.e1f5068688d5bp-19,
                              -0x1.a6d1eef479be1p-26, 0x1.f9ce245cada0bp-34, -0x1.b2f3eb054afcdp-42};

// sin(y pi / 2) for y from 0 to 1, right up to 3 units of 2^-53 of itself.
inline D quarter_sine(D y) {
  const auto near = y < 0.5;
  const D left = near ? y + y : 2.0 - (y + y), z = left * left;  // from the nearer axis, exact
  return near ? polynomial(kSine, z) * left : polynomial(kCosine, z) * z + 1.0;
}

// cos and sin of a word as a part of 2^64 turns, half a step added: right up to 2 units of 2^-53.
// The nearest quarter turn is taken off as a whole number, so that what is left is y eighths, exact but for one rounding.
inline void cos_and_sin(U turn, D& cosine, D& sine) {
  constexpr uint64_t eighth = uint64_t{1} << 61, sign = uint64_t{1} << 63;
  const U moved = turn + eighth, left = moved & (2 * eighth - 1);
  const D y = ((small(left >> 32) - 0x1p29) * 0x1p32 + (small(left & kLow) + 0.5)) * 0x1p-61;
  const D z = y * y;
  const D along = polynomial(kCosine, z) * z + 1.0, across = polynomial(kSine, z) * y;
  const U odd = U{} - ((moved >> 62) & 1);  // all bits where cosine and sine change places
  const U a = pattern(along), b = pattern(across);
  // the cosine is negative in the second and third quarter, the sine in the third and fourth
  cosine = number(((a & ~odd) | (b & odd)) ^ ((moved + 2 * eighth) & sign));
  sine = number(((b & ~odd) | (a & odd)) ^ (moved & sign));
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
