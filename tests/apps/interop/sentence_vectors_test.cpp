// Folders of sentence-transformers: which modules, limits and heads they may have, and what is
// said of the rest.
#include "apps/interop/sentence_vectors.h"

#include <gmock/gmock.h>

#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Record = nlohmann::json;

Record module(const std::string& type, const std::string& path) {
  return {{"path", path}, {"type", "sentence_transformers.models." + type}};
}

const Record kTransformer = module("Transformer", ""), kPooling = module("Pooling", "1_Pooling"),
             kNormalize = module("Normalize", "2_Normalize");

/// A fixture whose token vectors are pooled.
class PooledFolder : public BrokenFolder {
 public:
  explicit PooledFolder(const std::string& name) : BrokenFolder(name) {
    put("modules.json", {kTransformer, kPooling, kNormalize});
    fs::create_directories(path() + "/1_Pooling");
    put("1_Pooling/config.json", {{"pooling_mode", "mean"}});
  }
  void put(const std::string& file, const Record& content) const {
    write_file(path() + '/' + file, content.dump());
  }
  Reasons notes() const { return import_model(path()).notes; }
};

TEST(SentenceVectors, TheModulesAreAListInOrder) {
  const PooledFolder folder("bert");
  EXPECT_EQ(folder.error(), "");
  folder.put("modules.json", {kTransformer, kPooling});
  EXPECT_EQ(folder.error(), "");
  const std::pair<Record, std::string> wrong[] = {
      {{kTransformer, kNormalize, kPooling},
       "Transformer, Normalize in '2_Normalize', Pooling in '1_Pooling'"},
      {{kPooling, kTransformer}, "Pooling in '1_Pooling', Transformer"},
      {{kTransformer, kPooling, kPooling}, "Transformer, Pooling in '1_Pooling', Pooling"},
      {{kTransformer, kPooling, kNormalize, kNormalize}, "Normalize in '2_Normalize', Normalize"},
      {Record::array({kTransformer}), "Transformer, expected"},
      {{module("Transformer", "0_Transformer"), kPooling}, "Transformer in '0_Transformer', Pool"},
      {{kTransformer, kPooling, 3}, "Pooling in '1_Pooling', one without a type"},
      {Record::array(), "none"}};
  for (const auto& [modules, listed] : wrong) {
    folder.put("modules.json", modules);
    EXPECT_THAT(folder.error(),
                AllOf(HasSubstr("/modules.json has the modules "), HasSubstr(listed),
                      HasSubstr("expected Transformer in the folder itself, Pooling and perhaps")))
        << modules;
  }
}

TEST(SentenceVectors, AHeadInTheFileIsLeftOut) {
  for (const auto& [name, part] : {std::pair{"bert", "cls.predictions.transform.dense.weight"},
                                   std::pair{"bert_classes", "classifier.weight"},
                                   std::pair{"bert_questions", "qa_outputs.weight"},
                                   std::pair{"roberta_classes", "classifier.dense.weight"},
                                   std::pair{"distilbert", "vocab_transform.weight"}}) {
    SCOPED_TRACE(name);
    const PooledFolder folder(name);
    const ImportedModel model = import_model(folder.path());
    EXPECT_STREQ(model.config.task->name, "embedding");
    EXPECT_THAT(model.notes, Contains(AllOf(HasSubstr("vectors of texts have no head: left out"),
                                            HasSubstr(part))));
    for (const TensorToWrite& tensor : model.tensors) {
      EXPECT_FALSE(tensor.name.starts_with("head.") || tensor.name.starts_with("classifier."))
          << tensor.name;
      // RoBERTa's pooler is a part of the head, BERT's of the model.
      EXPECT_FALSE(std::string(name) == "roberta_classes" && tensor.name.starts_with("pooler"));
    }
  }
  const PooledFolder folder("bert");
  folder.add_like("bert.embeddings.LayerNorm.bias", "unknown.bias", 1);
  EXPECT_THAT(folder.error(), HasSubstr("tensor unknown.bias has no place in Tapestry"));
}

TEST(SentenceVectors, WeightsInAFolderOfTheirOwnAreNamed) {
  const PooledFolder folder("bert");
  const std::string part = folder.path() + "/0_Transformer/";
  fs::create_directories(part);
  folder.put("modules.json", {module("Transformer", "0_Transformer"), kPooling});
  for (const char* file : {"model.safetensors", "config.json"}) {
    fs::rename(folder.path() + '/' + file, part + file);
    EXPECT_TRUE(is_huggingface_folder(folder.path())) << file;
    EXPECT_THAT(folder.error(),
                HasSubstr("has its weights in 0_Transformer/, as modules.json says"));
  }
}

TEST(SentenceVectors, LimitsOfAWrongKindAreRefused) {
  const PooledFolder folder("bert");
  const auto error_with = [&](const Record& limits) {
    folder.put("sentence_bert_config.json", limits);
    return folder.error();
  };
  EXPECT_EQ(error_with({{"max_seq_length", nullptr}, {"do_lower_case", false}}), "");
  EXPECT_EQ(error_with({{"max_seq_length", 7}}), "");
  for (const Record& length : {Record(0), Record(-3), Record("12"), Record(7.5), Record(true)}) {
    EXPECT_THAT(
        error_with({{"max_seq_length", length}}),
        HasSubstr(concat("max_seq_length ", length.dump(), ", expected an integer from 1")));
  }
  EXPECT_THAT(error_with({{"do_lower_case", "yes"}}),
              HasSubstr("do_lower_case \"yes\", expected true or false"));
}

TEST(SentenceVectors, APromptIsTold) {
  const PooledFolder folder("bert");
  const char* const file = "config_sentence_transformers.json";
  const auto about_prompts = Contains(HasSubstr("prompt"));
  folder.put(file, {{"prompts", {{"query", ""}, {"document", ""}}}});
  EXPECT_THAT(folder.notes(), Not(about_prompts));
  folder.put(file, {{"prompts", {{"query", "query: "}, {"document", ""}}}});
  EXPECT_THAT(folder.notes(),
              Contains(HasSubstr("prompts that belong before texts (query: \"query: \")")));
  folder.put("1_Pooling/config.json", {{"pooling_mode", "mean"}, {"include_prompt", false}});
  EXPECT_THAT(folder.notes(), Contains(HasSubstr("1_Pooling/config.json has include_prompt")));
}

TEST(SentenceVectors, AnOtherOrderThanTheCosinesIsTold) {
  const PooledFolder folder("bert");
  const auto told = [&](const std::string& name, const Record& modules) {
    folder.put("modules.json", modules);
    folder.put("config_sentence_transformers.json", {{"similarity_fn_name", name}});
    const Reasons notes = folder.notes();
    return std::ranges::any_of(notes, [&](const std::string& note) {
      return note.find(concat("compares vectors by \"", name, '"')) != std::string::npos;
    });
  };
  const Record units = {kTransformer, kPooling, kNormalize}, any = {kTransformer, kPooling};
  EXPECT_FALSE(told("cosine", any));
  EXPECT_TRUE(told("dot", any));
  EXPECT_FALSE(told("dot", units));
  EXPECT_TRUE(told("euclidean", any));
  EXPECT_FALSE(told("euclidean", units));
  EXPECT_TRUE(told("manhattan", units));
}

// As Qwen3-Embedding, which pools the last token.
TEST(SentenceVectors, ADecoderSaysThatItMakesVectorsElsewhere) {
  const PooledFolder folder("qwen3");
  folder.put("1_Pooling/config.json", {{"pooling_mode_lasttoken", true}});
  EXPECT_THAT(folder.notes(), Contains(AllOf(HasSubstr("makes vectors of texts (modules.json)"),
                                             HasSubstr("its model of task clm"))));
  fs::remove(folder.path() + "/modules.json");
  EXPECT_THAT(folder.notes(), Not(Contains(HasSubstr("modules.json"))));
}

}  // namespace
}  // namespace tapestry::interop
