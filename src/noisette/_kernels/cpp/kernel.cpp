// Encode and add: per-example gradients of a group of examples, their histograms, the profile of each, the clipped sum.
// Compiled once for each instruction set, NOISETTE_ISA names the variant; a header for each phase, so that a compiler
// sees all of them at once.
#include "bounded.hpp"
#include "clipped.hpp"
#include "convolution.hpp"
#include "histograms.hpp"
#include "profiles.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

// Point `views` at the gradients of one example and count them while they are in the cache; false where a value is not
// finite.
bool prepare(const Job& job, int64_t example, float* gradients, View* views) {
  const Workspace& work = *job.work;
  const bool counted = job.plan->kind != Kind::l2;
  const Piece* piece = job.pieces;
  for (int64_t l = 0; l < job.layer_count; ++l) {
    const Layer& layer = job.layers[l];
    const float* x = layer.x + example * layer.x_stride;
    View made[2];
    int n = 0;
    if (layer.rule == Rule::dense) {
      made[n++] = {nullptr, x};
    } else if (layer.rule == Rule::linear) {
      const float* g = layer.g + example * layer.g_stride;
      if (layer.weight) made[n++] = {g, x};
      if (layer.bias) made[n++] = {nullptr, g};
    } else {
      const int64_t entries = layer.kernel_h * layer.kernel_w * layer.in * layer.out;
      float* weight = layer.weight ? gradients : nullptr;
      gradients += layer.weight ? entries : 0;
      float* bias = layer.bias ? gradients : nullptr;
      gradients += layer.bias ? layer.out : 0;
      convolution(layer, example, work, weight, bias);
      if (weight != nullptr) made[n++] = {nullptr, weight};
      if (bias != nullptr) made[n++] = {nullptr, bias};
    }
    for (int i = 0; i < n; ++i, ++piece, ++views) {
      *views = made[i];
      if (!(counted ? tally(*piece, made[i], work) : finite(*piece, made[i]))) return false;
    }
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
    int64_t group = 0;
    while (group < work.group && example < job.last) {
      View* mine = work.views + group * job.piece_count;
      if (!prepare(job, example++, work.gradients + group * work.dense, mine)) {
        forget(plan, work);  // it counts as zero: the next one takes its place
        continue;
      }
      for (int64_t block = 0; block < plan.count; ++block) survey(plan.blocks[block], work, block, group);
      views[group++] = mine;
    }
    if (group == 0) continue;
    if (plan.kind == Kind::l2) clipped(job, views, group);
    else
      for (int64_t block = 0; block < plan.count; ++block) ranked(job, block, views, group);
  }
}

}  // namespace noisette::NOISETTE_ISA
