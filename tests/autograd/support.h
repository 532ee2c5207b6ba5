// Shared by the tests of autograd and nn: fixed random tensors, comparisons, and matrices of
// doubles with plain loops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/cpu/parallel.h"

namespace tapestry::test {

/// Uniform draws in [low, high), the same in every run.
inline Tensor uniform(const Shape& shape, uint32_t stream, double low = -1, double high = 1) {
  Tensor x = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = to_uniform(philox_bits({.seed = 77, .step = 0, .stream = stream}, i));
    x.data<double>()[i] = low + (high - low) * u;
  }
  return x;
}

/// int32 draws in [low, high).
inline Tensor uniform_ids(const Shape& shape, uint32_t stream, int64_t low, int64_t high) {
  Tensor x = Tensor::empty(shape, DType::kInt32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<int32_t>()[i] = static_cast<int32_t>(
        low + philox_below({.seed = 78, .step = 0, .stream = stream}, i, high - low));
  }
  return x;
}

inline Var parameter(const Shape& shape, uint32_t stream, double low = -1, double high = 1) {
  return Var::parameter(uniform(shape, stream, low, high));
}

inline Tensor doubles(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from<double>(values, shape);
}

inline Tensor ints(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from<int32_t>(values, shape);
}

/// Columns [begin, end) of a tensor's second axis.
inline Tensor columns(const Tensor& x, int64_t begin, int64_t end) {
  if (x.dtype() != DType::kInt32) return slice(Var(x), 1, begin, end).value();
  return slice(Var(x.to(DType::kFloat64)), 1, begin, end).value().to(DType::kInt32);
}

/// The largest |a - b|; infinite if the shapes differ or any element is NaN.
inline double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.shape() == b.shape())) return INFINITY;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

/// The message of the Error that f throws; empty when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A test name from a title: "add, row" gives "add_row".
inline std::string identifier(const std::string& title) {
  std::string name;
  for (const char c : title) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return name;
}

/// Sets the number of threads for one scope.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~WithThreads() { set_num_threads(before_); }

 private:
  int before_;
};

/// A matrix of doubles.
struct Matrix {
  Matrix(int64_t rows, int64_t cols)
      : rows(rows), cols(cols), values(static_cast<size_t>(rows * cols)) {}
  explicit Matrix(const Tensor& x) : Matrix(x.shape().rows(), x.shape().cols()) {
    values = x.to_vector<double>();
  }
  double& operator()(int64_t i, int64_t j) { return values[i * cols + j]; }
  double operator()(int64_t i, int64_t j) const { return values[i * cols + j]; }
  Tensor tensor(const Shape& shape) const { return Tensor::from<double>(values, shape); }
  Tensor tensor() const { return tensor({rows, cols}); }

  int64_t rows, cols;
  std::vector<double> values;
};

inline Matrix transpose(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  }
  return t;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

inline Matrix operator*(double alpha, Matrix a) {
  for (double& value : a.values) value *= alpha;
  return a;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

}  // namespace tapestry::test
