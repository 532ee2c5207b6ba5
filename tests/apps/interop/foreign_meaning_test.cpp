// A folder of another program means here what it means there: what its class has where a key is
// absent, which head it holds, where a text ends, and what goes home as it came.
#include <gmock/gmock.h>

#include <set>

#include "apps/interop/ctranslate2.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry::interop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Record = nlohmann::json;

// A config of the class with these keys; sizes are small where nothing says otherwise.
Config config_of(const Architecture& architecture, const Json& theirs) {
  Reasons reasons;
  const Json model = our_model(architecture, theirs, reasons);
  EXPECT_THAT(reasons, IsEmpty()) << architecture.name;
  const std::string task = architecture.classes.front().task;
  Json data = {{"train", {{"text", "x"}}}};
  if (task == "translation") data = {{"train", {{"source", "x"}, {"target", "x"}}}};
  if (task == "classification") {
    data = {{"train", {{"images", "x"}}},
            {"image", {{"height", 32}, {"width", 32}, {"channels", 3}}}};
  }
  const Config config = load_checkpoint_config(Json{{"task", task},
                                                    {"output_dir", "x"},
                                                    {"data", data},
                                                    {"model", model},
                                                    {"training", {{"max_steps", 1}}}}
                                                   .dump(),
                                               architecture.name);
  EXPECT_THAT(undetermined_keys(model, config), IsEmpty()) << architecture.name;
  return config;
}

// The dropouts of each class, from the definitions of the classes: a Llama has one of its attention
// only, and nobody but the classes of BART's family has one inside the feed-forward network.
TEST(ForeignMeaning, AKeyThatIsAbsentIsWhatTheClassTakes) {
  struct Case {
    const char* name;
    double dropout, attention_dropout, activation_dropout;
    int64_t window = 0, head_size = 0;
  };
  for (const Case& one : {Case{"gpt2", 0.1, 0.1, 0},
                          Case{"llama", 0, 0, 0},
                          Case{"mistral", 0, 0, 0, 4096},
                          Case{"gemma", 0, 0, 0, 0, 256},
                          Case{"gemma2", 0, 0, 0, 4096, 256},
                          Case{"gemma3_text", 0, 0, 0, 4096, 256},
                          Case{"gpt_neox", 0, 0, 0},
                          Case{"opt", 0.1, 0, 0},
                          Case{"starcoder2", 0, 0, 0},
                          Case{"gpt_bigcode", 0.1, 0.1, 0},
                          Case{"gptj", 0, 0, 0},
                          Case{"phi", 0, 0, 0},
                          Case{"phi3", 0, 0, 0},
                          Case{"cohere", 0, 0, 0},
                          Case{"cohere2", 0, 0, 0, 4096},
                          Case{"olmo2", 0, 0, 0},
                          Case{"smollm3", 0, 0, 0},
                          Case{"qwen2", 0, 0, 0},
                          Case{"qwen3", 0, 0, 0},
                          Case{"bert", 0.1, 0.1, 0},
                          Case{"roberta", 0.1, 0.1, 0},
                          Case{"xlm-roberta", 0.1, 0.1, 0},
                          Case{"camembert", 0.1, 0.1, 0},
                          Case{"marian", 0.1, 0, 0},
                          Case{"pegasus", 0.1, 0, 0},
                          Case{"bart", 0.1, 0, 0},
                          Case{"mbart", 0.1, 0, 0},
                          Case{"m2m_100", 0.1, 0.1, 0},
                          Case{"t5", 0.1, 0.1, 0.1},
                          Case{"mt5", 0.1, 0.1, 0.1, 0, 64},
                          Case{"distilbert", 0.1, 0.1, 0},
                          Case{"electra", 0.1, 0.1, 0},
                          Case{"modernbert", 0, 0, 0, 65},
                          Case{"deit", 0, 0, 0},
                          Case{"vit", 0, 0, 0}}) {
    const Architecture& architecture = *find_architecture(one.name);
    const Json theirs = Json::object();
    const Config config = config_of(architecture, theirs);
    EXPECT_EQ(config.model.dropout, one.dropout) << one.name;
    EXPECT_EQ(config.model.attention_dropout, one.attention_dropout) << one.name;
    EXPECT_EQ(config.model.activation_dropout, one.activation_dropout) << one.name;
    EXPECT_EQ(config.model.attention_window, one.window) << one.name;
    EXPECT_EQ(config.model.head_size, one.head_size) << one.name;  // 0: hidden_size / heads
    EXPECT_EQ(config.model.embedding_size, one.name == std::string_view("electra") ? 128 : 0);
  }
  EXPECT_EQ(std::size(architectures()), 35u);  // a new one needs a line above
}

// Every number of the tables, neither ours nor the class's default.
TEST(ForeignMeaning, EveryKeyIsReadAsItIs) {
  for (const Architecture* const architecture : architectures()) {
    Json theirs = Json::object();
    for (const KeyRow& row : architecture->keys) {
      const std::string_view ours = row.ours;
      const Json fallback = Json::parse(row.fallback);
      if (ours == "hidden_act") {
        theirs[row.theirs] = architecture->only_activation ? "gelu" : "swish";
      } else if (fallback.is_boolean()) {
        theirs[row.theirs] = !fallback.get<bool>();
      } else if (ours.ends_with("heads")) {
        theirs[row.theirs] = 2;
      } else if (ours == "hidden_size") {
        theirs[row.theirs] = 20;
      } else if (ours == "max_position_embeddings") {
        theirs[row.theirs] = 600 + row.more;
      } else if (ours == "patch_size") {
        theirs[row.theirs] = 8;
      } else if (fallback.is_number_integer() || fallback.is_null()) {
        theirs[row.theirs] = 7;
      } else {
        theirs[row.theirs] = 0.375;
      }
    }
    // Parts of heads of 10 numbers.
    if (architecture->name == std::string_view("gptj")) theirs["rotary_dim"] = 10;
    if (architecture->name == std::string_view("phi")) theirs["partial_rotary_factor"] = 0.4;
    const auto keys = flat_keys(config_of(*architecture, theirs));
    for (const KeyRow& row : architecture->keys) {
      const std::string_view ours = row.ours;
      if (ours == "hidden_act") continue;
      Json expected = theirs[row.theirs];
      if (row.more != 0) expected = expected.get<int64_t>() - row.more;
      ASSERT_TRUE(keys.contains(concat("model.", ours))) << architecture->name << ' ' << ours;
      EXPECT_EQ(Json::parse(keys.at(concat("model.", ours))), expected)
          << architecture->name << ' ' << ours;
    }
  }
}

// What transformers takes for the ids of a class where config.json is silent.
TEST(ForeignMeaning, IdsOfAClassAreItsDefaults) {
  const auto all = parsed_json(fixture("defaults.json"));
  for (const Architecture* const architecture : architectures()) {
    const Record& defaults = all.at(architecture->name);
    std::set<std::string> known;
    for (const ClassDefault& row : architecture->ids) {
      known.insert(row.key);
      // T5's class has no first token of the decoder: its files say so, and it is the padding.
      if (row.key == std::string_view("decoder_start_token_id") && !defaults.contains(row.key)) {
        EXPECT_EQ(defaults.at("pad_token_id"), Record::parse(row.value)) << architecture->name;
        continue;
      }
      EXPECT_EQ(defaults.at(row.key), Record::parse(row.value)) << architecture->name << row.key;
    }
    for (const auto& [key, value] : defaults.items()) {
      if (key.ends_with("token_id") && !value.is_null()) {
        EXPECT_TRUE(known.contains(key)) << architecture->name << ' ' << key;
      }
    }
  }
}

TEST(ForeignMeaning, AHeadIsWhatItsClassIsCalled) {
  const BrokenFolder folder("bert_classes");
  const auto error_with = [&](const Record& architectures) {
    folder.set("architectures", architectures);
    return folder.error();
  };
  EXPECT_THAT(
      error_with({"BertForNextSentencePrediction"}),
      HasSubstr("architectures names BertForNextSentencePrediction, Tapestry has BertModel, "
                "BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, "
                "BertForQuestionAnswering, BertForTokenClassification"));
  EXPECT_THAT(error_with({"BertForMultipleChoice"}), HasSubstr("BertForMultipleChoice"));
  EXPECT_EQ(error_with({"BertForSequenceClassification"}), "");
  EXPECT_EQ(error_with(nullptr), "");
  const auto task = [&] { return std::string(import_model(folder.path()).config.task->name); };
  EXPECT_EQ(task(), "classification");
  folder.set("problem_type", "multi_label_classification");
  EXPECT_EQ(task(), "multi_label");
  const char* const one_row = "classifier.weight is float32 (3, 16), expected (1, 16)";
  folder.set("problem_type", "regression");  // of several numbers
  EXPECT_THAT(folder.error(), HasSubstr(one_row));
  folder.set("problem_type", "single_label_classification");
  EXPECT_EQ(folder.error(), "");
  folder.set("problem_type", nullptr);
  folder.set("id2label", {{"0", "LABEL_0"}});
  EXPECT_THAT(folder.error(), HasSubstr(one_row));
  folder.set("id2label", {"a", "b", "c"});  // their names would be lost
  EXPECT_THAT(folder.error(), HasSubstr("id2label must be an object of names by the classes' "
                                        "numbers, got a list"));
  folder.set("id2label", {{"0", "LABEL_0"}});
  const BrokenFolder images("vit");
  images.set("problem_type", "regression");
  EXPECT_THAT(images.error(), HasSubstr("problem_type is \"regression\""));
  images.set("problem_type", nullptr);
  images.set("id2label", {{"0", "LABEL_0"}});
  EXPECT_THAT(images.error(), HasSubstr("it has one label"));
  EXPECT_THAT(folder.error(), testing::Not(HasSubstr("..")));
  const BrokenFolder causal("gpt2");
  causal.set("architectures", {"GPT2ForSequenceClassification"});
  EXPECT_THAT(causal.error(), HasSubstr("names GPT2ForSequenceClassification"));
}

// Their classifiers read as much of a text as has positions.
TEST(ForeignMeaning, AClassifierReadsAllPositions) {
  const BrokenFolder folder("bert_classes");
  const int64_t positions = parsed_json(folder.path() + "/config.json")["max_position_embeddings"];
  EXPECT_EQ(import_model(folder.path()).config.data.corpus.max_length, positions);
  const TensorReader reader(open_model_folder(folder.path()));
  const std::string name = "bert.embeddings.position_embeddings.weight";
  folder.rename([&](const std::string& old) { return old == name ? std::string() : old; },
                "model.safetensors", {TensorToWrite(name, Tensor::zeros({700, 16}))});
  folder.set("max_position_embeddings", 700);
  EXPECT_EQ(import_model(folder.path()).config.data.corpus.max_length, 700);
}

// qa_outputs is a layer of two rows; its bias is the same for all places of a text.
TEST(ForeignMeaning, AHeadForQuestionsIsOne) {
  const BrokenFolder folder("bert");
  const TensorReader reader(open_model_folder(folder.path()));
  const std::string embeddings = "bert.embeddings.word_embeddings.weight";
  const Tensor two = BrokenFolder::scaled(reader, embeddings, 1).slice(4, 6);
  folder.rename(
      [](const std::string& name) { return name.starts_with("bert.") ? name : std::string(); },
      "model.safetensors",
      {TensorToWrite("qa_outputs.weight", two),
       TensorToWrite("qa_outputs.bias", Tensor::full({2}, 3, DType::kFloat32))});
  folder.set("architectures", {"BertForQuestionAnswering"});
  const ModelFiles model = files_of(folder.path());
  EXPECT_STREQ(model.config.task->name, "question_answering");
  const Tensor head = Tensor::empty({2, 16}, DType::kFloat32);
  model.tensors.read("span_head.weight", head);
  EXPECT_EQ(head.to_vector<float>(), two.to_vector<float>());
  const Loaded<SpanExtractor> loaded(model);  // every parameter is there, and nothing else
  CheckpointContent home = huggingface_files(model, "bert");
  EXPECT_EQ(Record::parse(bytes_of(home["config.json"]))["architectures"],
            Record::array({"BertForQuestionAnswering"}));
  const TensorReader written(source_of(bytes_of(home["model.safetensors"]), "home"));
  ASSERT_NE(written.find("qa_outputs.weight"), nullptr);
  EXPECT_EQ(written.find("qa_outputs.bias")->shape, (Shape{2}));
}

// Two tables that config.json calls one: transformers 5 keeps both where they differ.
TEST(ForeignMeaning, TablesThatDifferAreNotTied) {
  const BrokenFolder folder("gpt2");
  folder.add_like("transformer.wte.weight", "lm_head.weight", 1);
  EXPECT_TRUE(import_model(folder.path()).config.model.tie_word_embeddings);
  folder.add_like("transformer.wte.weight", "lm_head.weight", -2);
  const ImportedModel model = import_model(folder.path());
  EXPECT_FALSE(model.config.model.tie_word_embeddings);
  EXPECT_THAT(model.notes, ElementsAre(HasSubstr("lm_head.weight differs from "
                                                 "transformer.wte.weight")));
  // A classifier that is -2 times the table gives -2 times the logits.
  const auto input = parsed_json(fixture("gpt2") + "/logits.json");
  Tensor expected = tensor_of(input["logits"]);
  for (int64_t i = 0; i < expected.numel(); ++i) expected.data<double>()[i] *= -2;
  EXPECT_LT(largest_difference(logits_of(files_of(folder.path()), input), expected), 1e-6);

  const BrokenFolder masked("bert");
  masked.add_like("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", 2);
  EXPECT_FALSE(import_model(masked.path()).config.model.tie_word_embeddings);
  EXPECT_EQ(masked.error(), "");
  const BrokenFolder pairs("bart");
  pairs.add_like("model.shared.weight", "lm_head.weight", 1);
  EXPECT_EQ(pairs.error(), "");
  pairs.add_like("model.shared.weight", "lm_head.weight", 2);
  EXPECT_THAT(pairs.error(), HasSubstr("lm_head.weight differs from model.shared.weight, and "
                                       "tie_word_embeddings is true"));
  const BrokenFolder separate("marian_separate");
  separate.add_like("model.decoder.embed_tokens.weight", "lm_head.weight", 2);
  EXPECT_THAT(separate.error(),
              HasSubstr("lm_head.weight differs from model.decoder.embed_tokens"));
}

// modules_to_save of a tied table: PEFT gives that module weights of its own, and the classifier
// goes on with the model's.
TEST(ForeignMeaning, ATableThatAdaptersReplaceIsItsOwn) {
  const BrokenFolder folder("peft_gpt2");
  folder.change("adapter_config.json", "base_model_name_or_path", fixture("gpt2"));
  const TensorReader base(open_model_folder(fixture("gpt2")));
  const Tensor learnt = BrokenFolder::scaled(base, "transformer.wte.weight", 3);
  folder.rename([](const std::string& name) { return name; }, "adapter_model.safetensors",
                {TensorToWrite("base_model.model.transformer.wte.weight", learnt)});
  const ModelFiles model = files_of(folder.path());
  EXPECT_FALSE(model.config.model.tie_word_embeddings);
  const auto values = [&](const std::string& name) {
    const Tensor tensor = Tensor::empty(learnt.shape(), DType::kFloat32);
    model.tensors.read(name, tensor);
    return tensor.to_vector<float>();
  };
  EXPECT_EQ(values("embedding.weight"), learnt.to_vector<float>());
  EXPECT_EQ(values("output.weight"),
            BrokenFolder::scaled(base, "transformer.wte.weight", 1).to_vector<float>());
  EXPECT_THAT(model.config.training.modules_to_save, testing::Contains("embedding.weight"));
}

TEST(ForeignMeaning, APickledFileIsNamed) {
  const BrokenFolder folder("gpt2");
  fs::rename(folder.path() + "/model.safetensors", folder.path() + "/pytorch_model.bin");
  EXPECT_THAT(folder.error(), HasSubstr("has its weights in pytorch_model.bin, expected "
                                        "safetensors"));
  const BrokenFolder adapters("peft_gpt2");
  adapters.change("adapter_config.json", "base_model_name_or_path", fixture("gpt2"));
  fs::rename(adapters.path() + "/adapter_model.safetensors",
             adapters.path() + "/adapter_model.bin");
  EXPECT_THAT(adapters.error(), HasSubstr("adapter_model.bin"));
}

// transformers' GenerationConfig: greedy where nothing is said, top_k 50 where it draws.
TEST(ForeignMeaning, ASearchIsTheirs) {
  Reasons notes;
  const Json greedy = our_generation(Json::object(), ModelType::kDecoder, notes);
  EXPECT_EQ(greedy["do_sample"], false);
  EXPECT_EQ(greedy["num_beams"], 1);
  const Json drawn = our_generation({{"do_sample", true},
                                     {"temperature", 0.6},
                                     {"top_p", 0.9},
                                     {"min_p", 0.05},
                                     {"repetition_penalty", 1.1},
                                     {"max_length", 4096}},
                                    ModelType::kDecoder, notes);
  EXPECT_EQ(drawn["temperature"], 0.6);
  EXPECT_EQ(drawn["top_p"], 0.9);
  EXPECT_EQ(drawn["min_p"], 0.05);
  EXPECT_EQ(drawn["top_k"], 50);
  EXPECT_EQ(drawn["repetition_penalty"], 1.1);
  EXPECT_EQ(drawn["max_new_tokens"], 0);  // theirs counts the prompt
  EXPECT_THAT(notes, ElementsAre(HasSubstr("max_length is 4096, which counts the prompt")));
  notes.clear();
  const Json pairs = our_generation({{"num_beams", 4},
                                     {"max_length", 142},
                                     {"min_length", 56},
                                     {"length_penalty", 2.0},
                                     {"early_stopping", true},
                                     {"no_repeat_ngram_size", 3},
                                     {"typical_p", 0.9}},
                                    ModelType::kEncoderDecoder, notes);
  EXPECT_EQ(pairs["max_new_tokens"], 141);  // theirs counts what the decoder reads first
  EXPECT_EQ(pairs["min_new_tokens"], 55);
  EXPECT_EQ(pairs["early_stopping"], "true");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("typical_p is 0.9")));
  notes.clear();
  const Json only_padding = {{"pad_token_id", 7}, {"bad_words_ids", {{7}}}};
  our_generation(only_padding, ModelType::kEncoderDecoder, notes);
  EXPECT_THAT(notes, IsEmpty());  // Marian's: no search writes it
  const Json words = {{"pad_token_id", 7}, {"bad_words_ids", {{7}, {8, 9}}}};
  our_generation(words, ModelType::kEncoderDecoder, notes);
  EXPECT_THAT(notes, ElementsAre("bad_words_ids is [[8,9]], which searches here do not know."));
  notes.clear();
  const Json odd = our_generation({{"early_stopping", 1},
                                   {"max_length", "20"},
                                   {"guidance_scale", 1},
                                   {"stop_strings", {"."}},
                                   {"renormalize_logits", true}},
                                  ModelType::kEncoderDecoder, notes);
  EXPECT_EQ(odd["early_stopping"], "false");
  EXPECT_THAT(notes,
              testing::UnorderedElementsAre(
                  HasSubstr("stop_strings is [\".\"], which searches here"),
                  HasSubstr("renormalize_logits is true"), "early_stopping is 1, it becomes false.",
                  "max_length is \"20\", it becomes 0."));
  EXPECT_EQ(our_generation({{"do_sample", true}, {"temperature", 0.0}}, ModelType::kDecoder,
                           notes)["do_sample"],
            false);
}

// Frequencies of Llama 3.1 by its formula, as the file's divisors of each.
TEST(ForeignMeaning, GgufHasStretchedRopes) {
  const std::string linear = bytes_of(gguf_files(files_of(fixture("llama_linear")))["model.gguf"]);
  EXPECT_THAT(linear, HasSubstr("llama.rope.scaling.type"));
  EXPECT_THAT(linear, HasSubstr("llama.rope.scaling.factor"));
  EXPECT_THAT(bytes_of(gguf_files(files_of(fixture("llama_llama3")))["model.gguf"]),
              HasSubstr("rope_freqs.weight"));
}

}  // namespace
}  // namespace tapestry::interop
