// What an encoder does: the tables of its profiles, checked and kept.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"

namespace noisette {
namespace {

class OwnedPlan {
 public:
  OwnedPlan(const std::string& kind, double radius, double step) {
    require(kind == "l2" || kind == "ranked" || kind == "snap", "kind is l2, ranked or snap");
    require(kind != "l2" || radius > 0, "a radius is positive");
    plan_.kind = kind == "l2" ? Kind::l2 : kind == "snap" ? Kind::snap : Kind::ranked;
    require(step >= 0x1p-126 && step <= 0x1p100, "a step is neither tiny nor huge");
    plan_.radius = radius;
    plan_.step = step;
  }

  // levels (n, K), the first rank of each (K), knots (C, n), one past the last rank of each (C)
  void add_block(int64_t dim, Table levels, Ranks starts, Table knots, Ranks ends) {
    require(dim > 0 && levels.shape(0) > 0 && levels.shape(1) > 0, "a block is empty");
    require(starts.shape(0) == levels.shape(1) && starts(0) == 0, "one rank for each level, the first one 0");
    require(knots.shape(1) == levels.shape(0) && ends.shape(0) == knots.shape(0), "one rank for each knot");
    require(knots.shape(0) > 0 && ends(ends.shape(0) - 1) == dim, "knots end at the dimension");
    for (size_t i = 0; i < levels.size(); ++i)
      require(levels.data()[i] <= kMostSteps * plan_.step, "a level has more steps than a group can add up");
    for (size_t i = 1; i < starts.shape(0); ++i) require(starts(i) > starts(i - 1), "ranks ascend");
    for (size_t i = 1; i < ends.shape(0); ++i) require(ends(i) > ends(i - 1), "ranks ascend");
    auto keep = [](const auto& from) { return std::vector(from.data(), from.data() + from.size()); };
    const size_t profiles = levels.shape(0), columns = (profiles + kColumns - 1) / kColumns * kColumns;
    std::vector<float> wide(knots.shape(0) * columns);
    for (size_t k = 0; k < knots.shape(0); ++k)
      std::copy_n(knots.data() + k * profiles, profiles, wide.data() + k * columns);
    store_.push_back({dim, static_cast<int64_t>(profiles), static_cast<int64_t>(columns), keep(levels), keep(starts),
                      std::move(wide), keep(ends)});
  }

  Plan view(std::vector<Block>& blocks) const {
    blocks.clear();
    for (const Stored& s : store_)
      blocks.push_back({s.profiles, static_cast<int64_t>(s.starts.size()), s.levels.data(), s.starts.data(),
                        static_cast<int64_t>(s.ends.size()), s.columns, s.knots.data(), s.ends.data()});
    Plan plan = plan_;
    plan.blocks = blocks.data();
    plan.count = static_cast<int64_t>(blocks.size());
    return plan;
  }

  bool l2() const { return plan_.kind == Kind::l2; }
  int64_t blocks() const { return static_cast<int64_t>(store_.size()); }
  std::vector<int64_t> dims() const {
    std::vector<int64_t> found;
    for (const Stored& s : store_) found.push_back(s.dim);
    return found;
  }
  int64_t most_knots() const {
    size_t most = 0;
    for (const Stored& s : store_) most = std::max(most, s.ends.size());
    return static_cast<int64_t>(most);
  }

 private:
  struct Stored {
    int64_t dim, profiles, columns;
    std::vector<float> levels;
    std::vector<int64_t> starts;
    std::vector<float> knots;
    std::vector<int64_t> ends;
  };
  Plan plan_{};
  std::vector<Stored> store_;
};

}  // namespace
}  // namespace noisette
