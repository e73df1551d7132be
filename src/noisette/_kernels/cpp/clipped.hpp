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

void add_scaled(const float* v, int64_t n, double factor, Steps steps, double* total) {
  const double scale = factor * steps.inverse;
  int64_t i = 0;
  for (; i + H <= n; i += H) {
    const Whole whole = __builtin_convertvector(scale * widened(v + i), Whole);
    store(total + i, load_double(total + i) + __builtin_convertvector(whole, D) * steps.step);
  }
  for (; i < n; ++i) total[i] += steps.of(factor * v[i]);
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
    for (int64_t row = 0; row < piece.rows; ++row)
      for (int64_t start = 0; start < piece.cols; start += kTile) {
        const int64_t n = start + kTile < piece.cols ? kTile : piece.cols - start;
        double* total = job.total + piece.at + row * piece.cols + start;
        for (int64_t e = 0; e < group; ++e) {
          const View& view = views[e][p];
          const double scale = piece.outer ? factor[e] * view.rows[row] : factor[e];
          if (scale != 0.0) add_scaled(view.cols + start, n, scale, grid, total);
        }
      }
  }
}

}  // namespace
}  // namespace noisette::NOISETTE_ISA
