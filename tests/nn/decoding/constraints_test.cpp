// Texts that outputs must contain: their tracker, and the search with them beside every sequence.
#include "nn/decoding/constraints.h"

#include <algorithm>

#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the table and the plain searches

std::vector<size_t> missing(const Phrases& phrases, const Tokens& output,
                            const TokenEdges& edges = {}) {
  ConstraintTracker tracker(phrases, edges);
  tracker.add(output);
  EXPECT_EQ(tracker.all_met(), tracker.unmet().empty());
  return tracker.unmet();
}

using Numbers = std::vector<size_t>;

TEST(ConstraintTracker, FindsPhrasesWhereverTheyBegin) {
  const Phrases one = {{4, 4, 5}};
  EXPECT_EQ(missing(one, {4, 4, 5}), Numbers{});
  EXPECT_EQ(missing(one, {6, 4, 4, 4, 5, 6}), Numbers{}) << "it begins inside what failed";
  EXPECT_EQ(missing(one, {4, 5, 4, 4, 6, 5}), Numbers{0});
  EXPECT_EQ(missing({{5}, {6, 4}}, {6, 4}), Numbers{0});
  EXPECT_EQ(missing({{5}, {6, 4}}, {6, 4, 6, 4, 5}), Numbers{});
}

TEST(ConstraintTracker, UsesTokensForOnePhrase) {
  EXPECT_EQ(missing({{4}, {4}}, {4, 5}), Numbers{1}) << "asked for twice";
  EXPECT_EQ(missing({{4}, {4}}, {4, 4}), Numbers{});
  EXPECT_EQ(missing({{4}, {4, 5}}, {4, 5}), Numbers{0}) << "the longer one has the tokens";
  EXPECT_EQ(missing({{4}, {4, 5}}, {4, 5, 4}), Numbers{});
  EXPECT_EQ(missing({{4}, {4, 5}}, {4, 4, 5}), Numbers{});
  EXPECT_EQ(missing({{4}, {4, 5, 6}}, {4, 5, 5}), Numbers{1}) << "the shorter one stays met";
}

TEST(ConstraintTracker, DoesNotEndInsideAWord) {
  const auto set = [](std::initializer_list<int32_t> ids) {
    std::vector<bool> all(7);
    for (const int32_t id : ids) all[static_cast<size_t>(id)] = true;
    return all;
  };
  // 4 begins a word, 5 goes on with one, 6 is a full stop.
  const TokenEdges edges{.continues_word = set({5}), .ends_in_word = set({4, 5})};
  EXPECT_EQ(missing({{4}}, {4, 5}, edges), Numbers{0});
  EXPECT_EQ(missing({{4}}, {4, 6}, edges), Numbers{});
  EXPECT_EQ(missing({{4}}, {4, 5, 4}, edges), Numbers{});
  EXPECT_EQ(missing({{5, 6}}, {4, 5, 6}, edges), Numbers{0}) << "nor begins there";
  EXPECT_EQ(missing({{5, 6}}, {6, 5, 6}, edges), Numbers{});
  EXPECT_EQ(missing({{4, 6}}, {4, 6, 5}, edges), Numbers{}) << "a full stop ends no word";
}

TEST(ConstraintTracker, OffersWhatGoesOn) {
  const Phrases phrases = {{4, 5}, {6}};
  const TokenEdges edges;
  ConstraintTracker tracker(phrases, edges);
  EXPECT_EQ(tracker.next(), (Tokens{4, 6}));
  EXPECT_EQ(tracker.tokens(), 0);
  tracker.add(4);
  EXPECT_EQ(tracker.next(), (Tokens{5}));
  EXPECT_EQ(tracker.tokens(), 1);
  tracker.add(5);
  EXPECT_EQ(tracker.next(), (Tokens{6}));
  EXPECT_EQ(tracker.tokens(), 2);
  tracker.add(5);
  tracker.add(6);
  EXPECT_EQ(tracker.next(), Tokens{});
  EXPECT_EQ(tracker.tokens(), 3);
  EXPECT_TRUE(tracker.all_met());
}

// Whether the output has the phrases at places that do not overlap.
bool has_all(const Tokens& output, Phrases phrases, std::vector<bool> used = {}) {
  if (phrases.empty()) return true;
  used.resize(output.size());
  const Tokens phrase = phrases.back();
  phrases.pop_back();
  for (size_t at = 0; at + phrase.size() <= output.size(); ++at) {
    if (!std::equal(phrase.begin(), phrase.end(), output.begin() + static_cast<int64_t>(at))) {
      continue;
    }
    std::vector<bool> more = used;
    bool is_free = true;
    for (size_t i = at; i < at + phrase.size(); ++i) {
      is_free = is_free && !used[i];
      more[i] = true;
    }
    if (is_free && has_all(output, phrases, more)) return true;
  }
  return false;
}

// Every sequence that has the phrases, but for those that a search may give up: where the end is
// the best token while a phrase is missing.
void enumerate_with(const Question& q, const Phrases& phrases, const Tokens& generated,
                    double log_probability, const SearchOptions& options,
                    std::vector<Hypothesis>& all) {
  const Choices next = choices(q, generated, options);
  const bool complete = has_all(generated, phrases);
  const auto best = *std::ranges::max_element(
      next.allowed, {}, [&](int32_t token) { return next.log_probabilities[token]; });
  for (const int32_t token : next.allowed) {
    const double total = log_probability + next.log_probabilities[token];
    if (q.is_end(token)) {
      if (complete) all.push_back(ended(q, generated, token, total, options));
      continue;
    }
    if (!complete && q.is_end(best)) continue;
    Tokens longer = generated;
    longer.push_back(token);
    enumerate_with(q, phrases, longer, total, options, all);
  }
}

const Phrases kPhraseSets[] = {{{4}}, {{5, 6}}, {{4}, {6}}, {{6, 5, 4}}, {{5, 4}, {6, 6}}};

TEST(ConstrainedSearch, FindsTheBestOfAllSequencesWithThePhrases) {
  // With so many beams nothing is cut away.
  const SearchOptions options{
      .num_beams = 400, .early_stopping = EarlyStopping::kNever, .max_new_tokens = 6};
  int equal = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Table table(seed);
    for (const Phrases& phrases : kPhraseSets) {
      SearchTask task = task_of({6});
      task.constraints = {phrases};
      TableModel model(table);
      const auto found = beam_search(model, task, options);
      std::vector<Hypothesis> all;
      enumerate_with({table, 0, 6}, phrases, {}, 0, options, all);
      EXPECT_TRUE(has_all(found.at(0).at(0).tokens, phrases));
      if (all.empty()) continue;
      const Hypothesis& best = *std::ranges::max_element(all, {}, &Hypothesis::score);
      EXPECT_GE(found[0][0].score, best.score - 1e-12) << "seed " << seed;
      equal += found[0][0].tokens == best.tokens ? 1 : 0;
    }
  }
  EXPECT_GT(equal, 40) << "of 100";
}

TEST(ConstrainedSearch, FewBeamsAndGreedySearchesHaveThePhrasesToo) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Table table(seed);
    SearchTask task = task_of({12, 12, 12, 12, 12, 12});
    task.constraints = {kPhraseSets[0], {}, kPhraseSets[1], kPhraseSets[2], kPhraseSets[3],
                        kPhraseSets[4]};
    SearchTask plain = task_of(task.max_lengths);
    for (const int64_t beams : {1, 3}) {
      const SearchOptions options{.num_beams = beams, .n_best = beams};
      TableModel model(table), same(table);
      const auto found = search(model, task, options);
      const auto without = search(same, plain, options);
      for (size_t i = 0; i < found.size(); ++i) {
        for (const Hypothesis& hypothesis : found[i]) {
          EXPECT_TRUE(has_all(hypothesis.tokens, task.constraints[i]));
          EXPECT_TRUE(hypothesis.unmet.empty());
        }
      }
      expect_same(found[1], without[1], 0);
    }
  }
}

TEST(ConstrainedSearch, ALimitThatIsTooShortSaysWhatIsMissing) {
  const Table table(3);
  SearchTask task = task_of({4});
  task.constraints = {{{4, 5, 6}, {5, 5, 5}}};
  TableModel model(table);
  const auto found = beam_search(model, task, {.num_beams = 4});
  ASSERT_EQ(found.at(0).size(), 1u);
  EXPECT_EQ(found[0][0].unmet.size(), 1u) << "three of the four tokens are enough for one";
  EXPECT_EQ(found[0][0].tokens.size(), 3u);
}

TEST(ConstrainedSearch, RefusesDrawsAndEmptyPhrases) {
  const Table table(1);
  TableModel model(table);
  SearchTask task = task_of({4});
  task.constraints = {{{4}}};
  EXPECT_THROW(generate(model, task, {.num_beams = 1, .do_sample = true}), Error);
  task.constraints = {{{}}};
  EXPECT_THROW(beam_search(model, task, {}), Error);
}

}  // namespace
}  // namespace tapestry
