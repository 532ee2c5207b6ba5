#include "core/kernels/cpu/linear_tiles.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/kernels/cpu/frozen_tiles.h"
#include "core/kernels/cpu/linear_rows.h"
#include "core/kernels/cpu/tile_product.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

// dz = act'(z) dy, block of rows by block: each is computed into the cache and packed from there,
// as the left operand of dz W and of dz^T x; dz itself is not stored.
template <class T>
class PackedGradient {
 public:
  PackedGradient(const LinearShape& shape, const LinearBackward<T>& args)
      : shape_(shape),
        args_(args),
        blocks_{shape.rows, std::max<int64_t>(1, kElementsPerBlock /
                                                     std::max<int64_t>(1, shape.out * kTileDepth)) *
                                kTileDepth},
        bias_parts_(args.d_bias != nullptr ? blocks_.count() * shape.out : 0) {
    if (args.dx != nullptr) for_dx_.emplace(Side::kLeft, shape.rows, shape.out, kTileForm<T>);
    if (args.d_weight != nullptr) {
      for_d_weight_.emplace(Side::kLeft, shape.out, shape.rows, kTileForm<T>);
    }
  }

  int64_t tasks() const { return blocks_.count(); }

  void run(int64_t task) {
    const Range rows = blocks_[task];
    const int64_t out = shape_.out;
    const bool activated = shape_.activation != Activation::kNone;
    Scratch<T> block(activated ? rows.size() * out : 0);
    float* const d_bias = args_.d_bias != nullptr ? bias_parts_.data() + task * out : nullptr;
    if (d_bias != nullptr) std::fill_n(d_bias, out, 0.0F);
    if (activated || d_bias != nullptr) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const int64_t i = r * out;
        functions_.backward(shape_.activation, args_.z != nullptr ? args_.z + i : nullptr,
                            args_.y != nullptr ? args_.y + i : nullptr, args_.dy + i,
                            activated ? block.data() + (r - rows.begin) * out : nullptr, d_bias,
                            out);
      }
    }
    pack(rows, activated ? block.data() : args_.dy + rows.begin * out);
  }

  // Adds the parts of the blocks in order.
  void deliver_bias() {
    if (args_.d_bias == nullptr) return;
    functions_.reduce(bias_parts_.data(), blocks_.count(), shape_.out, args_.d_bias,
                      args_.d_bias_write);
  }

  const TileOperand& for_dx() const { return *for_dx_; }
  const TileOperand& for_d_weight() const { return *for_d_weight_; }

 private:
  static constexpr int64_t kElementsPerBlock = 1 << 15;

  void pack(Range rows, const T* dz) {
    if (for_dx_) {
      const bool last = rows.end == shape_.rows;
      const Range strips{rows.begin / kTileStrip, last ? for_dx_->strips() : rows.end / kTileStrip};
      pack_tiles({dz, shape_.out, true}, strips, {0, for_dx_->tiles()}, *for_dx_);
    }
    if (for_d_weight_) {
      const Range tiles{rows.begin / kTileDepth, (rows.end + kTileDepth - 1) / kTileDepth};
      pack_tiles({dz, shape_.out, false}, {0, for_d_weight_->strips()}, tiles, *for_d_weight_);
    }
  }

  const LinearShape& shape_;
  const LinearBackward<T>& args_;
  const LinearRows<T>& functions_ = linear_rows_functions<T>();
  const Cut blocks_;
  Scratch<float> bias_parts_;
  std::optional<TileOperand> for_dx_, for_d_weight_;
};

// Writes sums to c (rows of `cols` elements), or adds them to it.
template <class T>
std::function<void(Range rows, Range columns, const float* sums, int64_t stride)> written_to(
    T* c, int64_t cols, Write write) {
  const LinearRows<T>& functions = linear_rows_functions<T>();
  const float beta = write == Write::kAdd ? 1 : 0;
  return [=, &functions](Range rows, Range columns, const float* sums, int64_t stride) {
    for (int64_t r = 0; r < rows.size(); ++r) {
      functions.deliver(sums + r * stride, 1, beta, c + (rows.begin + r) * cols + columns.begin,
                        columns.size());
    }
  };
}

}  // namespace

template <class T>
void linear_on_tiles(const LinearShape& shape, const LinearForward<T>& args) {
  const LinearRows<T>& functions = linear_rows_functions<T>();
  TileOperand x(Side::kLeft, shape.rows, shape.in, kTileForm<T>);
  const auto finish = [&](Range rows, Range cols, const float* sums, int64_t stride) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t i = r * shape.out + cols.begin;
      functions.finish(shape.activation, args.bias != nullptr ? args.bias + cols.begin : nullptr,
                       sums + (r - rows.begin) * stride, args.z != nullptr ? args.z + i : nullptr,
                       args.y + i, cols.size());
    }
  };
  if (args.frozen != nullptr) {
    pack_operands({{x, {args.x, shape.in, true}}});
    return multiply_frozen(x, *args.frozen, FrozenSide::kTransposed, finish);
  }
  TileOperand weight(Side::kRight, shape.out, shape.in, kTileForm<T>);
  pack_operands({{x, {args.x, shape.in, true}}, {weight, {args.weight, shape.in, true}}});
  multiply_tiles({{.a = x.view(), .b = weight.view(), .take = finish}});
}

template <class T>
void linear_backward_on_tiles(const LinearShape& shape, const LinearBackward<T>& args) {
  PackedGradient<T> dz(shape, args);
  std::optional<TileOperand> weight, x;
  std::optional<TilePacking> weight_packing, x_packing;
  if (args.dx != nullptr && args.frozen == nullptr) {
    weight.emplace(Side::kRight, shape.in, shape.out, kTileForm<T>);
    weight_packing.emplace(*weight, Factor{args.weight, shape.in, false});
  }
  if (args.d_weight != nullptr) {
    x.emplace(Side::kRight, shape.in, shape.rows, kTileForm<T>);
    x_packing.emplace(*x, Factor{args.x, shape.in, false});
  }
  const int64_t weight_tasks = weight_packing ? weight_packing->tasks() : 0;
  const int64_t x_tasks = x_packing ? x_packing->tasks() : 0;
  parallel_for(dz.tasks() + weight_tasks + x_tasks, [&](int64_t task) {
    if (task < dz.tasks()) return dz.run(task);
    task -= dz.tasks();
    if (task < weight_tasks) return weight_packing->run(task);
    x_packing->run(task - weight_tasks);
  });
  dz.deliver_bias();
  if (args.dx != nullptr && args.frozen != nullptr) {
    multiply_frozen(dz.for_dx(), *args.frozen, FrozenSide::kStraight,
                    written_to(args.dx, shape.in, args.dx_write));
  }
  std::vector<TileProduct> products;
  if (weight) {
    products.push_back({.a = dz.for_dx().view(),
                        .b = weight->view(),
                        .take = written_to(args.dx, shape.in, args.dx_write)});
  }
  if (x) {
    products.push_back({.a = dz.for_d_weight().view(),
                        .b = x->view(),
                        .take = written_to(args.d_weight, shape.in, args.d_weight_write)});
  }
  multiply_tiles(products);
}

template void linear_on_tiles(const LinearShape&, const LinearForward<float>&);
template void linear_on_tiles(const LinearShape&, const LinearForward<BFloat16>&);
template void linear_backward_on_tiles(const LinearShape&, const LinearBackward<float>&);
template void linear_backward_on_tiles(const LinearShape&, const LinearBackward<BFloat16>&);

}  // namespace tapestry::kernels
