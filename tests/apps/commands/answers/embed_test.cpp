// What the binary does with a model of vectors.
#include <gmock/gmock.h>

#include <cstring>
#include <memory>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

/// The model is trained once.
class EmbedTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("vectors");
    ASSERT_EQ(folder_->train("vectors", "run", {"training.max_steps=150"}), 0)
        << folder_->messages();
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::vector<std::vector<double>> vectors_of(const std::string& options,
                                                     const std::string& text) {
    std::vector<std::vector<double>> vectors;
    for (const std::string& line : lines_of(folder_->output("embed --model run" + options, text))) {
      vectors.push_back(line.empty() ? std::vector<double>()
                                     : Json::parse(line).get<std::vector<double>>());
    }
    return vectors;
  }
  static double product(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> EmbedTest::folder_;

TEST_F(EmbedTest, TextsThatBelongTogetherLieTogether) {
  const auto vectors = vectors_of("", "ba ce di\ndi ce ba\n\nmu lo ki je\n");
  ASSERT_EQ(vectors.size(), 4u);
  EXPECT_TRUE(vectors[2].empty()) << "an empty line has no vector";
  ASSERT_EQ(vectors[0].size(), 16u);
  EXPECT_NEAR(product(vectors[0], vectors[0]), 1, 1e-5);
  EXPECT_GT(product(vectors[0], vectors[1]), product(vectors[0], vectors[3]) + 0.2);
  // Alone as together.
  const auto alone = vectors_of(" --batch-size 1", "ba ce di\ndi ce ba\n\nmu lo ki je\n");
  for (size_t i = 0; i < vectors.size(); ++i) {
    for (size_t k = 0; k < vectors[i].size(); ++k) EXPECT_NEAR(alone[i][k], vectors[i][k], 1e-5);
  }
}

TEST_F(EmbedTest, AnArrayHoldsTheSameNumbers) {
  const std::string text = "ba ce di\nmu lo ki je\n";
  const auto vectors = vectors_of("", text);
  const std::string file = folder_->output("embed --model run --format npy", text);
  ASSERT_EQ(file.size() % 64, 2 * 16 * sizeof(float) % 64);
  EXPECT_EQ(file.substr(1, 5), "NUMPY");
  EXPECT_THAT(file, HasSubstr("'shape': (2, 16)"));
  std::vector<float> floats(2 * 16);
  const size_t bytes = floats.size() * sizeof(float);
  std::memcpy(floats.data(), file.data() + file.size() - bytes, bytes);
  for (size_t i = 0; i < floats.size(); ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(vectors[i / 16][i % 16]));
  }
  const auto failed = folder_->run("embed --model run --format npy", "ba\n\n");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, HasSubstr("[embed] line 2 is empty"));
}

// Each source's own target is the nearest of all targets as often as the validation says.
TEST_F(EmbedTest, TheValidationCountsWhatTheVectorsSay) {
  const auto sources = vectors_of("", read_file(folder_->path("valid.src")));
  const auto targets = vectors_of("", read_file(folder_->path("valid.tgt")));
  int found = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    bool first = true;
    for (size_t k = 0; k < targets.size(); ++k) {
      const bool nearer = product(sources[i], targets[k]) > product(sources[i], targets[i]);
      first &= targets[k] == targets[i] || !nearer;
    }
    found += first;
  }
  EXPECT_GE(found, 10) << "it learnt something";
  const double recall = 100. * found / static_cast<double>(sources.size());
  const Json figures = Json::parse(folder_->output("evaluate --json --model run --data valid"));
  EXPECT_DOUBLE_EQ(figures.at("recall_at_1"), recall);
  EXPECT_DOUBLE_EQ(folder_->metrics("run").back().at("recall_at_1"), recall);
  EXPECT_EQ(figures.at("pairs"), 20);
}

// The choice among the pairs of a batch is no word.
TEST_F(EmbedTest, TheLogHasNoPerplexity) {
  for (const char* file : {"run/train.log", "run/metrics.jsonl"}) {
    const std::string text = read_file(folder_->path(file));
    EXPECT_THAT(text, testing::AllOf(HasSubstr("nll"), testing::Not(HasSubstr("ppl")))) << file;
  }
}

TEST_F(EmbedTest, NegativesAreLearnt) {
  std::string lines;
  const auto sources = lines_of(read_file(folder_->path("train.src")));
  const auto targets = lines_of(read_file(folder_->path("train.tgt")));
  for (size_t i = 0; i < sources.size(); ++i) {
    lines += concat(sources[i], '\t', targets[i], '\t', targets[(i + 7) % targets.size()], '\n');
  }
  folder_->write("triplets.tsv", lines);
  const std::vector<std::string> data = {
      "data.train={tsv: triplets.tsv, negative_column: 3}",
      "data.valid={tsv: triplets.tsv, negative_column: 3, limit: 20}"};
  const auto train = [&](const std::string& run, std::vector<std::string> options) {
    options.insert(options.end(), data.begin(), data.end());
    return folder_->train("vectors", run, options);
  };
  ASSERT_EQ(train("whole", {"training.max_steps=12"}), 0) << folder_->messages();
  ASSERT_EQ(train("parts", {"training.max_steps=7"}), 0) << folder_->messages();
  ASSERT_EQ(train("parts", {"training.max_steps=12", "threads=2"}), 0) << folder_->messages();
  expect_equal(folder_->result("whole"), folder_->result("parts"));
  // Twice as many choices: a model that knows nothing has a larger loss.
  ASSERT_EQ(train("none", {"training.max_steps=1"}), 0) << folder_->messages();
  ASSERT_EQ(folder_->train("vectors", "without",
                           {"training.max_steps=1", "data.train={tsv: triplets.tsv}",
                            "data.valid={tsv: triplets.tsv, limit: 20}"}),
            0)
      << folder_->messages();
  EXPECT_GT(folder_->metrics("none").back().at("nll"),
            folder_->metrics("without").back().at("nll"));
}

TEST_F(EmbedTest, ScoresOfPairsAreLearnt) {
  // Alike: the share of common words.
  const std::vector<std::string> words = {"ba", "ce", "di", "fo", "gu", "ha"};
  const auto pairs_of = [&](int64_t count, uint64_t seed) {
    std::string lines;
    uint64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = [&](uint64_t below) { return philox_below({seed}, at++, below); };
      const std::string a = words[draw(6)], b = words[draw(6)];
      const std::string c = draw(2) == 0 ? a : words[draw(6)],
                        d = draw(2) == 0 ? b : words[draw(6)];
      lines += concat(a, ' ', b, '\t', c, ' ', d, '\t', (a == c) + (b == d), '\n');
    }
    return lines;
  };
  folder_->write("train.scores", pairs_of(400, 1));
  folder_->write("valid.scores", pairs_of(60, 2));
  const auto train = [&](const std::string& run, std::vector<std::string> options) {
    for (const std::string part : {"train", "valid"}) {
      options.push_back(concat("data.", part, "={tsv: ", part, ".scores, score_column: 3}"));
    }
    options.push_back("embedding={temperature: 0.1}");
    options.push_back("tokenizer.vocab_size=30");
    options.push_back("training.metric_for_best_model=spearman");
    return folder_->train("vectors", run, options);
  };
  ASSERT_EQ(train("scores", {"training.max_steps=200"}), 0) << folder_->messages();
  const Json figures = Json::parse(folder_->output("evaluate --json --model scores --data valid"));
  EXPECT_GT(figures.at("spearman").get<double>(), 0.6);
  // The command takes the best model.
  double best = -1;
  for (const auto& line : folder_->metrics("scores")) {
    best = std::max(best, line.value("spearman", -1.0));
  }
  EXPECT_DOUBLE_EQ(figures.at("spearman"), best);
  // The products of the vectors that the command writes.
  const auto lines = lines_of(read_file(folder_->path("valid.scores")));
  const auto vector = [&](const std::string& text) {
    return Json::parse(folder_->output("embed --model scores", text + '\n'))
        .get<std::vector<double>>();
  };
  const auto product_of = [&](const std::string& line) {
    const size_t tab = line.find('\t'), second = line.find('\t', tab + 1);
    return product(vector(line.substr(0, tab)), vector(line.substr(tab + 1, second - tab - 1)));
  };
  int64_t right = 0, all = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].back() == lines[0].back()) continue;
    right += (product_of(lines[i]) > product_of(lines[0])) == (lines[i].back() > lines[0].back());
    ++all;
  }
  EXPECT_GT(right, all / 2);
  // A model of other pairs can be judged by scores, too.
  const Json judged = Json::parse(
      folder_->output("evaluate --json --model run --data tsv=valid.scores score_column=3"));
  EXPECT_TRUE(judged.contains("spearman"));
  ASSERT_EQ(train("first", {"training.max_steps=7"}), 0) << folder_->messages();
  ASSERT_EQ(train("second", {"training.max_steps=12"}), 0) << folder_->messages();
  ASSERT_EQ(train("first", {"training.max_steps=12", "threads=2"}), 0) << folder_->messages();
  expect_equal(folder_->result("first"), folder_->result("second"));
}

TEST_F(EmbedTest, OtherModelsAndKeysAreRefused) {
  ASSERT_EQ(folder_->train("clm", "clm", {"training.max_steps=1"}), 0) << folder_->messages();
  const auto failed = folder_->run("embed --model clm", "ba\n");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, HasSubstr("[embed] expected a model of task embedding"));
  folder_->forget_messages();
  EXPECT_EQ(folder_->train("vectors", "other", {"training.label_smoothing=0.1"}), 2);
  EXPECT_THAT(folder_->messages(), HasSubstr("label_smoothing"));
}

}  // namespace
}  // namespace tapestry
