#include "nn/layers/weight_matrix.h"

#include <functional>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/cpu/parallel.h"
#include "core/dispatch.h"
#include "core/kernels/packed/packed_tile.h"
#include "core/kernels/packed/packed_top_logits.h"
#include "core/shapes_only.h"

namespace tapestry {

struct WeightMatrix::Packed {
  Packed(WeightFormat format, const Tensor& w)
      : matrix(format, w.data<float>(), w.shape()[0], w.shape()[1]) {}
  Packed(std::shared_ptr<State> of, std::span<const int32_t> rows);

  /// Made by the first call.
  const LogitScreen& screen_of_all();

  PackedMatrix matrix;
  std::shared_ptr<State> whole = {};  // of which the matrix has these rows
  std::vector<int32_t> rows = {};
  std::once_flag screened = {};
  std::optional<LogitScreen> screen = {};
};

struct WeightMatrix::State {
  Var var;
  std::unique_ptr<Packed> packed;
  Device device;
  DType dtype;
  std::optional<FrozenMatrix> frozen = {};
  std::optional<WeightFormat> learns_for = {};
  bool multiplies = false;
};

WeightMatrix::Packed::Packed(std::shared_ptr<State> of, std::span<const int32_t> rows)
    : matrix(of->packed->matrix, rows), whole(std::move(of)), rows(rows.begin(), rows.end()) {}

const LogitScreen& WeightMatrix::Packed::screen_of_all() {
  std::call_once(screened, [&] {
    if (whole == nullptr) {
      screen.emplace(matrix);
    } else {
      screen.emplace(whole->packed->screen_of_all(), rows);
    }
  });
  return *screen;
}

namespace {

// x W^T + bias without its result.
PackedLinear of_rows(const Var& x, const PackedMatrix& w, const Var& bias) {
  return {.rows = x.shape().rows(),
          .x = x.value().data<float>(),
          .weight = w,
          .bias = bias.defined() ? bias.value().data<float>() : nullptr};
}

void check_no_gradient(const Var& x, const Var& other) {
  check(!Tape::records(x, other), "weights",
        "packed matrices are for inference, but a tape "
        "records.");
}

// Calls read(id, i) for id i, on all threads.
void read_rows(const Tensor& ids, int64_t rows,
               const std::function<void(int64_t id, int64_t i)>& read) {
  constexpr int64_t kGrain = 16;
  parallel_ranges(ids.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t id = ids.data<int32_t>()[i];
      check(id >= 0 && id < rows, "embedding", "ids must be in [0, ", rows, "), got ", id, '.');
      read(id, i);
    }
  });
}

// The ids 0, 1, ... in the shape of others.
Tensor places_of(const Tensor& ids) {
  const Tensor places = Tensor::empty(ids.shape(), DType::kInt32);
  if (ShapesOnly::has_memory(places.bytes())) {
    std::iota(places.data<int32_t>(), places.data<int32_t>() + places.numel(), 0);
  }
  return places.to(ids.device());
}

Var rounded(const Var& w, WeightFormat format) {
  if (format == WeightFormat::kBFloat16) return convert(convert(w, DType::kBFloat16), w.dtype());
  return fake_quantize(w, format == WeightFormat::kInt4 ? Rounding::kInt4 : Rounding::kInt8);
}

}  // namespace

WeightMatrix::WeightMatrix(const Var& var)
    : state_(std::make_shared<State>(var, nullptr, var.value().device(), var.dtype())) {}

WeightMatrix::WeightMatrix(Device device, DType dtype)
    : state_(std::make_shared<State>(Var(), nullptr, device, dtype)) {}

WeightMatrix::WeightMatrix(const FrozenMatrix& frozen, DType dtype)
    : state_(std::make_shared<State>(Var(), nullptr, Device(), dtype, frozen)) {}

WeightMatrix::operator Weight() const {
  if (state_->frozen) return *state_->frozen;
  return state_->learns_for ? rounded(var(), *state_->learns_for) : var();
}

const Var& WeightMatrix::var() const {
  check(defined() && state_->var.defined(), "weights", "expected a matrix with values, got ",
        !defined()       ? "none."
        : packed()       ? "a packed one."
        : state_->frozen ? "a frozen one."
                         : "one that is not loaded.");
  return state_->var;
}

int64_t WeightMatrix::size() const {
  return packed() ? state_->packed->matrix.rows() : value().shape()[0];
}
Device WeightMatrix::device() const { return state_->device; }
DType WeightMatrix::dtype() const { return state_->dtype; }
void WeightMatrix::will_multiply() const { state_->multiplies = true; }
bool WeightMatrix::multiplies() const { return state_->multiplies; }

bool WeightMatrix::packed() const { return defined() && state_->packed != nullptr; }

bool WeightMatrix::frozen() const { return defined() && state_->frozen.has_value(); }

Tensor WeightMatrix::row_squares() const {
  constexpr int64_t kNumbers = int64_t{1} << 20;  // in memory at a time
  const DType wide = wider(dtype());
  const Shape shape = Weight(*this).shape();
  const Tensor squares = Tensor::empty({shape[0]}, wide, device());
  const int64_t step = std::max<int64_t>(1, kNumbers / std::max<int64_t>(1, shape[1]));
  for (int64_t begin = 0; begin < shape[0]; begin += step) {
    const int64_t end = std::min(begin + step, shape[0]);
    Tensor rows;
    if (frozen()) {
      rows = Tensor::empty({end - begin, shape[1]}, wide);
      dispatch_floating(wide, [&](auto type) {
        using T = decltype(type);
        constexpr int64_t kGrain = 16;
        parallel_ranges(end - begin, kGrain, [&](int64_t first, int64_t last) {
          state_->frozen->read({begin + first, begin + last}, {0, shape[1]},
                               rows.data<T>() + first * shape[1], shape[1]);
        });
      });
    } else {
      rows = value().slice(begin, end).to(wide);
    }
    squares.slice(begin, end).copy_from(sum(Var(rows) * Var(rows), 1).value());
  }
  return squares;
}

int64_t WeightMatrix::bytes() const {
  if (state_->frozen) return state_->frozen->words().bytes();
  return packed() ? state_->packed->matrix.bytes() : state_->var.value().bytes();
}

void WeightMatrix::set(const Var& var) const { state_->var = var; }

void WeightMatrix::learn_for(WeightFormat format) const { state_->learns_for = format; }

Var WeightMatrix::factor(const Var& x) const {
  if (packed() || !state_->learns_for || !rounds_rows(*state_->learns_for)) return x;
  return fake_quantize(
      x, *state_->learns_for == WeightFormat::kInt4 ? Rounding::kInt8Groups : Rounding::kInt8);
}

void WeightMatrix::pack(WeightFormat format) const {
  pack_values(format);
  state_->var = Var();
}

void WeightMatrix::pack_beside() const {
  pack_values(state_->learns_for.value_or(WeightFormat::kFloat32));
}
void WeightMatrix::unpack() const { state_->packed.reset(); }

void WeightMatrix::pack_values(WeightFormat format) const {
  const Tensor& w = value();
  check(w.shape().rank() == 2 && w.device().is_cpu(), "weights",
        "expected a matrix in host memory, got ", w.shape(), " on ", w.device(), '.');
  state_->packed = std::make_unique<Packed>(format, w);
}

Var WeightMatrix::multiply(const Var& x, const Var& bias, const LinearOptions& options) const {
  if (!packed()) return linear(factor(x), *this, bias, options);
  const PackedMatrix& w = state_->packed->matrix;
  check_no_gradient(x, bias);
  check(x.shape().rank() >= 1 && x.shape()[-1] == w.cols() &&
            (!bias.defined() || bias.shape() == Shape{w.rows()}),
        "linear", "x is ", x.shape(), ", the packed weight (", w.rows(), ", ", w.cols(), "), bias ",
        bias.shape(), '.');
  const Tensor y = Tensor::empty(x.shape().with(-1, w.rows()));
  PackedLinear product = of_rows(x, w, bias);
  product.activation = options.activation, product.y = y.data<float>();
  kernels::packed_linear(Cpu{}, product);
  return y;
}

Tensor WeightMatrix::best(const Var& x, const Logits& logits, int64_t count,
                          const std::vector<int32_t>& banned) const {
  check_no_gradient(x, logits.bias);
  check(packed(), "weights", "expected a packed matrix.");
  const PackedMatrix& w = state_->packed->matrix;
  const Tensor set = banned.empty() ? Tensor() : token_set(banned, w.rows());
  const Tensor top = Tensor::empty({x.shape().rows(), 1 + 2 * count}, DType::kFloat64);
  PackedLinear product = of_rows(x, w, logits.bias);
  product.softcap = logits.softcap;
  kernels::packed_top_logits(Cpu{}, product, count, set.defined() ? set.data<int32_t>() : nullptr,
                             top.data<double>(), logits.chosen);
  return top;
}

Tensor WeightMatrix::largest(const Var& x, const Logits& logits,
                             const std::vector<int32_t>& banned) const {
  check_no_gradient(x, logits.bias);
  check(packed(), "weights", "expected a packed matrix.");
  const PackedMatrix& w = state_->packed->matrix;
  const Tensor set = banned.empty() ? Tensor() : token_set(banned, w.rows());
  const Tensor largest = Tensor::empty({x.shape().rows()}, DType::kInt32);
  PackedLinear product = of_rows(x, w, logits.bias);
  product.softcap = logits.softcap;
  kernels::packed_largest(Cpu{}, product, state_->packed->screen_of_all(),
                          set.defined() ? set.data<int32_t>() : nullptr, largest.data<int32_t>(),
                          logits.chosen);
  return largest;
}

bool WeightMatrix::has_largest() const {
  return packed() && !rounds_rows(state_->packed->matrix.format()) &&
         state_->packed->matrix.cols() <= PackedMatrix::kMostInt8Columns &&
         int8_kernel() != Int8Kernel::kPlain;
}

WeightMatrix WeightMatrix::rows(std::span<const int32_t> rows) const {
  WeightMatrix chosen(device(), dtype());
  chosen.state_->multiplies = true;
  if (packed()) {
    chosen.state_->packed = std::make_unique<Packed>(state_, rows);
  } else {
    const std::vector<int32_t> ids(rows.begin(), rows.end());
    const Tensor one_row = Tensor::from(ids, {1, std::ssize(ids)}, device());
    chosen.set(reshape(embedding(one_row, var()), {std::ssize(ids), value().shape()[1]}));
    chosen.state_->learns_for = state_->learns_for;
  }
  return chosen;
}

Var WeightMatrix::look_up(const Tensor& ids, const Var& positions,
                          const EmbeddingOptions& options) const {
  if (state_->var.defined()) {
    if (!state_->learns_for) return embedding(ids, var(), positions, options);
    const Var rows = reshape(embedding(ids, var()), {ids.numel(), value().shape()[1]});
    return embedding(places_of(ids), rounded(rows, *state_->learns_for), positions, options);
  }
  if (state_->frozen) {
    const FrozenMatrix& w = *state_->frozen;
    const Tensor rows = Tensor::empty({ids.numel(), w.cols()}, dtype());
    dispatch_floating(dtype(), [&](auto type) {
      using T = decltype(type);
      read_rows(ids, w.rows(), [&](int64_t id, int64_t i) {
        w.read({id, id + 1}, {0, w.cols()}, rows.data<T>() + i * w.cols(), w.cols());
      });
    });
    return embedding(places_of(ids), rows, positions, options);
  }
  const PackedMatrix& w = state_->packed->matrix;
  check_no_gradient(positions, positions);
  const Tensor rows = Tensor::empty({ids.numel(), w.cols()});
  read_rows(ids, w.rows(),
            [&](int64_t id, int64_t i) { w.read_row(id, rows.data<float>() + i * w.cols()); });
  return embedding(places_of(ids), rows, positions, options);
}

Tensor token_set(const std::vector<int32_t>& tokens, int64_t vocab) {
  Tensor set = Tensor::zeros({(vocab + 31) / 32}, DType::kInt32);
  int32_t* const words = set.data<int32_t>();
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab) continue;
    int32_t& word = words[token / 32];
    word = static_cast<int32_t>(static_cast<uint32_t>(word) | uint32_t{1} << (token % 32));
  }
  return set;
}

}  // namespace tapestry
