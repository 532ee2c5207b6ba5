// What the binary does with encoder-decoders: ensembles, forced prefixes, scores of words,
// alignments, and text with holes.
#include <gmock/gmock.h>

#include <cmath>
#include <iomanip>
#include <memory>

#include "apps/tasks/answers/alignment.h"
#include "apps/tasks/answers/translator.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

const std::string kSentences = "ba ce di\n\nlo mu ha ba\nfo\n";

/// The models are trained once, when they are first asked for.
class TranslateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { folder_ = std::make_unique<TinyRunFolder>("translate"); }
  static void TearDownTestSuite() { folder_.reset(); }

  static const std::string& trained(const std::string& run, const std::string& task,
                                    std::vector<std::string> overrides = {}) {
    if (!std::filesystem::exists(folder_->path(run))) {
      overrides.emplace_back("training.max_steps=120");
      EXPECT_EQ(folder_->train(task, run, overrides), 0) << folder_->messages();
    }
    return run;
  }
  static const std::string& one() {
    static const std::string run = "one";
    return trained(run, "translation");
  }
  static const std::string& two() {
    static const std::string run = "two";
    return trained(run, "translation", {"seed=2"});
  }
  /// Its positions end.
  static const std::string& learned() {
    static const std::string run = "learned";
    return trained(run, "translation", {"model.position_embedding=learned"});
  }
  static const std::string& recurrent() {
    static const std::string run = "recurrent";
    return trained(run, "translation",
                   {"model={type: rnn_attention, hidden_size: 24, encoder_layers: 1, "
                    "decoder_layers: 1}"});
  }
  static Lines translate(const std::string& options, const std::string& input = kSentences) {
    return lines_of(folder_->output(concat("translate ", options), input));
  }
  static std::vector<Json> objects(const std::string& options,
                                   const std::string& input = kSentences) {
    std::vector<Json> all;
    for (const std::string& line : translate(options + " --detail jsonl", input)) {
      all.push_back(Json::parse(line));
    }
    return all;
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> TranslateTest::folder_;

// Ensembles

TEST_F(TranslateTest, AModelTwiceIsTheModel) {
  const std::string twice = concat("--model ", one(), " --model ", one());
  for (const char* options : {"", " --beam-size 1", " --beam-size 4 --n-best 3",
                              " --do-sample --temperature 2 --seed 5"}) {
    EXPECT_EQ(translate(twice + options), translate(concat("--model ", one(), options))) << options;
  }
  // A model of weight 0 has no say.
  EXPECT_EQ(translate(concat("--model ", one(), " --model ", two(), " --weights 1,0")),
            translate(concat("--model ", one())));
  EXPECT_EQ(translate(concat("--model ", one(), " --model ", two(), " --weights 0,3")),
            translate(concat("--model ", two())));
}

// The tiny models leave no doubt about these translations, so that rounding does not change them.
TEST_F(TranslateTest, MatricesMayBeRounded) {
  const std::string model = concat("--model ", one(), " --max-length-ratio 1.5");
  EXPECT_EQ(translate(model + " --weights float32"), translate(model));
  const auto log_probability = [&](const std::string& options) {
    return objects(model + options)[0].at("translations")[0].at("log_probability").get<double>();
  };
  const double exact = log_probability("");
  for (const auto& [format, tolerance] :
       {std::pair(" --weights bfloat16", 0.02), {" --weights int8", 0.2}}) {
    SCOPED_TRACE(format);
    EXPECT_EQ(translate(model + format), translate(model));
    const double rounded = log_probability(format);
    EXPECT_NE(rounded, exact) << "nothing was rounded";
    EXPECT_NEAR(rounded, exact, tolerance);
  }
  // So few numbers to a layer do not make good what four bits lose: the longest line may end early.
  EXPECT_EQ(translate(model + " --weights int4").size(), translate(model).size());
  EXPECT_NE(log_probability(" --weights int4"), exact) << "nothing was rounded";
  // The format stands beside the shares of several models.
  const std::string both = concat("--model ", one(), " --model ", two(), " --max-length-ratio 1.5");
  for (const char* options : {" --weights int8,1,0", " --weights 1,0 --weights int8"}) {
    EXPECT_EQ(translate(both + options), translate(model + " --weights int8"));
  }
  const auto outcome = folder_->run(concat("translate --weights int3 ", model), kSentences);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("--weights: expected float32, bfloat16, int8, int4 or numbers, "
                        "got 'int3'"));
}

TEST_F(TranslateTest, EnsemblesMayMixModels) {
  const std::string models = concat("--model ", one(), " --model ", recurrent(), " --model ", two(),
                                    " --weights .5,.2,.3");
  const auto found = objects(models + " --beam-size 3 --n-best 2");
  ASSERT_EQ(found.size(), 4u);
  // `score` gives the log-probability that the search reports.
  std::string sources, targets;
  std::vector<double> expected;
  for (const Json& line : found) {
    for (const Json& translation : line.at("translations")) {
      sources += line.at("source").get<std::string>() + '\n';
      targets += translation.at("text").get<std::string>() + '\n';
      expected.push_back(translation.at("log_probability").get<double>());
    }
  }
  ASSERT_EQ(expected.size(), 6u);
  folder_->write("sources", sources);
  folder_->write("targets", targets);
  std::istringstream scores(
      folder_->output(concat("score ", models, " --source sources --target targets")));
  for (const double log_probability : expected) {
    double scored = 0, tokens = 0;
    scores >> scored >> tokens;
    // A text may have other tokens than those that were found.
    EXPECT_NEAR(scored, log_probability, 1e-3 * std::abs(log_probability) + 1e-3);
  }
}

// The log of the mean of the probabilities of each token.
TEST_F(TranslateTest, ScoreAveragesTheProbabilitiesOfEachToken) {
  const Translator models({{folder_->path(one()), folder_->path(recurrent())}, {3, 1}}, "cpu",
                          "test", kScoresPairs);
  ParallelCorpus pairs;
  const auto& tokenizer = *models.tokenizers().source;
  for (const auto& [source, target] :
       {std::pair{"ba ce di", "di ce ba"}, std::pair{"fo", "mu mu fo"}, std::pair{"gu", "ha"}}) {
    pairs.source.push_back(tokenizer.encode(source));
    pairs.target.push_back(tokenizer.encode(target));
  }
  const std::vector<Score> scores = score(models.models(), pairs, 2);
  for (int64_t i = 0; i < pairs.size(); ++i) {
    std::vector<int32_t> source(pairs.source[i].begin(), pairs.source[i].end());
    std::vector<int32_t> in(pairs.target[i].begin(), pairs.target[i].end()), out = in;
    source.push_back(kEosId);
    in.insert(in.begin(), kBosId);
    out.push_back(kEosId);
    const auto width = std::ssize(source), length = std::ssize(in);
    const PairInput input{Tensor::from(source, {1, width}),
                          Tensor::from<int32_t>({static_cast<int32_t>(width)}, {1}),
                          Tensor::from(in, {1, length})};
    const int64_t vocab = tokenizer.vocab_size();
    std::vector<double> means(out.size(), 0);
    for (size_t m = 0; m < 2; ++m) {
      const auto z = pair_logits(models.models().models[m], input).value().to_vector<float>();
      for (size_t t = 0; t < out.size(); ++t) {
        double total = 0;
        for (int64_t v = 0; v < vocab; ++v)
          total += std::exp(double(z[t * size_t(vocab) + size_t(v)]));
        means[t] +=
            (m == 0 ? .75 : .25) * std::exp(double(z[t * size_t(vocab) + size_t(out[t])])) / total;
      }
    }
    double expected = 0;
    for (const double mean : means) expected += std::log(mean);
    EXPECT_NEAR(scores[size_t(i)].log_probability, expected, 1e-4);
    EXPECT_EQ(scores[size_t(i)].tokens, length);
  }
}

TEST_F(TranslateTest, EnsemblesOfTextModelsContinueAndScore) {
  const std::string a = trained("clm", "clm"), b = trained("clm2", "clm", {"seed=2"});
  const std::string alone = concat("generate --no-do-sample --model ", a, " ");
  EXPECT_EQ(folder_->output(concat(alone, "--model ", a), kSentences),
            folder_->output(alone, kSentences));
  const std::string sampled = concat("generate --seed 3 --model ", a, " ");
  EXPECT_EQ(folder_->output(concat(sampled, "--model ", a), kSentences),
            folder_->output(sampled, kSentences));
  folder_->write("lines", "ba ce\n");
  const auto score = [&](const std::string& models) {
    return std::stod(folder_->output(concat("score --target lines ", models)));
  };
  const double x = score("--model clm"), y = score("--model clm2");
  EXPECT_NE(x, y);
  EXPECT_NEAR(score("--model clm --model clm"), x, 1e-4);
  EXPECT_NEAR(score("--model clm --model clm2 --weights 0,1"), y, 1e-4);
  const double both = score("--model clm --model clm2");
  EXPECT_GE(both, (x + y) / 2 - 1e-4) << "the mean of probabilities is above their geometric mean";
}

TEST_F(TranslateTest, WhatDoesNotFitTogetherIsRefused) {
  trained("small", "translation", {"tokenizer.vocab_size=38"});
  auto outcome = folder_->run(concat("translate --model ", one(), " --model small"), kSentences);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: [tokenizer] one/best and small/best must have the "
                                      "same vocabulary, got 40 and 38 pieces; "));
  for (const char* weights : {"1", "1,2,3", "-1,2", "0,0"}) {
    outcome = folder_->run(
        concat("translate --model ", one(), " --model ", two(), " --weights=", weights),
        kSentences);
    EXPECT_EQ(outcome.code, 2) << weights;
    EXPECT_THAT(outcome.err,
                StartsWith("error: [ensemble] expected 2 weights, one for each model"));
  }
  outcome = folder_->run(
      concat("score --model ", trained("clm", "clm"), " --model ", one(), " --target in"), "ba\n");
  EXPECT_EQ(outcome.code, 3);
}

// Prefixes

TEST_F(TranslateTest, TranslationsBeginWithTheirPrefix) {
  const std::string model = concat("--model ", one());
  const Lines free = translate(model);
  folder_->write("prefixes", "mu mu\nignored\n\nki\n");
  for (const char* options : {"", " --beam-size 1", " --beam-size 4 --n-best 2",
                              " --do-sample --seed 7", " --batch-size 1"}) {
    const auto lines = translate(concat(model, " --prefix prefixes", options));
    const size_t each = lines.size() == 8 ? 2 : 1;
    ASSERT_EQ(lines.size(), 4 * each) << options;
    for (size_t n = 0; n < each; ++n) {
      EXPECT_THAT(lines[n], StartsWith("mu mu")) << options;
      EXPECT_THAT(lines[3 * each + n], StartsWith("ki")) << options;
    }
    EXPECT_EQ(lines[each], "");
    // The column of the input is the same; a line without it has no prefix.
    EXPECT_EQ(translate(concat(model, " --prefix-column", options),
                        "ba ce di\tmu mu\n\tignored\nlo mu ha ba\nfo\tki\tmore\n"),
              lines)
        << options;
  }
  const auto plain = translate(concat(model, " --prefix prefixes"));
  EXPECT_EQ(plain[2], free[2]) << "an empty prefix changes nothing";
  // A prefix that the model finds by itself changes nothing, either.
  const Lines greedy = translate(concat(model, " --beam-size 1"));
  folder_->write("same", concat(greedy[0].substr(0, 2), "\n\n", greedy[2], '\n', greedy[3], '\n'));
  EXPECT_EQ(translate(concat(model, " --beam-size 1 --prefix same")), greedy);
}

TEST_F(TranslateTest, TheLogProbabilityCoversThePrefix) {
  folder_->write("prefixes", "mu mu\n\nki lo lo\nba\n");
  const std::string models = concat("--model ", one(), " --model ", recurrent());
  std::string sources, targets;
  std::vector<double> expected;
  for (const Json& line : objects(models + " --prefix prefixes")) {
    if (line.at("translations").empty()) continue;
    sources += line.at("source").get<std::string>() + '\n';
    targets += line["translations"][0].at("text").get<std::string>() + '\n';
    expected.push_back(line["translations"][0].at("log_probability"));
    EXPECT_THAT(line["translations"][0].at("text").get<std::string>(),
                StartsWith(line.at("prefix").get<std::string>()));
  }
  folder_->write("sources", sources);
  folder_->write("targets", targets);
  std::istringstream scores(
      folder_->output(concat("score ", models, " --source sources --target targets")));
  ASSERT_EQ(expected.size(), 3u);
  for (const double log_probability : expected) {
    double scored = 0, tokens = 0;
    scores >> scored >> tokens;
    EXPECT_NEAR(scored, log_probability, 1e-3);
  }
}

TEST_F(TranslateTest, PrefixesAndLinesMustBeAsMany) {
  folder_->write("prefixes", "ba\nce\n");
  auto outcome =
      folder_->run(concat("translate --prefix prefixes --model ", one()), "ba\nce\ndi\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "error: [translate] prefixes has 2 lines, the input has more.\n");
  outcome = folder_->run(concat("translate --prefix prefixes --model ", one()), "ba\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err,
            "error: [translate] prefixes has more lines than the input, which has 1.\n");
  EXPECT_EQ(lines_of(outcome.out).size(), 1u);
  std::string longer = "ba\tce\n\nba\t";
  for (int i = 0; i < 2000; ++i) longer += "ba ";
  outcome = folder_->run(concat("translate --prefix-column --model ", learned()), longer);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, StartsWith("error: [translate] the prefix of line 3 has "));
  EXPECT_THAT(outcome.err, HasSubstr(" tokens, the model writes at most "));
  outcome = folder_->run(concat("translate --prefix prefixes --prefix-column --model ", one()), "");
  EXPECT_EQ(outcome.code, 2);
}

// Scores of tokens and words

TEST_F(TranslateTest, DetailsHaveTheScoresOfTokensAndWords) {
  const auto found = objects(concat("--model ", one(), " --beam-size 4 --n-best 3"));
  const Lines plain = translate(concat("--model ", one(), " --beam-size 4 --n-best 3"));
  const Lines scored =
      translate(concat("--model ", one(), " --beam-size 4 --n-best 3 --word-scores"));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(found[1].at("translations").empty());
  size_t line = 0;
  for (const Json& object : found) {
    for (size_t n = 0; n < 3 && object["translations"].empty(); ++n) {
      EXPECT_EQ(scored.at(line++), "");
    }
    for (const Json& translation : object["translations"]) {
      std::vector<double> tokens = translation.at("token_log_probabilities");
      ASSERT_EQ(tokens.size(), translation.at("tokens").size());
      tokens.push_back(translation.at("end_log_probability"));
      double sum = 0, of_words = tokens.back();
      for (const double value : tokens) sum += value;
      EXPECT_NEAR(sum, translation.at("log_probability").get<double>(), 1e-9);
      std::string text;
      std::ostringstream numbers;
      numbers << std::fixed << std::setprecision(4);
      for (const Json& word : translation.at("words")) {
        of_words += word.at("log_probability").get<double>();
        text += (text.empty() ? "" : " ") + word.at("text").get<std::string>();
        numbers << word.at("log_probability").get<double>() << ' ';
      }
      numbers << tokens.back();
      EXPECT_NEAR(of_words, sum, 1e-9);
      EXPECT_EQ(text, translation.at("text").get<std::string>());
      EXPECT_EQ(text, plain.at(line));
      EXPECT_EQ(scored.at(line++), concat(text, '\t', numbers.str()));
    }
  }
}

// Alignments

TEST_F(TranslateTest, AlignmentsAreThoseOfTheAttention) {
  for (const std::string& run : {one(), recurrent()}) {
    const std::string models = concat("--model ", run, " --beam-size 3 --n-best 2 ");
    const Lines plain = translate(models);
    EXPECT_EQ(translate(models + "--alignments table"), plain);
    const Lines table = lines_of(read_file(folder_->path("table")));
    ASSERT_EQ(table.size(), plain.size());
    const Lines inside = translate(models + "--alignments -");
    const Translator loaded({{folder_->path(run)}}, "cpu", "test", kTranslates);
    const auto& tokenizer = *loaded.tokenizers().source;
    const Lines sources = {"ba ce di",    "ba ce di",    "",   "",
                           "lo mu ha ba", "lo mu ha ba", "fo", "fo"};
    size_t pairs = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      if (sources[i].empty()) {
        EXPECT_EQ(table[i], "");
        EXPECT_EQ(inside[i], "");
        continue;
      }
      EXPECT_EQ(inside[i], concat(plain[i], " ||| ", table[i]));
      const auto source = tokenizer.encode(sources[i]), target = tokenizer.encode(plain[i]);
      const auto weights = source_attention(loaded.models(), {source}, {target}, 0, 1);
      EXPECT_EQ(table[i],
                pharaoh(hard_alignment(
                    weights[0], word_numbers(tokenizer, placed_source(tokenizer, sources[i])),
                    word_numbers(tokenizer, placed_output(tokenizer, target)))));
      pairs += table[i].empty() ? 0 : 1;
    }
    EXPECT_GT(pairs, 0u) << "no token was aligned";
    const auto found = objects(models + "--alignments - --alignment-units tokens");
    for (const Json& translation : found.at(0).at("translations")) {
      for (const Json& pair : translation.at("alignment")) {
        EXPECT_LT(pair.at(0).get<size_t>(), tokenizer.encode("ba ce di").size());
        EXPECT_LT(pair.at(1).get<size_t>(), translation.at("tokens").size());
      }
    }
  }
  const auto outcome = folder_->run(
      concat("translate --alignments - --alignment-layer 2 --model ", one()), kSentences);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "error: [attention] expected a layer of the decoder in [1, 1], got 2.\n");
}

// The recurrent model learns the order of the words: the first of the output is the last of the
// input, where its attention is.
TEST_F(TranslateTest, AttentionFilesNameTokensAndLayers) {
  translate(concat("--model ", one(), " --model ", recurrent(), " --attention a.json"));
  const Json pages = Json::parse(read_file(folder_->path("a.json"))).at("pages");
  ASSERT_EQ(pages.size(), 3u);
  Lines names;
  for (const Json& map : pages[0].at("maps")) {
    names.push_back(map.at("name"));
    const auto tokens = [&](const Json& axis) -> size_t {
      for (const Json& other : pages[0].at("axes")) {
        if (other.at("name") == axis) return other.at("tokens").size();
      }
      return 0;
    };
    for (const Json& head : map.at("heads")) {
      ASSERT_EQ(head.size(), tokens(map.at("rows")));
      for (const Json& row : head) {
        ASSERT_EQ(row.size(), tokens(map.at("columns")));
        double sum = 0;
        for (const Json& weight : row) sum += weight.get<double>();
        EXPECT_NEAR(sum, 1, 1e-4);
      }
    }
  }
  EXPECT_EQ(names, (Lines{"model 1, encoder layer 1, self-attention",
                          "model 1, decoder layer 1, self-attention",
                          "model 1, decoder layer 1, cross-attention", "model 2, alignment"}));
  EXPECT_EQ(pages[0].at("axes")[0].at("tokens").back(), "</s>");
  EXPECT_EQ(pages[0].at("axes")[1].at("tokens").front(), "<s>");
  translate(concat("--model ", recurrent(), " --attention a.html"));
  EXPECT_THAT(read_file(folder_->path("a.html")), StartsWith("<!DOCTYPE html>"));
}

// Denoising

TEST_F(TranslateTest, HolesInTextAreSpecialTokens) {
  trained("span_corruption", "span_corruption");
  trained("infilling", "infilling");
  const auto tokens_of = [&](const std::string& command, const std::string& input) {
    folder_->output(command + " --attention a.json", input);
    const Json pages = Json::parse(read_file(folder_->path("a.json"))).at("pages");
    return pages.at(0).at("axes")[0].at("tokens").get<Lines>();
  };
  const std::string holes = "ba <extra_id_0> di <extra_id_1>\n", mask = "ba <mask> di\n";
  const Lines sentinels = {"<extra_id_0>", "<extra_id_1>"};
  for (const char* command : {"translate", "fill-mask"}) {
    Lines found = tokens_of(concat(command, " --model span_corruption"), holes);
    EXPECT_EQ(std::count(found.begin(), found.end(), sentinels[0]), 1) << command;
    EXPECT_EQ(std::count(found.begin(), found.end(), sentinels[1]), 1) << command;
    EXPECT_EQ(std::count(found.begin(), found.end(), "<unk>"), 0) << command;
    found = tokens_of(concat(command, " --model infilling"), mask);
    EXPECT_EQ(std::count(found.begin(), found.end(), "<mask>"), 1) << command;
  }
  // A translation model takes the words as letters, as it always did.
  for (const std::string& token : tokens_of(concat("translate --model ", one()), mask)) {
    EXPECT_NE(token, "<mask>");
  }
  folder_->write("sources", holes);
  folder_->write("targets", "<extra_id_0> ce <extra_id_1> fo <extra_id_2>\n");
  const std::string score =
      folder_->output("score --model span_corruption --source sources --target targets");
  const Translator loaded({{folder_->path("span_corruption")}}, "cpu", "test", kTranslates);
  const auto target =
      loaded.tokenizers().target->encode("<extra_id_0> ce <extra_id_1> fo <extra_id_2>");
  EXPECT_EQ(target.front(), *loaded.tokenizers().target->sentinel_id(0));
  EXPECT_THAT(score, HasSubstr(concat('\t', target.size() + 1, '\n')));
}

TEST_F(TranslateTest, FillMaskRestoresLines) {
  trained("span_corruption", "span_corruption");
  trained("infilling", "infilling");
  const std::string input = "ba <extra_id_0> di <extra_id_1>\n\nba ce\nlo <mask> mu\n";
  const Lines written = lines_of(folder_->output("translate --model span_corruption", input));
  const Lines filled = lines_of(folder_->output("fill-mask --model span_corruption", input));
  ASSERT_EQ(filled.size(), 4u);
  EXPECT_EQ(filled[1], "");
  EXPECT_EQ(filled[2], "ba ce");
  EXPECT_THAT(filled[0], StartsWith("ba "));
  // What the model wrote behind <extra_id_0> stands in the line.
  EXPECT_THAT(written[0], StartsWith("<extra_id_0>"));
  std::string first = written[0].substr(std::string("<extra_id_0>").size());
  first = first.substr(0, first.find(" <extra_id_"));
  EXPECT_THAT(filled[0], StartsWith(concat("ba", first, " di")));
  for (const std::string& line : filled) EXPECT_THAT(line, testing::Not(HasSubstr("<")));
  // Masks are numbered for it.
  EXPECT_EQ(
      lines_of(folder_->output("fill-mask --model span_corruption",
                               "lo <extra_id_0> mu <extra_id_1>\n")),
      lines_of(folder_->output("fill-mask --model span_corruption", "lo <mask> mu <mask>\n")));
  // The other kind writes the whole text.
  EXPECT_EQ(folder_->output("fill-mask --model infilling", "ba <mask> di\n\nlo mu\n"),
            folder_->output("translate --model infilling", "ba <mask> di\n\nlo mu\n"));
  EXPECT_EQ(folder_->output("fill-mask --beam-size 1 --model infilling", "ba <mask> di\n"),
            folder_->output("translate --beam-size 1 --model infilling", "ba <mask> di\n"));
  EXPECT_EQ(folder_->run("fill-mask --top-k 2 --model infilling", "ba\n").code, 2);
}

}  // namespace
}  // namespace tapestry
