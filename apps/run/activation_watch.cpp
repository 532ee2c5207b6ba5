#include "apps/run/activation_watch.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/shapes_only.h"

namespace tapestry {
namespace {

constexpr int64_t kBlock = 256, kEvery = 64;

// Without the sign, the bits of floats have the order of the floats, infinity and NaN above all.
float largest_of(const float* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(most);
}

double largest_of(const double* x, int64_t count) {
  uint64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::bit_cast<uint64_t>(x[i]) & ~(uint64_t{1} << 63));
  }
  return std::bit_cast<double>(most);
}

float largest_of(const BFloat16* x, int64_t count) {
  uint16_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, static_cast<uint16_t>(x[i].bits & 0x7fffu));
  }
  return std::bit_cast<float>(static_cast<uint32_t>(most) << 16);
}

template <class T>
double sample(const Tensor& tensor, int64_t first) {
  const int64_t blocks = (tensor.numel() + kBlock - 1) / kBlock;
  double largest = 0;
  for (int64_t block = blocks <= kEvery ? first % std::max<int64_t>(1, blocks) : first;
       block < blocks; block += kEvery) {
    const int64_t begin = block * kBlock, end = std::min(begin + kBlock, tensor.numel());
    const double one = largest_of(tensor.data<T>() + begin, end - begin);
    if (!(one <= largest)) largest = one;
  }
  return largest;
}

}  // namespace

void ActivationWatch::computed(const TapeOperation& operation,
                               std::span<const Var* const> /*inputs*/,
                               std::span<const Var* const> outputs, bool /*recorded*/) {
  const int64_t first = (seed_ + operation.number) % kEvery;
  for (const Var* output : outputs) {
    if (!output->defined() || !output->value().device().is_cpu() || ShapesOnly::is_on()) continue;
    const Tensor& value = output->value();
    if (value.numel() == 1) continue;  // a loss
    double one = 0;
    if (value.dtype() == DType::kFloat32) one = sample<float>(value, first);
    if (value.dtype() == DType::kFloat64) one = sample<double>(value, first);
    if (value.dtype() == DType::kBFloat16) one = sample<BFloat16>(value, first);
    if (!(one <= largest_) && !std::isnan(largest_)) largest_ = one;
  }
}

}  // namespace tapestry
