// Last phase of clipping: every gradient within the radius, summed.
#pragma once
#include "vectors.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

double square(const float* v, int64_t n) {
  double sum = 0.0;
  for (int64_t start = 0; start < n; start += kTile) {  // tile by tile, so that rounding does not grow with n
    const int64_t stop = start + kTile < n ? start + kTile : n;
    D part[2] = {};
    int64_t i = start;
    for (; i + W <= stop; i += W) {
      const D a = widened(v + i), b = widened(v + i + H);
      part[0] += a * a;
      part[1] += b * b;
    }
    part[0] += part[1];
    double tile = 0.0;
    for (int lane = 0; lane < H; ++lane) tile += part[0][lane];
    for (; i < stop; ++i) tile += static_cast<double>(v[i]) * v[i];
    sum += tile;
  }
  return sum;
}

// Vectors v (group, n), times a factor each, in whole steps: a group of them adds up within 32 bits.
void add_scaled(const float* const* v, const double* factors, int64_t group, int64_t n, Steps steps, double* total) {
  const float* used[kGroup];
  double scale[kGroup];
  int count = 0;
  for (int64_t e = 0; e < group; ++e) {
    if (factors[e] == 0.0) continue;
    used[count] = v[e];
    scale[count++] = factors[e] * steps.inverse;
  }
  if (count == 0) return;
  int64_t i = 0;
  for (; i + H <= n; i += H) {
    Whole sum{};
    for (int e = 0; e < count; ++e) sum += __builtin_convertvector(widened(used[e] + i) * scale[e], Whole);
    store(total + i, load_double(total + i) + __builtin_convertvector(sum, D) * steps.step);
  }
  for (; i < n; ++i) {
    int32_t sum = 0;
    for (int e = 0; e < count; ++e) sum += static_cast<int32_t>(used[e][i] * scale[e]);
    total[i] += sum * steps.step;
  }
}

void clipped(const Job& job, View* const* views, const int64_t* whose, int64_t group) {
  const Steps grid = steps(*job.plan);
  double factor[kGroup];
  for (int64_t e = 0; e < group; ++e) {
    double sum = job.squares[whose[e]];
    for (int64_t p = 0; p < job.count; ++p) {
      const Piece& piece = job.pieces[p];
      const double cols = square(views[e][p].cols, piece.cols);
      sum += piece.outer ? cols * square(views[e][p].rows, piece.rows) : cols;
    }
    const double norm = std::sqrt(sum);
    factor[e] = norm <= job.plan->radius ? 1.0 : norm < __builtin_inf() ? job.plan->radius / norm : 0.0;
    job.factors[whose[e]] = factor[e];
  }
  for (int64_t p = 0; p < job.count; ++p) {
    const Piece& piece = job.pieces[p];
    for (int64_t row = 0; row < piece.rows; ++row) {
      const float* v[kGroup];
      double scale[kGroup];
      for (int64_t e = 0; e < group; ++e) {
        v[e] = views[e][p].cols;
        scale[e] = piece.outer ? factor[e] * views[e][p].rows[row] : factor[e];
      }
      add_scaled(v, scale, group, piece.cols, grid, job.total + piece.at + row * piece.cols);
    }
  }
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
