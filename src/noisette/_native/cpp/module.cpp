// The Python module: checks shapes, shares examples out over threads, picks the instruction set. No link to torch.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <thread>

#include "images.hpp"
#include "lookup.hpp"
#include "workspace.hpp"
#include "noise.hpp"

using namespace nb::literals;

namespace noisette {
namespace {

Encode variant(const std::string& name) { return NOISETTE_PICK(name, encode); }

std::vector<std::string> variants() {
  std::vector<std::string> found;
  for (const char* name : {"avx512", "avx2", "plain"})
    if (variant(name) != nullptr) found.emplace_back(name);
  return found;
}

// Adds the encoded sum of all examples to `total`. Each thread takes a run of examples and sums into its own vector;
// these are added in order, so that the result depends on the number of threads only. Clipping reads `squares` and fills
// `factors`, a number for each example; both are empty otherwise.
void encode_sum(const OwnedPlan& owned, Layers& layers, Total total, Total squares, Total factors, int threads,
                const std::string& isa) {
  const Encode run = variant(isa);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(threads >= 1, "at least one thread");
  const int64_t dim = static_cast<int64_t>(total.shape(0)), count = layers.examples();
  const std::vector<int64_t> dims = owned.dims();
  require(owned.l2() == dims.empty(), "ranked and snap need blocks, l2 has none");
  int64_t covered = 0;
  for (int64_t width : dims) covered += width;
  require(dims.empty() || covered == dim, "the blocks do not make up the whole gradient");
  for (const Total* each : {&squares, &factors})
    require(static_cast<int64_t>(each->shape(0)) == (owned.l2() ? count : 0), "clipping has a number for each example");
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
  std::vector<Piece> together = layers.pieces();  // end to end: of a large model they may be little
  int64_t length = 0;
  for (Piece& piece : together) piece.at = std::exchange(length, length + piece.rows * piece.cols);
  auto work = [&](int64_t w) {
    std::vector<double>& own = totals[static_cast<size_t>(w)];
    if (w > 0) own.resize(static_cast<size_t>(length));
    run({&plan, layers.layers().data(), (w > 0 ? together : layers.pieces()).data(),
         static_cast<int64_t>(together.size()), count * w / workers, count * (w + 1) / workers, squares.data(),
         factors.data(), w > 0 ? own.data() : out, &memories[static_cast<size_t>(w)].work});
  };
  std::vector<std::thread> pool;
  for (int64_t w = 1; w < workers; ++w) pool.emplace_back(work, w);
  work(0);
  for (std::thread& thread : pool) thread.join();
  for (int64_t w = 1; w < workers; ++w)
    for (size_t p = 0; p < together.size(); ++p) {
      const double* from = totals[static_cast<size_t>(w)].data() + together[p].at;
      double* to = out + layers.pieces()[p].at;
      for (int64_t i = 0; i < together[p].rows * together[p].cols; ++i) to[i] += from[i];
    }
  shelf.give_back(std::move(memories));
}

// Adds vectors (B, n), each brought within its bound (B) and multiplied by its factor (B), to `total` (n).
void add_bounded(Floats v, Total bounds, Total factors, double step, Total total, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, add_bounded);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(v.ndim() == 2 && v.shape(1) == total.shape(0), "vectors are (B, n), and the total is (n)");
  check_strides(v, "the numbers of a vector must lie together");
  require(bounds.shape(0) == v.shape(0) && factors.shape(0) == v.shape(0), "every vector has a bound and a factor");
  require(step >= 0x1p-126 && step <= 0x1p100, "a step is neither tiny nor huge");
  run({v.data(), v.stride(0), static_cast<int64_t>(v.shape(0)), static_cast<int64_t>(v.shape(1)), bounds.data(),
       factors.data(), step, total.data()});
}

}  // namespace
}  // namespace noisette

NB_MODULE(_extension, m) {
  using namespace noisette;
  nb::set_leak_warnings(false);  // plans are kept in a cache until the interpreter ends
  m.doc() = "Encode and add per-example gradients, see kernel.cpp; draw noise, see noise_samplers.cpp.";
  nb::class_<OwnedPlan>(m, "Plan")
      .def(nb::init<const std::string&, double, double>(), "kind"_a, "radius"_a, "step"_a)
      .def("add_block", &OwnedPlan::add_block, "dim"_a, "levels"_a.noconvert(), "starts"_a.noconvert(),
           "knots"_a.noconvert(), "ends"_a.noconvert());
  nb::class_<Layers>(m, "Layers")
      .def(nb::init<>())
      .def("linear", &Layers::linear, "x"_a.noconvert(), "g"_a.noconvert(), "at"_a)
      .def("conv", &Layers::conv, "x"_a.noconvert(), "g"_a.noconvert(), "kernel"_a, "stride"_a, "margins"_a, "at"_a)
      .def("rows", &Layers::rows, "x"_a.noconvert(), "at"_a);
  nb::class_<LookedUp>(m, "LookedUp")
      .def(nb::init<Index, Derivatives, int64_t, Total, const std::string&>(), "index"_a.noconvert(), "g"_a.noconvert(),
           "rows"_a, "squares"_a.noconvert(), "isa"_a)
      .def("add", &LookedUp::add, "weights"_a.noconvert(), "step"_a, "total"_a.noconvert());
  m.def("encode_sum", &encode_sum, "plan"_a, "layers"_a, "total"_a.noconvert(), "squares"_a.noconvert(),
        "factors"_a.noconvert(), "threads"_a, "isa"_a);
  m.def("add_bounded", &add_bounded, "v"_a.noconvert(), "bounds"_a.noconvert(), "factors"_a.noconvert(), "step"_a,
        "total"_a.noconvert(), "isa"_a);
  m.def("gaussian_pairs", &gaussian_pairs, "words"_a.noconvert(), "draws"_a.noconvert(), "isa"_a);
  m.def("student_draws", &student_draws, "words"_a.noconvert(), "df"_a, "draws"_a.noconvert(), "isa"_a);
  m.def("add_noise", &add_noise, "total"_a.noconvert(), "noise"_a.noconvert(), "coarse"_a, "most"_a, "end"_a, "isa"_a);
  m.def("filter", &filtered, "x"_a.noconvert(), "weight"_a.noconvert(), "bias"_a.noconvert(), "out"_a.noconvert(),
        "stride"_a, "margins"_a, "threads"_a, "isa"_a);
  m.def("pool", &pooled, "x"_a.noconvert(), "out"_a.noconvert(), "taps"_a.noconvert(), "kernel"_a, "stride"_a, "pad"_a,
        "threads"_a, "isa"_a);
  m.def("unpool", &unpooled, "g"_a.noconvert(), "taps"_a.noconvert(), "out"_a.noconvert(), "kernel"_a, "stride"_a, "pad"_a,
        "threads"_a, "isa"_a);
  m.def("tanh", &tanh_of, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a, "isa"_a);
  m.def("variants", &variants, "The instruction sets that run here, best first.");
}
