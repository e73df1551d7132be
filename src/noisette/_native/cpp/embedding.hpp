// Rows of a table that examples have looked up: what the variants share with the module that calls them.
#pragma once
#include <cstdint>

namespace noisette {

struct Lookups {
  int64_t examples, positions, width, rows;  // rows: of the table
  const int64_t* index;                      // (examples, positions)
  const float* g;                            // (examples, positions, width)
  int32_t* slot;                             // (rows), all -1, and left so
  int64_t* named;                            // (examples, positions): the rows that an example names, each once
  int64_t* used;                             // (examples): how many
  double* sums;                              // (examples, positions, width): what is added to each of them
  double* squares;                           // (examples)
};

#define NOISETTE_TABLES                                                                                     \
  /* Sum up what the positions of each example add to a row, in their order. */                             \
  void look_up(const Lookups& all);                                                                         \
  /* Add the sums of the first `count` examples, times a weight each, in whole steps toward zero. */        \
  void add_rows(const Lookups& all, const double* weights, int64_t count, double step, double* total);

namespace plain { NOISETTE_TABLES }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_TABLES }
namespace avx512 { NOISETTE_TABLES }
#endif

}  // namespace noisette
