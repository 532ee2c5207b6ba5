#include <algorithm>
#include <vector>

#include "core/kernels/cuda/cross_entropy_rows.cuh"
#include "core/kernels/embedding.h"
#include "core/kernels/matmul/linear.h"

namespace tapestry {
namespace {

// The number of rows per chunk. At least 1024: fewer would not fill a GPU. A multiple of 16, so
// that every chunk is aligned like the first one.
int64_t rows_of_chunk(int64_t rows, int64_t row_bytes, int64_t chunk_bytes) {
  const int64_t fitting = chunk_bytes / (row_bytes > 0 ? row_bytes : 1);
  const int64_t most = fitting > 1024 ? fitting : 1024;
  if (rows <= most) return rows > 0 ? rows : 1;
  const int64_t chunks = (rows + most - 1) / most;
  return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

// n elements with zeros behind them up to `padded`: a copy where there are fewer. Null stays null.
template <class T>
class PaddedOperand {
 public:
  PaddedOperand(const T* x, int64_t n, int64_t padded)
      : copy_(x != nullptr && padded > n ? padded : 0), x_(x) {
    if (x == nullptr || padded == n) return;
    cuda::copy(copy_.data(), x, n * int64_t{sizeof(T)});
    cuda::fill_zero(copy_.data() + n, (padded - n) * int64_t{sizeof(T)});
    x_ = copy_.data();
  }
  const T* data() const { return x_; }

 private:
  DeviceScratch<T> copy_;
  const T* x_;
};

// The place of `padded` elements, of which the first n are wanted in y.
template <class T>
class PaddedResult {
 public:
  PaddedResult(T* y, int64_t n, int64_t padded)
      : scratch_(y != nullptr && padded > n ? padded : 0), y_(y), n_(n), is_padded_(padded > n) {}
  T* data() { return y_ != nullptr && is_padded_ ? scratch_.data() : y_; }
  void deliver() {
    if (data() != y_) cuda::copy(y_, data(), n_ * int64_t{sizeof(T)});
  }

 private:
  DeviceScratch<T> scratch_;
  T* y_;
  int64_t n_;
  bool is_padded_;
};

// Computes all rows, including ignored ones. Rows of logits are overwritten by their gradients.
template <class T>
void all_rows(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
              CrossEntropySums* sums) {
  // cuBLASLt has only slow algorithms for rows that are no multiple of 16 bytes (50257 classes took
  // eight times as long on an H200): such classifiers get more classes, of which nobody knows.
  constexpr int64_t kRowStep = 128 / static_cast<int64_t>(sizeof(T));
  const int64_t classes = shape.classes, in = args.in;
  const int64_t columns =
      classes % kPack<T> == 0 ? classes : (classes + kRowStep - 1) / kRowStep * kRowStep;
  const PaddedOperand<T> weight(args.weight, classes * in, columns * in);
  const PaddedOperand<T> bias(args.bias, classes, columns);
  const bool gradients = args.dx != nullptr;
  PaddedResult<T> d_weight(gradients ? args.d_weight : nullptr, classes * in, columns * in);
  PaddedResult<T> d_bias(gradients ? args.d_bias : nullptr, classes, columns);

  const int64_t most =
      rows_of_chunk(shape.rows, columns * static_cast<int64_t>(sizeof(T)), args.chunk_bytes);
  DeviceScratch<T> logits(most * columns);
  DeviceScratch<RowLoss> losses(shape.rows);
  // At least one round: without rows it sets the gradients of weight and bias to 0.
  for (int64_t first = 0; first == 0 || first < shape.rows; first += most) {
    const int64_t rows = std::min(shape.rows - first, most);
    const LinearShape classifier{rows, in, columns, Activation::kNone, shape.precision};
    const T* const x = args.x + first * in;
    kernels::linear<T>(Cuda{}, classifier, {x, weight.data(), bias.data(), nullptr, logits.data()});
    CrossEntropyShape part = shape;
    part.rows = rows;
    cross_entropy_rows(part, CrossEntropyRows<T>{.logits = logits.data(),
                                                 .stride = columns,
                                                 .targets = args.targets.from(first),
                                                 .grad_scale = args.grad_scale,
                                                 .losses = losses.data() + first,
                                                 .dlogits = gradients ? logits.data() : nullptr});
    if (!gradients) continue;
    LinearBackward<T> backward{};
    backward.x = x, backward.weight = weight.data(), backward.dy = logits.data();
    backward.dx = args.dx + first * in, backward.dx_write = Write::kSet;
    backward.d_weight = d_weight.data(), backward.d_bias = d_bias.data();
    backward.d_weight_write = backward.d_bias_write = first == 0 ? Write::kSet : Write::kAdd;
    kernels::linear_backward(Cuda{}, classifier, backward);
  }
  d_weight.deliver();
  d_bias.deliver();
  sum_rows(losses.data(), shape.rows, sums);
}

// The rows that are not ignored, in order, then at least one ignored row up to a multiple of kStep.
struct Selection {
  // Few different row counts, so that batches share products and graphs.
  static constexpr int64_t kStep = 128;
  static int64_t rows_for(int64_t real) { return (real / kStep + 1) * kStep; }

  Selection(const RowTargets& all, int64_t count, int32_t ignore_index, int64_t real)
      : places(static_cast<size_t>(count), static_cast<int32_t>(real)) {
    rows.reserve(static_cast<size_t>(rows_for(real)));
    targets.reserve(rows.capacity());
    for (int64_t r = 0; r < count; ++r) {
      if (all.targets[r] == ignore_index) continue;
      places[static_cast<size_t>(r)] = static_cast<int32_t>(rows.size());
      rows.push_back(static_cast<int32_t>(r));
      targets.push_back(all.targets[r]);
      if (all.weights != nullptr) weights.push_back(all.weights[r]);
    }
    rows.resize(static_cast<size_t>(rows_for(real)));
    targets.resize(rows.size(), ignore_index);
    if (all.weights != nullptr) weights.resize(rows.size(), 1);
  }

  std::vector<int32_t> rows;     // of x
  std::vector<int32_t> targets;  // theirs
  std::vector<double> weights;   // of the same rows, or empty
  std::vector<int32_t> places;   // where `rows` has each row of x (ignored: any ignored one)
};

template <class E>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<E>& values) : values_(std::ssize(values)) {
    if (values.empty()) return;
    cuda::upload(values_.data(), values.data(), std::ssize(values) * int64_t{sizeof(E)});
  }
  const E* data() { return values_.data(); }

 private:
  DeviceScratch<E> values_;
};

// to[i] = from[ids[i]], rows of `cols` elements.
template <class T>
void take_rows(const T* from, int64_t from_rows, int64_t cols, const std::vector<int32_t>& ids,
               T* to) {
  OnDevice on_device(ids);
  const EmbeddingShape shape{.rows = std::ssize(ids), .cols = cols, .vocab = from_rows};
  kernels::embedding<T>(Cuda{}, shape, on_device.data(), from, nullptr, Dropout{}, to);
}

template <class T>
void selected_rows(const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                   const Selection& selection, CrossEntropySums* sums) {
  const int64_t count = std::ssize(selection.rows);
  OnDevice targets(selection.targets);
  OnDevice weights(selection.weights);
  DeviceScratch<T> x(count * args.in), dx(args.dx != nullptr ? count * args.in : 0);
  take_rows(args.x, shape.rows, args.in, selection.rows, x.data());
  CrossEntropyShape part = shape;
  part.rows = count;
  LinearCrossEntropy<T> selected = args;
  selected.x = x.data();
  selected.targets = {targets.data(), selection.weights.empty() ? nullptr : weights.data()};
  if (args.dx != nullptr) selected.dx = dx.data();
  all_rows(part, selected, sums);
  if (args.dx != nullptr) take_rows(dx.data(), count, args.in, selection.places, args.dx);
}

}  // namespace

namespace kernels {

template <class T>
void linear_cross_entropy(Cuda, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums) {
  if (args.host_targets.targets != nullptr) {
    const int32_t *const all = args.host_targets.targets, *const end = all + shape.rows;
    const int64_t real = shape.rows - std::count(all, end, shape.ignore_index);
    if (8 * Selection::rows_for(real) <= 7 * shape.rows) {
      const Selection selection(args.host_targets, shape.rows, shape.ignore_index, real);
      return selected_rows(shape, args, selection, sums);
    }
  }
  all_rows(shape, args, sums);
}

template void linear_cross_entropy(Cuda, const CrossEntropyShape&, const LinearCrossEntropy<float>&,
                                   CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<double>&, CrossEntropySums*);
template void linear_cross_entropy(Cuda, const CrossEntropyShape&,
                                   const LinearCrossEntropy<BFloat16>&, CrossEntropySums*);

}  // namespace kernels
}  // namespace tapestry
