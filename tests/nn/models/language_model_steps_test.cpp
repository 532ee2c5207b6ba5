// Causal models that decode step by step, against the same models without caches.
#include "nn/models/language_model.h"

#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using namespace test;  // NOLINT: the small models

ModelOptions interleaved_options() {
  ModelOptions options = llama_options();
  options.rope_layout = RopeLayout::kInterleaved;
  return options;
}

struct StepVariant {
  const char* name;
  ModelOptions options;
};

void PrintTo(const StepVariant& variant, std::ostream* out) { *out << variant.name; }

class CachedSteps : public ::testing::TestWithParam<std::tuple<StepVariant, DType>> {
 protected:
  const ModelOptions options_ = std::get<StepVariant>(GetParam()).options;
  const DType dtype_ = std::get<DType>(GetParam());
  const double tolerance_ = dtype_ == DType::kFloat64 ? 1e-12 : 1e-5;
};

INSTANTIATE_TEST_SUITE_P(Variants, CachedSteps,
                         ::testing::Combine(::testing::Values(StepVariant{"gpt2", gpt2_options()},
                                                              StepVariant{"llama", llama_options()},
                                                              StepVariant{"interleaved",
                                                                          interleaved_options()}),
                                            ::testing::Values(DType::kFloat64, DType::kFloat32)),
                         [](const auto& info) {
                           return std::string(std::get<StepVariant>(info.param).name) + '_' +
                                  std::string(name_of(std::get<DType>(info.param)));
                         });

// 40 tokens: the cache grows past its first 64 rows.
TEST_P(CachedSteps, EqualTheUncachedModel) {
  const SmallLanguageModel built(options_, /*causal=*/true, dtype_);
  const int64_t length = 40;
  const Tensor ids = test::uniform_ids({3, length}, 8, 2, kVocabulary);
  const Tensor wanted = built.model.logits(built.model.hidden(ids)).value();
  for (const int64_t first : {1, 2, 7, 16, 17, 39, 40}) {
    test::poison_free_memory();
    LanguageModel::State state = test::started(built.model, ids, first - 1);
    for (int64_t t = first - 1; t < length; ++t) {
      const Tensor logits = test::step_of(built.model, ids, t, state);
      ASSERT_LT(distance(logits, columns(wanted, t, t + 1).reshape({3, kVocabulary})), tolerance_)
          << "token " << t << " after a prompt of " << first;
    }
  }
}

// All tokens of a prompt see each other.
TEST(LanguageModelSteps, ReadThePromptAsAPrefix) {
  ModelOptions options = test::gpt2_options();
  options.prefix_lm = true;
  const test::SmallLanguageModel built(options, /*causal=*/true);
  const Tensor ids = test::ints({4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4}, {2, 6});
  const auto logits_of = [&](const AttentionContext& context) {
    return built.model.logits(built.model.hidden(ids, {}, {}, context)).value();
  };
  const Tensor expected = logits_of({.prefix_lengths = test::ints({4, 4}, {2})});
  EXPECT_GT(test::distance(test::columns(expected, 5, 6), test::columns(logits_of({}), 5, 6)),
            1e-3);
  LanguageModelSteps steps(built.model);
  const std::vector<int32_t> one = {4, 5, 6, 7}, other = {9, 8, 7, 6};
  steps.add({{0, one}, {1, other}});
  for (int64_t t = 3; t < 6; ++t) {
    const Tensor logits = steps.step(test::columns(ids, t, t + 1).to_vector<int32_t>());
    const Tensor wanted = test::columns(expected, t, t + 1);
    EXPECT_LT(test::distance(logits.reshape(wanted.shape()), wanted), 1e-10) << t;
  }
}

// The model without caches, with its histories cut as LanguageModelSteps does it.
class UncachedLanguageModel {
 public:
  UncachedLanguageModel(const LanguageModel& model, int64_t rows)
      : model_(model), histories_(rows) {}

  Tensor step(const std::vector<int32_t>& tokens) {
    const size_t count = tokens.size() / histories_.size();
    std::vector<int32_t> ids;
    for (size_t row = 0; row < histories_.size(); ++row) {
      auto& history = histories_[row];
      history.insert(history.end(), &tokens[row * count], &tokens[row * count] + count);
      const auto positions = static_cast<size_t>(model_.options.longest_sequence());
      if (history.size() > positions) {
        history = {history.end() - std::max<int64_t>(1, positions / 2), history.end()};
      }
      ids.insert(ids.end(), history.begin(), history.end());
    }
    const auto rows = static_cast<int64_t>(histories_.size());
    const auto length = static_cast<int64_t>(histories_[0].size());
    const Tensor all = model_.logits(model_.hidden(Tensor::from(ids, {rows, length}))).value();
    return columns(all, length - 1, length).reshape({rows, kVocabulary});
  }
  void select(const std::vector<int32_t>& rows) {
    std::vector<std::vector<int32_t>> kept;
    for (const int32_t row : rows) kept.push_back(histories_.at(row));
    histories_ = std::move(kept);
  }

 private:
  const LanguageModel& model_;
  std::vector<std::vector<int32_t>> histories_;
};

// Rows are chosen, repeated and dropped on the way; the last prompt is longer than the model.
TEST_P(CachedSteps, OfASearchEqualTheUncachedModel) {
  for (const int64_t positions : {1, 2, 7, 48}) {
    ModelOptions options = options_;
    options.max_position_embeddings = positions;
    const SmallLanguageModel built(options, /*causal=*/true, dtype_);
    for (const int64_t prompt : {1, 5, 60}) {
      LanguageModelSteps steps(built.model);
      UncachedLanguageModel uncached(built.model, 2);
      test::poison_free_memory();
      size_t rows = 2;
      for (int64_t step = 0; step < 20; ++step) {
        const int64_t count = step == 0 ? prompt : 1;
        const auto fed = test::uniform_ids({static_cast<int64_t>(rows), count},
                                           static_cast<uint32_t>(100 + step), 2, kVocabulary)
                             .to_vector<int32_t>();
        const Tensor wanted = uncached.step(fed);
        std::vector<int32_t> last;
        for (size_t row = 0; row < rows; ++row) {
          const std::span tokens(&fed[row * static_cast<size_t>(count)],
                                 static_cast<size_t>(count));
          if (step == 0) steps.add({{static_cast<int64_t>(row), tokens}});
          last.push_back(tokens.back());
        }
        ASSERT_LT(distance(steps.step(last), wanted), tolerance_)
            << positions << " positions, prompt of " << prompt << ", step " << step;
        if (step % 3 != 1) continue;
        const std::vector<int32_t> kept =
            rows == 2 ? std::vector<int32_t>{1, 0, 1} : std::vector<int32_t>{2, 0};
        steps.select(kept);
        uncached.select(kept);
        rows = kept.size();
      }
    }
  }
}

TEST_P(CachedSteps, RefuseAnotherNumberOfTokens) {
  const SmallLanguageModel built(options_, /*causal=*/true, dtype_);
  LanguageModelSteps steps(built.model);
  const std::vector<int32_t> prompt = {4, 5};
  steps.add({{0, prompt}, {1, prompt}});
  EXPECT_EQ(test::error_of([&] {
              steps.step({4, 5, 6});
            }),
            "[decoding] expected a token for each of 2 rows, got 3.");
}

}  // namespace
}  // namespace tapestry
