#include "autograd/running_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "core/base/philox.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::on_ranks;
using testing::Each;

constexpr int64_t kColumns = 5;
constexpr int kMicroBatches = 8;  // of an update
constexpr int kUpdates = 3;

Tensor batch_of(uint32_t update, uint32_t micro_batch) {
  // One row has no unbiased variance, and what is not finite is not applied.
  const int64_t rows = micro_batch == 5 ? 1 : 3 + micro_batch;
  const Tensor x = Tensor::empty({rows, kColumns});
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] =
        static_cast<float>(to_uniform(philox_bits({3, update, micro_batch}, uint64_t(i)))) * 9;
  }
  if (micro_batch == 2) x.data<float>()[1] = HUGE_VALF;
  return x;
}

// Two layers, of which one stands in two places, and once in a part that is computed again.
struct Model {
  struct Layer {
    Var gamma = Var::parameter(Tensor::full({kColumns}, 1.5));
    Tensor mean = Tensor::zeros({kColumns}), variance = Tensor::full({kColumns}, 1);
    Var operator()(const Var& x) const { return batch_norm(x, gamma, {}, mean, variance); }
  };
  Layer first, second;

  std::vector<Tensor> running() const {
    return {first.mean, first.variance, second.mean, second.variance};
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const Tensor& tensor : running()) all.push_back(tensor.to_vector<float>());
    return all;
  }
  void step(const Tensor& batch) const {
    Tape tape;
    const Var x = first(batch);
    const Var y = first(recompute([&] { return second(x); }) * x);
    tape.backward(sum(reshape(y, {batch.numel()})));
  }
};

// The bits of all statistics after each update on one rank, applied as forward passes come to them.
std::vector<std::vector<float>> on_one_rank() {
  const Model model;
  for (uint32_t update = 0; update < kUpdates; ++update) {
    for (uint32_t m = 0; m < kMicroBatches; ++m) model.step(batch_of(update, m));
  }
  return model.values();
}

class StatisticsOn : public testing::TestWithParam<int> {};

TEST_P(StatisticsOn, HaveTheBitsOfOneRank) {
  const auto expected = on_one_rank();
  EXPECT_NE(expected, Model().values());
  LocalJob job({.hosts = hosts_of(GetParam()), .longest_delay_seconds = 0.001, .seed = 2});
  const auto errors = on_ranks(job, GetParam(), [&](Communicator& communicator) {
    const Model model;
    DeferredStatistics statistics(model.running());
    const auto own = static_cast<uint32_t>(kMicroBatches / communicator.size());
    for (uint32_t update = 0; update < kUpdates; ++update) {
      const auto before = model.values();
      for (uint32_t j = 0; j < own; ++j) {
        model.step(batch_of(update, static_cast<uint32_t>(communicator.rank()) * own + j));
      }
      EXPECT_EQ(model.values(), before);  // until all ranks apply them
      statistics.apply(communicator.all_gather(statistics.take()));
      EXPECT_EQ(statistics.take(), "");
    }
    EXPECT_EQ(model.values(), expected);
  });
  EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, StatisticsOn, testing::Values(1, 2, 4, 8));

TEST(Statistics, AreAppliedAtOnceAfterTheScope) {
  const Model model;
  const auto before = model.values();
  {
    const DeferredStatistics statistics(model.running());
    model.step(batch_of(0, 0));
  }
  EXPECT_EQ(model.values(), before);
  model.step(batch_of(0, 0));
  EXPECT_NE(model.values(), before);
}

TEST(Statistics, RefuseWhatIsNotTheirs) {
  const Model model, other;
  DeferredStatistics statistics(model.running());
  EXPECT_THROW(other.step(batch_of(0, 0)), Error);
  model.step(batch_of(0, 0));
  const std::string word = statistics.take();
  EXPECT_THROW(statistics.apply({word.substr(1)}), Error);
  EXPECT_THROW(statistics.apply({"x"}), Error);
  const DeferredStatistics fewer({model.first.mean});
  EXPECT_THROW(fewer.apply({word}), Error);
}

}  // namespace
}  // namespace tapestry
