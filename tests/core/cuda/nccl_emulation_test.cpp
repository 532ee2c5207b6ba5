// Buckets on GPUs, over an NCCL whose ranks are threads and whose stream really waits
// (tests/cuda_emulation/nccl.h). What a real one does besides, nobody has seen yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <bit>
#include <cmath>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/cuda/stream.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::name_of_hosts;
using test::on_ranks;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

const Device kCudaDevice{Device::Kind::kCuda, 0};

template <class T>
T value_of(int rank, int bucket, int64_t i) {
  const double u = to_uniform(philox_bits(
      {6, static_cast<uint32_t>(bucket), static_cast<uint32_t>(rank)}, static_cast<uint64_t>(i)));
  return static_cast<T>((u - 0.5) * std::exp2(i % 11 + rank % 3));
}

// T(a, b) over the ranks, by the definition.
template <class T>
T naive(int bucket, int64_t i, int a, int b) {
  if (b - a == 1) return value_of<T>(a, bucket, i);
  const int m = a + static_cast<int>(std::bit_floor(static_cast<unsigned>(b - a - 1)));
  const T left = naive<T>(bucket, i, a, m), right = naive<T>(bucket, i, m, b);
  return left + right;
}

template <class T>
Tensor bucket_of(int rank, int bucket, int64_t n) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(value_of<T>(rank, bucket, i));
  return Tensor::from(values, {n}, kCudaDevice);
}

Bucket whole(const Tensor& tensor) {
  return {tensor.raw(), tensor.numel(), tensor.dtype(), tensor, tensor.device()};
}

class NcclFaultsScope {
 public:
  explicit NcclFaultsScope(const cuda_emulation::NcclFaults& faults) {
    cuda_emulation::nccl_faults = faults;
  }
  ~NcclFaultsScope() { cuda_emulation::nccl_faults = {}; }
};

class NcclOn : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  int ranks() const { return static_cast<int>(GetParam().size()); }

  template <class T>
  void expect_the_tree() {
    LocalJob job({.hosts = GetParam(), .longest_delay_seconds = 0.001, .seed = 7});
    const int64_t n = int64_t{173} * ranks();
    constexpr int kBuckets = 6;  // more than are in flight
    const auto errors = on_ranks(job, ranks(), [&](Communicator& communicator) {
      communicator.connect_gpus(DeviceSums::kTree);
      for (const Exchange exchange :
           {Exchange::kReduceScatter, Exchange::kAllReduce, Exchange::kAllGather}) {
        std::vector<Tensor> buckets;
        std::vector<Communicator::Ticket> tickets;
        for (int b = 0; b < kBuckets; ++b) {
          buckets.push_back(bucket_of<T>(communicator.rank(), b, n));
          tickets.push_back(communicator.start(exchange, whole(buckets.back())));
        }
        ASSERT_EQ(communicator.broadcast("x"), "x");  // texts go their own way meanwhile
        for (const auto ticket : tickets) communicator.wait(ticket);
        const int64_t slice = n / ranks();
        for (int b = 0; b < kBuckets; ++b) {
          const std::vector<T> values = buckets[static_cast<size_t>(b)].template to_vector<T>();
          for (int64_t i = 0; i < n; ++i) {
            const T value = values[static_cast<size_t>(i)];
            if (exchange == Exchange::kAllGather) {
              int owner = 0;
              while (owned_slice(stages_of(owner, GetParam())) != i / slice) ++owner;
              ASSERT_EQ(value, value_of<T>(owner, b, i)) << "element " << i;
              continue;
            }
            const bool mine = i / slice == communicator.slice();
            if (exchange == Exchange::kReduceScatter && !mine) continue;
            ASSERT_EQ(value, naive<T>(b, i, 0, ranks())) << "element " << i;
          }
        }
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
};

TEST_P(NcclOn, BucketsHaveTheBitsOfTheNaiveTree) { expect_the_tree<float>(); }
TEST_P(NcclOn, BucketsOfFloat64) { expect_the_tree<double>(); }

// Its own order: sums that are right, equal on all ranks, and slices by rank.
TEST_P(NcclOn, SumsOfNcclItself) {
  LocalJob job({.hosts = GetParam()});
  const int64_t n = int64_t{31} * ranks();
  const auto errors = on_ranks(job, ranks(), [&](Communicator& communicator) {
    communicator.connect_gpus(DeviceSums::kNccl);
    EXPECT_EQ(communicator.slice(), communicator.rank());
    const Tensor bucket = bucket_of<double>(communicator.rank(), 0, n);
    communicator.wait(communicator.start(Exchange::kAllReduce, whole(bucket)));
    const auto values = bucket.to_vector<double>();
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 8);
    EXPECT_THAT(communicator.all_gather(bytes), Each(bytes));
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(values[static_cast<size_t>(i)], naive<double>(0, i, 0, ranks()), 1e-9);
    }
  });
  EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOn,
                         testing::Values(hosts_of(2), hosts_of(3), hosts_of(4), hosts_of(5),
                                         hosts_of(8), hosts_of(9), hosts_of(4, 2), hosts_of(8, 4),
                                         hosts_of(6, 2)),
                         [](const auto& info) { return name_of_hosts(info.param); });

TEST(Nccl, IsToBeAskedForFirst) {
  LocalJob job({.hosts = hosts_of(2)});
  const auto errors = on_ranks(job, 2, [](Communicator& communicator) {
    const Tensor bucket = Tensor::zeros({2}, DType::kFloat32, kCudaDevice);
    EXPECT_FALSE(communicator.connects_gpus());
    EXPECT_THROW(communicator.start(Exchange::kAllReduce, whole(bucket)), Error);
  });
  EXPECT_THAT(errors, Each(""));
}

void exchange_once(Communicator& communicator) {
  communicator.connect_gpus(DeviceSums::kTree);
  const Tensor bucket = bucket_of<float>(communicator.rank(), 0, 6);
  communicator.wait(communicator.start(Exchange::kAllReduce, whole(bucket)));
  communicator.all_gather("");
}

// What NCCL reports ends the job of all, and what is on the GPUs.
TEST(NcclFailure, AnErrorEndsTheJob) {
  const NcclFaultsScope faults({.broken_rank = 1});
  LocalJob job({.hosts = hosts_of(3)});
  const int aborts = cuda_emulation::nccl_aborts();
  std::mutex mutex;
  std::string reports;
  const CommunicatorOptions options{.report = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    reports += text + '\n';
  }};
  const auto errors = on_ranks(job, 3, exchange_once, options);
  EXPECT_THAT(errors, Each(Not("")));
  EXPECT_THAT(reports, HasSubstr("[nccl] the exchange between GPUs failed"));
  EXPECT_EQ(job.code(), 1);
  EXPECT_EQ(cuda_emulation::nccl_aborts(), aborts + 3);
}

// The network between GPUs is gone, the one of heartbeats is there: a deadline, once all ranks are
// at the exchange. A rank that is late is waited for.
TEST(NcclFailure, SilenceEndsTheJob) {
  const NcclFaultsScope faults({.cut_off_rank = 1});
  LocalJob job({.hosts = hosts_of(3)});
  const CommunicatorOptions options{.timeout_seconds = 1, .heartbeat_seconds = 0.02};
  const int aborts = cuda_emulation::nccl_aborts();
  const auto errors = on_ranks(job, 3, exchange_once, options);
  EXPECT_THAT(errors, Each(Not("")));
  EXPECT_THAT(errors[0] + errors[1] + errors[2], HasSubstr("has not ended for 1 s"));
  EXPECT_EQ(job.code(), 1);
  EXPECT_EQ(cuda_emulation::nccl_aborts(), aborts + 3);
}

// What the GPU still computes when the host has long put the exchange behind it does not count.
TEST(NcclFailure, ComputingIsNotDead) {
  LocalJob job({.hosts = hosts_of(2)});
  const CommunicatorOptions options{.timeout_seconds = 1, .heartbeat_seconds = 0.02};
  const auto errors = on_ranks(
      job, 2,
      [](Communicator& communicator) {
        communicator.connect_gpus(DeviceSums::kTree);
        const Tensor bucket = bucket_of<float>(communicator.rank(), 0, 4);
        const cuda::SideStream computing;
        const double end = steady_seconds() + 2;
        cuda_emulation::put_on(static_cast<cudaStream_t>(computing.get()),
                               [end] { return steady_seconds() > end; });
        Communicator::Ticket ticket = -1;
        {
          const cuda::OnStream here(computing.get());
          ticket = communicator.start(Exchange::kAllReduce, whole(bucket));
        }
        communicator.wait(ticket);
        EXPECT_EQ(bucket.to_vector<float>()[1], (naive<float>(0, 1, 0, 2)));
      },
      options);
  EXPECT_THAT(errors, Each(""));
}

TEST(NcclFailure, SlowIsNotDead) {
  LocalJob job({.hosts = hosts_of(2)});
  const CommunicatorOptions options{.timeout_seconds = 1, .heartbeat_seconds = 0.02};
  const auto errors = on_ranks(
      job, 2,
      [](Communicator& communicator) {
        communicator.connect_gpus(DeviceSums::kTree);
        if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
        const Tensor bucket = bucket_of<float>(communicator.rank(), 0, 4);
        communicator.wait(communicator.start(Exchange::kAllReduce, whole(bucket)));
        EXPECT_EQ(bucket.to_vector<float>()[0], naive<float>(0, 0, 0, 2));
      },
      options);
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace tapestry
