#include "data/batches/batching.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "core/base/draws.h"
#include "core/base/philox.h"
#include "data/batches/loader.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Sentence i has id 4 + i % 90 as its first token, so that batches can be distinguished.
ParallelCorpus make_corpus(int64_t pairs, uint64_t longest = 30) {
  ParallelCorpus corpus;
  for (int64_t i = 0; i < pairs; ++i) {
    const auto draw = static_cast<uint64_t>(2 * i);
    const auto source = 1 + philox_below({7, 0, 0}, draw, longest);
    const auto target = 1 + source / 2 + philox_below({7, 0, 0}, draw + 1, 1 + longest / 3);
    const auto id = static_cast<int32_t>(4 + i % 90);
    corpus.source.push_back(std::vector<int32_t>(source, id));
    corpus.target.push_back(std::vector<int32_t>(target, id));
  }
  return corpus;
}

std::vector<std::vector<int64_t>> batches_of(const EpochPlan& plan) {
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const auto pairs = plan.batch(i);
    batches.emplace_back(pairs.begin(), pairs.end());
  }
  return batches;
}

TEST(Batch, HasTheTensorsOfAWorkedExample) {
  ParallelCorpus corpus;
  corpus.source.push_back(std::vector<int32_t>{10, 11, 12});
  corpus.target.push_back(std::vector<int32_t>{20});
  corpus.source.push_back(std::vector<int32_t>{13});
  corpus.target.push_back(std::vector<int32_t>{21, 22});
  const std::vector<int64_t> indices = {1, 0};
  const auto batch = make_translation_batch(corpus, indices);
  EXPECT_EQ(batch.source.shape(), (Shape{2, 4}));
  EXPECT_EQ(batch.target_in.shape(), (Shape{2, 3}));
  EXPECT_THAT(batch.source.to_vector<int32_t>(), ElementsAre(13, 3, 0, 0, 10, 11, 12, 3));
  EXPECT_THAT(batch.source_lengths.to_vector<int32_t>(), ElementsAre(2, 4));
  EXPECT_THAT(batch.target_in.to_vector<int32_t>(), ElementsAre(2, 21, 22, 2, 20, 0));
  EXPECT_THAT(batch.target_out.to_vector<int32_t>(), ElementsAre(21, 22, 3, 20, 3, kNoTarget));
  EXPECT_THAT(batch.target_lengths.to_vector<int32_t>(), ElementsAre(3, 2));
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.source_tokens, 6);
  EXPECT_EQ(batch.target_tokens, 5);
  EXPECT_THAT(batch.indices, ElementsAre(1, 0));
}

TEST(Plan, CoversEveryPairOnceWithinTheBudget) {
  const auto corpus = make_corpus(3000);
  for (const int64_t budget : {50, 400, 4096, 1000000}) {
    BatchOptions options;
    options.batch_size = budget;
    const EpochPlan plan(corpus, options, 3);
    std::vector<int> seen(3000, 0);
    for (const auto& pairs : batches_of(plan)) {
      for (const int64_t pair : pairs) ++seen[static_cast<size_t>(pair)];
      const auto batch = make_translation_batch(corpus, pairs);
      EXPECT_LE(batch.source.numel(), budget);
      EXPECT_LE(batch.target_in.numel(), budget);
    }
    EXPECT_THAT(seen, testing::Each(1));
  }
}

TEST(Plan, FillsBatches) {
  // A batch ends only where the next pair would not fit.
  const auto corpus = make_corpus(3000);
  BatchOptions options;
  options.batch_size = 1024;
  const EpochPlan plan(corpus, options, 0);
  int64_t cells = 0;
  for (const auto& pairs : batches_of(plan)) {
    const auto batch = make_translation_batch(corpus, pairs);
    cells += std::max(batch.source.numel(), batch.target_in.numel());
  }
  EXPECT_GT(static_cast<double>(cells) / static_cast<double>(plan.batches()), 0.95 * 1024);
}

TEST(Plan, SentencesAreAnotherBudget) {
  const auto corpus = make_corpus(100);
  BatchOptions options;
  options.batch_type = "sentences";
  options.batch_size = 32;
  std::multiset<size_t> sizes;
  for (const auto& pairs : batches_of(EpochPlan(corpus, options, 0))) sizes.insert(pairs.size());
  EXPECT_THAT(sizes, ElementsAre(4, 32, 32, 32));
}

TEST(Plan, IsAFunctionOfSeedAndEpoch) {
  const auto corpus = make_corpus(2000);
  BatchOptions options;
  options.batch_size = 512;
  const auto first = batches_of(EpochPlan(corpus, options, 0));
  EXPECT_EQ(first, batches_of(EpochPlan(corpus, options, 0)));
  const auto second = batches_of(EpochPlan(corpus, options, 1));
  EXPECT_NE(first, second);
  // Not only the order of the batches changes, but also which pairs share a batch.
  const auto sets = [](const auto& batches) {
    std::set<std::set<int64_t>> out;
    for (const auto& batch : batches) out.insert({batch.begin(), batch.end()});
    return out;
  };
  EXPECT_NE(sets(first), sets(second));
  // If all pairs have different lengths, only the order of the batches can differ.
  ParallelCorpus distinct;
  for (size_t i = 1; i <= 100; ++i) {
    distinct.source.push_back(std::vector<int32_t>(i, 9));
    distinct.target.push_back(std::vector<int32_t>(i, 9));
  }
  const auto early = batches_of(EpochPlan(distinct, options, 0));
  const auto late = batches_of(EpochPlan(distinct, options, 1));
  EXPECT_NE(early, late);
  EXPECT_EQ(sets(early), sets(late));
  options.seed = 2;
  EXPECT_NE(first, batches_of(EpochPlan(corpus, options, 0)));
}

TEST(Plan, ShufflesBatchesAwayFromTheOrderOfLengths) {
  const auto corpus = make_corpus(2000);
  BatchOptions options;
  options.batch_size = 512;
  const auto widths = [&](const EpochPlan& plan) {
    std::vector<int64_t> out;
    for (const auto& pairs : batches_of(plan)) {
      const TranslationBatch batch = make_translation_batch(corpus, pairs);
      out.push_back(std::max(batch.source.shape()[1], batch.target_in.shape()[1]));
    }
    return out;
  };
  const auto shuffled = widths(EpochPlan(corpus, options, 0));
  EXPECT_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  options.shuffle = false;
  const auto sorted = widths(EpochPlan(corpus, options, 0));
  EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end()));
  EXPECT_EQ(batches_of(EpochPlan(corpus, options, 0)), batches_of(EpochPlan(corpus, options, 5)));
}

TEST(Plan, WastesLittleAndReportsIt) {
  const auto corpus = make_corpus(20000);
  BatchOptions options;
  options.batch_size = 1024;
  const EpochPlan plan(corpus, options, 0);
  const PaddingReport report = plan.padding();
  int64_t cells = 0, tokens = 0;
  for (const auto& pairs : batches_of(plan)) {
    const auto batch = make_translation_batch(corpus, pairs);
    cells += batch.source.numel() + batch.target_in.numel();
    tokens += batch.source_tokens + batch.target_tokens;
  }
  EXPECT_DOUBLE_EQ(report.waste(), 1 - static_cast<double>(tokens) / static_cast<double>(cells));
  EXPECT_LT(report.waste(), 0.05);
  EXPECT_THAT(report.summary(),
              testing::MatchesRegex("[0-9]+ batches, padding [0-9]\\.[0-9] %: [0-9]\\.[0-9] % of "
                                    "source, [0-9]\\.[0-9] % of target"));
}

// Sampled texts are drawn to be measured.
TEST(Plan, MeasuresTheRowsOfAWindowOnce) {
  std::atomic<int64_t> measured = 0;
  const auto length = [&](int64_t, int64_t row) {
    ++measured;
    return RowLength{1 + row % 7, 1 + row % 5};
  };
  BatchOptions options;
  options.batch_size = 64;
  const EpochPlans plans = EpochPlans::of_lengths(mixture_of(500, {}, options), length, options);
  const EpochPlan first = plans.plan(0, 0);
  EXPECT_EQ(measured, 500);
  EpochWalk walk(plans, {});
  EXPECT_EQ(walk.batches_in_epoch(), first.batches());
  std::vector<std::vector<int64_t>> walked;
  for (int64_t i = 0; i < first.batches(); ++i) {
    const auto rows = walk.next();
    walked.emplace_back(rows.begin(), rows.end());
  }
  EXPECT_EQ(walked, batches_of(first));
  EXPECT_EQ(measured, 500);
  walk.next();
  EXPECT_EQ(measured, 1000) << "another epoch has other lengths";
}

TEST(Plan, SortsByTheLongerSideAndTurnsTheDifferences) {
  ParallelCorpus corpus;
  const auto add = [&](size_t source, size_t target) {  // lengths with the special token
    corpus.source.push_back(std::vector<int32_t>(source - 1, 9));
    corpus.target.push_back(std::vector<int32_t>(target - 1, 9));
  };
  add(5, 3), add(2, 4), add(5, 5), add(4, 2), add(3, 5), add(4, 4);
  const EpochPlan plan(corpus, {"sentences", 2, false}, 0);
  // At longest side 4 the target grows: (4, 2) (4, 4) (2, 4); at 5 it shrinks: (3, 5) (5, 5) (5,
  // 3). If it grew in both, the middle batch, (2, 4) (5, 3), would waste 4 cells, not 1.
  EXPECT_EQ(batches_of(plan), (std::vector<std::vector<int64_t>>{{3, 5}, {1, 4}, {2, 0}}));
  const PaddingReport report = plan.padding();
  EXPECT_EQ(report.source_cells, 2 * 4 + 2 * 3 + 2 * 5);
  EXPECT_EQ(report.target_cells, 2 * 4 + 2 * 5 + 2 * 5);
}

TEST(Plan, RejectsWhatCannotFit) {
  const auto corpus = make_corpus(100);
  BatchOptions options;
  options.batch_size = 20;
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { EpochPlan(corpus, options, 0); }),
              testing::MatchesRegex("\\[data\\] batch_size of 20 tokens must hold every pair, pair "
                                    "[0-9]+ has [0-9]+ tokens on a side\\."));
  options.batch_type = "words";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { EpochPlan(corpus, options, 0); }),
              HasSubstr("'words'"));
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] {
                         EpochPlan(corpus, {"tokens", 0}, 0);
                       }),
              HasSubstr("got 0"));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { EpochPlan(ParallelCorpus{}, {}, 0); }),
              HasSubstr("got none"));
}

TEST(Batches, ContinueExactlyFromEveryPosition) {
  const auto corpus = make_corpus(150);
  BatchOptions options;
  options.batch_size = 200;
  TranslationBatches whole(corpus, options);
  const int64_t in_epoch = whole.batches_in_epoch();
  ASSERT_GT(in_epoch, 5);
  std::vector<DataPosition> positions = {whole.position()};
  std::vector<std::vector<int64_t>> expected;
  for (int64_t i = 0; i < 2 * in_epoch + 3; ++i) {
    expected.push_back(whole.next().indices);
    positions.push_back(whole.position());
  }
  EXPECT_EQ(positions[0], (DataPosition{0, 0}));
  EXPECT_EQ(positions[static_cast<size_t>(in_epoch)], (DataPosition{0, in_epoch}));
  EXPECT_EQ(positions[static_cast<size_t>(in_epoch) + 1], (DataPosition{1, 1}));
  for (size_t start = 0; start < positions.size(); ++start) {
    TranslationBatches resumed(corpus, options, positions[start]);
    TranslationLoader loader(TranslationBatches(corpus, options, positions[start]), 2);
    EXPECT_EQ(loader.position(), positions[start]);
    for (size_t i = start; i < expected.size(); ++i) {
      ASSERT_EQ(resumed.next().indices, expected[i]) << start << ' ' << i;
      const auto item = loader.next();
      ASSERT_EQ(item.batch.indices, expected[i]) << start << ' ' << i;
      ASSERT_EQ(item.position, positions[i + 1]);
      ASSERT_EQ(loader.position(), positions[i + 1]);
    }
  }
}

// Walks some batches of each size in turn, goes on with the next size, and then to the end of the
// epoch.
template <class Make>
std::vector<int64_t> rows_of_epoch(const Make& make,
                                   const std::vector<std::pair<BatchOptions, int>>& parts) {
  std::vector<int64_t> rows;
  DataPosition position;
  for (const auto& [options, batches] : parts) {
    EpochWalk walk(make(options), position);
    const int64_t all = walk.batches_in_epoch();
    for (int i = 0; i < batches && walk.position().batch < all; ++i) {
      const auto batch = walk.next();
      rows.insert(rows.end(), batch.begin(), batch.end());
    }
    position = walk.position();
    if (batches == std::numeric_limits<int>::max()) {
      EXPECT_EQ(position.epoch, 0);
      EXPECT_EQ(position.batch, all);
      walk.next();
      EXPECT_EQ(walk.position(), (DataPosition{1, 1}));
      continue;
    }
    position.before.push_back({options.batch_type, options.batch_size, position.batch});
    position.batch = 0;
  }
  return rows;
}

// A run that goes on with other batches reads each row of the epoch once.
TEST(Batches, OfAnotherSizeGoOnWithTheRowsThatAreLeft) {
  constexpr int kToTheEnd = std::numeric_limits<int>::max();
  const auto corpus = make_corpus(1000);
  const auto of = [](int64_t size, const char* type, int64_t window) {
    BatchOptions options;
    options.batch_size = size;
    options.batch_type = type;
    options.window_rows = window;
    return options;
  };
  const auto lengths = [&](const BatchOptions& options) { return plans_of(corpus, options); };
  const auto equal = [&](const BatchOptions& options) {
    const bool tokens = options.batch_type == std::string("tokens");
    return EpochPlans::of_equal_rows({.rows = [](int64_t) { return 1000; },
                                      .batch_size = options.batch_size / (tokens ? 10 : 1),
                                      .window_rows = options.window_rows,
                                      .row_tokens = 10});
  };
  for (const int64_t window : {2000, 1000, 300, 70}) {
    for (const int first : {0, 1, 7, 31, 1000}) {
      const std::vector<std::pair<BatchOptions, int>> parts = {
          {of(16, "sentences", window), first},
          {of(300, "tokens", window), 2},
          {of(64, "sentences", window), 1},
          {of(11, "sentences", window), kToTheEnd}};
      for (const bool same_length : {false, true}) {
        std::vector<int64_t> rows =
            same_length ? rows_of_epoch(equal, parts) : rows_of_epoch(lengths, parts);
        std::sort(rows.begin(), rows.end());
        std::vector<int64_t> each(1000);
        std::iota(each.begin(), each.end(), int64_t{0});
        EXPECT_EQ(rows, each) << window << ' ' << first << ' ' << same_length;
      }
    }
  }
  // The position still tells the batches of the same size apart.
  const BatchOptions now = of(11, "sentences", 300);
  const DataPosition start{0, 5, {{"sentences", 16, 7}, {"tokens", 300, 2}}};
  EpochWalk walk(lengths(now), {0, 0, start.before}), there(lengths(now), start);
  for (int i = 0; i < 5; ++i) walk.next();
  EXPECT_EQ(walk.position(), start);
  const auto next = walk.next(), same = there.next();
  EXPECT_TRUE(std::equal(next.begin(), next.end(), same.begin(), same.end()));
  EXPECT_EQ(there.batches_in_epoch(), walk.batches_in_epoch());
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         EpochWalk(lengths(now), {0, 0, {{"sentences", 16, 999}}});
                       }),
              HasSubstr("the saved position is batch 999"));
}

// An epoch of several windows, each with the batches of rows that are told apart by their numbers.
BatchOptions in_windows(int64_t rows, int64_t batch_size = 200) {
  BatchOptions options;
  options.batch_size = batch_size;
  options.window_rows = rows;
  return options;
}

TEST(Windows, GiveEveryRowOnceInAnOrderOfTheSeedAndTheEpochAlone) {
  const auto corpus = make_corpus(1000);
  const EpochPlans plans = plans_of(corpus, in_windows(300));
  ASSERT_EQ(plans.windows(0), 4);
  std::set<std::vector<int64_t>> orders;
  for (const int64_t epoch : {0, 1}) {
    std::vector<int> seen(1000, 0);
    std::vector<int64_t> order;
    for (int64_t window = 0; window < 4; ++window) {
      const EpochPlan plan = plans.plan(epoch, window);
      EXPECT_EQ(plan.batches(), plans.batches(epoch, window));
      int64_t rows = 0;
      for (const auto& batch : batches_of(plan)) {
        rows += std::ssize(batch);
        for (const int64_t row : batch) ++seen[static_cast<size_t>(row)];
        order.insert(order.end(), batch.begin(), batch.end());
      }
      EXPECT_EQ(rows, 250);  // equal windows: none is left with a few rows of all lengths
      EXPECT_EQ(batches_of(plan),
                batches_of(plans_of(corpus, in_windows(300)).plan(epoch, window)));
    }
    EXPECT_THAT(seen, testing::Each(1));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 2U);
  // A window has rows from everywhere.
  int64_t of_the_first_half = 0;
  for (const auto& batch : batches_of(plans.plan(0, 0))) {
    of_the_first_half +=
        std::count_if(batch.begin(), batch.end(), [](int64_t r) { return r < 500; });
  }
  EXPECT_NEAR(static_cast<double>(of_the_first_half), 125, 35);
}

TEST(Windows, OfACorpusThatFitsAreThePlansFromBeforeThereWereAny) {
  const auto corpus = make_corpus(1000);
  const EpochPlans plans = plans_of(corpus, in_windows(1000));
  EXPECT_EQ(plans.windows(5), 1);
  EXPECT_EQ(batches_of(plans.plan(5, 0)), batches_of(EpochPlan(corpus, in_windows(1000), 5)));
  // Those, step by step.
  std::vector<int64_t> order(1000);
  std::iota(order.begin(), order.end(), int64_t{0});
  shuffle(order, draw_key(1, 5, "data.sentences"));
  const auto source = [&](int64_t i) { return corpus.source.length(i) + 1; };
  const auto target = [&](int64_t i) { return corpus.target.length(i) + 1; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int64_t width = std::max(source(a), target(a)), other = std::max(source(b), target(b));
    if (width != other) return width < other;
    const int64_t difference_a = target(a) - source(a), difference_b = target(b) - source(b);
    return width % 2 == 0 ? difference_a < difference_b : difference_a > difference_b;
  });
  std::vector<std::vector<int64_t>> batches(1);
  for (const int64_t row : order) {
    const int64_t width = std::max(source(row), target(row));
    if ((std::ssize(batches.back()) + 1) * width > 200) batches.emplace_back();
    batches.back().push_back(row);
  }
  shuffle(batches, draw_key(1, 5, "data.batches"));
  EXPECT_EQ(batches_of(plans.plan(5, 0)), batches);
}

TEST(Windows, AreWalkedThroughAndResumed) {
  const auto corpus = make_corpus(1000);
  TranslationBatches whole(corpus, in_windows(300));
  const int64_t in_epoch = whole.batches_in_epoch();
  std::vector<DataPosition> positions = {whole.position()};
  std::vector<std::vector<int64_t>> expected;
  for (int64_t i = 0; i < 2 * in_epoch + 3; ++i) {
    expected.push_back(whole.next().indices);
    positions.push_back(whole.position());
  }
  EXPECT_EQ(positions[static_cast<size_t>(in_epoch)], (DataPosition{0, in_epoch}));
  EXPECT_EQ(positions[static_cast<size_t>(in_epoch) + 1], (DataPosition{1, 1}));
  for (size_t start = 0; start < positions.size(); start += 3) {
    TranslationBatches resumed(corpus, in_windows(300), positions[start]);
    TranslationBatches skipped(corpus, in_windows(300));
    skipped.skip(static_cast<int64_t>(start));
    EXPECT_EQ(skipped.position(), positions[start]);
    for (size_t i = start; i < std::min(start + 20, expected.size()); ++i) {
      ASSERT_EQ(resumed.next().indices, expected[i]) << start << ' ' << i;
      ASSERT_EQ(skipped.next().indices, expected[i]) << start << ' ' << i;
      ASSERT_EQ(resumed.position(), positions[i + 1]);
      ASSERT_EQ(skipped.position(), positions[i + 1]);
    }
  }
  EXPECT_THAT(
      error_of(ErrorKind::kData,
               [&] {
                 TranslationBatches(corpus, in_windows(300), {0, in_epoch + 1});
               }),
      HasSubstr(concat("epoch 0 has ", in_epoch, " batches, the saved position is batch ")));
}

TEST(Windows, OfEqualRowsHaveWholeBatches) {
  const EpochPlans plans = EpochPlans::of_equal_rows(
      {.rows = [](int64_t) { return 1003; }, .batch_size = 10, .window_rows = 300});
  std::vector<int> seen(1003, 0);
  std::multiset<size_t> sizes;
  for (int64_t window = 0; window < plans.windows(0); ++window) {
    const EpochPlan plan = plans.plan(0, window);
    EXPECT_EQ(plan.batches(), plans.batches(0, window));
    for (const auto& batch : batches_of(plan)) {
      sizes.insert(batch.size());
      for (const int64_t row : batch) ++seen[static_cast<size_t>(row)];
    }
  }
  EXPECT_EQ(plans.windows(0), 4);
  EXPECT_THAT(seen, testing::Each(1));
  EXPECT_EQ(sizes.count(10), 100U);
  EXPECT_EQ(sizes.count(3), 1U);
}

TEST(Shares, PutTogetherAreTheWhole) {
  const auto corpus = make_corpus(400);
  for (const int64_t window_rows : {1000, 150}) {
    TranslationBatches whole(corpus, in_windows(window_rows));
    const int64_t groups = (2 * whole.batches_in_epoch()) / 4 + 2;
    std::vector<std::vector<int64_t>> expected;
    std::vector<DataPosition> positions;
    for (int64_t i = 0; i < 4 * groups; ++i) {
      expected.push_back(whole.next().indices);
      positions.push_back(whole.position());
    }
    for (const int64_t ranks : {1, 2, 4}) {
      const int64_t count = 4 / ranks;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        TranslationLoader loader(TranslationBatches(corpus, in_windows(window_rows)),
                                 Share{.first = rank * count, .count = count, .of = 4});
        for (int64_t group = 0; group < groups; ++group) {
          for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(4 * group + rank * count + i);
            ASSERT_EQ(loader.next().batch.indices, expected[at]) << ranks << ' ' << rank;
          }
          ASSERT_EQ(loader.position(), positions[static_cast<size_t>(4 * group + 3)]);
        }
      }
    }
  }
}

TEST(Batches, RejectAPositionOfOtherData) {
  const auto corpus = make_corpus(50);
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         TranslationBatches(corpus, BatchOptions{}, {0, 999});
                       }),
              HasSubstr("the saved position is batch 999: the data or batch_size changed."));
}

TEST(Queue, HandsOutInOrderAndStaysBounded) {
  std::atomic<int> made{0};
  Prefetcher<int> queue([&] { return made++; }, 3);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(queue.next(), i);
    EXPECT_LE(made.load(), i + 1 + 3 + 1);
  }
}

TEST(Queue, ThrowsAfterTheItemsBefore) {
  int made = 0;
  std::atomic<bool> thrown{false};
  Prefetcher<int> queue([&]() -> int {
    if (made == 2) {
      thrown = true;
      fail(ErrorKind::kData, "[data] broken.");
    }
    return made++;
  });
  // Give the error time to arrive before the first item is asked for.
  while (!thrown) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(queue.next(), 0);
  EXPECT_EQ(queue.next(), 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of(ErrorKind::kData, [&] { queue.next(); }), "[data] broken.");
  }
}

TEST(Queue, StopsWithItemsLeftOrNone) {
  {
    Prefetcher<int> full([] { return 1; }, 1);
  }
  {
    Prefetcher<int> failed([]() -> int { throw std::runtime_error("x"); });
  }
  const auto corpus = make_corpus(500);
  { TranslationLoader loader(corpus, BatchOptions{}); }
  TranslationLoader used(corpus, BatchOptions{});
  used.next();
}

}  // namespace
}  // namespace tapestry
