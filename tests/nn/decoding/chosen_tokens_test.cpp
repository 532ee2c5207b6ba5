// Searches in which each sentence may write only some tokens (SearchTask::chosen).
#include <gmock/gmock.h>

#include <numeric>

#include "nn/decoding/chosen_words.h"
#include "tests/nn/models/models.h"
#include "tests/nn/models/table_model.h"

namespace tapestry {
namespace {

using TokenRows = std::vector<std::vector<int32_t>>;

// Finds the same as a search does without lists, if other logits are -inf by themselves.
class MaskedTable : public test::TableModel {
 public:
  MaskedTable(const test::Table& table, const TokenRows& lists)
      : TableModel(table), lists_(lists) {}
  void add(const std::vector<NewSentence>& sentences) override {
    for (const NewSentence& s : sentences) rows_.push_back(s.index);
    TableModel::add(sentences);
  }
  Tensor step(const std::vector<int32_t>& tokens) override {
    Tensor logits = TableModel::step(tokens);
    for (size_t r = 0; r < rows_.size(); ++r) {
      const auto& list = lists_[static_cast<size_t>(rows_[r])];
      double* const z = logits.data<double>() + static_cast<int64_t>(r) * test::kTableVocab;
      for (int32_t v = 0; v < test::kTableVocab; ++v) {
        if (std::ranges::find(list, v) == list.end()) z[v] = -INFINITY;
      }
    }
    return logits;
  }
  void select(const std::vector<int32_t>& rows) override {
    std::vector<int64_t> next;
    for (const int32_t row : rows) next.push_back(rows_[static_cast<size_t>(row)]);
    rows_ = std::move(next);
    TableModel::select(rows);
  }

 private:
  const TokenRows& lists_;
  std::vector<int64_t> rows_;
};

void expect_same_answers(const std::vector<std::vector<Hypothesis>>& found,
                         const std::vector<std::vector<Hypothesis>>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t s = 0; s < found.size(); ++s) {
    ASSERT_EQ(found[s].size(), expected[s].size()) << "sentence " << s;
    for (size_t n = 0; n < found[s].size(); ++n) {
      EXPECT_EQ(found[s][n].tokens, expected[s][n].tokens) << "sentence " << s << ", " << n;
      EXPECT_NEAR(found[s][n].log_probability, expected[s][n].log_probability, tolerance);
    }
  }
}

TEST(ChosenTokensTest, OtherTokensCountAsImpossible) {
  const TokenRows lists = {{0, 1, 2, 3, 5}, {3, 4, 6}, {3, 5}, {0, 1, 2, 3, 4, 5, 6}};
  for (const SearchOptions& options :
       {SearchOptions{.num_beams = 1}, SearchOptions{.num_beams = 3, .n_best = 2},
        SearchOptions{.num_beams = 1, .do_sample = true},
        SearchOptions{.num_beams = 3, .frequency_penalty = 0.7, .min_new_tokens = 2}}) {
    const test::Table table(11);
    SearchTask task = test::task_of({6, 6, 6, 6});
    task.prefixes = {{}, {4}, {}, {5, 4}};
    MaskedTable masked(table, lists);
    const auto expected = search(masked, task, options);
    test::TableModel plain(table);
    task.chosen = lists;
    expect_same_answers(search(plain, task, options), expected, 1e-12);
  }
}

TEST(ChosenTokensTest, AListMustHaveTheEnd) {
  const test::Table table(1);
  test::TableModel model(table);
  SearchTask task = test::task_of({6, 6});
  task.chosen = {{3, 4}, {4, 5}};
  const auto message = [&] {
    try {
      search(model, task, {.num_beams = 1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(), testing::HasSubstr("the list of tokens of sentence 1 lacks the end"));
  task.chosen.pop_back();
  EXPECT_THAT(message(), testing::HasSubstr("expected one list of tokens for each of 2"));
}

// A model with a shortlist, in each format of its weights and without a format.
class ChosenWordsTest : public testing::TestWithParam<std::optional<WeightFormat>> {
 protected:
  ChosenWordsTest() {
    if (GetParam()) model_.store.pack(*GetParam());
    input_.source = test::sentences(lengths_, 9, 7);
    input_.lengths = test::lengths_tensor(lengths_);
    input_.log_probabilities = true;
  }

  std::vector<std::vector<Hypothesis>> found(const TranslationInput& input,
                                             const SearchOptions& options) const {
    return translate({{&model_.model}}, input, options);
  }
  static std::vector<SearchOptions> searches() {
    return {{.num_beams = 1, .max_new_tokens = 12},
            {.num_beams = 4, .n_best = 3, .max_new_tokens = 12},
            {.num_beams = 1, .do_sample = true, .max_new_tokens = 12, .seed = 4}};
  }
  static TokenRows lists(size_t sentences) {
    TokenRows lists(sentences);
    for (size_t s = 0; s < sentences; ++s) {
      for (int32_t v = 0; v < test::kVocabulary; ++v) {
        if (v < 4 || (v + static_cast<int32_t>(s)) % 3 == 0) lists[s].push_back(v);
      }
    }
    return lists;
  }

  test::SmallModel model_{test::post_norm_options(), DType::kFloat32};
  const std::vector<int32_t> lengths_ = {5, 9, 6, 7, 5, 8};
  TranslationInput input_;
};

TEST_P(ChosenWordsTest, AListOfEverythingChangesNoBit) {
  for (const bool log_probabilities : {false, true}) {
    for (const SearchOptions& options : searches()) {
      TranslationInput input = input_;
      input.log_probabilities = log_probabilities;
      const auto expected = found(input, options);
      std::vector<int32_t> all(test::kVocabulary);
      std::iota(all.begin(), all.end(), 0);
      input.chosen.assign(lengths_.size(), all);
      expect_same_answers(found(input, options), expected, GetParam() ? 0 : 1e-5);
    }
  }
}

TEST_P(ChosenWordsTest, AnswersHaveChosenTokensOnly) {
  for (const bool log_probabilities : {false, true}) {
    for (const SearchOptions& options : searches()) {
      TranslationInput input = input_;
      input.log_probabilities = log_probabilities;
      input.chosen = lists(lengths_.size());
      const auto some = found(input, options);
      for (size_t s = 0; s < some.size(); ++s) {
        EXPECT_FALSE(some[s].empty());
        for (const Hypothesis& hypothesis : some[s]) {
          for (const int32_t token : hypothesis.tokens) {
            EXPECT_THAT(input.chosen[s], testing::Contains(token));
          }
        }
      }
    }
  }
}

// Sentences have rows of a product together. Of a sentence alone the union is its own list.
TEST_P(ChosenWordsTest, AnAnswerDoesNotDependOnTheOtherSentences) {
  for (const SearchOptions& options : searches()) {
    TranslationInput input = input_;
    input.chosen = lists(lengths_.size());
    input.sentences_at_once = 2;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      input.sequence_ids.push_back(static_cast<int64_t>(s));
    }
    const auto few = found(input, options);
    input.sentences_at_once = 0;
    const auto together = found(input, options);
    expect_same_answers(few, together, GetParam() ? 0 : 1e-5);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const auto at = static_cast<int64_t>(s);
      TranslationInput alone;
      alone.source = input.source.slice(at, at + 1),
      alone.lengths = input.lengths.slice(at, at + 1);
      alone.sequence_ids = {at};
      alone.chosen = {input.chosen[s]};
      expect_same_answers(found(alone, options), {together[s]}, GetParam() ? 0 : 1e-5);
    }
  }
}

// The logits of a forced token must be known, for which a search takes another way.
TEST_P(ChosenWordsTest, PrefixesBelongToTheLists) {
  TranslationInput input = input_;
  input.chosen = lists(lengths_.size());
  input.prefixes.assign(lengths_.size(), {});
  for (size_t s = 0; s < lengths_.size(); s += 2) {
    input.prefixes[s] = {17, 5};
    for (const int32_t token : {5, 17}) {
      auto& list = input.chosen[s];
      if (std::ranges::binary_search(list, token)) continue;
      list.insert(std::ranges::lower_bound(list, token), token);
    }
  }
  const auto all = found(input, {.num_beams = 3, .max_new_tokens = 12});
  for (size_t s = 0; s < all.size(); ++s) {
    EXPECT_TRUE(std::isfinite(all[s][0].log_probability));
    if (s % 2 == 0) {
      EXPECT_EQ(all[s][0].tokens[0], 17);
    }
  }
}

std::string name_of_format(const testing::TestParamInfo<std::optional<WeightFormat>>& info) {
  return info.param ? name_of(*info.param) : "unpacked";
}
INSTANTIATE_TEST_SUITE_P(Formats, ChosenWordsTest,
                         testing::Values(std::nullopt, WeightFormat::kFloat32,
                                         WeightFormat::kBFloat16, WeightFormat::kInt8,
                                         WeightFormat::kInt4),
                         name_of_format);

// Sentences that join later bring tokens of their own, and those who left take theirs with them.
TEST(ChosenWordsRowsTest, TheUnionFollowsTheSentences) {
  test::SmallModel model(test::post_norm_options(), DType::kFloat32);
  const TokenRows lists = {{3, 5}, {3, 6, 7}, {3, 5, 18}};
  ChosenWords words(model.model.words.output, lists);
  words.add({0, 1});
  EXPECT_EQ(words.gathered(), 4);
  words.select({1, 1});
  words.add({2});
  EXPECT_EQ(words.gathered(), 5);  // 3, 5, 6, 7, 18
  const Tensor hidden = Tensor::full({3, 16}, 0.5, DType::kFloat32);
  const Tensor logits = words.logits(hidden), all = model.model.words.output(hidden).value();
  for (int64_t v = 0; v < test::kVocabulary; ++v) {
    const bool first = v == 3 || v == 6 || v == 7;
    EXPECT_EQ(std::isfinite(logits.data<float>()[v]), first) << v;
    if (first) {
      EXPECT_NEAR(logits.data<float>()[v], all.data<float>()[v], 1e-5);
    }
  }
  EXPECT_TRUE(std::isfinite(logits.data<float>()[2 * test::kVocabulary + 18]));
}

}  // namespace
}  // namespace tapestry
