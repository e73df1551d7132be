// Box and Muller's pairs, Bailey's polar form, and sums on a grid. Compiled once for each instruction set; see docs/theory.md on floats.
#include "noise_samplers.hpp"
#include "vector_math.hpp"

namespace noisette::NOISETTE_ISA {
namespace {

// 128 random bits as a number in (0, 1], or `bits` + 64 of them.
inline D uniform(U high, U low, double unit) {
  return as_double(high) * unit + (as_double(low) + 0.5) * (unit * 0x1p-64);
}

struct Pairs {
  static constexpr int words = 3, draws = 2;
  void operator()(const uint64_t* const* word, double* const* draw) const {
    const D u = uniform(load_words(word[0]), load_words(word[1]), 0x1p-64);
    const D radius = root(-2.0 * log_of_uniform(u));
    D cosine, sine;
    cos_and_sin(load_words(word[2]), cosine, sine);
    store(draw[0], radius * cosine);
    store(draw[1], radius * sine);
  }
};

struct Student {
  static constexpr int words = 4, draws = 1;
  double df;
  void operator()(const uint64_t* const* word, double* const* draw) const {
    const U signed_high = load_words(word[0]);
    const D angle = quarter_sine(uniform(signed_high >> 1, load_words(word[1]), 0x1p-63));
    const D t = log_of_uniform(uniform(load_words(word[2]), load_words(word[3]), 0x1p-64)) * (-2.0 / df);
    const D made = root(df * exp_less_one(t < 709.0 ? t : 709.0 - D{})) * angle;
    store(draw[0], number(pattern(made) ^ (signed_high << 63)));
  }
};

// Rows of words (F::words, count) to rows of draws (F::draws, count), H columns at a time.
template <class F>
void each(const F& law, const uint64_t* words, int64_t count, double* draws) {
  const uint64_t* word[F::words];
  double* draw[F::draws];
  int64_t i = 0;
  for (; i + H <= count; i += H) {
    for (int k = 0; k < F::words; ++k) word[k] = words + k * count + i;
    for (int k = 0; k < F::draws; ++k) draw[k] = draws + k * count + i;
    law(word, draw);
  }
  if (i == count) return;
  uint64_t rest[F::words][H] = {};
  double made[F::draws][H];
  const size_t bytes = static_cast<size_t>(count - i) * sizeof(double);
  for (int k = 0; k < F::words; ++k) std::memcpy(rest[k], words + k * count + i, bytes), word[k] = rest[k];
  for (int k = 0; k < F::draws; ++k) draw[k] = made[k];
  law(word, draw);
  for (int k = 0; k < F::draws; ++k) std::memcpy(draws + k * count + i, made[k], bytes);
}

}  // namespace

void pairs(const uint64_t* words, int64_t count, double* draws) { each(Pairs{}, words, count, draws); }

void student(const uint64_t* words, int64_t count, double df, double* draws) {
  each(Student{df}, words, count, draws);
}

void noised(const double* total, int64_t count, Cells cells, double* noise) {
  const double coarse = cells.coarse, most = cells.most, end = cells.end, inverse = 1 / coarse;
  // all steps but the sum with the rest are exact, so that no variant can differ from another
  for (int64_t i = 0; i < count; ++i) {
    const double whole = __builtin_floor(total[i] * inverse);
    double drawn = noise[i] < -most ? -most : noise[i];
    drawn = drawn > most ? most : drawn;
    double cell = __builtin_rint((drawn + (total[i] - whole * coarse)) * inverse) + whole;
    cell = cell < -end ? -end : cell;
    noise[i] = (cell > end ? end : cell) * coarse;
  }
}

}  // namespace noisette::NOISETTE_ISA
