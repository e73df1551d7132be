// What Python sees of pooling, filters and activations: shapes are checked, and examples shared out over threads.
#pragma once
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "arrays.hpp"
#include "conv_forward.hpp"
#include "isa.hpp"
#include "pooling.hpp"
#include "tanh.hpp"

namespace noisette {
namespace {

using Images = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Filled = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FilledRow = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

// x (B, H, W, C), weight (kh, kw, C, O), bias (O), out (B, h, w, O); margins are top, left, bottom, right
void filtered(Images x, Images weight, Row bias, Filled out, const std::vector<int64_t>& stride,
              const std::vector<int64_t>& margins, int threads, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, filter);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(stride.size() == 2 && margins.size() == 4, "stride, margins: 2, 4 numbers");
  for (int64_t n : stride) require(n > 0, "a stride is positive");
  for (int64_t n : margins) require(n >= 0, "margins are not negative");
  auto at = [](const auto& array, size_t i) { return static_cast<int64_t>(array.shape(i)); };
  const Filters how{at(x, 1), at(x, 2), at(x, 3), at(out, 1), at(out, 2), at(out, 3), at(weight, 0), at(weight, 1),
                    stride[0], stride[1], margins[0], margins[1], at(x, 1) + margins[0] + margins[2],
                    at(x, 2) + margins[1] + margins[3], weight.data(), bias.data()};
  require(how.high > 0 && how.wide > 0 && how.kernel_h > 0 && how.kernel_w > 0, "an image is empty");
  require((how.high - 1) * how.stride_h + how.kernel_h <= how.padded_h, "the output is higher than its input allows");
  require((how.wide - 1) * how.stride_w + how.kernel_w <= how.padded_w, "the output is wider than its input allows");
  require(how.out > 0 && how.out % kFilters == 0, "filters go together by eights");
  require(at(weight, 2) == how.in && at(weight, 3) == how.out && at(bias, 0) == how.out, "numbers of channels differ");
  require(x.shape(0) == out.shape(0), "numbers of examples differ");
  share_out(at(x, 0), threads, [&](int64_t from, int64_t to) {
    std::vector<float> padded(static_cast<size_t>(how.padded_h * how.padded_w * how.in));
    run(how, from, to, x.data(), padded.data(), out.data());
  });
}

// out = tanh(x), both (n)
void tanh_of(Row x, FilledRow out, int threads, const std::string& isa) {
  constexpr int64_t kWorth = 1 << 16;  // numbers that are worth a thread
  const auto run = NOISETTE_PICK(isa, tangents);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(x.shape(0) == out.shape(0), "x and out are of the same length");
  const int64_t count = static_cast<int64_t>(x.shape(0));
  share_out(count, static_cast<int>(std::min<int64_t>(threads, count / kWorth + 1)),
            [&](int64_t from, int64_t to) { run(from, to, x.data(), out.data()); });
}

}  // namespace
}  // namespace noisette
