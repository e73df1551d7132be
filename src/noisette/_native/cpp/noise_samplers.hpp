// Noise: words to draws, and draws onto a sum. What the variants share with the module that calls them.
#pragma once
#include <cstdint>

namespace noisette {

// The public grid of a release; all four are powers of two, or sums of two of them.
struct Cells {
  double coarse;  // the width of a cell
  double most;    // noise beyond leads to the ends from whatever sum
  double end;     // the last cell, counted from that of zero
};

#define NOISETTE_DRAWS                                                                                            \
  /* Pairs of standard Gaussian draws from three words each: (3, count) words, (2, count) draws. */              \
  void pairs(const uint64_t* words, int64_t count, double* draws);                                               \
  /* Draws of Student's t from four words each: (4, count) words, (count) draws. */                              \
  void student(const uint64_t* words, int64_t count, double df, double* draws);                                  \
  /* total (count) and noise (count), added up on the grid, in the place of the noise. */                        \
  void noised(const double* total, int64_t count, Cells cells, double* noise);

namespace plain { NOISETTE_DRAWS }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_DRAWS }
namespace avx512 { NOISETTE_DRAWS }
#endif

}  // namespace noisette
