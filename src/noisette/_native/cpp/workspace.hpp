// What threads compute in, kept from call to call.
#pragma once
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "layers.hpp"
#include "plan.hpp"

namespace noisette {
namespace {

constexpr int64_t kGradientBytes = int64_t{1} << 25;  // what a group's gradients may take

// One thread's memory, all of it. It is kept from call to call: to clear it and to have its pages mapped anew takes as
// long as choosing the profiles.
struct Memory {
  std::vector<float> gradients, padded, product, derivatives, nonzero, table, sums;
  std::vector<uint32_t> patches, places, histogram;
  std::vector<uint16_t> keys;
  std::vector<Ends> ends;
  std::vector<int64_t> below, used;
  std::vector<Range> ranges;
  std::vector<View> views;
  Workspace work{};

  void fit(const Layers& layers, const OwnedPlan& plan, int64_t examples) {
    const int64_t bytes = std::max<int64_t>(1, layers.dense_ * static_cast<int64_t>(sizeof(float)));
    work.group = std::clamp<int64_t>(kGradientBytes / bytes, 1, std::min(kGroup, examples));
    work.dense = layers.dense_;
    work.gradients = make(gradients, work.group * layers.dense_);
    work.padded = make(padded, layers.padded_);
    work.ends = make(ends, layers.channels_);
    work.derivatives = make(derivatives, layers.ends_);
    work.patches = make(patches, layers.ends_);
    work.places = make(places, layers.places_);
    work.product = make(product, layers.product_);
    work.views = make(views, work.group * static_cast<int64_t>(layers.pieces().size()));
    if (plan.l2()) return;
    work.nonzero = make(nonzero, layers.widest_ + 1);
    const int64_t blocks = plan.blocks(), tables = blocks * work.group;
    work.histogram = make(histogram, blocks * kTurns * kBuckets);
    work.ranges = make(ranges, blocks);
    work.table = make(table, work.group * kBuckets);
    work.keys = make(keys, tables * kBuckets);
    work.below = make(below, tables * kBuckets);
    work.used = make(used, tables);
    work.knots = plan.most_knots();
    work.sums = make(sums, blocks * work.knots * kGroup);
  }

  // Grows only, so that what is left as zeros stays there.
  template <class T>
  static T* make(std::vector<T>& vector, int64_t n) {
    if (vector.size() < static_cast<size_t>(n)) vector.resize(static_cast<size_t>(n));
    return vector.data();
  }
};

// Memories that no call uses now. Calls of several Python threads may overlap, so each takes its own.
class Shelf {
 public:
  std::vector<Memory> take(size_t n) {
    const std::lock_guard<std::mutex> alone(mutex_);
    std::vector<Memory> taken(n);
    for (Memory& memory : taken) {
      if (kept_.empty()) break;
      memory = std::move(kept_.back());
      kept_.pop_back();
    }
    return taken;
  }
  void give_back(std::vector<Memory>&& memories) {
    const std::lock_guard<std::mutex> alone(mutex_);
    for (Memory& memory : memories) kept_.push_back(std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::vector<Memory> kept_;
};

}  // namespace
}  // namespace noisette
