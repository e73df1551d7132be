// What the instruction-set variants of the kernel share with the module that calls them: plain data only.
// kernel.cpp and the headers of its phases are compiled once for every instruction set. Nothing in them may be a function
// that the linker could merge with its twin of another set, so there are no containers and no templates of the standard
// library here.
#pragma once
#include <cstddef>
#include <cstdint>

namespace noisette {

constexpr int kDropped = 17;                     // bits of a float32 below its bucket: 6 bits of mantissa are kept
constexpr int64_t kBuckets = int64_t{1} << 14;   // sign dropped, so 31 - 17 bits
constexpr int kTurns = 4;                        // counters of a bucket, which take turns
constexpr int64_t kTile = 512;                   // coordinates that are summed while their total is in the first cache
constexpr int64_t kGroup = 8;                    // examples that go together, so that tables and totals are read once

constexpr double kMostSteps = 0x1p27;            // of a coordinate: those of a group add up within 32 bits

constexpr int64_t kColumns = 16;                // the widest vector of any variant

enum class Kind { l2, ranked, snap };

// One block of coordinates and its family of profiles, of which each example uses one.
struct Block {
  int64_t profiles, levels;  // their number, and the number of levels of each
  const float* level;        // (profiles, levels), ascending, rounded toward zero
  const int64_t* start;      // (levels): the first rank of each level
  int64_t knots, columns;    // columns: profiles, filled up to a multiple of kColumns
  const float* knot;         // (knots, columns): what a profile's cosine is computed from, already of unit length
  const int64_t* end;        // (knots): one past the last rank that each stands for
};

struct Plan {
  Kind kind;
  double radius;  // l2 only: what no encoded vector may exceed
  double step;    // a power of two: encoded coordinates are multiples of it
  const Block* blocks;
  int64_t count;
};

enum class Rule { dense, linear, conv };

// Where the gradients of one parameter come from. Strides count floats.
struct Layer {
  Rule rule;
  const float *x, *g;            // dense: only x, the gradient itself. linear: (B, in), (B, out). conv: NHWC both
  int64_t x_stride, g_stride;    // from one example to the next
  int64_t in, out;               // dense: in = coordinates. linear and conv: features or channels
  int64_t height, width;         // conv: of the input
  int64_t high, wide;            // conv: of the output
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, padded_h, padded_w;
};

// The coordinates of a parameter, all of one block: a vector, or the outer product of an output's derivative and an
// input. There is one for each layer.
struct Piece {
  bool outer;
  int64_t rows, cols;
  int64_t at;  // where it starts in the total; conv weights lie there as (out, kh, kw, in)
  int64_t block;
};

struct View {
  const float *rows, *cols;  // outer: (rows), (cols). dense: only cols
};

// Derivatives of one channel of a convolution, and where the patch of each begins in the padded input.
struct Ends {
  float* value;
  uint32_t* at;
  int64_t count;
};

// The lowest and the highest bucket that a histogram has counted, other than that of zero.
struct Range {
  int32_t low = static_cast<int32_t>(kBuckets), high = 0;
};

// Memory of one thread, made by the caller; histograms and tables start as zeros and are left as zeros.
struct Workspace {
  int64_t group;             // examples that go together, at most kGroup
  float* gradients;          // (group, dense): what conv layers fill
  int64_t dense;
  float *padded, *product;
  Ends* ends;                // (channels), which point into these two:
  float* derivatives;
  uint32_t* patches;
  uint32_t* places;          // where the patch of every place begins
  float* nonzero;            // what is not zero of a linear layer's input
  uint32_t* histogram;       // (blocks, kBuckets, kTurns)
  Range* ranges;             // (blocks)
  float* table;              // (group, kBuckets): the bound of every bucket
  uint16_t* keys;            // (blocks, group, kBuckets): the buckets in use, ascending
  int64_t* below;            // (blocks, group, kBuckets): how many coordinates lie below each
  int64_t* used;             // (blocks, group): how many buckets are in use
  int64_t knots;             // the most of any block
  float* sums;               // (blocks, knots, kGroup)
  View* views;               // (group, pieces)
};

struct Job {
  const Plan* plan;
  const Layer* layers;
  const Piece* pieces;
  int64_t count;          // of layers, and of pieces
  int64_t first, last;    // examples
  const double* squares;  // l2 only: what other parameters add to the square of each example's norm
  double* factors;        // l2 only: what each example was multiplied by; zero where it is not finite
  double* total;          // (dim), added to
  Workspace* work;
};

using Encode = void (*)(const Job&);

// Some coordinates of the gradients of a few examples, what the norm of each may be, and what it is multiplied by.
struct Bounded {
  const float* v;
  int64_t stride, count, n;
  const double *bounds, *factors;  // (count)
  double step;
  double* total;  // (n), added to
};

#define NOISETTE_KERNEL   \
  void encode(const Job&); \
  void add_bounded(const Bounded&);
namespace plain { NOISETTE_KERNEL }
#ifdef NOISETTE_X86
namespace avx2 { NOISETTE_KERNEL }
namespace avx512 { NOISETTE_KERNEL }
#endif
#undef NOISETTE_KERNEL

}  // namespace noisette
