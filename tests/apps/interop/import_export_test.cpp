// tapestry import and export on trained models: what comes back is what went out.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class ExchangeCommands : public testing::Test {
 protected:
  void train(const std::string& task, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> overrides = {"training.max_steps=20"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    ASSERT_EQ(folder_.train(task, "run", overrides), 0) << folder_.messages();
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  void export_to(const std::string& name, const std::string& more = "") const {
    folder_.output(concat("export --model ", path("run"), " --output ", path(name), ' ', more));
  }
  void import_from(const std::string& name, const std::string& to) const {
    folder_.output(concat("import ", path(name), " --output ", path(to)));
  }
  nlohmann::json json(const std::string& name) const {
    return nlohmann::json::parse(read_file(path(name)));
  }

  TinyRunFolder folder_{"exchange"};
};

TEST_F(ExchangeCommands, ATranslationModelGoesOutAndComesBack) {
  train("translation");
  export_to("theirs");
  EXPECT_EQ(json("theirs/config.json")["model_type"], "marian");
  EXPECT_EQ(json("theirs/generation_config.json")["decoder_start_token_id"], 2);
  import_from("theirs", "back");
  const std::string lines = "ba ce di\nfo gu\n";
  const auto translate = [&](const std::string& model) {
    return folder_.output(concat("translate --model ", path(model)), lines);
  };
  EXPECT_EQ(translate("back"), translate("run"));
  const auto outcome =
      folder_.run(concat("export --model ", path("run"), " --output ", path("theirs")));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("exists; choose another --output"));
}

// They are added to the matrices beside them.
TEST_F(ExchangeCommands, AdaptersGoOutMerged) {
  ASSERT_EQ(
      folder_.train("translation", "run",
                    {"training.lora={rank: 2, target: [\"*\"]}", "training.learning_rate=0.1"}),
      0)
      << folder_.messages();
  export_to("theirs");
  import_from("theirs", "back");
  const auto score = [&](const std::string& model) {
    std::istringstream in(
        folder_.output(concat("score --model ", path(model), " --source ", path("valid.src"),
                              " --target ", path("valid.tgt"))));
    std::vector<double> scores;
    for (std::string line; std::getline(in, line);) scores.push_back(std::stod(line));
    return scores;
  };
  const std::vector<double> adapted = score("run"), merged = score("back");
  ASSERT_EQ(adapted.size(), merged.size());
  for (size_t i = 0; i < adapted.size(); ++i) EXPECT_NEAR(adapted[i], merged[i], 1e-3) << i;
}

// Adapters beside a folder of theirs, to PEFT's folder and on from there.
TEST_F(ExchangeCommands, AdaptersGoOutAndComeBack) {
  const std::vector<std::string> like_gpt2 = {"model.norm_position=pre",
                                              "model.scale_embeddings=false"};
  train("clm", like_gpt2);
  export_to("theirs");
  const auto adapt = [&](const std::string& to, const std::string& from) {
    std::vector<std::string> options = {"training.lora={rank: 2, target: [\"*\"]}",
                                        "training.max_steps=8", "training.learning_rate=0.1",
                                        "tokenizer={}", "init_from=" + path(from)};
    options.insert(options.end(), like_gpt2.begin(), like_gpt2.end());
    return folder_.train("clm", to, options);
  };
  ASSERT_EQ(adapt("adapted", "theirs"), 0) << folder_.messages();
  folder_.output(
      concat("export --model ", path("adapted"), " --format peft --output ", path("peft")));
  EXPECT_EQ(json("peft/adapter_config.json")["base_model_name_or_path"], path("theirs"));
  EXPECT_FALSE(std::filesystem::exists(path("peft/config.json")));
  import_from("peft", "back");
  const auto score = [&](const std::string& model) {
    return folder_.output(concat("score --model ", path(model), " --target ", path("valid.tgt")));
  };
  EXPECT_EQ(score("back"), score("adapted"));
  EXPECT_NE(score("back"), score("run"));
  EXPECT_EQ(adapt("further", "peft"), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("parameters from"));
}

TEST_F(ExchangeCommands, ATrainingBeginsWithAFolder) {
  train("translation");
  export_to("theirs");
  EXPECT_EQ(folder_.train("translation", "next",
                          {"training.max_steps=1", "tokenizer={}", "init_from=" + path("theirs")}),
            0)
      << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr("parameters from"));
}

// Of our own tokenizers, too.
TEST_F(ExchangeCommands, TokenizerJsonStandsForItsModel) {
  train("translation");
  export_to("theirs");
  for (const char* side : {"source", "target"}) {
    std::filesystem::remove(path(concat("theirs/", side, ".model")));
  }
  import_from("theirs", "back");
  EXPECT_EQ(read_file(path("back/tokenizer.json")), read_file(path("theirs/tokenizer.json")));
  const std::string lines = "ba ce di\nfo gu\n";
  EXPECT_EQ(folder_.output(concat("translate --model ", path("back")), lines),
            folder_.output(concat("translate --model ", path("run")), lines));
}

TEST_F(ExchangeCommands, AFolderWithAnUnknownTokenizerIsRefused) {
  train("translation");
  export_to("theirs");
  for (const char* side : {"source", "target"}) {
    std::filesystem::remove(path(concat("theirs/", side, ".model")));
  }
  std::filesystem::rename(path("theirs/tokenizer.json"), path("theirs/sentencepiece.bpe.model"));
  const auto outcome = folder_.run(concat("import ", path("theirs"), " --output ", path("back")));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("must have a tokenizer that Tapestry reads"));
  EXPECT_THAT(outcome.err, HasSubstr("got sentencepiece.bpe.model"));
  EXPECT_FALSE(std::filesystem::exists(path("back")));
}

// The pieces of another model have no rows in this one.
TEST_F(ExchangeCommands, ATokenizerOfAnotherVocabularyIsRefused) {
  const std::string one = "tokenizer.target_normalization=nmt_nfkc";
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=1", one}), 0)
      << folder_.messages();
  export_to("theirs");
  ASSERT_EQ(folder_.train("translation", "other",
                          {"training.max_steps=1", "tokenizer.vocab_size=48", one}),
            0)
      << folder_.messages();
  std::filesystem::copy(path("other/last/tokenizer.model"), path("theirs/tokenizer.model"),
                        std::filesystem::copy_options::overwrite_existing);
  const auto outcome = folder_.run(concat("import ", path("theirs"), " --output ", path("back")));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              testing::ContainsRegex("tokenizer.model has [0-9]+ pieces, the model has "
                                     "[0-9]+ rows for them"));
  EXPECT_FALSE(std::filesystem::exists(path("back")));
}

}  // namespace
}  // namespace tapestry
