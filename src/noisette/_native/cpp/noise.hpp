// What Python sees of the noise: arrays are checked here, and computed on in noise_samplers.cpp.
#pragma once
#include "arrays.hpp"
#include "noise_samplers.hpp"
#include "isa.hpp"

namespace noisette {
namespace {

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void gaussian_pairs(Words words, Total draws, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, pairs);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(words.shape(0) % 3 == 0 && draws.shape(0) == words.shape(0) / 3 * 2, "three words make two draws");
  run(words.data(), static_cast<int64_t>(words.shape(0) / 3), draws.data());
}

void student_draws(Words words, double df, Total draws, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, student);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(words.shape(0) == 4 * draws.shape(0), "four words make a draw");
  run(words.data(), static_cast<int64_t>(draws.shape(0)), df, draws.data());
}

void add_noise(Numbers total, Total noise, double coarse, double most, double end, const std::string& isa) {
  const auto run = NOISETTE_PICK(isa, noised);
  require(run != nullptr, "this machine or this build has no such instruction set");
  require(total.shape(0) == noise.shape(0), "every coordinate has one draw");
  run(total.data(), static_cast<int64_t>(total.shape(0)), {coarse, most, end}, noise.data());
}

}  // namespace
}  // namespace noisette
