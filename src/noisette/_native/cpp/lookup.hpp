// What Python sees of tables: one chunk's lookups, which are summed up at once and added when their weights are known.
#pragma once
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "isa.hpp"
#include "embedding.hpp"

namespace noisette {
namespace {

using Index = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Derivatives = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class LookedUp {
 public:
  LookedUp(Index index, Derivatives g, int64_t rows, Total squares, const std::string& isa)
      : all_{static_cast<int64_t>(g.shape(0)), static_cast<int64_t>(g.shape(1)), static_cast<int64_t>(g.shape(2)), rows,
             index.data(), g.data(), nullptr, nullptr, nullptr, nullptr, squares.data()},
        add_(NOISETTE_PICK(isa, add_rows)) {
    const auto look_up = NOISETTE_PICK(isa, look_up);
    require(look_up != nullptr, "this machine or this build has no such instruction set");
    require(index.shape(0) == g.shape(0) && index.shape(1) == g.shape(1), "every position has an index and a vector");
    require(squares.shape(0) == g.shape(0), "every example has a square");
    for (size_t i = 0; i < index.size(); ++i)
      require(0 <= index.data()[i] && index.data()[i] < rows, "an index is outside of the table");
    const size_t places = index.size();
    slot_.assign(static_cast<size_t>(rows), -1);
    named_.resize(places);
    used_.resize(g.shape(0));
    sums_.reset(new double[places * g.shape(2)]);
    all_.slot = slot_.data(), all_.named = named_.data(), all_.used = used_.data(), all_.sums = sums_.get();
    look_up(all_);
    all_.index = nullptr, all_.g = nullptr, all_.squares = nullptr;  // the caller's, from here on
  }

  void add(Weights weights, double step, Total total) const {
    require(static_cast<int64_t>(weights.shape(0)) <= all_.examples, "more weights than examples");
    require(static_cast<int64_t>(total.shape(0)) == all_.rows * all_.width, "the total is not that of the table");
    add_(all_, weights.data(), static_cast<int64_t>(weights.shape(0)), step, total.data());
  }

 private:
  Lookups all_;
  decltype(&plain::add_rows) add_;
  std::vector<int32_t> slot_;
  std::vector<int64_t> named_, used_;
  std::unique_ptr<double[]> sums_;
};

}  // namespace
}  // namespace noisette
