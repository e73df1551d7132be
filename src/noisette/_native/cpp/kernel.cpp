// Encode and add: per-example gradients of a group of examples, their histograms, the profile of each, the clipped sum.
// Compiled once for each instruction set, NOISETTE_ISA names the variant; a header for each phase, so that a compiler
// sees all of them at once.
#include "bounded.hpp"
#include "clipped.hpp"
#include "convolution.hpp"
#include "magnitude_histogram.hpp"
#include "profiles.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

// Point `views` at the gradients of one example and count them while they are in the cache; false where a value is not
// finite.
bool prepare(const Job& job, int64_t example, float* gradients, View* views) {
  const Workspace& work = *job.work;
  const bool counted = job.plan->kind != Kind::l2;
  for (int64_t p = 0; p < job.count; ++p) {
    const Layer& layer = job.layers[p];
    const float* x = layer.x + example * layer.x_stride;
    if (layer.rule == Rule::dense) {
      views[p] = {nullptr, x};
    } else if (layer.rule == Rule::linear) {
      views[p] = {layer.g + example * layer.g_stride, x};
    } else {
      convolution(layer, example, work, gradients);
      views[p] = {nullptr, gradients};
      gradients += job.pieces[p].cols;
    }
    // the square of a norm tells whether a vector is finite, so that clipping need not look twice
    if (counted ? !tally(job.pieces[p], views[p], work) : job.pieces[p].outer && !finite(job.pieces[p], views[p]))
      return false;
  }
  return true;
}

}  // namespace

void encode(const Job& job) {
  const Plan& plan = *job.plan;
  const Workspace& work = *job.work;
  int64_t example = job.first;
  while (example < job.last) {
    View* views[kGroup];
    int64_t whose[kGroup], group = 0;
    while (group < work.group && example < job.last) {
      View* mine = work.views + group * job.count;
      whose[group] = example;
      if (!prepare(job, example++, work.gradients + group * work.dense, mine)) {
        if (plan.kind == Kind::l2) job.factors[whose[group]] = 0.0;
        for (int64_t block = 0; block < plan.count; ++block) forget(work, block);  // it counts as zero
        continue;
      }
      for (int64_t block = 0; block < plan.count; ++block) survey(plan.blocks[block], work, block, group);
      views[group++] = mine;
    }
    if (group == 0) continue;
    if (plan.kind == Kind::l2) clipped(job, views, whose, group);
    else
      for (int64_t block = 0; block < plan.count; ++block) ranked(job, block, views, group);
  }
}

// A vector is brought within its bound first, whatever that was made of, then multiplied by its factor.
void add_bounded(const Bounded& all) {
  for (int64_t first = 0; first < all.count; first += kGroup) {
    const int64_t group = all.count - first < kGroup ? all.count - first : kGroup;
    const float* v[kGroup];
    double factor[kGroup];
    for (int64_t e = 0; e < group; ++e) {
      v[e] = all.v + (first + e) * all.stride;
      factor[e] = all.factors[first + e];
      if (factor[e] == 0.0) continue;
      const double bound = all.bounds[first + e], norm = std::sqrt(square(v[e], all.n));
      if (!(norm <= bound)) factor[e] *= norm < __builtin_inf() && bound > 0.0 ? bound / norm : 0.0;
    }
    add_scaled(v, factor, group, all.n, {all.step, 1 / all.step}, all.total);
  }
}

}  // namespace noisette::NOISETTE_ISA
