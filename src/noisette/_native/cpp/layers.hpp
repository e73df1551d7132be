// Where gradients come from: what layers saw, or rows.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "arrays.hpp"

namespace noisette {
namespace {

void check_strides(const Floats& array, const char* what) {
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 1;) {
    require(array.shape(i) == 1 || array.stride(i) == expected, what);
    expected *= static_cast<int64_t>(array.shape(i));
  }
}

class Layers {
 public:
  void linear(Floats x, Floats g, int64_t at) {
    require(x.ndim() == 2 && g.ndim() == 2, "a linear layer has inputs (B, in) and derivatives (B, out)");
    Layer layer = begin(Rule::linear, x, g);
    layer.in = static_cast<int64_t>(x.shape(1));
    layer.out = static_cast<int64_t>(g.shape(1));
    widest_ = std::max(widest_, layer.in);
    add(layer, {true, layer.out, layer.in, at, 0});
  }

  // x (B, H, W, C) and g (B, h, w, O); margins are top, left, bottom, right
  void conv(Floats x, Floats g, const std::vector<int64_t>& kernel, const std::vector<int64_t>& stride,
            const std::vector<int64_t>& margins, int64_t at) {
    require(x.ndim() == 4 && g.ndim() == 4, "a convolution has four dimensions, channels last");
    require(kernel.size() == 2 && stride.size() == 2 && margins.size() == 4, "kernel, stride, margins: 2, 2, 4 numbers");
    for (size_t i = 1; i < 4; ++i) require(x.shape(i) > 0 && g.shape(i) > 0, "an image is empty");
    for (int64_t n : kernel) require(n > 0, "a kernel has a size");
    for (int64_t n : stride) require(n > 0, "a stride is positive");
    for (int64_t n : margins) require(n >= 0, "margins are not negative");
    Layer layer = begin(Rule::conv, x, g);
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
    const int64_t run = (kernel[1] * layer.in + kColumns - 1) / kColumns * kColumns;
    dense_ += entries * layer.out;
    const int64_t padded = layer.padded_h * layer.padded_w * layer.in;
    require(padded <= int64_t{1} << 32, "an image has more numbers than can be counted here");
    padded_ = std::max(padded_, padded + kColumns);
    const int64_t places = layer.high * layer.wide + kColumns;
    places_ = std::max(places_, places);
    ends_ = std::max(ends_, places * layer.out);
    channels_ = std::max(channels_, layer.out);
    product_ = std::max(product_, layer.out * kernel[0] * run);
    add(layer, {false, 1, entries * layer.out, at, 0});
  }

  void rows(Floats x, int64_t at) {
    require(x.ndim() == 2 && x.shape(1) > 0, "rows are (B, n)");
    Layer layer = begin(Rule::dense, x, x);
    layer.in = static_cast<int64_t>(x.shape(1));
    add(layer, {false, 1, layer.in, at, 0});
  }

  // Give every piece its block; each must lie in one. Without blocks some coordinates may be none of ours.
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
    require((dims.empty() || covered == dim) && !overlapping(), "the layers do not make up the whole gradient");
  }

  int64_t examples() const { return examples_ < 0 ? 0 : examples_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int64_t dense_ = 0, padded_ = 0, places_ = 0, ends_ = 0, channels_ = 0, product_ = 0, widest_ = 0;

 private:
  Layer begin(Rule rule, const Floats& x, const Floats& g) {
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
  void add(const Layer& layer, const Piece& piece) {
    layers_.push_back(layer);
    pieces_.push_back(piece);
  }

  int64_t examples_ = -1;
  std::vector<Floats> kept_;  // layers point into these
  std::vector<Layer> layers_;
  std::vector<Piece> pieces_;
};

}  // namespace
}  // namespace noisette
