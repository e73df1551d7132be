// Vectors of the width that the instruction set has, and what else all phases of the kernel use.
#pragma once
#include "kernel.hpp"

#include <cmath>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace noisette::NOISETTE_ISA {
namespace {

template <int... L>
struct Lanes {};

#if defined(__AVX512F__)
constexpr int W = 16;
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
constexpr int W = 8;
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
constexpr int W = 4;
using AllLanes = Lanes<0, 1, 2, 3>;
#endif

using V = float __attribute__((vector_size(4 * W)));
using I = int32_t __attribute__((vector_size(4 * W)));
using Half = float __attribute__((vector_size(2 * W)));
using Whole = int32_t __attribute__((vector_size(2 * W)));
using D = double __attribute__((vector_size(4 * W)));
constexpr int H = W / 2;
template <int... L>
constexpr I numbers(Lanes<L...>) { return I{L...}; }
constexpr I kLanes = numbers(AllLanes{});
constexpr uint32_t kInfinity = 0x7f800000u;

// x - 0 is x for every x, so that this is a broadcast and nothing more
inline V splat(float x) { return x - V{}; }
inline V load(const float* p) { V v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
inline I bits(V v) { I i; std::memcpy(&i, &v, sizeof i); return i & 0x7fffffff; }
inline uint32_t bits(float v) { uint32_t i; std::memcpy(&i, &v, sizeof i); return i & 0x7fffffffu; }

inline D load_double(const double* p) { D d; std::memcpy(&d, p, sizeof d); return d; }
inline void store(double* p, D d) { std::memcpy(p, &d, sizeof d); }
inline D widened(const float* p) {
  Half half;
  std::memcpy(&half, p, sizeof half);
  return __builtin_convertvector(half, D);
}

// What is added is rounded toward zero to whole steps of the grid, so that it stays in the image and no sum rounds.
struct Steps {
  double step, inverse;
};

inline Steps steps(const Plan& plan) { return {plan.step, 1 / plan.step}; }

inline V with_sign(V magnitude, V of) {
  I m, s;
  std::memcpy(&m, &magnitude, sizeof m);
  std::memcpy(&s, &of, sizeof s);
  const I joined = m | (s & INT32_MIN);
  V v;
  std::memcpy(&v, &joined, sizeof v);
  return v;
}

// The values of a piece, W at a time; a tail is filled up with zeros, which count nowhere.
struct Values {
  const float* at;
  V factor;
  bool scaled;
  V vector(int64_t i) const { const V v = load(at + i); return scaled ? v * factor : v; }
  V upto(int64_t i, int64_t stop) const {
    if (i + W <= stop) return vector(i);
    float part[W] = {};
    std::memcpy(part, at + i, static_cast<size_t>(stop - i) * sizeof(float));
    const V v = load(part);
    return scaled ? v * factor : v;
  }
};

inline Values values(const Piece& piece, const View& view, int64_t row) {
  if (!piece.outer) return {view.cols, V{}, false};
  return {view.cols, splat(view.rows[row]), true};
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
