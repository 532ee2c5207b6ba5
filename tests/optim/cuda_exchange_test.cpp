// The exchange of gradients that are on GPUs. Two ranks cannot share a GPU, so only the emulation,
// whose NCCL is made of threads, runs more than one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "core/base/philox.h"
#include "core/cuda/runtime.h"
#include "optim/gradient_exchange.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::on_ranks;
using testing::Each;

const Device kGpu{Device::Kind::kCuda, 0};
const std::vector<Shape> kCudaShapes = {{7}, {130, 300}, {33}, {20000}};

Tensor cuda_numbers(uint32_t part, size_t param, DType dtype) {
  const Tensor tensor = Tensor::empty(kCudaShapes[param]);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data<float>()[i] =
        static_cast<float>(to_uniform(
            philox_bits({13, part, static_cast<uint32_t>(param)}, static_cast<uint64_t>(i)))) -
        0.5f;
  }
  return tensor.to(kGpu).to(dtype);
}

struct CudaOutcome {
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<double>> state;
  std::vector<std::vector<float>> masters;
  double squares = 0;
  bool operator==(const CudaOutcome&) const = default;
};

void halve(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{}).clone();
  for (float& value : std::span(host.data<float>(), static_cast<size_t>(host.numel()))) value /= 2;
  tensor.copy_from(host.to(kGpu));
}

CudaOutcome train_on_cuda(Communicator& communicator, Shard shard, DType dtype) {
  NamedVars params;
  for (size_t p = 0; p < kCudaShapes.size(); ++p) {
    params.emplace_back(concat('p', p), Var::parameter(cuda_numbers(99, p, dtype)));
  }
  GradientExchange exchange(communicator, weight_decay_groups(params),
                            {.parts = 4, .shard = shard, .bucket_bytes = 1});
  Optimizer optimizer(optimizer_defaults(OptimizerType::kAdamW), exchange.groups());
  CudaOutcome outcome;
  for (uint32_t update = 0; update < 2; ++update) {
    for (int64_t j = 0; j < exchange.local_parts(); ++j) {
      exchange.open_part();
      const auto part =
          static_cast<uint32_t>(communicator.rank() * exchange.local_parts() + j + 4 * update);
      Tape tape;
      Var total;
      for (size_t p = 0; p < params.size(); ++p) {
        const Var& var = params[p].second;
        const Var use =
            sum(reshape(var * Var(cuda_numbers(part, p, dtype)), {var.value().numel()}));
        total = total.defined() ? total + use : use;
      }
      tape.backward(total);
      exchange.close_part();
    }
    exchange.finish();
    outcome.squares = exchange.squares().item();
    optimizer.launch(0.01, {.max_grad_norm = 1}, 1, {}, exchange.squares());
    EXPECT_TRUE(optimizer.outcome().finite);
    optimizer.zero_grad();
    exchange.share_parameters();
  }
  for (const auto& [name, var] : params) {
    outcome.parameters.push_back(var.value().to(DType::kFloat32).to_vector<float>());
  }
  for (const auto& [name, tensor] : exchange.gather_state(optimizer)) {
    outcome.state.push_back(tensor.to_vector<double>());
  }
  // What was gathered and loaded is what is gathered again.
  const NamedTensors masters = exchange.gather_masters(optimizer);
  EXPECT_EQ(masters.size(), dtype == DType::kBFloat16 ? params.size() : 0);
  for (const auto& [name, tensor] : masters) halve(tensor);
  exchange.load_masters(optimizer, masters);
  for (const auto& [name, tensor] : exchange.gather_masters(optimizer)) {
    outcome.masters.push_back(tensor.to_vector<float>());
  }
  return outcome;
}

class CudaExchange : public testing::TestWithParam<DType> {};

TEST_P(CudaExchange, TheBitsOfOneRankAlone) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::why_no_device();
  Communicator alone;
  const CudaOutcome expected = train_on_cuda(alone, Shard::kNone, GetParam());
  EXPECT_GT(expected.squares, 0);
  if (cuda::description(0).find("emulated") == std::string::npos) {
    GTEST_SKIP() << "one GPU for several ranks";
  }
  for (const auto& hosts : {hosts_of(2), hosts_of(4), hosts_of(4, 2)}) {
    for (const Shard shard : kShards) {
      SCOPED_TRACE(concat(hosts.size(), " ranks, ", name_of(shard)));
      LocalJob job({.hosts = hosts, .longest_delay_seconds = 0.001, .seed = 3});
      const auto errors =
          on_ranks(job, static_cast<int>(hosts.size()), [&](Communicator& communicator) {
            communicator.connect_gpus(DeviceSums::kTree);
            EXPECT_EQ(train_on_cuda(communicator, shard, GetParam()), expected);
          });
      EXPECT_THAT(errors, Each(""));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaExchange, testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tapestry
