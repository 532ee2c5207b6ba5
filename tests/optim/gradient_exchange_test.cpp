#include "optim/gradient_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "autograd/ops.h"
#include "core/base/philox.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::name_of_hosts;
using test::on_ranks;
using testing::Each;
using testing::HasSubstr;

// Parameters whose ends fall anywhere in chunks of 16384 and in buckets.
const std::vector<Shape> kShapes = {{7},     {300, 130}, {1},      {40000},   {64, 3},
                                    {20000}, {33},       {90, 61}, {61, 120}, {40, 30}};
constexpr int kUnreached = 4;  // in every part but those that `reaches` says

// The factors of a part and a parameter. Drawn once, because the many trainings below would else
// spend most of their time on it; any thread may ask.
const std::vector<float>& numbers(int part, size_t param) {
  struct Drawn {
    std::once_flag once;
    std::vector<std::vector<float>> of;
  };
  static std::array<Drawn, 100> parts;
  Drawn& drawn = parts.at(static_cast<size_t>(part));
  std::call_once(drawn.once, [&] {
    for (size_t p = 0; p < kShapes.size(); ++p) {
      std::vector<float>& values = drawn.of.emplace_back();
      for (int64_t i = 0; i < kShapes[p].numel(); ++i) {
        const double u = to_uniform(philox_bits(
            {11, static_cast<uint32_t>(part), static_cast<uint32_t>(p)}, static_cast<uint64_t>(i)));
        values.push_back(static_cast<float>((u - 0.5) * std::exp2(i % 9 - part % 4)));
      }
    }
  });
  return drawn.of[param];
}

float number(int part, size_t param, int64_t i) {
  return numbers(part, param)[static_cast<size_t>(i)];
}

// Which parts reach parameter kUnreached; the others are reached by all.
using Reaches = std::function<bool(int part)>;
bool never(int) { return false; }
bool only_part_1(int part) { return part == 1; }

float leaf(int part, size_t param, int64_t i, const Reaches& reaches) {
  return param != kUnreached || reaches(part) ? number(part, param, i) : 0.0f;
}

// T(a, b) over the parts, by the definition.
float naive(int a, int b, size_t param, int64_t i, const Reaches& reaches) {
  if (b - a == 1) return leaf(a, param, i, reaches);
  const int m = a + static_cast<int>(std::bit_floor(static_cast<unsigned>(b - a - 1)));
  const float left = naive(a, m, param, i, reaches), right = naive(m, b, param, i, reaches);
  return left + right;
}

struct Model {
  Model() {
    for (size_t p = 0; p < kShapes.size(); ++p) {
      params.emplace_back(concat('p', p),
                          Var::parameter(Tensor::from<float>(numbers(99, p), kShapes[p])));
    }
  }
  // As a model's: matrices decay.
  std::vector<ParamGroup> groups() const { return weight_decay_groups(params); }
  // Muon's: more matrices than some numbers of ranks, fewer than others; a table is none.
  std::vector<ParamGroup> groups_of(const OptimizerOptions& options) const {
    if (options.type != OptimizerType::kMuon) return groups();
    std::vector<ParamGroup> split(2);
    split[0].orthogonalize = true;
    for (const auto& [name, var] : params) {
      const bool matrix = var.shape().rank() == 2 && name != "p9";
      split[matrix ? 0 : 1].params.emplace_back(name, var);
    }
    split[0].packed_rows["p1"] = {100, 200};
    split[1].weight_decay = 0;
    return split;
  }
  NamedVars params;
};

// One part's last backward: parameters are used in their order, and complete in the reverse.
void backward(const Model& model, int part, const Reaches& reaches) {
  Tape tape;
  Var total;
  std::vector<Var> uses;
  for (size_t p = 0; p < model.params.size(); ++p) {
    if (p == kUnreached && !reaches(part)) continue;
    const Var& var = model.params[p].second;
    const Tensor factor = Tensor::from<float>(numbers(part, p), var.shape());
    const Var product = reshape(var * Var(factor), {var.value().numel()});
    uses.push_back(sum(product));
    total = total.defined() ? total + uses.back() : uses.back();
  }
  tape.backward(total);
}

struct Outcome {
  std::vector<std::vector<float>> gradients, parameters;
  NamedTensors state;
  double squares = 0;
};

struct Training {
  std::vector<std::string> hosts;
  int parts;
  Shard shard = Shard::kNone;
  int64_t bucket_bytes = 200000;  // three buckets or more
  double delay = 0;
  Reaches reaches = never;
  int updates = 2;
  OptimizerOptions optimizer = optimizer_defaults(OptimizerType::kAdamW);
};

Outcome train(Communicator& communicator, const Training& setup) {
  const Model model;
  GradientExchange exchange(
      communicator, model.groups_of(setup.optimizer),
      {.parts = setup.parts, .shard = setup.shard, .bucket_bytes = setup.bucket_bytes});
  Optimizer optimizer(setup.optimizer, exchange.groups());
  Outcome outcome;
  for (int update = 0; update < setup.updates; ++update) {
    for (int64_t j = 0; j < exchange.local_parts(); ++j) {
      exchange.open_part();
      backward(model, static_cast<int>(communicator.rank() * exchange.local_parts() + j),
               setup.reaches);
      exchange.close_part();
    }
    const auto words = exchange.finish(concat("rank ", communicator.rank()));
    for (int r = 0; r < communicator.size(); ++r) {
      EXPECT_EQ(words[static_cast<size_t>(r)], concat("rank ", r));
    }
    outcome.squares = exchange.squares().item();
    if (setup.shard == Shard::kNone) {
      outcome.gradients.clear();
      for (const auto& [name, var] : model.params) {
        outcome.gradients.push_back(var.grad().defined() ? var.grad().to_vector<float>()
                                                         : std::vector<float>());
      }
    }
    optimizer.launch(0.01, {.max_grad_norm = 1}, 1, {}, exchange.squares());
    EXPECT_TRUE(optimizer.outcome().finite);
    optimizer.zero_grad();
    exchange.share_parameters();
  }
  for (const auto& [name, var] : model.params) {
    outcome.parameters.push_back(var.value().to_vector<float>());
  }
  outcome.state = exchange.gather_state(optimizer);
  return outcome;
}

std::vector<Outcome> train_on(const Training& setup) {
  const int ranks = static_cast<int>(setup.hosts.size());
  LocalJob job({.hosts = setup.hosts, .longest_delay_seconds = setup.delay, .seed = 3});
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  const auto errors = on_ranks(job, ranks, [&](Communicator& communicator) {
    outcomes[static_cast<size_t>(communicator.rank())] = train(communicator, setup);
  });
  EXPECT_THAT(errors, Each(""));
  return outcomes;
}

Outcome train_alone(Training setup) {
  Communicator alone;
  return train(alone, setup);
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.squares, b.squares);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (size_t i = 0; i < a.state.size(); ++i) {
    EXPECT_EQ(a.state[i].first, b.state[i].first);
    EXPECT_EQ(a.state[i].second.to_vector<double>(), b.state[i].second.to_vector<double>())
        << a.state[i].first;
  }
}

TEST(PartsFit, WholeNodesOfTheTree) {
  for (const auto& [parts, ranks] : std::vector<std::pair<int, int>>{
           {1, 1}, {5, 1}, {8, 1}, {8, 2}, {8, 4}, {8, 8}, {12, 3}, {12, 6}, {12, 12}, {6, 3}}) {
    EXPECT_TRUE(parts_fit(parts, ranks)) << parts << " on " << ranks;
  }
  for (const auto& [parts, ranks] :
       std::vector<std::pair<int, int>>{{1, 2}, {0, 1}, {8, 3}, {12, 2}, {12, 4}, {6, 2}, {4, 0}}) {
    EXPECT_FALSE(parts_fit(parts, ranks)) << parts << " on " << ranks;
  }
}

TEST(GradientExchange, RefusesRanksThatDoNotFit) {
  LocalJob job({.hosts = hosts_of(3)});
  const auto errors = on_ranks(job, 3, [](Communicator& communicator) {
    const Model model;
    try {
      const GradientExchange exchange(communicator, model.groups(), {.parts = 4});
      ADD_FAILURE() << "3 ranks took 4 parts";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("4 parts cannot be shared by 3 ranks"));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

// ---- Parts on one rank

TEST(GradientExchange, PartsOfOneRankAddUpAsATree) {
  for (int parts = 1; parts <= 13; ++parts) {
    const Outcome outcome = train_alone({.hosts = {}, .parts = parts, .updates = 1});
    for (size_t p = 0; p < kShapes.size(); ++p) {
      if (p == kUnreached) {
        EXPECT_TRUE(outcome.gradients[p].empty());
        continue;
      }
      for (size_t i = 0; i < outcome.gradients[p].size(); ++i) {
        ASSERT_EQ(outcome.gradients[p][i], naive(0, parts, p, static_cast<int64_t>(i), never))
            << parts << " parts, parameter " << p << ", element " << i;
      }
    }
  }
}

TEST(GradientExchange, SquaresAreThoseOfTheGradients) {
  const Outcome outcome = train_alone({.hosts = {}, .parts = 2, .updates = 1});
  double expected = 0;
  for (const auto& gradient : outcome.gradients) {
    for (const float g : gradient) expected += static_cast<double>(g) * g;
  }
  EXPECT_NEAR(outcome.squares, expected, 1e-12 * expected);
}

// A parameter that no part reached keeps its value and state; zeros stand in for a part that did
// not reach what another did.
TEST(GradientExchange, WhatNoPartReachedStays) {
  const Outcome unreached = train_alone({.hosts = {}, .parts = 4});
  const Outcome reached = train_alone({.hosts = {}, .parts = 4, .reaches = only_part_1});
  const Model model;
  EXPECT_EQ(unreached.parameters[kUnreached],
            model.params[kUnreached].second.value().to_vector<float>());
  EXPECT_NE(reached.parameters[kUnreached], unreached.parameters[kUnreached]);
  for (size_t i = 0; i < reached.gradients[kUnreached].size(); ++i) {
    EXPECT_EQ(reached.gradients[kUnreached][i], number(1, kUnreached, static_cast<int64_t>(i)));
  }
}

// ---- Ranks

class ExchangeOn : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ExchangeOn, TheBitsOfTheNaiveTreeOnEveryRank) {
  const int ranks = static_cast<int>(GetParam().size());
  for (const int own : {1, 2, 4}) {
    const Training setup{.hosts = GetParam(), .parts = ranks * own, .delay = 0.001, .updates = 1};
    const std::vector<Outcome> outcomes = train_on(setup);
    for (const size_t p : {size_t{1}, size_t{3}, size_t{6}}) {
      for (size_t i = 0; i < outcomes[0].gradients[p].size(); i += 7) {
        const float expected = naive(0, setup.parts, p, static_cast<int64_t>(i), never);
        for (const Outcome& outcome : outcomes) {
          ASSERT_EQ(outcome.gradients[p][i], expected)
              << setup.parts << " parts, parameter " << p << ", element " << i;
        }
      }
    }
  }
}

// Parameters, state and norm after some updates are those of one rank alone, in both modes, for
// any size of buckets.
TEST_P(ExchangeOn, TheBitsOfOneRankAlone) {
  const int ranks = static_cast<int>(GetParam().size());
  for (const Reaches& reaches : {Reaches(never), Reaches(only_part_1)}) {
    Training setup{.hosts = GetParam(), .parts = ranks * 2, .reaches = reaches};
    const Outcome alone = train_alone(setup);
    setup.delay = 0.001;
    for (const Shard shard : kShards) {
      for (const int64_t bytes : {int64_t{1}, int64_t{1} << 17, int64_t{1} << 30}) {
        setup.shard = shard;
        setup.bucket_bytes = bytes;
        SCOPED_TRACE(concat(name_of(shard), ", buckets of ", bytes));
        for (const Outcome& outcome : train_on(setup)) expect_same(outcome, alone);
      }
    }
  }
}

OptimizerOptions with_rounded_state() {
  OptimizerOptions options = optimizer_defaults(OptimizerType::kAdamW);
  options.state_dtype = StateType::kBFloat16;
  return options;
}

OptimizerOptions muon_with_rows() {
  OptimizerOptions options = optimizer_defaults(OptimizerType::kMuon);
  options.muon.normuon_beta2 = 0.9;
  return options;
}

// Each matrix of muon belongs to one rank, whatever ends of buckets and slices lie in it; a state
// is rounded alike wherever a slice begins.
TEST_P(ExchangeOn, EveryOptimizerHasTheBitsOfOneRankAlone) {
  const int ranks = static_cast<int>(GetParam().size());
  for (const auto& [reaches, optimizer] : {std::pair(Reaches(never), muon_with_rows()),
                                           std::pair(Reaches(only_part_1), muon_with_rows()),
                                           std::pair(Reaches(only_part_1), with_rounded_state())}) {
    Training setup{
        .hosts = GetParam(), .parts = ranks * 2, .reaches = reaches, .optimizer = optimizer};
    const Outcome alone = train_alone(setup);
    setup.delay = 0.001;
    for (const Shard shard : kShards) {
      for (const int64_t bytes : {int64_t{1}, int64_t{1} << 30}) {
        setup.shard = shard;
        setup.bucket_bytes = bytes;
        SCOPED_TRACE(concat(name_of(shard), ", buckets of ", bytes));
        for (const Outcome& outcome : train_on(setup)) expect_same(outcome, alone);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeOn,
                         testing::Values(hosts_of(1), hosts_of(2), hosts_of(3), hosts_of(4),
                                         hosts_of(5), hosts_of(6), hosts_of(7), hosts_of(8),
                                         hosts_of(9), hosts_of(4, 2), hosts_of(8, 2),
                                         hosts_of(8, 4)),
                         [](const auto& info) { return name_of_hosts(info.param); });

class StateOnRanks : public testing::TestWithParam<OptimizerOptions> {};

TEST_P(StateOnRanks, GoesOnOnAnotherNumberOfThem) {
  const Training two{
      .hosts = hosts_of(2), .parts = 4, .shard = Shard::kOptimizer, .optimizer = GetParam()};
  const Outcome saved = train_on(two).front();
  for (const int ranks : {1, 2, 4}) {
    for (const Shard shard : kShards) {
      LocalJob job({.hosts = hosts_of(ranks)});
      const auto errors = on_ranks(job, ranks, [&](Communicator& communicator) {
        const Model model;
        GradientExchange exchange(communicator, model.groups_of(GetParam()),
                                  {.parts = 4, .shard = shard});
        Optimizer optimizer(GetParam(), exchange.groups());
        exchange.load_state(optimizer, saved.state);
        const NamedTensors again = exchange.gather_state(optimizer);
        ASSERT_EQ(again.size(), saved.state.size());
        for (size_t i = 0; i < again.size(); ++i) {
          EXPECT_EQ(again[i].first, saved.state[i].first);
          EXPECT_EQ(again[i].second.to_vector<double>(), saved.state[i].second.to_vector<double>());
        }
      });
      EXPECT_THAT(errors, Each(""));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, StateOnRanks,
                         testing::Values(optimizer_defaults(OptimizerType::kAdamW),
                                         with_rounded_state(), muon_with_rows()),
                         [](const auto& info) {
                           return concat(name_of(info.param.type), '_',
                                         name_of(info.param.state_dtype));
                         });

// The work is shared: a rank has the matrices that the others do not have, and a part of the rest.
TEST(GradientExchange, AMatrixBelongsToOneRank) {
  LocalJob job({.hosts = hosts_of(3)});
  std::mutex mutex;
  std::map<std::string, int> owners;
  const auto errors = on_ranks(job, 3, [&](Communicator& communicator) {
    const Model model;
    const GradientExchange exchange(communicator, model.groups_of(muon_with_rows()),
                                    {.parts = 3, .shard = Shard::kOptimizer});
    const std::lock_guard lock(mutex);
    for (const auto& [name, var] : exchange.groups()[0].params) {
      ++owners[name];
      EXPECT_EQ(var.shape().rank(), 2) << name;
    }
    for (const auto& [name, var] : exchange.groups()[1].params) {
      EXPECT_THAT(name, HasSubstr("[")) << "a piece";
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(owners, (std::map<std::string, int>{{"p1", 1}, {"p4", 1}, {"p7", 1}, {"p8", 1}}));
}

// Ranks that complete their parameters at other times than the others send buckets in one order.
TEST(GradientExchange, UnequalSpeeds) {
  LocalJob job({.hosts = hosts_of(4), .longest_delay_seconds = 0.002, .seed = 5});
  const Training setup{.hosts = hosts_of(4), .parts = 4, .bucket_bytes = 1, .updates = 4};
  const Outcome alone = train_alone(setup);
  const auto errors = on_ranks(job, 4, [&](Communicator& communicator) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * communicator.rank()));
    expect_same(train(communicator, setup), alone);
  });
  EXPECT_THAT(errors, Each(""));
}

// What comes of a rank that throws in the middle of an update: nobody waits for ever.
TEST(GradientExchange, AnErrorOnOneRankEndsTheOthers) {
  LocalJob job({.hosts = hosts_of(3)});
  const auto errors = on_ranks(job, 3, [&](Communicator& communicator) {
    const Model model;
    GradientExchange exchange(communicator, model.groups(), {.parts = 3});
    exchange.open_part();
    if (communicator.rank() == 1) throw Error(ErrorKind::kOutOfMemory, "no memory");
    backward(model, communicator.rank(), never);
    exchange.close_part();
    exchange.finish();
  });
  EXPECT_EQ(errors[1], "no memory");
  EXPECT_THAT(errors[0], HasSubstr("ended with code 1"));
  EXPECT_THAT(errors[2], HasSubstr("ended with code 1"));
}

// A second tape adds to what may be under way already: an error, never a gradient that is lost.
TEST(GradientExchange, OneBackwardInAnOpenPart) {
  Communicator alone;
  const Model model;
  GradientExchange exchange(alone, model.groups(), {.parts = 2});
  backward(model, 0, never);  // a micro-batch before the last
  exchange.open_part();
  backward(model, 1, never);
  try {
    backward(model, 2, never);
    ADD_FAILURE() << "the second backward pass was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("one backward pass in a part"));
  }
}

// Nobody is there to share the state with, and a GPU's parameters need no gathering.
TEST(GradientExchange, OneRankUpdatesTheParametersThemselves) {
  Communicator alone;
  const Model model;
  const GradientExchange exchange(alone, model.groups(), {.shard = Shard::kOptimizer});
  const auto groups = model.groups();
  ASSERT_EQ(exchange.groups().size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    ASSERT_EQ(exchange.groups()[g].params.size(), groups[g].params.size());
    for (size_t i = 0; i < groups[g].params.size(); ++i) {
      EXPECT_EQ(exchange.groups()[g].params[i].first, groups[g].params[i].first);
      EXPECT_EQ(exchange.groups()[g].params[i].second.gradient(),
                groups[g].params[i].second.gradient());
    }
  }
}

// Memory that is never touched.
TEST(GradientExchange, ABucketIsNoLongerThanAMessage) {
  Communicator alone;
  const int64_t elements = 3 * (Transport::kLargestMessage / 4);
  ParamGroup group;
  group.params.emplace_back("large", Var::parameter(Tensor::empty({elements})));
  const GradientExchange exchange(alone, {group}, {.bucket_bytes = int64_t{1} << 40});
  EXPECT_EQ(exchange.buckets(), 3);
}

TEST(GradientExchange, KnowsWhenBucketsWereComplete) {
  using std::chrono::milliseconds;
  Communicator alone;
  const Model model;
  GradientExchange exchange(alone, model.groups(), {.bucket_bytes = 1});
  exchange.open_part();
  std::this_thread::sleep_for(milliseconds(20));
  backward(model, 0, never);
  exchange.close_part();
  double bytes = 0;
  for (const BucketReady& bucket : exchange.ready()) {
    bytes += bucket.bytes;
    EXPECT_LT(bucket.seconds_left, 0.02);  // all came together, after the pause
  }
  EXPECT_EQ(
      bytes,
      4. * 16384 * ((7 + 39000 + 1 + 40000 + 192 + 20000 + 33 + 5490 + 7320 + 1200) / 16384 + 1));
  exchange.finish();
  exchange.open_part();
  backward(model, 0, only_part_1);
  std::this_thread::sleep_for(milliseconds(200));
  exchange.close_part();  // brings zeros for the one that was not reached
  const std::vector<BucketReady> ready = exchange.ready();
  const auto late = std::count_if(ready.begin(), ready.end(),
                                  [](const BucketReady& b) { return b.seconds_left < 0.2; });
  EXPECT_GT(late, 0);
  EXPECT_LT(late, std::ssize(ready) / 2);
}

TEST(GradientExchange, PartsComeInTurn) {
  Communicator alone;
  const Model model;
  GradientExchange exchange(alone, model.groups(), {.parts = 2});
  EXPECT_THROW(exchange.close_part(), Error);
  EXPECT_THROW(exchange.finish(), Error);
  exchange.open_part();
  EXPECT_THROW(exchange.open_part(), Error);
}

}  // namespace
}  // namespace tapestry
