// Folders of sentence-transformers: which modules, limits and heads they may have, and what is
// said of the rest.
#include "apps/interop/sentence_vectors.h"

#include <gmock/gmock.h>

#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"
#include "tests/paths.h"

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
      {{{{"path", ""}, {"type", "custom_st.Transformer"}}, kPooling},
       "custom_st.Transformer, Pool"},
      {{{{"path", ""}, {"type", kTransformer["type"]}, {"kwargs", {"task"}}}, kPooling},
       "sentence_transformers.models.Transformer with kwargs, Pooling"},
      {Record::array(), "none"}};
  for (const auto& [modules, listed] : wrong) {
    folder.put("modules.json", modules);
    EXPECT_THAT(folder.error(),
                AllOf(HasSubstr("/modules.json has the modules "), HasSubstr(listed),
                      HasSubstr("expected Transformer in the folder itself, Pooling, and perhaps")))
        << modules;
  }
}

// As LaBSE, whose dense layer has a file of its own.
class DenseFolder : public PooledFolder {
 public:
  DenseFolder() : PooledFolder("bert") {
    put("modules.json",
        {kTransformer, kPooling, module("Dense", "2_Dense"), module("Normalize", "3_Normalize")});
    fs::create_directories(path() + "/2_Dense");
    put("2_Dense/config.json", layer());
    weights({5, kHidden}, {5});
  }
  static Record layer() {
    return {{"in_features", kHidden},
            {"out_features", 5},
            {"bias", true},
            {"activation_function", "torch.nn.modules.activation.Tanh"}};
  }
  void weights(const Shape& matrix, const Shape& bias) const {
    const auto numbers = [](const Shape& shape) {
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = 0.01F * static_cast<float>(i % 17) - 0.07F;
      return Tensor::from(values, shape);
    };
    std::string bytes;
    write_safetensors({{"linear.weight", numbers(matrix)}, {"linear.bias", numbers(bias)}}, {},
                      [&](const void* part, size_t count) {
                        bytes.append(static_cast<const char*>(part), count);
                      });
    write_file(path() + "/2_Dense/model.safetensors", bytes);
  }
  static constexpr int64_t kHidden = 16;
};

TEST(SentenceVectors, ADenseLayerComesAndGoesHome) {
  const DenseFolder folder;
  const ImportedModel model = import_model(folder.path());
  EXPECT_EQ(model.config.model.vector_size, 5);
  EXPECT_TRUE(model.config.model.vector_tanh);
  const auto named = [&](const char* name) {
    return *std::ranges::find(model.tensors, std::string(name), &TensorToWrite::name);
  };
  EXPECT_EQ(named("dense.weight").shape, (Shape{5, 16}));
  EXPECT_FLOAT_EQ(named("dense.bias").content().data<float>()[2], -0.05F);

  const TinyRunFolder run("vectors");
  ASSERT_EQ(run.train("vectors", "run",
                      {"training.max_steps=3", "model.vector_size=6", "model.embedding_norm=true"}),
            0)
      << run.messages();
  const std::string vector = run.output("embed --model run", "ba ce\n");
  EXPECT_EQ(Record::parse(vector).size(), 6u) << vector;
  run.output("export --model run --output home --architecture bert");
  const Record layer = Record::parse(read_file(run.path("home/2_Dense/config.json")));
  EXPECT_EQ(layer["out_features"], 6);
  EXPECT_EQ(layer["activation_function"], "torch.nn.modules.activation.Tanh");
  run.output("import home --output back");
  EXPECT_EQ(run.output("embed --model back", "ba ce\n"), vector);
  run.output("export --model back --output again");
  for (const char* file : {"modules.json", "2_Dense/config.json", "2_Dense/model.safetensors"}) {
    EXPECT_EQ(read_file(run.path(concat("again/", file))),
              read_file(run.path(concat("home/", file))));
  }
}

TEST(SentenceVectors, ADenseLayerOfAnotherKindIsRefused) {
  const DenseFolder folder;
  const auto error_with = [&](const char* key, const Record& value) {
    Record layer = DenseFolder::layer();
    layer[key] = value;
    folder.put("2_Dense/config.json", layer);
    return folder.error();
  };
  EXPECT_EQ(error_with("activation_function", "torch.nn.modules.linear.Identity"), "");
  EXPECT_THAT(error_with("activation_function", "torch.nn.modules.activation.ReLU"),
              HasSubstr("has activation_function torch.nn.modules.activation.ReLU, Tapestry Tanh"));
  EXPECT_THAT(error_with("out_features", "many"), HasSubstr("out_features \"many\", expected"));
  EXPECT_THAT(error_with("out_features", 4),
              HasSubstr("(5, 16) as linear.weight, expected (4, 16)"));
  EXPECT_THAT(error_with("bias", false), HasSubstr("has a tensor linear.bias, which has no place"));
  folder.put("2_Dense/config.json", DenseFolder::layer());
  fs::remove(folder.path() + "/2_Dense/model.safetensors");
  EXPECT_THAT(folder.error(), HasSubstr("2_Dense/model.safetensors"));
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

// Its dense layer is not taken, so no file at home may say that it is there.
TEST(SentenceVectors, ADecoderLeavesModulesBehindWhoseWeightsItHasNot) {
  const TinyRunFolder run("clm");
  fs::copy(project_file("tests/fixtures/huggingface_text/gpt2"), run.path("theirs"));
  const auto put = [&](const std::string& file, const std::string& content) {
    fs::create_directories(fs::path(run.path("theirs/" + file)).parent_path());
    write_file(run.path("theirs/" + file), content);
  };
  const Record dense = module("Dense", "2_Dense");
  put("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  put("modules.json", Record({kTransformer, kPooling, kNormalize}).dump());
  const auto comes_home = [&] {
    fs::remove_all(run.path("ours"));
    fs::remove_all(run.path("home"));
    run.output("import theirs --output ours");
    run.output("export --model ours --output home");
    return fs::exists(run.path("home/modules.json"));
  };
  const bool kept = comes_home();
  put("modules.json", Record({kTransformer, kPooling, dense, kNormalize}).dump());
  put("2_Dense/config.json", "{}");
  put("2_Dense/model.safetensors", "weights");
  EXPECT_TRUE(kept);
  EXPECT_FALSE(comes_home());
  EXPECT_FALSE(fs::exists(run.path("home/2_Dense")));
}

}  // namespace
}  // namespace tapestry::interop
