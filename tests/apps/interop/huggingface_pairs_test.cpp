// Encoder-decoders of transformers with their own tokenizers: what they read and write is what
// transformers says (tests/fixtures/huggingface_pairs.py).
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/interop/huggingface_import.h"
#include "data/corpora/corpus.h"
#include "data/examples/denoising.h"
#include "data/files/files.h"
#include "data/files/utf8.h"
#include "data/tokenizers/languages.h"
#include "tests/apps/tiny_runs.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::string pair_fixture(const std::string& name) {
  return project_file("tests/fixtures/huggingface_text/" + name);
}

// The model translates the lines of `expected` to their texts.
void expect_translations_of(const TinyRunFolder& folder, const std::string& model,
                            const Json& expected, const std::string& options = "") {
  std::string lines;
  for (const Json& row : expected) lines += row["line"].get<std::string>() + '\n';
  // The twelve tokens of the fixtures, and an end, which our search forces.
  std::istringstream out(
      folder.output(concat("translate --beam-size 1 --no-repeat-ngram-size 2 --max-new-tokens 13 "
                           "--detail jsonl --model ",
                           model, ' ', options),
                    lines));
  for (const Json& row : expected) {
    std::string line;
    ASSERT_TRUE(std::getline(out, line));
    const Json translations = Json::parse(line)["translations"];
    EXPECT_EQ(translations.empty(), is_blank(row["line"].get<std::string>())) << row["line"];
    if (translations.empty()) continue;
    EXPECT_EQ(translations[0]["text"], row["text"]) << row["line"];
  }
}

const char* architecture_of(std::string_view folder) {
  if (folder == "nllb" || folder == "m2m100") return "m2m_100";
  return folder == "byt5" ? "t5" : folder.data();
}

class FoldersOfPairs : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }

  void expect_translations(const std::string& model) const {
    Json expected = Json::array();
    for (const Json& row : expected_) {
      // M2M100 gives the padding's token no place, even where a text spells it; ours does.
      const bool differs = std::string_view(architecture_of(GetParam())) == "m2m_100" &&
                           row["line"].get<std::string>().find("<pad>") != std::string::npos;
      if (!differs) expected.push_back(row);
    }
    expect_translations_of(folder_, path(model), expected);
  }

  TinyRunFolder folder_{"pairs"};
  Json expected_ = Json::parse(read_file(pair_fixture(GetParam()) + "/expected.json"));
};
INSTANTIATE_TEST_SUITE_P(Kinds, FoldersOfPairs,
                         testing::Values("marian", "bart", "mbart", "pegasus", "t5", "nllb",
                                         "m2m100", "byt5"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(FoldersOfPairs, ReadAndWriteAsTransformersDoes) {
  const auto imported = interop::import_folder(pair_fixture(GetParam()));
  const TokenizerPair& tokenizers = imported.tokenizers;
  EXPECT_TRUE(tokenizers.shared());
  const PairRows rows(tokenizers);
  for (const Json& row : expected_) {
    const auto line = row["line"].get<std::string>();
    EXPECT_EQ(in_frame(rows.source, tokenizers.source->encode(line)), row["ids"].get<Ids>())
        << row["line"];
    Ids target = row["target"].get<Ids>();
    if (target.back() != rows.eos) target.pop_back();  // a language, which follows no translation
    EXPECT_EQ(in_frame(rows.target, tokenizers.target->encode(line)), target) << row["line"];
    EXPECT_EQ(tokenizers.target->decode(row["written"].get<Ids>()), row["text"].get<std::string>())
        << row["line"];
  }
}

TEST_P(FoldersOfPairs, TranslateAsTransformersDoesAndGoHomeAsTheyCame) {
  folder_.output(concat("import ", pair_fixture(GetParam()), " --output ", path("imported")));
  expect_translations("imported");
  folder_.output(concat("export --model ", path("imported"), " --format huggingface --output ",
                        path("home"), " --architecture ", architecture_of(GetParam())));
  for (const char* file : {"source.spm", "target.spm", "vocab.json", "tokenizer.json",
                           "sentencepiece.bpe.model", "tokenizer_config.json"}) {
    const auto came = [&](const std::string& name) {
      return std::filesystem::exists(pair_fixture(GetParam()) + "/" + name);
    };
    // A tokenizer.json says all that the pieces say.
    const bool said = file == std::string_view("sentencepiece.bpe.model") && came("tokenizer.json");
    if (!came(file) || said) continue;
    EXPECT_EQ(read_file(path("home/") + file), read_file(pair_fixture(GetParam()) + "/" + file))
        << file;
  }
  folder_.output(concat("import ", path("home"), " --output ", path("again")));
  expect_translations("again");
}

// ---- languages

// A copy of the folder of NLLB's kind, some keys of whose tokenizer_config.json are others.
class ManyLanguages : public testing::Test {
 protected:
  void import(const Json& changes = Json::object()) const {
    const std::string folder = folder_.path("nllb"), file = folder + "/tokenizer_config.json";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(pair_fixture("nllb"), folder);
    Json config = Json::parse(read_file(file));
    config.update(changes);
    std::ofstream(file) << config.dump();
    std::filesystem::remove_all(folder_.path("imported"));
    folder_.output(concat("import ", folder, " --output ", folder_.path("imported")));
  }
  std::string error(const std::string& options) const {
    const auto outcome =
        folder_.run(concat("translate --model ", folder_.path("imported"), ' ', options), "A\n");
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  }

  TinyRunFolder folder_{"languages"};
};

TEST_F(ManyLanguages, AreChosenOnTheCommandLine) {
  import();
  const Json french = Json::parse(read_file(pair_fixture("nllb") + "/french.json"));
  expect_translations_of(folder_, folder_.path("imported"), french,
                         "--source-language fra_Latn --target-language eng_Latn");
}

TEST_F(ManyLanguages, AnUnknownOneIsRefusedWithTheNearest) {
  import();
  EXPECT_THAT(error("--target-language deu_Lat"),
              testing::HasSubstr("'deu_Lat', which is none of the model's 5 languages, such as "
                                 "'deu_Latn'"));
  EXPECT_THAT(error("--source-language zho"), testing::HasSubstr("such as 'zho_Hans'"));
}

TEST_F(ManyLanguages, WithoutATargetNothingIsWritten) {
  import({{"tgt_lang", nullptr}, { "src_lang", "fra_Latn" }});
  EXPECT_THAT(error(""), testing::HasSubstr("the model writes 5 languages, and "
                                            "generation.target_language (--target-language)"));
  const Json french = Json::parse(read_file(pair_fixture("nllb") + "/french.json"));
  expect_translations_of(folder_, folder_.path("imported"), french, "--target-language eng_Latn");
}

// Scores and measures are those of a language, too.
TEST_F(ManyLanguages, AreChosenForScoresAndMeasures) {
  import();
  folder_.write("en", "A man\nA dog\n");
  folder_.write("de", "Ein Mann\nEin Hund\n");
  const std::string model = folder_.path("imported");
  const std::string files = folder_.path("en"), target = folder_.path("de");
  const auto scores = [&](const std::string& options) {
    return folder_.output(
        concat("score --model ", model, " --source ", files, " --target ", target, ' ', options));
  };
  const auto measured = [&](const std::string& options) {
    return folder_.output(concat("evaluate --model ", model, " --data source=", files,
                                 " target=", target, ' ', options));
  };
  EXPECT_EQ(scores("--source-language eng_Latn --target-language deu_Latn"), scores(""));
  EXPECT_NE(scores("--target-language fra_Latn"), scores(""));
  EXPECT_NE(scores("--source-language fra_Latn"), scores(""));
  EXPECT_EQ(measured("--target-language deu_Latn"), measured(""));
  EXPECT_NE(measured("--target-language fra_Latn"), measured(""));
  const auto wrong = folder_.run(concat("score --model ", model, " --source ", files, " --target ",
                                        target, " --target-language deu"));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, testing::HasSubstr("such as 'deu_Latn'"));
}

// And so are the values by which a list of translations gets another order.
TEST_F(ManyLanguages, AreChosenForScorers) {
  import();
  folder_.write("en", "A man\n");
  folder_.write("de", "Ein Mann\n");
  folder_.write("list", "0 ||| Ein Mann ||| ||| 0\n");
  folder_.write("german", "scorers: {model: imported, direction: forward}\n");
  folder_.write("french",
                "scorers: {model: imported, direction: forward, source_language: fra_Latn, "
                "target_language: fra_Latn}\n");
  folder_.write("back",
                "scorers: {model: imported, direction: backward, source_language: deu_Latn, "
                "target_language: eng_Latn}\n");
  const auto value = [&](const std::string& file) {
    const std::string line =
        folder_.output(concat("rescore --source en --n-best list --format moses --scorers ", file));
    return std::stod(line.substr(line.rfind(' ')));
  };
  const auto score = [&](const std::string& options) {
    return std::stod(folder_.output(concat("score --model imported ", options)));
  };
  const double german = score("--source en --target de");
  EXPECT_NEAR(value("german"), german, 1e-4);
  EXPECT_GT(std::abs(value("french") - german), 1e-2);
  EXPECT_NEAR(value("french"),
              score("--source en --target de --source-language fra_Latn --target-language "
                    "fra_Latn"),
              1e-4);
  EXPECT_NEAR(value("back"),
              score("--source de --target en --source-language deu_Latn --target-language "
                    "eng_Latn"),
              1e-4);
  folder_.write("wrong", "scorers: {model: imported, direction: forward, target_language: deu}\n");
  const auto wrong = folder_.run("rescore --source en --n-best list --scorers wrong");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, testing::HasSubstr("such as 'deu_Latn'"));
}

// A training puts the languages of its config around its pairs, and its model keeps them.
TEST_F(ManyLanguages, StayWithATrainedModel) {
  import();
  folder_.write("en", "A man\nA dog\nTwo young people\n");
  folder_.write("de", "Ein Mann\nEin Hund\nZwei junge Leute\n");
  folder_.write("config.yaml",
                concat("task: translation\noutput_dir: ", folder_.path("run"), "\ninit_from: ",
                       folder_.path("nllb"), "\ndata:\n  train: {source: ", folder_.path("en"),
                       ", target: ", folder_.path("de"),
                       "}\ngeneration: {source_language: fra_Latn, target_language: ace_Arab}\n"
                       "training: {max_steps: 1, learning_rate: 1.0e-5}\n"));
  folder_.output(concat("train ", folder_.path("config.yaml")));
  folder_.output(concat("export --model ", folder_.path("run"), " --format huggingface --output ",
                        folder_.path("home")));
  const auto home = interop::import_folder(folder_.path("home"));
  const PairRows rows(home.tokenizers);
  const Tokenizer& tokenizer = *home.tokenizers.target;
  ASSERT_EQ(rows.source.before.size(), 1u);
  EXPECT_EQ(tokenizer.piece(rows.source.before[0]), "fra_Latn");
  ASSERT_EQ(rows.target.before.size(), 1u);
  EXPECT_EQ(tokenizer.piece(rows.target.before[0]), "ace_Arab");
  const Json config = Json::parse(read_file(folder_.path("home/tokenizer_config.json")));
  EXPECT_EQ(config["src_lang"], "fra_Latn");
  EXPECT_EQ(config["tgt_lang"], "ace_Arab");
}

// M2M100's languages stand behind its vocabulary, and their names lack the marks of their tokens.
TEST(FoldersOfM2m100, LanguagesAreChosenAndGoHome) {
  const TinyRunFolder folder("m2m100");
  const std::string imported = folder.path("imported");
  const auto first = folder.run(concat("import ", pair_fixture("m2m100"), " --output ", imported));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out + first.err,
              testing::HasSubstr("it knows 100 languages and writes '__de__'"));
  const TokenizerPair usual = interop::import_folder(pair_fixture("m2m100")).tokenizers;
  const TokenizerPair pair = with_languages(usual, {"fr", "zu"});
  EXPECT_EQ(pair.source->piece(pair.source->special().side().before[0]), "__fr__");
  EXPECT_EQ(pair.target->piece(pair.target->special().target().before[0]), "__zu__");
  EXPECT_EQ(pair.source->encode("A dog"), usual.source->encode("A dog"));
  folder.write("en", "A man\n");
  folder.write("config.yaml", concat("task: translation\noutput_dir: ", folder.path("run"),
                                     "\ninit_from: ", pair_fixture("m2m100"),
                                     "\ndata:\n  train: {source: ", folder.path("en"),
                                     ", target: ", folder.path("en"),
                                     "}\ngeneration: {source_language: fr, target_language: zu}\n"
                                     "training: {max_steps: 1, learning_rate: 1.0e-5}\n"));
  folder.output(concat("train ", folder.path("config.yaml")));
  folder.output(concat("export --model ", folder.path("run"), " --format huggingface --output ",
                       folder.path("home")));
  const Json config = Json::parse(read_file(folder.path("home/tokenizer_config.json")));
  EXPECT_EQ(config["src_lang"], "fr");
  EXPECT_EQ(config["tgt_lang"], "zu");
  const auto wrong = folder.run(concat("translate --target-language xx --model ", imported), "A\n");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, testing::HasSubstr("'xx', which is none of the model's 100 languages"));
}

// ---- T5

// Folders of older releases have only SentencePiece's file.
TEST(FoldersOfT5, PiecesWithoutATokenizerFileMeanTheSame) {
  const TinyRunFolder folder("t5_pieces");
  const std::string copy = folder.path("t5");
  std::filesystem::copy(pair_fixture("t5"), copy);
  std::filesystem::remove(copy + "/tokenizer.json");
  const auto imported = interop::import_folder(copy);
  const PairRows rows(imported.tokenizers);
  for (const Json& row : Json::parse(read_file(pair_fixture("t5") + "/expected.json"))) {
    EXPECT_EQ(
        in_frame(rows.source, imported.tokenizers.source->encode(row["line"].get<std::string>())),
        row["ids"].get<Ids>())
        << row["line"];
  }
}

TEST(FoldersOfT5, ANumberOfSentinelsThatIsNoneIsNamed) {
  const TinyRunFolder folder("t5_sentinels");
  const std::string copy = folder.path("t5"), file = copy + "/tokenizer_config.json";
  std::filesystem::copy(pair_fixture("t5"), copy);
  std::filesystem::remove(copy + "/tokenizer.json");
  for (const Json& wrong : {Json(-1), Json(20000), Json("many")}) {
    Json config = Json::parse(read_file(pair_fixture("t5") + "/tokenizer_config.json"));
    config["extra_ids"] = wrong;
    std::ofstream(file) << config.dump();
    const auto outcome = folder.run(concat("import ", copy, " --output ", folder.path("ours")));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, testing::HasSubstr(concat(file, " has extra_ids ", wrong.dump(),
                                                       ", expected a number from 0 to 10000")));
  }
}

// The first sentinel is the last token.
TEST(FoldersOfT5, DenoisingHasItsSentinels) {
  const auto imported = interop::import_folder(pair_fixture("t5"));
  const Tokenizer& tokenizer = *imported.tokenizers.source;
  const DenoisingVocabulary vocabulary(tokenizer, {});
  ASSERT_EQ(vocabulary.sentinels.size(), 12u);
  EXPECT_EQ(vocabulary.sentinels.front(), 171);
  EXPECT_EQ(vocabulary.sentinels.back(), 160);
  const TinyRunFolder folder("t5_denoising");
  folder.write("text", "A man in a blue shirt\nTwo young people\nThe dog runs.\n");
  folder.write("config.yaml", concat("task: denoising\noutput_dir: ", folder.path("run"),
                                     "\ninit_from: ", pair_fixture("t5"),
                                     "\ndata: {train: {text: ", folder.path("text"),
                                     "}}\ntraining: {max_steps: 1, learning_rate: 1.0e-5}\n"));
  folder.output(concat("train ", folder.path("config.yaml")));
  folder.output(concat("export --model ", folder.path("run"), " --format huggingface --output ",
                       folder.path("home")));
  const Json config = Json::parse(read_file(folder.path("home/config.json")));
  EXPECT_EQ(config["model_type"], "t5");
  EXPECT_EQ(config["decoder_start_token_id"], 0);
  EXPECT_FALSE(config.contains("forced_eos_token_id"));  // the class has none
  EXPECT_EQ(read_file(folder.path("home/tokenizer.json")),
            read_file(pair_fixture("t5") + "/tokenizer.json"));
}

}  // namespace
}  // namespace tapestry
