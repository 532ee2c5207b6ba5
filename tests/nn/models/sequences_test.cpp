// Models over sequences end to end: rows without their padding, and documents that share rows.
#include "nn/attention/attention.h"
#include "nn/layers/unpadded.h"
#include "nn/models/distillation.h"
#include "nn/models/language_model.h"
#include "tests/nn/models/models.h"

namespace tapestry {
namespace {

using test::distance;
using test::Pass;
using test::SmallLanguageModel;
using test::text_batch;

struct SequenceModel {
  const char* name;
  ModelOptions options;
  bool causal;
};
void PrintTo(const SequenceModel& model, std::ostream* out) { *out << model.name; }

ModelOptions with_positions(PositionEmbedding positions) {
  ModelOptions options = test::gpt2_options();
  options.position_embedding = positions;
  return options;
}

ModelOptions latent_options() {
  ModelOptions options = test::llama_options();
  options.num_key_value_heads = 0;
  options.kv_latent_size = 8;
  options.rope_head_size = 4;
  return options;
}

ModelOptions windowed_options() {
  ModelOptions options = test::llama_options();
  options.attention_window = 3;
  return options;
}

class ModelsOfSequences : public ::testing::TestWithParam<SequenceModel> {
 protected:
  Pass pass_of(const LanguageModel::Batch& batch) const {
    return test::train_pass(built_.store, [&] { return built_.model.loss(batch, {}).loss; });
  }

  const bool causal_ = GetParam().causal;
  const SmallLanguageModel built_{GetParam().options, causal_};
};

INSTANTIATE_TEST_SUITE_P(
    Variants, ModelsOfSequences,
    ::testing::Values(
        SequenceModel{"gpt2", test::gpt2_options(), true},
        SequenceModel{"llama", test::llama_options(), true},
        SequenceModel{"bert", test::bert_options(), false},
        SequenceModel{"masked_llama", test::llama_options(), false},
        SequenceModel{"sinusoidal", with_positions(PositionEmbedding::kSinusoidal), true},
        SequenceModel{"alibi", with_positions(PositionEmbedding::kAlibi), true},
        SequenceModel{"relative", with_positions(PositionEmbedding::kRelative), false},
        SequenceModel{"latent", latent_options(), true},
        SequenceModel{"window", windowed_options(), true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ModelsOfSequences, RowsWithoutPaddingAreThePaddedOnes) {
  const LanguageModel::Batch batch = text_batch({6, 1, 3, 2}, 6, causal_);
  ASSERT_TRUE(Unpadded::of(batch.ids, batch.lengths));
  const Pass unpadded = pass_of(batch);
  const Unpadded::Off padded;
  EXPECT_LT(distance(unpadded, pass_of(batch)), 1e-12);
}

// Else the statistics would be those of other places from batch to batch, as their padding is.
TEST(UnpaddedTest, BatchNormsSeeAllPlaces) {
  ModelOptions options = test::bert_options();
  options.norm = NormKind::kBatch;
  const SmallLanguageModel built(options, /*causal=*/false);
  const LanguageModel::Batch batch = text_batch({6, 1, 3, 2}, 6, /*causal=*/false);
  const auto pass = [&] {
    return test::train_pass(built.store, [&] { return built.model.loss(batch, {}).loss; });
  };
  const Pass plain = pass();
  const Unpadded::Off padded;
  EXPECT_EQ(distance(plain, pass()), 0);
}

/// Four documents, each in a row of its own, and all of them in two rows.
struct Documents {
  explicit Documents(bool causal) : apart(text_batch(lengths, 6, causal)) {
    shared.sequences = Sequences::of_lengths(lengths);
    int64_t place = 0;
    for (size_t row = 0; row < lengths.size(); ++row) {
      for (int64_t t = 0; t < lengths[row]; ++t, ++place) {
        const auto from = static_cast<int64_t>(row) * 6 + t;
        shared.ids.data<int32_t>()[place] = apart.ids.data<int32_t>()[from];
        shared.targets.data<int32_t>()[place] = apart.targets.data<int32_t>()[from];
      }
    }
  }
  const std::vector<int32_t> lengths{5, 3, 2, 6};
  LanguageModel::Batch apart;
  LanguageModel::Batch shared{Tensor::empty({2, 8}, DType::kInt32),
                              Tensor::empty({2, 8}, DType::kInt32)};
};

TEST_P(ModelsOfSequences, DocumentsThatShareRowsAreRowsOfTheirOwn) {
  const Documents documents(causal_);
  EXPECT_LT(distance(pass_of(documents.shared), pass_of(documents.apart)), 1e-12);
}

// Neither the teacher nor its student sees another document.
TEST_P(ModelsOfSequences, ATeacherReadsThemApart) {
  if (!causal_) return;
  const Documents documents(causal_);
  const SmallLanguageModel teacher{GetParam().options, causal_};
  test::disturb(teacher.store);  // once more: it is not its student
  const auto distilled = [&](const LanguageModel::Batch& batch) {
    return test::train_pass(built_.store, [&] {
      return distilled_loss(built_.model, batch, {},
                            {.logits = teacher_logits(teacher.model, batch)})
          .loss;
    });
  };
  EXPECT_LT(distance(distilled(documents.shared), distilled(documents.apart)), 1e-12);
}

TEST(UnpaddedTest, TakesTokensAndPutsThemBack) {
  const Tensor ids = test::ints({1, 2, 3, 4, 9, 9, 5, 6, 9}, {3, 3});
  const auto unpadded = Unpadded::of(ids, test::ints({3, 1, 2}, {3}));
  ASSERT_TRUE(unpadded);
  EXPECT_EQ(unpadded->tokens_of(ids).to_vector<int32_t>(),
            (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(unpadded->tokens_of({}).defined());
  EXPECT_EQ(unpadded->sequences().longest, 3);
  const Var x(test::doubles({10, 20, 30, 40, 50, 60}, {1, 6, 1}));
  EXPECT_EQ(distance(unpadded->with_padding(x).value(),
                     test::doubles({10, 20, 30, 40, 40, 40, 50, 60, 60}, {3, 3, 1})),
            0);
}

// A row without a token keeps its first place, which a classifier reads.
TEST(UnpaddedTest, KeepsAPlaceOfEachRow) {
  const Tensor ids = test::ints({1, 2, 3, 4}, {2, 2});
  const auto unpadded = Unpadded::of(ids, test::ints({2, 0}, {2}));
  ASSERT_TRUE(unpadded);
  EXPECT_EQ(unpadded->tokens_of(ids).to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 3}));
}

TEST(UnpaddedTest, IsNothingWithLittlePadding) {
  const Tensor ids = Tensor::zeros({2, 8}, DType::kInt32);
  EXPECT_FALSE(Unpadded::of(ids, {}));
  EXPECT_FALSE(Unpadded::of(ids, test::ints({8, 8}, {2})));
  EXPECT_FALSE(Unpadded::of(ids, test::ints({8, 7}, {2})));
  EXPECT_TRUE(Unpadded::of(ids, test::ints({8, 6}, {2})));
}

}  // namespace
}  // namespace tapestry
