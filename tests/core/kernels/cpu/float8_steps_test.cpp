// States in 8 bits: the CPU's vectors against the rules one element at a time. Both fuse products
// that are added, so it is not for emulated builds, whose CPU kernels are plain loops that do not.
#include "core/kernels/optimizer_float8.h"

#include "core/kernels/optimizer_functors.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

using Steps = testing::Types<MomentumStep, AdagradStep, AdadeltaStep, AdamStep>;
template <class Step>
class Float8StepTest : public testing::Test {};
TYPED_TEST_SUITE(Float8StepTest, Steps);

template <class Step>
Step step_of() {
  if constexpr (std::is_same_v<Step, AdamStep>) {
    return {.learning_rate = 0.1,
            .weight_decay = 0.2,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .eps = 1e-8,
            .decoupled = true,
            .bias_correction1 = 0.5,
            .bias_correction2 = 0.3};
  } else if constexpr (std::is_same_v<Step, MomentumStep>) {
    return {.learning_rate = 0.1, .weight_decay = 0.2, .momentum = 0.9, .nesterov = true};
  } else if constexpr (std::is_same_v<Step, AdagradStep>) {
    return {.learning_rate = 0.1, .weight_decay = 0.2, .eps = 1e-8};
  } else {
    return {.learning_rate = 0.1, .weight_decay = 0.2, .rho = 0.9, .eps = 1e-6};
  }
}

// Two updates of tensors whose ends lie within blocks, on one and on two threads.
TYPED_TEST(Float8StepTest, VectorsHaveTheScalarBits) {
  constexpr size_t kStates = TypeParam::kStates.size();
  const std::vector<int64_t> sizes = {1, 255, 256, 257, 0, 700, 16384, 20011};
  struct OfTensor {
    std::vector<float> param, grad;
    std::vector<std::vector<uint8_t>> codes;
    std::vector<std::vector<float>> scales;
  };
  const auto fresh = [&] {
    std::vector<OfTensor> all;
    uint64_t index = 0;
    for (const int64_t n : sizes) {
      OfTensor& tensor = all.emplace_back();
      for (int64_t i = 0; i < n; ++i) {
        tensor.param.push_back(static_cast<float>(philox_normal({1, 0, 0}, index)));
        const double size = std::exp2(-30 * to_uniform(philox_bits({3, 0, 0}, index)));
        tensor.grad.push_back(static_cast<float>(size * philox_normal({2, 0, 0}, index++)));
      }
      if (n > 100) tensor.grad[7] = 0;
      for (size_t k = 0; k < kStates; ++k) {
        tensor.codes.emplace_back(state_blocks(n) * kStateBlock, uint8_t{0});
        tensor.scales.emplace_back(state_blocks(n), 0.0F);
      }
    }
    return all;
  };
  std::vector<OfTensor> expected = fresh();
  const TypeParam step = step_of<TypeParam>();
  const auto rule = rule_of<float>(step);
  for (uint32_t number = 1; number <= 2; ++number) {
    for (OfTensor& tensor : expected) {
      for (size_t block = 0; block < tensor.scales[0].size(); ++block) {
        const size_t begin = block * kStateBlock;
        const size_t end = std::min(begin + kStateBlock, tensor.param.size());
        std::vector<std::vector<float>> values(kStates);
        for (size_t i = begin; i < end; ++i) {
          float state[kStates];
          for (size_t k = 0; k < kStates; ++k) {
            state[k] =
                Float8{TypeParam::kSigned[k]}.decoded(tensor.codes[k][i], tensor.scales[k][block]);
          }
          rule(tensor.param[i], tensor.grad[i], state);
          for (size_t k = 0; k < kStates; ++k) values[k].push_back(state[k]);
        }
        for (size_t k = 0; k < kStates; ++k) {
          float most = 0;
          for (const float value : values[k]) most = std::max(most, std::abs(value));
          const float scale = tensor.scales[k][block] = float8_scale(most);
          for (size_t i = begin; i < end; ++i) {
            const uint32_t draw =
                float8_draw(static_cast<uint32_t>(i), number, static_cast<uint32_t>(k));
            tensor.codes[k][i] =
                Float8{TypeParam::kSigned[k]}.encoded(values[k][i - begin], scale, draw);
          }
        }
      }
    }
  }
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    std::vector<OfTensor> got = fresh();
    for (uint32_t number = 1; number <= 2; ++number) {
      std::vector<ParameterUpdate<float>> updates;
      for (OfTensor& tensor : got) {
        ParameterUpdate<float>& update = updates.emplace_back();
        update.step = step;
        update.param = tensor.param.data();
        update.grad = tensor.grad.data();
        update.n = std::ssize(tensor.param);
        update.number = number;
        for (size_t k = 0; k < kStates; ++k) {
          update.codes[k] = tensor.codes[k].data();
          update.scales[k] = tensor.scales[k].data();
        }
      }
      // An empty tensor has no codes of its own, but is one of them.
      for (ParameterUpdate<float>& update : updates) {
        if (update.n == 0) update.codes = updates.back().codes;
      }
      kernels::optimizer_step<float>(Cpu{}, updates, {});
    }
    for (size_t t = 0; t < got.size(); ++t) {
      EXPECT_EQ(got[t].param, expected[t].param) << sizes[t];
      for (size_t k = 0; k < kStates; ++k) {
        EXPECT_EQ(got[t].codes[k], expected[t].codes[k]) << sizes[t];
        EXPECT_EQ(got[t].scales[k], expected[t].scales[k]) << sizes[t];
      }
    }
  }
  set_num_threads(0);
}

}  // namespace
}  // namespace tapestry
