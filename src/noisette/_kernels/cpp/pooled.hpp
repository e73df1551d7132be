// What Python sees of pooling: shapes are checked, and examples shared out over threads.
#pragma once
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "arrays.hpp"
#include "isa.hpp"
#include "pooling.hpp"

namespace noisette {
namespace {

using Images = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Filled = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Taps = nb::ndarray<int32_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

// How images x (B, H, W, C) become out (B, h, w, C); each pair is for rows and columns.
template <class X, class Out>
Pooling pooling(const X& x, const Out& out, const Taps& taps, const std::vector<int64_t>& kernel,
                const std::vector<int64_t>& stride, const std::vector<int64_t>& pad) {
  require(kernel.size() == 2 && stride.size() == 2 && pad.size() == 2, "kernel, stride, padding: 2 numbers each");
  for (size_t i = 0; i < 2; ++i) {
    require(kernel[i] > 0 && stride[i] > 0 && pad[i] >= 0 && 2 * pad[i] <= kernel[i], "no window lies in a margin");
    const int64_t size = static_cast<int64_t>(x.shape(i + 1)) + 2 * pad[i] - kernel[i];
    require(size >= 0 && static_cast<int64_t>(out.shape(i + 1)) == size / stride[i] + 1, "as many windows as fit");
  }
  require(kernel[0] < int64_t{1} << 31 && kernel[1] < (int64_t{1} << 31) / kernel[0], "taps are told by 32 bits");
  require(x.shape(3) % kChannels == 0, "channels go together by eights");
  for (size_t i = 0; i < 4; ++i) require(out.shape(i) == taps.shape(i), "every output has a tap");
  require(x.shape(0) == out.shape(0) && x.shape(3) == out.shape(3), "numbers of examples or channels differ");
  auto at = [](const auto& array, size_t i) { return static_cast<int64_t>(array.shape(i)); };
  return {at(x, 1), at(x, 2), at(x, 3), at(out, 1), at(out, 2), kernel[0], kernel[1], stride[0], stride[1], pad[0], pad[1]};
}

template <class Work>
void share_out(int64_t count, int threads, const Work& work) {
  require(threads >= 1, "at least one thread");
  nb::gil_scoped_release unlocked;
  const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(threads, count));
  std::vector<std::thread> pool;
  for (int64_t w = 1; w < workers; ++w) pool.emplace_back(work, count * w / workers, count * (w + 1) / workers);
  work(0, count / workers);
  for (std::thread& thread : pool) thread.join();
}

void pooled(Images x, Filled out, Taps taps, const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
            const std::vector<int64_t>& pad, int threads, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, pool);
  require(run != nullptr, "this machine or this build has no such instruction set");
  const Pooling how = pooling(x, out, taps, kernel, stride, pad);
  share_out(static_cast<int64_t>(x.shape(0)), threads,
            [&](int64_t from, int64_t to) { run(how, from, to, x.data(), out.data(), taps.data()); });
}

void unpooled(Images g, Taps taps, Filled out, const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
              const std::vector<int64_t>& pad, int threads, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, unpool);
  require(run != nullptr, "this machine or this build has no such instruction set");
  const Pooling how = pooling(out, g, taps, kernel, stride, pad);
  share_out(static_cast<int64_t>(g.shape(0)), threads,
            [&](int64_t from, int64_t to) { run(how, from, to, g.data(), taps.data(), out.data()); });
}

}  // namespace
}  // namespace noisette
