// The Python module: checks shapes, shares examples out over threads, picks the instruction set. No link to torch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace noisette {
namespace {

using Floats = nb::ndarray<const float, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ranks = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Total = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// ---- what an encoder does -----------------------------------------------------------------------------------------

class OwnedPlan {
 public:
  OwnedPlan(const std::string& kind, double radius) {
    require(kind == "l2" || kind == "ranked" || kind == "snap", "kind is l2, ranked or snap");
    require(kind != "l2" || radius > 0, "a radius is positive");
    plan_.kind = kind == "l2" ? Kind::l2 : kind == "snap" ? Kind::snap : Kind::ranked;
    plan_.radius = radius;
  }

  // levels (n, K), the first rank of each (K), knots (C, n), one past the last rank of each (C)
  void add_block(int64_t dim, Table levels, Ranks starts, Table knots, Ranks ends) {
    require(dim > 0 && levels.shape(0) > 0 && levels.shape(1) > 0, "a block is empty");
    require(starts.shape(0) == levels.shape(1) && starts(0) == 0, "one rank for each level, the first one 0");
    require(knots.shape(1) == levels.shape(0) && ends.shape(0) == knots.shape(0), "one rank for each knot");
    require(knots.shape(0) > 0 && ends(ends.shape(0) - 1) == dim, "knots end at the dimension");
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

// ---- where gradients come from ------------------------------------------------------------------------------------

void check_strides(const Floats& array, const char* what) {
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 1;) {
    require(array.shape(i) == 1 || array.stride(i) == expected, what);
    expected *= static_cast<int64_t>(array.shape(i));
  }
}

class Layers {
 public:
  void linear(Floats x, Floats g, bool weight, bool bias, int64_t weight_at, int64_t bias_at) {
    require(x.ndim() == 2 && g.ndim() == 2, "a linear layer has inputs (B, in) and derivatives (B, out)");
    Layer layer = begin(Rule::linear, x, g, weight, bias);
    layer.in = static_cast<int64_t>(x.shape(1));
    layer.out = static_cast<int64_t>(g.shape(1));
    widest_ = std::max(widest_, layer.in);
    if (weight) piece(true, layer.out, layer.in, weight_at);
    if (bias) piece(false, 1, layer.out, bias_at);
    layers_.push_back(layer);
  }

  // x (B, H, W, C) and g (B, h, w, O); margins are top, left, bottom, right
  void conv(Floats x, Floats g, const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
            const std::vector<int64_t>& margins, bool weight, bool bias, int64_t weight_at, int64_t bias_at) {
    require(x.ndim() == 4 && g.ndim() == 4, "a convolution has four dimensions, channels last");
    require(kernel.size() == 2 && stride.size() == 2 && margins.size() == 4, "kernel, stride, margins: 2, 2, 4 numbers");
    for (size_t i = 1; i < 4; ++i) require(x.shape(i) > 0 && g.shape(i) > 0, "an image is empty");
    for (int64_t n : kernel) require(n > 0, "a kernel has a size");
    for (int64_t n : stride) require(n > 0, "a stride is positive");
    for (int64_t n : margins) require(n >= 0, "margins are not negative");
    Layer layer = begin(Rule::conv, x, g, weight, bias);
    layer.height = static_cast<int64_t>(x.shape(1));
    layer.width = static_cast<int64_t>(x.shape(2));
    layer.in = static_cast<int64_t>(x.shape(3));
    layer.high = static_cast<int64_t>(g.shape(1));
    layer.wide = static_cast<int64_t>(g.shape(2));
    layer.out = static_cast<int64_t>(g.shape(3));
    layer.kernel_h = kernel[0];
    layer.kernel_w = kernel[1];
    layer.stride_h = stride[0];
    layer.stride_w = stride[1];
    layer.pad_top = margins[0];
    layer.pad_left = margins[1];
    layer.padded_h = layer.height + margins[0] + margins[2];
    layer.padded_w = layer.width + margins[1] + margins[3];
    require((layer.high - 1) * stride[0] + kernel[0] <= layer.padded_h, "the output is higher than its input allows");
    require((layer.wide - 1) * stride[1] + kernel[1] <= layer.padded_w, "the output is wider than its input allows");
    const int64_t entries = kernel[0] * kernel[1] * layer.in;
    const int64_t channels = (layer.out + 15) / 16 * 16;
    if (weight) piece(false, 1, entries * layer.out, weight_at);
    if (bias) piece(false, 1, layer.out, bias_at);
    dense_ += (weight ? entries * layer.out : 0) + (bias ? layer.out : 0);
    padded_ = std::max(padded_, layer.padded_h * layer.padded_w * layer.in);
    ends_ = std::max(ends_, layer.high * layer.wide * channels);
    product_ = std::max(product_, entries * channels);
    layers_.push_back(layer);
  }

  void rows(Floats x, const std::vector<int64_t>& dims) {
    require(x.ndim() == 2, "rows are (B, d)");
    int64_t covered = 0;
    for (int64_t dim : dims) {
      require(dim > 0, "a block is empty");
      covered += dim;
    }
    require(covered == static_cast<int64_t>(x.shape(1)), "rows do not fit the blocks");
    int64_t at = 0;
    for (int64_t dim : dims) {
      Layer layer = begin(Rule::dense, x, x, true, false);
      layer.x += at;
      layer.in = dim;
      piece(false, 1, dim, at);
      layers_.push_back(layer);
      at += dim;
    }
  }

  // Give every piece its block; each must lie in one.
  void share_out(const std::vector<int64_t>& dims, int64_t dim) {
    int64_t covered = 0;
    for (Piece& piece : pieces_) {
      const int64_t size = piece.rows * piece.cols;
      covered += size;
      require(piece.at >= 0 && piece.at + size <= dim, "a layer lies outside the total");
      int64_t start = 0, block = 0;
      for (int64_t width : dims) {
        if (piece.at < start + width) break;
        start += width;
        ++block;
      }
      require(dims.empty() || (block < static_cast<int64_t>(dims.size()) && piece.at + size <= start + dims[block]),
              "a parameter lies in two blocks");
      piece.block = dims.empty() ? 0 : block;
    }
    require(covered == dim && !overlapping(), "the layers do not make up the whole gradient");
  }

  int64_t examples() const { return examples_ < 0 ? 0 : examples_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t dense_ = 0, padded_ = 0, ends_ = 0, product_ = 0, widest_ = 0;

 private:
  Layer begin(Rule rule, const Floats& x, const Floats& g, bool weight, bool bias) {
    check_strides(x, "the inputs of an example must lie together, channels last");
    check_strides(g, "the derivatives of an example must lie together, channels last");
    const int64_t n = static_cast<int64_t>(x.shape(0));
    require(static_cast<int64_t>(g.shape(0)) == n && (examples_ < 0 || examples_ == n), "numbers of examples differ");
    examples_ = n;
    kept_.push_back(x);
    kept_.push_back(g);
    Layer layer{};
    layer.rule = rule;
    layer.x = x.data();
    layer.g = g.data();
    layer.x_stride = x.stride(0);
    layer.g_stride = g.stride(0);
    layer.weight = weight;
    layer.bias = bias;
    return layer;
  }
  bool overlapping() const {
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (const Piece& piece : pieces_) spans.emplace_back(piece.at, piece.at + piece.rows * piece.cols);
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i)
      if (spans[i].first < spans[i - 1].second) return true;
    return false;
  }
  void piece(bool outer, int64_t rows, int64_t cols, int64_t at) { pieces_.push_back({outer, rows, cols, at, 0}); }

  int64_t examples_ = -1;
  std::vector<Floats> kept_;  // layers point into these
  std::vector<Layer> layers_;
  std::vector<Piece> pieces_;
};

// ---- running ------------------------------------------------------------------------------------------------------

Encode variant(const std::string& name) {
#ifdef NOISETTE_X86
  if (name == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return avx512::encode;
  if (name == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::encode;
#endif
  return name == "plain" ? plain::encode : nullptr;
}

std::vector<std::string> variants() {
  std::vector<std::string> found;
  for (const char* name : {"avx512", "avx2", "plain"})
    if (variant(name) != nullptr) found.emplace_back(name);
  return found;
}

constexpr int64_t kGradientBytes = int64_t{1} << 25;  // what a group's gradients may take

// One thread's memory, all of it. It is kept from call to call: to clear it and to have its pages mapped anew takes as
// long as choosing the profiles.
struct Memory {
  std::vector<float> gradients, padded, ends, product, nonzero, table, sums;
  std::vector<uint32_t> histogram;
  std::vector<uint16_t> keys;
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
    work.ends = make(ends, layers.ends_);
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

// Adds the encoded sum of all examples to `total`. Each thread takes a run of examples and sums into its own vector;
// these are added in order, so that the result depends on the number of threads only.
void encode_sum(const OwnedPlan& owned, Layers& layers, Total total, int threads, const std::string& isa) {
  const Encode run = variant(isa);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(threads >= 1, "at least one thread");
  const int64_t dim = static_cast<int64_t>(total.shape(0)), count = layers.examples();
  const std::vector<int64_t> dims = owned.dims();
  require(owned.l2() == dims.empty(), "ranked and snap need blocks, l2 has none");
  int64_t covered = 0;
  for (int64_t width : dims) covered += width;
  require(dims.empty() || covered == dim, "the blocks do not make up the whole gradient");
  if (count == 0) return;
  layers.share_out(dims, dim);
  double* const out = total.data();
  nb::gil_scoped_release unlocked;
  std::vector<Block> blocks;
  const Plan plan = owned.view(blocks);
  const int64_t workers = std::min<int64_t>(threads, count);
  static Shelf shelf;
  std::vector<Memory> memories = shelf.take(static_cast<size_t>(workers));
  for (Memory& memory : memories) memory.fit(layers, owned, (count + workers - 1) / workers);
  std::vector<std::vector<double>> totals(static_cast<size_t>(workers));
  auto work = [&](int64_t w) {
    double* mine = out;
    if (w > 0) {
      totals[static_cast<size_t>(w)].resize(static_cast<size_t>(dim));
      mine = totals[static_cast<size_t>(w)].data();
    }
    run({&plan, layers.layers().data(), static_cast<int64_t>(layers.layers().size()), layers.pieces().data(),
         static_cast<int64_t>(layers.pieces().size()), count * w / workers, count * (w + 1) / workers, mine,
         &memories[static_cast<size_t>(w)].work});
  };
  std::vector<std::thread> pool;
  for (int64_t w = 1; w < workers; ++w) pool.emplace_back(work, w);
  work(0);
  for (std::thread& thread : pool) thread.join();
  for (int64_t w = 1; w < workers; ++w)
    for (int64_t i = 0; i < dim; ++i) out[i] += totals[static_cast<size_t>(w)][static_cast<size_t>(i)];
  shelf.give_back(std::move(memories));
}

}  // namespace
}  // namespace noisette

NB_MODULE(_native, m) {
  using namespace noisette;
  nb::set_leak_warnings(false);  // plans are kept in a cache until the interpreter ends
  m.doc() = "Encode and add per-example gradients. See kernel.cpp.";
  nb::class_<OwnedPlan>(m, "Plan")
      .def(nb::init<const std::string&, double>(), "kind"_a, "radius"_a)
      .def("add_block", &OwnedPlan::add_block, "dim"_a, "levels"_a.noconvert(), "starts"_a.noconvert(),
           "knots"_a.noconvert(), "ends"_a.noconvert());
  nb::class_<Layers>(m, "Layers")
      .def(nb::init<>())
      .def("linear", &Layers::linear, "x"_a.noconvert(), "g"_a.noconvert(), "weight"_a, "bias"_a,
           "weight_at"_a, "bias_at"_a)
      .def("conv", &Layers::conv, "x"_a.noconvert(), "g"_a.noconvert(), "kernel"_a, "stride"_a, "margins"_a,
           "weight"_a, "bias"_a, "weight_at"_a, "bias_at"_a)
      .def("rows", &Layers::rows, "x"_a.noconvert(), "dims"_a);
  m.def("encode_sum", &encode_sum, "plan"_a, "layers"_a, "total"_a.noconvert(), "threads"_a, "isa"_a);
  m.def("variants", &variants, "The instruction sets that run here, best first.");
}
