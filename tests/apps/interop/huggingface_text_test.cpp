// Folders of transformers with their own tokenizers, through the commands: the figures are those of
// transformers (tests/fixtures/huggingface_text.py).
#include <gmock/gmock.h>
#include <filesystem>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/interop/huggingface_import.h"
#include "data/files/files.h"
#include "tests/apps/tiny_runs.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

std::string fixture(const std::string& name) {
  return project_file("tests/fixtures/huggingface_text/" + name);
}

class FoldersWithTokenizers : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  void import_from(const std::string& from, const std::string& to) const {
    folder_.output(concat("import ", from, " --output ", path(to)));
  }
  // The lines of the fixture, one a line.
  std::string lines() const {
    std::string text;
    for (const Json& row : expected_) text += row["line"].get<std::string>() + '\n';
    return text;
  }
  // What the model says is what transformers says.
  void expect_figures(const std::string& model) const {
    const bool causal = expected_[0].contains("score");
    std::istringstream out(folder_.output(
        concat(causal ? "score --target -" : "fill-mask --top-k 3", " --model ", path(model)),
        lines()));
    for (const Json& row : expected_) {
      std::string line;
      ASSERT_TRUE(std::getline(out, line));
      std::istringstream words(line);
      if (causal) {
        double score = 0;
        int64_t tokens = 0;
        words >> score >> tokens;
        EXPECT_NEAR(score, row["score"], 1e-3) << row["line"];
        EXPECT_EQ(tokens, row["tokens"]);
        continue;
      }
      std::vector<double> found;
      for (std::string word; words >> word;) {
        if (word.size() == 6 && word.starts_with("0.")) found.push_back(std::stod(word));
      }
      ASSERT_EQ(found.size(), row["probabilities"].size()) << line;
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], row["probabilities"][i], 1e-4) << line;
      }
    }
  }

  TinyRunFolder folder_{"folders"};
  Json expected_ = Json::parse(read_file(fixture(GetParam()) + "/expected.json"));
};
INSTANTIATE_TEST_SUITE_P(Kinds, FoldersWithTokenizers,
                         testing::Values("gpt2", "llama", "bert", "roberta", "gpt_neox", "gemma2",
                                         "xlm_roberta", "camembert", "gptj", "phi3", "cohere2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(FoldersWithTokenizers, GiveTheFiguresOfTransformers) {
  import_from(fixture(GetParam()), "imported");
  expect_figures("imported");
  EXPECT_EQ(read_file(path("imported/tokenizer.json")),
            read_file(fixture(GetParam()) + "/tokenizer.json"));
  if (!expected_[0].contains("score")) return;
  std::istringstream out(folder_.output(
      concat("generate --no-do-sample --beam-size 1 --max-new-tokens 8 --detail jsonl --model ",
             path("imported")),
      lines()));
  for (const Json& row : expected_) {
    std::string line;
    ASSERT_TRUE(std::getline(out, line));
    EXPECT_EQ(Json::parse(line)["continuations"][0]["tokens"], row["continuation"]) << row["line"];
  }
}

// Imported, exported and imported again; transformers itself reads such folders in
// tests/bench/there_and_back.py.
TEST_P(FoldersWithTokenizers, ComeHomeAsTheyWere) {
  import_from(fixture(GetParam()), "imported");
  folder_.output(concat("export --model ", path("imported"),
                        " --format huggingface --architecture ",
                        GetParam() == std::string("xlm_roberta") ? "xlm-roberta" : GetParam(),
                        " --output ", path("home")));
  EXPECT_EQ(read_file(path("home/tokenizer.json")),
            read_file(fixture(GetParam()) + "/tokenizer.json"));
  const Json before = Json::parse(read_file(fixture(GetParam()) + "/config.json"));
  const Json after = Json::parse(read_file(path("home/config.json")));
  EXPECT_EQ(after["vocab_size"], before["vocab_size"]);
  EXPECT_EQ(after["eos_token_id"].is_number() && before["eos_token_id"].is_number()
                ? after["eos_token_id"]
                : Json(),
            before["eos_token_id"].is_number() ? before["eos_token_id"] : Json());
  if (std::filesystem::exists(path("home/generation_config.json"))) {
    const Json generation = Json::parse(read_file(path("home/generation_config.json")));
    EXPECT_NE(generation.value("bad_words_ids", Json(1)), Json::array());  // an error over there
  }
  import_from(path("home"), "again");
  expect_figures("again");
}

// A training goes on from a folder, with its tokenizer.
TEST_P(FoldersWithTokenizers, CanBeTrainedOn) {
  import_from(fixture(GetParam()), "imported");
  const Json imported = Json::parse(read_file(path("imported/config.json")));
  write_file(path("some.txt"), "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  const Json config = {{"task", imported["task"]},
                       {"output_dir", path("run")},
                       {"init_from", fixture(GetParam())},
                       {"model", imported["model"]},
                       {"data", {{"train", {{"text", path("some.txt")}}}, {"block_size", 8}}},
                       {"training",
                        {{"batch_type", "sentences"},
                         {"batch_size", 2},
                         {"max_steps", 2},
                         {"learning_rate", 1e-3}}}};
  write_file(path("next.yaml"), config.dump());
  const auto outcome = folder_.run(concat("train ", path("next.yaml")));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_file(path("run/last/tokenizer.json")),
            read_file(fixture(GetParam()) + "/tokenizer.json"));
  const auto resumed = folder_.run(concat("train ", path("next.yaml"), " training.max_steps=3"));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

// Folders of older releases have only SentencePiece's file, whose ids are not the model's.
TEST(FoldersOfFairseq, PiecesWithoutATokenizerFileMeanTheSame) {
  for (const std::string name : {"xlm_roberta", "camembert"}) {
    const TinyRunFolder folder("fairseq_pieces");
    const std::string copy = folder.path(name);
    std::filesystem::copy(fixture(name), copy);
    std::filesystem::remove(copy + "/tokenizer.json");
    const auto imported = interop::import_folder(copy);
    const Tokenizer& tokenizer = *imported.tokenizers.source;
    const std::vector<int32_t> second = tokenizer.encode("A dog");
    for (const Json& row : Json::parse(read_file(fixture(name) + "/ids.json"))) {
      const std::vector<int32_t> ids = tokenizer.encode(row["line"].get<std::string>());
      EXPECT_EQ(in_frame(tokenizer.special().classified(), ids),
                row["ids"].get<std::vector<int32_t>>())
          << name << row["line"];
      EXPECT_EQ(in_frame(tokenizer.special().question(), ids, second).ids,
                row["pair"].get<std::vector<int32_t>>())
          << name << row["line"];
    }
    write_file(copy + "/sentencepiece.bpe.model",
               read_file(project_file("tests/fixtures/tokenizers/llama2/tokenizer.model")));
    const auto outcome = folder.run(concat("import ", copy, " --output ", folder.path("never")));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, testing::HasSubstr(concat(copy, "/sentencepiece.bpe.model must be ",
                                                       "a unigram model that begins with <unk>")));
  }
}

// The tokenizer tells where its tokens stand, so that answers can be parts of a text.
TEST(FolderOfBert, LearnsToAnswerQuestions) {
  const TinyRunFolder folder("questions");
  folder.output(concat("import ", fixture("bert"), " --output ", folder.path("imported")));
  Json imported = Json::parse(read_file(folder.path("imported/config.json")));
  imported["model"].erase("masked_head");  // this task fills no masks
  ASSERT_EQ(folder.train(
                "questions", "run",
                {"init_from=" + fixture("bert"), "tokenizer={}", "training.max_steps=2",
                 "data.max_length=40", "data.doc_stride=16", "model=" + imported["model"].dump()}),
            0)
      << folder.messages();
  const std::string context = "The caf\u00e9 HAS a m\u00e4n in a blue shirt";
  const Json answer = Json::parse(
      folder.output(concat("answer --jsonl --detail jsonl --model ", folder.path("run")),
                    Json{{"question", "Who?"}, {"context", context}}.dump() + "\n"));
  EXPECT_THAT(context, testing::HasSubstr(answer["answers"][0]["text"].get<std::string>()));
  EXPECT_FALSE(answer["answers"][0]["text"].get<std::string>().empty());
}

}  // namespace
}  // namespace tapestry
