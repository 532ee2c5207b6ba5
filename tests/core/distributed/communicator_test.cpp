#include "core/distributed/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <future>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/cpu/parallel.h"
#include "core/distributed/engine.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::name_of_hosts;
using test::on_ranks;
using test::on_threads;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr double kDelay = 0.002;

// Rank r's element i of bucket b, of magnitudes far apart.
float value_of(int rank, int bucket, int64_t i) {
  const double u = to_uniform(philox_bits(
      {5, static_cast<uint32_t>(bucket), static_cast<uint32_t>(rank)}, static_cast<uint64_t>(i)));
  return static_cast<float>((u - 0.5) * std::exp2(i % 11 + rank % 3));
}

// T(a, b) over the ranks, by the definition.
float naive(int bucket, int64_t i, int a, int b) {
  if (b - a == 1) return value_of(a, bucket, i);
  const int m = a + static_cast<int>(std::bit_floor(static_cast<unsigned>(b - a - 1)));
  const float left = naive(bucket, i, a, m), right = naive(bucket, i, m, b);
  return left + right;
}

std::vector<float> bucket_of(int rank, int bucket, int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(value_of(rank, bucket, i));
  return values;
}

TEST(Stages, AllWithAllUnlessHostsAreEven) {
  const auto shape = [](const std::vector<std::string>& hosts) {
    std::vector<size_t> sizes;
    for (const Stage& stage : stages_of(0, hosts)) sizes.push_back(stage.ranks.size());
    return sizes;
  };
  using Sizes = std::vector<size_t>;
  EXPECT_EQ(shape(hosts_of(1)), Sizes{1});
  EXPECT_EQ(shape(hosts_of(4)), Sizes{4});     // one host
  EXPECT_EQ(shape(hosts_of(4, 1)), Sizes{4});  // one rank on each
  EXPECT_EQ(shape(hosts_of(4, 2)), (Sizes{2, 2}));
  EXPECT_EQ(shape(hosts_of(8, 4)), (Sizes{4, 2}));
  EXPECT_EQ(shape(hosts_of(6, 2)), (Sizes{2, 3}));
  EXPECT_EQ(shape(hosts_of(6, 3)), Sizes{6});        // three is no power of two
  EXPECT_EQ(shape({"a", "a", "b"}), Sizes{3});       // uneven
  EXPECT_EQ(shape({"a", "b", "a", "b"}), Sizes{4});  // not consecutive
  EXPECT_EQ(shape({"a", "a", "b", "c"}), Sizes{4});
  EXPECT_EQ(shape({"a", "a", "b", "b", "a", "a"}), Sizes{6});
}

TEST(Stages, EachRankOwnsAnotherSlice) {
  for (const auto& hosts : {hosts_of(7), hosts_of(8, 4), hosts_of(8, 2), hosts_of(6, 2)}) {
    std::vector<int> slices;
    for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
      slices.push_back(owned_slice(stages_of(r, hosts)));
    }
    // Rank i + L h owns slice i H + h.
    std::sort(slices.begin(), slices.end());
    for (int r = 0; r < static_cast<int>(hosts.size()); ++r) EXPECT_EQ(slices[r], r);
  }
  EXPECT_EQ(owned_slice(stages_of(1, hosts_of(8, 4))), 2);
  EXPECT_EQ(owned_slice(stages_of(4, hosts_of(8, 4))), 1);
}

TEST(Communicator, AloneItNeedsNobody) {
  Communicator alone;
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.all_gather("mine"), std::vector<std::string>{"mine"});
  EXPECT_EQ(alone.broadcast("mine"), "mine");
  std::vector<float> values = {1, 2};
  alone.wait(alone.start(Exchange::kAllReduce, {values.data(), 2, DType::kFloat32}));
  EXPECT_EQ(values, (std::vector<float>{1, 2}));
  alone.doing("nothing");
  alone.finish();
  alone.end_job(3);
}

class CommunicatorOn : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  int ranks() const { return static_cast<int>(GetParam().size()); }
};

// Every slice of every bucket has the bits of the naive tree, however long messages take.
TEST_P(CommunicatorOn, BucketsHaveTheBitsOfTheNaiveTree) {
  for (const int buckets : {1, 2, 3, 9}) {
    LocalJob job({.hosts = GetParam(), .longest_delay_seconds = kDelay, .seed = 7});
    const int64_t n = int64_t{173} * ranks();
    const auto errors = on_ranks(job, ranks(), [&](Communicator& communicator) {
      for (const Exchange exchange :
           {Exchange::kReduceScatter, Exchange::kAllReduce, Exchange::kAllGather}) {
        std::vector<std::vector<float>> values;
        std::vector<Communicator::Ticket> tickets;
        for (int b = 0; b < buckets; ++b) values.push_back(bucket_of(communicator.rank(), b, n));
        for (auto& bucket : values) {
          tickets.push_back(communicator.start(exchange, {bucket.data(), n, DType::kFloat32}));
        }
        // In any order.
        for (int b = buckets - 1; b >= 0; --b) communicator.wait(tickets[b]);
        const int64_t slice = n / ranks();
        for (int b = 0; b < buckets; ++b) {
          for (int64_t i = 0; i < n; ++i) {
            if (exchange == Exchange::kAllGather) {
              // Who owns the slice, by its value.
              int owner = 0;
              while (owned_slice(stages_of(owner, GetParam())) != i / slice) ++owner;
              ASSERT_EQ(values[b][i], value_of(owner, b, i)) << "element " << i;
              continue;
            }
            const bool mine = i / slice == communicator.slice();
            if (exchange == Exchange::kReduceScatter && !mine) continue;
            ASSERT_EQ(values[b][i], naive(b, i, 0, ranks())) << "element " << i;
          }
        }
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(CommunicatorOn, TextsOfAnyLength) {
  LocalJob job({.hosts = GetParam(), .longest_delay_seconds = kDelay, .seed = 8});
  const auto errors = on_ranks(job, ranks(), [&](Communicator& communicator) {
    for (const size_t length : {0, 1, 243, 244, 245, 5000}) {
      const auto text_of = [&](int rank) {
        return std::string(length + static_cast<size_t>(rank), static_cast<char>('a' + rank));
      };
      std::vector<std::string> expected;
      for (int r = 0; r < ranks(); ++r) expected.push_back(text_of(r));
      ASSERT_EQ(communicator.all_gather(text_of(communicator.rank())), expected);
      ASSERT_EQ(communicator.broadcast(text_of(communicator.rank())), text_of(0));
    }
    EXPECT_EQ(communicator.hosts(), GetParam());
  });
  EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorOn,
                         testing::Values(hosts_of(2), hosts_of(3), hosts_of(4), hosts_of(5),
                                         hosts_of(6), hosts_of(7), hosts_of(8), hosts_of(9),
                                         hosts_of(4, 2), hosts_of(8, 4), hosts_of(6, 2)),
                         [](const auto& info) { return name_of_hosts(info.param); });

TEST(Communicator, Float64) {
  LocalJob job({.hosts = hosts_of(3)});
  const auto errors = on_ranks(job, 3, [&](Communicator& communicator) {
    std::vector<double> values(6, 1.0 / (3 + communicator.rank()));
    communicator.wait(
        communicator.start(Exchange::kAllReduce, {values.data(), 6, DType::kFloat64}));
    EXPECT_THAT(values, Each((1.0 / 3 + 1.0 / 4) + 1.0 / 5));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Communicator, RefusesUnequalSlices) {
  LocalJob job({.hosts = hosts_of(2)});
  const auto errors = on_ranks(job, 2, [&](Communicator& communicator) {
    std::vector<float> values(3);
    EXPECT_THROW(communicator.start(Exchange::kAllReduce, {values.data(), 3, DType::kFloat32}),
                 Error);
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- Failure

TEST(CommunicatorFailure, RanksThatPart) {
  LocalJob job({.hosts = hosts_of(2)});
  const auto errors = on_ranks(job, 2, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      communicator.all_gather("x");
    } else {
      communicator.broadcast("x");
      communicator.all_gather("x");
    }
  });
  EXPECT_THAT(errors[0] + errors[1], HasSubstr("not at the same place of the program"));
}

// A rank that throws takes the others with it: none waits for ever.
TEST(CommunicatorFailure, OneRankEndsTheJobOfAll) {
  for (const bool says_so : {true, false}) {
    LocalJob job({.hosts = hosts_of(4, 2)});
    const auto errors = on_ranks(job, 4, [&](Communicator& communicator) {
      communicator.all_gather("");
      if (communicator.rank() == 2) {
        if (says_so) communicator.end_job(3);
        throw Error(ErrorKind::kData, "no such file");
      }
      std::vector<float> values(4);
      communicator.wait(
          communicator.start(Exchange::kAllReduce, {values.data(), 4, DType::kFloat32}));
    });
    EXPECT_EQ(errors[2], "no such file");
    const int code = says_so ? 3 : 1;
    EXPECT_EQ(job.code(), code);
    for (const int r : {0, 1, 3}) {
      EXPECT_THAT(errors[r], HasSubstr(concat("ended with code ", code)));
    }
  }
}

// The others are told who is silent, and what it was doing.
TEST(CommunicatorFailure, SilenceEndsTheJob) {
  for (const int victim : {2, 0}) {
    LocalJob job({.hosts = hosts_of(3, 1)});
    std::mutex mutex;
    std::string reports;
    const CommunicatorOptions options{
        .timeout_seconds = 2, .heartbeat_seconds = 0.02, .report = [&](const std::string& text) {
          const std::lock_guard lock(mutex);
          reports += text + '\n';
        }};
    const auto errors = on_ranks(
        job, 3,
        [&](Communicator& communicator) {
          communicator.doing("reading data");
          communicator.all_gather("");
          std::this_thread::sleep_for(std::chrono::seconds(1));  // many heartbeats
          if (communicator.rank() == victim) job.cut_off(victim);
          communicator.all_gather("");
        },
        options);
    EXPECT_EQ(job.code(), 1);
    EXPECT_THAT(errors, Each(testing::Not("")));
    const std::string name = concat("rank ", victim, " (", "abc"[victim], ") is silent");
    // Who is cut off gets no answers either: whoever notices first ends the job.
    EXPECT_THAT(reports, AllOf(testing::AnyOf(HasSubstr(name), HasSubstr("rank 0 (a) is silent")),
                               HasSubstr("reading data")));
  }
}

// A rank that is slow and lives is waited for, and named.
TEST(CommunicatorFailure, SlowIsNotDead) {
  LocalJob job({.hosts = hosts_of(3, 1)});
  std::mutex mutex;
  std::string reports;
  const CommunicatorOptions options{.timeout_seconds = 2,
                                    .heartbeat_seconds = 0.02,
                                    .notice_seconds = 1,
                                    .report = [&](const std::string& text) {
                                      const std::lock_guard lock(mutex);
                                      reports += text + '\n';
                                    }};
  const auto errors = on_ranks(
      job, 3,
      [&](Communicator& communicator) {
        communicator.doing("saving");
        if (communicator.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
        communicator.all_gather("");
      },
      options);
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(reports, HasSubstr("waiting for rank 1 (b): saving for"));
}

// What goes wrong in the thread is said, and ends the job, while the rank is busy elsewhere.
TEST(CommunicatorFailure, IsReportedAtOnce) {
  LocalJob job({.hosts = hosts_of(2)});
  std::mutex mutex;
  std::string reports;
  const CommunicatorOptions options{.report = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    reports += text + '\n';
  }};
  const auto errors = on_ranks(
      job, 2,
      [&](Communicator& communicator) {
        std::vector<float> values(8);
        const int64_t n = communicator.rank() == 0 ? 4 : 8;
        communicator.start(Exchange::kAllReduce, {values.data(), n, DType::kFloat32});
        const double start = steady_seconds();
        while (job.code() < 0 && steady_seconds() - start < 20) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(job.code(), 1);
      },
      options);
  EXPECT_THAT(errors, Each(testing::Not("")));
  EXPECT_THAT(reports, HasSubstr("expected"));
}

// Before the first word of the others, too.
TEST(CommunicatorFailure, SilenceFromTheBeginning) {
  LocalJob job({.hosts = hosts_of(3, 1)});
  const CommunicatorOptions options{.timeout_seconds = 1, .heartbeat_seconds = 0.02};
  const auto errors = on_threads(2, [&](int rank) {
    const Communicator communicator([&, rank] { return job.open(rank); }, options);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 is silent"));
  EXPECT_THAT(errors[1], HasSubstr("ended with code 1"));
}

TEST(CommunicatorFailure, CallsAfterTheEndAreRefused) {
  LocalJob job({.hosts = hosts_of(2)});
  const auto errors = on_threads(2, [&](int rank) {
    Communicator communicator([&, rank] { return job.open(rank); }, {});
    communicator.finish();
    std::vector<float> values(2);
    EXPECT_THROW(communicator.all_gather("x"), Error);
    EXPECT_THROW(communicator.broadcast("x"), Error);
    EXPECT_THROW(communicator.start(Exchange::kAllReduce, {values.data(), 2, DType::kFloat32}),
                 Error);
    EXPECT_THROW(communicator.finish(), Error);
    communicator.doing("nothing");
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(job.code(), -1);
}

TEST(CommunicatorFailure, AStartThatFailsIsThrown) {
  EXPECT_THROW(
      Communicator(
          []() -> std::unique_ptr<Transport> { throw Error(ErrorKind::kConfig, "no network"); },
          {}),
      Error);
}

// As MPI_Init, which waits for ranks that never call it.
TEST(CommunicatorFailure, AStartThatDoesNotEndIsLeft) {
  std::promise<void> others;
  const std::shared_future<void> come = others.get_future().share();
  const auto open = [come]() -> std::unique_ptr<Transport> {
    come.wait();
    throw Error(ErrorKind::kRuntime, "too late");
  };
  EXPECT_THAT([&] { const Communicator communicator(open, {.timeout_seconds = 0.05}); },
              testing::ThrowsMessage<Error>(HasSubstr("have not found each other for 0.05 s")));
  others.set_value();
}

// As MPI_Abort, should it never return: nobody waits for it.
TEST(CommunicatorFailure, ACallThatDoesNotEndIsLeft) {
  struct Stuck final : Transport {
    explicit Stuck(std::shared_future<void> wake) : wake(std::move(wake)) {}
    int rank() const override { return 0; }
    int size() const override { return 2; }
    std::string host() const override { return "a"; }
    std::string library() const override { return "stuck"; }
    RequestPtr send(int, int, const void*, int64_t) override {
      wake.wait();
      throw Error(ErrorKind::kRuntime, "too late");
    }
    RequestPtr receive(int, int, void*, int64_t) override { return std::make_unique<Request>(); }
    bool done(Request&) override { return false; }
    void finish() override {}
    void end_job(int) noexcept override {}
    std::shared_future<void> wake;
  };
  std::promise<void> others;
  const std::shared_future<void> wake = others.get_future().share();
  const auto engine =
      std::make_shared<CommunicatorEngine>(CommunicatorOptions{.goodbye_seconds = 0.05});
  engine->start([&] { return std::make_unique<Stuck>(wake); });
  engine->close();
  others.set_value();
}

TEST(Communicator, RanksOfAHostShareItsCores) {
  LocalJob job({.hosts = {"a", "a", "b"}});
  const auto errors = on_ranks(job, 3, [&](Communicator& communicator) {
    EXPECT_EQ(communicator.ranks_on_these_cores(), communicator.rank() < 2 ? 2 : 1);
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace tapestry
