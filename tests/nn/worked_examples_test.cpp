// Small worked examples of every block, through our layers. The expected values were computed from
// the inputs shown here, apart from this project's code, and are given to four digits.
#include "nn/attention/attention.h"
#include "nn/decoding/decoding.h"
#include "nn/layers/layers.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::distance;
using test::doubles;

// Half a unit of the fourth digit.
constexpr double kFourDigits = 0.5001e-4;

void set(const ParamStore& store, const std::string& name, const std::vector<double>& values) {
  const Tensor& value = store.at(name).var.value();
  value.copy_from(doubles(values, value.shape()));
}

// Sinusoidal positions (Vaswani et al. 2017, 3.5) of size 4: sine and cosine of pos, then of pos /
// 100.
TEST(WorkedExamples, PositionEncodings) {
  const Tensor table = sinusoidal_positions(4, 4, DType::kFloat64);
  EXPECT_LT(
      distance(table, doubles({0, 1, 0, 1,                      //
                               0.8415, 0.5403, 0.0100, 1.0000,  //
                               0.9093, -0.4161, 0.0200, 0.9998, 0.1411, -0.9900, 0.0300, 0.9996},
                              {4, 4})),
      kFourDigits);
}

// Token embedding plus positions.
TEST(WorkedExamples, EmbeddingWithPositions) {
  const Var table = doubles({0.2, 0.1, 0.3, 0.4, 0.5, 0.4, 0.3, 0.2,  //
                             0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.4},
                            {4, 4});
  const Var x = embedding(test::ints({0, 1, 2, 3}, {1, 4}), table,
                          sinusoidal_positions(4, 4, DType::kFloat64));
  EXPECT_LT(
      distance(x.value(), doubles({0.2, 1.1, 0.3, 1.4,              //
                                   1.3415, 0.9403, 0.3100, 1.2000,  //
                                   1.8093, 0.3839, 0.7200, 1.5998, 0.2411, -0.7900, 0.3300, 1.3996},
                                  {1, 4, 4})),
      kFourDigits);
}

// Scaled dot-product attention of two queries and two keys.
TEST(WorkedExamples, ScaledDotProductAttention) {
  const Var q = doubles({0.1, 0.4, 0.3, 0.7}, {1, 2, 2}),
            k = doubles({0.2, 0.5, 0.6, 0.3}, {1, 2, 2});
  const Var v = doubles({1.2, 0.9, 0.8, 1.1}, {1, 2, 2});
  const auto [out, weights, products, scores] =
      attention_reference(q, k, v, {}, /*with_scores=*/true);
  EXPECT_LT(distance((1 / std::sqrt(2.0) * products).value(), scores.value()), 1e-15);
  EXPECT_LT(distance(products.value(), doubles({0.22, 0.18, 0.41, 0.39}, {1, 1, 2, 2})), 1e-14);
  EXPECT_LT(distance(weights.value(), doubles({0.5071, 0.4929, 0.5035, 0.4965}, {1, 1, 2, 2})),
            kFourDigits);
  const Tensor expected = doubles({1.0028, 0.9986, 1.0014, 0.9993}, {1, 2, 2});
  EXPECT_LT(distance(out.value(), expected), kFourDigits);
  EXPECT_LT(distance(attention(q, k, v, {}).value(), expected), kFourDigits);
}

// One head of cross-attention. The weights are (out, in), as ours.
TEST(WorkedExamples, CrossAttentionHead) {
  ParamStore store(1, DType::kFloat64);
  const Linear::Options options{.in = 3, .out = 2, .bias = false};
  const Linear project_q(options, store.root() / "q"), project_k(options, store.root() / "k");
  const Linear project_v(options, store.root() / "v");
  set(store, "q.weight", {0.1, 0.3, 0.2, 0.2, 0.4, 0.6});
  set(store, "k.weight", {0.5, 0.1, 0.3, 0.4, 0.7, 0.2});
  set(store, "v.weight", {0.2, 0.6, 0.3, 0.8, 0.2, 0.4});
  const Var q = project_q(doubles({0.2, 0.5, 0.1, 0.7, 0.1, 0.9}, {1, 2, 3}));
  const Var k = project_k(doubles({0.3, 0.8, 0.5, 0.1, 0.2, 0.4}, {1, 2, 3}));
  const Var v = project_v(doubles({0.9, 1.2, 0.6, 0.5, 0.4, 0.9}, {1, 2, 3}));
  EXPECT_LT(distance(q.value(), doubles({0.19, 0.30, 0.28, 0.72}, {1, 2, 2})), 1e-14);
  EXPECT_LT(distance(k.value(), doubles({0.38, 0.78, 0.19, 0.26}, {1, 2, 2})), 1e-14);
  EXPECT_LT(distance(v.value(), doubles({1.08, 1.20, 0.61, 0.84}, {1, 2, 2})), 1e-14);
  const auto [out, weights, products, scores] =
      attention_reference(q, k, v, {}, /*with_scores=*/true);
  EXPECT_LT(distance((1 / std::sqrt(2.0) * products).value(), scores.value()), 1e-15);
  EXPECT_LT(distance(weights.value(), doubles({0.5339, 0.4661, 0.5750, 0.4250}, {1, 1, 2, 2})),
            kFourDigits);
  const Tensor expected = doubles({0.8609, 1.0322, 0.8803, 1.0470}, {1, 2, 2});
  EXPECT_LT(distance(out.value(), expected), kFourDigits);
  EXPECT_LT(distance(attention(q, k, v, {}).value(), expected), kFourDigits);
}

// Given outputs of two heads, concatenated and projected. W_O is (in, out).
TEST(WorkedExamples, CrossAttentionFinalProjection) {
  const Var head_1 = doubles({0.80, 1.04, 0.79, 1.09}, {1, 2, 2});
  const Var head_2 = doubles({0.72, 1.01, 0.65, 1.12}, {1, 2, 2});
  const Var w_o = doubles({0.3, 0.7, 0.6, 0.2, 0.4, 0.5, 0.9, 0.8}, {4, 2});
  const Tensor expected = doubles({2.061, 1.936, 2.159, 1.992}, {1, 2, 2});
  const Var heads = concat({head_1, head_2}, 2);
  EXPECT_LT(distance(matmul(heads, w_o).value(), expected), 1e-14);
  EXPECT_LT(distance(linear(heads, permute(w_o, {1, 0})).value(), expected), 1e-14);
}

// Causal self-attention with W_Q = W_K = W_V, so K = V = Q.
TEST(WorkedExamples, CausalSelfAttention) {
  const std::vector<double> w = {0.1, 0.3, 0.5, 0.2, 0.2, 0.4, 0.6, 0.1,
                                 0.7, 0.1, 0.8, 0.3, 0.6, 0.2, 0.4, 0.5};
  const Var x = doubles({0.5, 0.1, 0.2, 0.3, 0.4, 0.3, 0.7, 0.8,  //
                         0.6, 0.8, 0.1, 0.9, 0.2, 0.4, 0.6, 0.5},
                        {1, 4, 4});
  const Var projected = linear(x, doubles(w, {4, 4}));
  EXPECT_LT(distance(projected.value(), doubles({0.24, 0.29, 0.61, 0.55, 0.64, 0.70, 1.11, 0.98,  //
                                                 0.53, 0.59, 0.85, 1.01, 0.54, 0.61, 0.81, 0.69},
                                                {1, 4, 4})),
            1e-14);
  const auto [out, weights, products, scores] =
      attention_reference(projected, projected, projected, {.causal = true});
  EXPECT_LT(distance(weights.value(), doubles({1, 0, 0, 0,                 //
                                               0.3187, 0.6813, 0, 0,       //
                                               0.2185, 0.4213, 0.3601, 0,  //
                                               0.1759, 0.3154, 0.2693, 0.2394},
                                              {1, 1, 4, 4})),
            kFourDigits);
  const Tensor expected = doubles({0.2400, 0.2900, 0.6100, 0.5500,  //
                                   0.5125, 0.5693, 0.9506, 0.8430,  //
                                   0.5130, 0.5708, 0.9071, 0.8968,  //
                                   0.5161, 0.5767, 0.8802, 0.8430},
                                  {1, 4, 4});
  EXPECT_LT(distance(out.value(), expected), kFourDigits);
  EXPECT_LT(
      distance(attention(projected, projected, projected, {.causal = true}).value(), expected),
      kFourDigits);

  // The layer, with the same matrix three times in its packed projection and the identity as W_O.
  ParamStore store(1, DType::kFloat64);
  const SelfAttention layer({.hidden_size = 4, .bias = false}, store.root());
  std::vector<double> packed = w;
  for (int copy = 0; copy < 2; ++copy) packed.insert(packed.end(), w.begin(), w.end());
  set(store, "qkv.weight", packed);
  set(store, "out.weight", {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  EXPECT_LT(distance(layer(x, {}, /*causal=*/true).value(), out.value()), 1e-14);
  // The first token sees only itself, so its output is its own value.
  EXPECT_LT(distance(slice(out, 1, 0, 1).value(), slice(projected, 1, 0, 1).value()), 1e-14);
}

// The feed-forward network. W_2 has only two outputs: a row of zeros adds the third, because our
// layer has as many outputs as inputs.
TEST(WorkedExamples, FeedForwardBlock) {
  ParamStore store(1, DType::kFloat64);
  const FeedForward layer({.hidden_size = 3, .intermediate_size = 2}, store.root());
  set(store, "up.weight", {0.5, 0.4, 0.3, 0.2, -0.1, 0.7});
  set(store, "up.bias", {0.1, 0.1});
  set(store, "down.weight", {0.1, 0.6, -0.3, 0.2, 0, 0});
  set(store, "down.bias", {0.05, 0.05, 0});
  const Var x = doubles({0.5, -0.3, 0.1, -0.2, 0.8, 0.3}, {2, 3});
  EXPECT_LT(distance(layer.up(x).value(), doubles({0.26, 0.30, 0.41, 0.19}, {2, 2})), 1e-14);
  EXPECT_LT(distance(layer(x).value(), doubles({0.256, 0.032, 0, 0.205, -0.035, 0}, {2, 3})),
            1e-14);
}

// Residual addition and layer norm: x = (2, 4), sublayer(x) = (1, 3).
TEST(WorkedExamples, AddAndLayerNorm) {
  ParamStore store(1, DType::kFloat64);
  const Residual block({.hidden_size = 2, .norm = {{.eps = 0}, true}}, store.root());
  const Var x = doubles({2, 4}, {1, 2});
  const Var y = block(x, [](const Var&) { return Var(doubles({1, 3}, {1, 2})); });
  EXPECT_LT(distance(y.value(), doubles({-1, 1}, {1, 2})), 1e-14);
  const Norm& norm = *block.norm;
  EXPECT_LT(distance(norm(doubles({3, 7}, {1, 2})).value(), doubles({-1, 1}, {1, 2})), 1e-14);
}

// Probabilities of the next token at each step, whatever came before.
class GreedyTable : public NextToken {
 public:
  Tensor step(const std::vector<int32_t>& tokens) override {
    fed.push_back(tokens.at(0));
    Tensor logits = Tensor::empty({1, 5}, DType::kFloat64);
    for (int64_t v = 0; v < 5; ++v) {
      logits.data<double>()[v] = std::log(kTable[fed.size() - 1][v]);
    }
    return logits;
  }
  void add(const std::vector<NewSentence>&) override {}
  void select(const std::vector<int32_t>&) override {}

  std::vector<int32_t> fed;

  // kTable[3] sums to 1.01; the search normalises it.
  static constexpr double kTable[5][5] = {{0.8, 0.05, 0.05, 0.05, 0.05},
                                          {0.1, 0.7, 0.1, 0.05, 0.05},
                                          {0.05, 0.05, 0.85, 0.03, 0.02},
                                          {0.02, 0.03, 0.1, 0.85, 0.01},
                                          {0.01, 0.01, 0.01, 0.02, 0.95}};
};

TEST(WorkedExamples, GreedyDecoding) {
  constexpr int32_t kThe = 0, kCat = 1, kSat = 2, kOn = 3, kEnd = 4, kStart = 5;
  GreedyTable model;
  const SearchTask task{
      .sentences = 1, .bos_id = kStart, .eos_id = kEnd, .banned = {}, .max_lengths = {10}};
  const auto result = generate(model, task, {.length_penalty_type = LengthPenalty::kNone}).at(0);
  EXPECT_EQ(model.fed, (std::vector<int32_t>{kStart, kThe, kCat, kSat, kOn}));
  EXPECT_EQ(result.tokens, (std::vector<int32_t>{kThe, kCat, kSat, kOn}));
  EXPECT_NEAR(std::exp(result.log_probability), 0.8 * 0.7 * 0.85 * (0.85 / 1.01) * 0.95, 1e-14);
  EXPECT_EQ(result.score, result.log_probability);
}

// A beam search finds the same: no other sequence comes near.
TEST(WorkedExamples, BeamSearchFindsTheGreedySequence) {
  GreedyTable model;
  const SearchTask task{.sentences = 1, .bos_id = 5, .eos_id = 4, .banned = {}, .max_lengths = {5}};
  // One row per beam, all with the table's probabilities.
  class Repeat : public NextToken {
   public:
    explicit Repeat(GreedyTable& table) : table_(table) {}
    Tensor step(const std::vector<int32_t>& tokens) override {
      const Tensor row = table_.step({tokens.at(0)});
      Tensor logits = Tensor::empty({static_cast<int64_t>(tokens.size()), 5}, DType::kFloat64);
      for (int64_t r = 0; r < logits.shape()[0]; ++r) logits.slice(r, r + 1).copy_from(row);
      return logits;
    }
    void add(const std::vector<NewSentence>&) override {}
    void select(const std::vector<int32_t>&) override {}

   private:
    GreedyTable& table_;
  } rows(model);
  const auto best = beam_search(rows, task, {.num_beams = 3}).at(0).at(0);
  EXPECT_EQ(best.tokens, (std::vector<int32_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace tapestry
