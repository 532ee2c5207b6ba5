// A folder of another program means here what it means there: what its class has where a key is
// absent, which head it holds, where a text ends, and what goes home as it came.
#include <gmock/gmock.h>

#include <set>

#include "apps/interop/ctranslate2.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry::interop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Record = nlohmann::json;

Record parsed_json(const std::string& path) { return Record::parse(read_file(path)); }

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
    int64_t window = 0;
  };
  for (const Case& one :
       {Case{"gpt2", 0.1, 0.1, 0}, Case{"llama", 0, 0, 0}, Case{"mistral", 0, 0, 0, 4096},
        Case{"qwen2", 0, 0, 0}, Case{"qwen3", 0, 0, 0}, Case{"bert", 0.1, 0.1, 0},
        Case{"roberta", 0.1, 0.1, 0}, Case{"xlm-roberta", 0.1, 0.1, 0},
        Case{"camembert", 0.1, 0.1, 0}, Case{"marian", 0.1, 0, 0}, Case{"pegasus", 0.1, 0, 0},
        Case{"bart", 0.1, 0, 0}, Case{"mbart", 0.1, 0, 0}, Case{"vit", 0, 0, 0}}) {
    const Architecture& architecture = *find_architecture(one.name);
    const Config config = config_of(architecture, Json::object());
    EXPECT_EQ(config.model.dropout, one.dropout) << one.name;
    EXPECT_EQ(config.model.attention_dropout, one.attention_dropout) << one.name;
    EXPECT_EQ(config.model.activation_dropout, one.activation_dropout) << one.name;
    EXPECT_EQ(config.model.attention_window, one.window) << one.name;
    EXPECT_EQ(config.model.head_size, 0) << one.name;  // 128 is hidden_size / heads of each class
  }
  EXPECT_EQ(std::size(architectures()), 14u);  // a new one needs a line above
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
      EXPECT_EQ(defaults.at(row.key), Record::parse(row.value)) << architecture->name << row.key;
      known.insert(row.key);
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
  EXPECT_THAT(error_with({"BertForTokenClassification"}),
              HasSubstr("architectures names BertForTokenClassification, Tapestry has BertModel, "
                        "BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, "
                        "BertForQuestionAnswering"));
  EXPECT_THAT(error_with({"BertForMultipleChoice"}), HasSubstr("BertForMultipleChoice"));
  EXPECT_EQ(error_with({"BertForSequenceClassification"}), "");
  EXPECT_EQ(error_with(nullptr), "");
  folder.set("problem_type", "multi_label_classification");
  EXPECT_THAT(folder.error(), HasSubstr("problem_type is \"multi_label_classification\""));
  folder.set("problem_type", "regression");
  EXPECT_THAT(folder.error(), HasSubstr("problem_type is \"regression\""));
  folder.set("problem_type", "single_label_classification");
  EXPECT_EQ(folder.error(), "");
  folder.set("problem_type", nullptr);
  folder.set("id2label", {{"0", "LABEL_0"}});
  EXPECT_THAT(folder.error(), HasSubstr("it has one label"));
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
                                     {"repetition_penalty", 1.1},
                                     {"max_length", 4096}},
                                    ModelType::kDecoder, notes);
  EXPECT_EQ(drawn["temperature"], 0.6);
  EXPECT_EQ(drawn["top_p"], 0.9);
  EXPECT_EQ(drawn["top_k"], 50);
  EXPECT_EQ(drawn["repetition_penalty"], 1.1);
  EXPECT_EQ(drawn["max_new_tokens"], 0);  // theirs counts the prompt
  EXPECT_THAT(notes, IsEmpty());
  const Json pairs = our_generation({{"num_beams", 4},
                                     {"max_length", 142},
                                     {"min_length", 56},
                                     {"length_penalty", 2.0},
                                     {"early_stopping", true},
                                     {"no_repeat_ngram_size", 3},
                                     {"min_p", 0.1}},
                                    ModelType::kEncoderDecoder, notes);
  EXPECT_EQ(pairs["max_new_tokens"], 141);  // theirs counts what the decoder reads first
  EXPECT_EQ(pairs["min_new_tokens"], 55);
  EXPECT_EQ(pairs["early_stopping"], "true");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("min_p is 0.1")));
  notes.clear();
  const Json only_padding = {{"pad_token_id", 7}, {"bad_words_ids", {{7}}}};
  our_generation(only_padding, ModelType::kEncoderDecoder, notes);
  EXPECT_THAT(notes, IsEmpty());  // Marian's: no search writes it
  const Json words = {{"pad_token_id", 7}, {"bad_words_ids", {{7}, {8, 9}}}};
  our_generation(words, ModelType::kEncoderDecoder, notes);
  EXPECT_THAT(notes, ElementsAre("bad_words_ids is [[8,9]], which searches here do not know."));
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

/// A folder of transformers' with a tokenizer, changed, and the commands that read it.
class ChangedFolder : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  void copy(const std::string& name) const {
    fs::copy(project_file("tests/fixtures/huggingface_text/" + name), path("theirs"));
  }
  void set(const std::string& file, const Record& keys) const {
    Record json =
        fs::exists(path("theirs/" + file)) ? parsed_json(path("theirs/" + file)) : Record();
    json.update(keys);
    write_file(path("theirs/" + file), json.dump());
  }
  std::string import_it() const {
    const auto outcome = folder_.run("import theirs --output ours");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  }
  Record piece_ids(int32_t first, int32_t last) const {
    Record ids = Record::array();
    for (int32_t id = first; id <= last; ++id) ids.push_back(id);
    return ids;
  }
  Record generated(const std::string& more = "") const {
    return Record::parse(
        folder_.output(concat("generate --model ours --max-new-tokens 8 --detail jsonl ", more),
                       "The dog\n"))["continuations"][0];
  }

  TinyRunFolder folder_{"changed"};
};

// Every token but the class's end is an end, too: nothing is written before one comes.
TEST_F(ChangedFolder, AnyOfSeveralEndsEndsAText) {
  copy("gpt2");
  const Record all = piece_ids(1, 499);
  set("generation_config.json", {{"eos_token_id", all}, {"temperature", 0.5}});
  set("config.json", {{"eos_token_id", {0, 2}}});
  EXPECT_THAT(import_it(), HasSubstr("a text ends with"));
  EXPECT_EQ(generated()["finished"], true);
  EXPECT_EQ(generated()["tokens"], Record::array());
  EXPECT_EQ(generated("--beam-size 3")["finished"], true);
  folder_.output("export --model ours --output home");
  const Record ends = parsed_json(path("home/config.json"))["eos_token_id"];
  ASSERT_TRUE(ends.is_array());
  EXPECT_EQ(ends.size(), 500u);
  EXPECT_EQ(read_file(path("home/generation_config.json")).find("bad_words_ids"),
            std::string::npos);
  EXPECT_EQ(parsed_json(path("home/generation_config.json")),
            parsed_json(path("theirs/generation_config.json")));
}

// CTranslate2's config has one end, a GGUF file two.
TEST_F(ChangedFolder, EndsThatAFormatHasNoPlaceForAreTold) {
  copy("gpt2");
  set("config.json", {{"eos_token_id", {0, 40, 41}}});
  import_it();
  const auto notes_of = [&](const std::string& format) {
    const auto outcome =
        folder_.run(concat("export --model ours --format ", format, " --output ", format));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    fs::remove_all(path(format));
    return outcome.err;
  };
  const Record tokens = parsed_json(path("theirs/tokenizer.json"))["model"]["vocab"];
  std::map<int, std::string> piece;
  for (const auto& [text, id] : tokens.items()) piece[id.get<int>()] = text;
  EXPECT_THAT(notes_of("ctranslate2"),
              HasSubstr(concat("note: config.json of CTranslate2 has one end of a text, "
                               "'<|endoftext|>': a program must give the others as end_token: '",
                               piece[40], "', '", piece[41], "'\n")));
  EXPECT_THAT(notes_of("gguf"), HasSubstr(concat("note: a GGUF file has two ends of a text")));
  EXPECT_THAT(notes_of("huggingface"), testing::Not(HasSubstr("note: ")));
  fs::remove_all(path("ours"));
  set("config.json", {{"eos_token_id", {0, 40}}});
  import_it();
  EXPECT_THAT(notes_of("ctranslate2"), HasSubstr(concat("end_token: '", piece[40], "'\n")));
  EXPECT_THAT(notes_of("gguf"), testing::Not(HasSubstr("note: ")));
  fs::remove_all(path("ours"));
  set("config.json", {{"eos_token_id", 0}});
  import_it();
  EXPECT_THAT(notes_of("ctranslate2"), testing::Not(HasSubstr("note: ")));
}

// transformers keeps the keys of config.json that its class knows nothing of.
TEST_F(ChangedFolder, KeysThatNobodyReadsGoHome) {
  copy("gpt2");
  const Record theirs = {{"condition_on_chain", true},
                         {"task_specific_params", {{"text-generation", {{"max_length", 50}}}}},
                         {"id2label", {{"0", "LABEL_0"}}},
                         {"use_cache", false}};
  set("config.json", theirs);
  set("config.json", {{"dtype", "float16"}, {"auto_map", {{"AutoModel", "own.Model"}}}});
  import_it();
  folder_.output("export --model ours --output home");
  const Record home = parsed_json(path("home/config.json"));
  for (const auto& [key, value] : theirs.items())
    EXPECT_EQ(home.value(key, Record()), value) << key;
  EXPECT_EQ(home["torch_dtype"], "float32");
  EXPECT_FALSE(home.contains("dtype"));
  EXPECT_FALSE(home.contains("auto_map"));
  // Of another architecture they would say something else.
  folder_.output("export --model ours --architecture gpt2 --output same");
  EXPECT_TRUE(parsed_json(path("same/config.json")).contains("condition_on_chain"));
}

// What a training has changed since is not as it came.
TEST_F(ChangedFolder, AKeyThatChangedSinceDoesNotGoHome) {
  copy("llama");
  set("config.json",
      {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 10000.0}}},
       {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}},
       {"pretraining_tp", 2}});
  write_file(path("some.txt"), "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  import_it();
  folder_.output("export --model ours --output stretched");
  EXPECT_EQ(parsed_json(path("stretched/config.json"))["rope_scaling"]["factor"], 4.0);
  ASSERT_EQ(folder_
                .run("train ours/config.json init_from=theirs output_dir=run "
                     "data.train.text=some.txt data.block_size=8 training.batch_size=2 "
                     "training.batch_type=sentences model.rope_scaling={}")
                .code,
            0);
  folder_.output("export --model run --output home");
  const Record home = parsed_json(path("home/config.json"));
  EXPECT_FALSE(home.contains("rope_scaling")) << home["rope_scaling"];
  EXPECT_EQ(home["rope_parameters"]["rope_type"], "default");
  EXPECT_EQ(home["pretraining_tp"], 2);
}

// IgLM's folder has the ids of GPT-2's own vocabulary, and a token more than rows was added.
TEST_F(ChangedFolder, IdsOutsideOfTheTableAreNone) {
  copy("gpt2");
  set("config.json", {{"eos_token_id", 50256}, {"bos_token_id", 50256}, {"pad_token_id", 60000}});
  Record tokenizer = parsed_json(path("theirs/tokenizer.json"));
  Record token = tokenizer["added_tokens"][0];
  token["id"] = 507;
  token["content"] = "<more>";
  tokenizer["added_tokens"].push_back(token);
  write_file(path("theirs/tokenizer.json"), tokenizer.dump());
  import_it();
  EXPECT_EQ(parsed_json(path("ours/tokenizer_ids.json"))["eos"], 0);
  folder_.output("score --model ours --target -", "A <more> dog\n");
}

// The tokenizer of GPT-2 adds nothing around a text, and that of Llama 3 begins it: once.
TEST_F(ChangedFolder, ABeginningStandsOnce) {
  copy("llama");
  import_it();
  const std::string once = folder_.output("score --model ours --target -", "The dog\n");
  EXPECT_EQ(folder_.output("score --model ours --target -", "<|begin_of_text|>The dog\n"), once);
  EXPECT_EQ(folder_.output("score --model ours --target -", "The dog<|end_of_text|>\n"), once);
  const auto tokens = [&](const std::string& prompt) {
    return Record::parse(folder_.output("generate --model ours --max-new-tokens 4 --detail jsonl",
                                        prompt))["continuations"][0]["tokens"];
  };
  EXPECT_EQ(tokens("<|begin_of_text|>The dog\n"), tokens("The dog\n"));
}

TEST_F(ChangedFolder, WhatItCameWithGoesHome) {
  copy("llama");
  const std::string chat = "{% for message in messages %}{{ message.content }}{% endfor %}";
  write_file(path("theirs/chat_template.jinja"), chat);
  set("tokenizer_config.json",
      {{"additional_special_tokens", {"<one>"}}, {"add_bos_token", true}, {"chat", "yes"}});
  set("generation_config.json", {{"do_sample", true}, {"top_p", 0.7}, {"max_length", 99}});
  import_it();
  // Through a training, too.
  write_file(path("some.txt"), "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  folder_.write("next.yaml",
                "task: clm\noutput_dir: run\ninit_from: theirs\n"
                "data: {train: {text: some.txt}, block_size: 8}\n"
                "training: {batch_type: sentences, batch_size: 2, max_steps: 1}\n");
  ASSERT_EQ(folder_.train("next", "run"), 0) << folder_.messages();
  EXPECT_EQ(parsed_json(path("run/last/config.json"))["generation"]["top_p"], 0.7);
  for (const std::string from : {"ours", "run"}) {
    folder_.output(concat("export --model ", from, " --output home_of_", from));
    for (const char* file : {"chat_template.jinja", "tokenizer_config.json", "tokenizer.json"}) {
      EXPECT_EQ(read_file(path(concat("home_of_", from, "/", file))),
                read_file(path(concat("theirs/", file))))
          << from;
    }
    EXPECT_EQ(parsed_json(path(concat("home_of_", from, "/generation_config.json"))),
              parsed_json(path("theirs/generation_config.json")));
  }
  folder_.output("export --model ours --format gguf --output gguf");
  const std::string gguf = read_file(path("gguf/model.gguf"));
  EXPECT_THAT(gguf, HasSubstr(chat));
  EXPECT_THAT(gguf, HasSubstr("llama-bpe"));
  EXPECT_THAT(gguf, HasSubstr("tokenizer.ggml.merges"));
}

// A run without a section `model` has that of its beginning, and the file's pooler.
TEST_F(ChangedFolder, AClassifierBeginsWithoutAModelSection) {
  copy("bert");
  folder_.write("next.yaml",
                "task: classification\noutput_dir: run\ninit_from: theirs\n"
                "data: {train: {tsv: train.tsv}, valid: {tsv: valid.tsv}}\n"
                "training: {batch_type: sentences, batch_size: 4, max_steps: 1, "
                "learning_rate: 1e-3}\n");
  {
    const TensorReader reader(open_model_folder(path("theirs")));
    std::vector<TensorToWrite> tensors;
    for (const StoredTensor& tensor : reader.tensors()) {
      tensors.emplace_back(tensor.name, BrokenFolder::scaled(reader, tensor.name, 1));
    }
    tensors.emplace_back("bert.pooler.dense.weight", Tensor::full({16, 16}, 0.25, DType::kFloat32));
    tensors.emplace_back("bert.pooler.dense.bias", Tensor::full({16}, 0.5, DType::kFloat32));
    std::string bytes;
    write_safetensors(tensors, {}, [&](const void* part, size_t count) {
      bytes.append(static_cast<const char*>(part), count);
    });
    write_file(path("theirs/model.safetensors"), bytes);
  }
  ASSERT_EQ(folder_.train("next", "run", {"training.learning_rate=1e-20"}), 0)
      << folder_.messages();
  EXPECT_THAT(folder_.messages(), testing::Not(HasSubstr("pooler.weight")));
  const Record model = parsed_json(path("run/last/config.json"))["model"];
  EXPECT_EQ(model["hidden_size"], 16);
  EXPECT_EQ(model["norm_position"], "post");
  EXPECT_EQ(model["embedding_norm"], true);
  const TensorReader trained(open_source(path("run/last/model.safetensors")));
  const Tensor pooler = Tensor::empty({16}, DType::kFloat32);
  trained.read("pooler.bias", pooler);
  EXPECT_NEAR(pooler.data<float>()[0], 0.5, 1e-6);
  // The model of a run that goes on is the run's, though its beginning is gone.
  fs::remove_all(path("theirs"));
  EXPECT_EQ(folder_.train("next", "run", {"training.max_steps=2"}), 0) << folder_.messages();
}

// The bias of spans changes no probability, so ours has none; it goes home all the same.
TEST_F(ChangedFolder, AHeadForQuestionsGoesHomeWithItsBias) {
  copy("bert");
  {
    const TensorReader reader(open_model_folder(path("theirs")));
    std::vector<TensorToWrite> tensors;
    for (const StoredTensor& tensor : reader.tensors()) {
      if (!tensor.name.starts_with("bert.")) continue;
      tensors.emplace_back(tensor.name, BrokenFolder::scaled(reader, tensor.name, 1));
    }
    tensors.emplace_back("qa_outputs.weight", Tensor::full({2, 16}, 0.25, DType::kFloat32));
    tensors.emplace_back("qa_outputs.bias", Tensor::from<float>({0.5F, -0.25F}, {2}));
    std::string bytes;
    write_safetensors(tensors, {}, [&](const void* part, size_t count) {
      bytes.append(static_cast<const char*>(part), count);
    });
    write_file(path("theirs/model.safetensors"), bytes);
  }
  set("config.json", {{"architectures", {"BertForQuestionAnswering"}}});
  import_it();
  folder_.output("export --model ours --output home");
  const TensorReader before(open_model_folder(path("theirs"))),
      after(open_model_folder(path("home")));
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (const StoredTensor& tensor : before.tensors()) {
    EXPECT_EQ(BrokenFolder::scaled(before, tensor.name, 1).to_vector<float>(),
              BrokenFolder::scaled(after, tensor.name, 1).to_vector<float>())
        << tensor.name;
  }
}

// A model of images has no tokenizer beside which the files of its folder could stay.
TEST_F(ChangedFolder, AModelOfImagesGoesHomeWithItsKeys) {
  fs::copy(fixture("vit"), path("theirs"), fs::copy_options::recursive);
  set("config.json", {{"encoder_stride", 16}, {"name_of_the_team", "seven"}});
  write_file(path("theirs/preprocessor_config.json"),
             R"({"do_normalize": false, "resample": 3, "image_mean": [0.5, 0.5, 0.5]})");
  import_it();
  const Record image = parsed_json(path("ours/config.json"))["data"]["image"];
  EXPECT_EQ(image["mean"], Record::array({0, 0, 0}));
  EXPECT_EQ(image["std"], Record::array({1, 1, 1}));
  folder_.output("export --model ours --output home");
  const Record config = parsed_json(path("home/config.json"));
  EXPECT_EQ(config["encoder_stride"], 16);
  EXPECT_EQ(config["name_of_the_team"], "seven");
  const Record processor = parsed_json(path("home/preprocessor_config.json"));
  EXPECT_EQ(processor["resample"], 3);
  EXPECT_EQ(processor["do_normalize"], false);
}

// MiniLM's way: a BertModel with its pooler, and how its vectors are made one.
TEST_F(ChangedFolder, AModelWithoutAHeadGoesHomeWithoutOne) {
  copy("bert");
  set("config.json", {{"architectures", {"BertModel"}}, {"bos_token_id", 7}});
  {
    const TensorReader reader(open_model_folder(path("theirs")));
    const std::string prefix = "bert.";
    std::vector<TensorToWrite> tensors;
    for (const StoredTensor& tensor : reader.tensors()) {
      if (!tensor.name.starts_with(prefix)) continue;
      tensors.emplace_back(tensor.name.substr(prefix.size()),
                           BrokenFolder::scaled(reader, tensor.name, 1));
    }
    tensors.emplace_back("pooler.dense.weight", Tensor::full({16, 16}, 0.25, DType::kFloat32));
    tensors.emplace_back("pooler.dense.bias", Tensor::full({16}, 0.5, DType::kFloat32));
    std::string bytes;
    write_safetensors(tensors, {}, [&](const void* part, size_t count) {
      bytes.append(static_cast<const char*>(part), count);
    });
    write_file(path("theirs/model.safetensors"), bytes);
  }
  fs::create_directories(path("theirs/1_Pooling"));
  const Record modules = {{{"idx", 0}, {"path", ""}, {"type", "Transformer"}},
                          {{"idx", 1}, {"path", "1_Pooling"}, {"type", "Pooling"}},
                          {{"idx", 2}, {"path", "2_Normalize"}, {"type", "Normalize"}}};
  write_file(path("theirs/modules.json"), modules.dump(1));
  write_file(path("theirs/1_Pooling/config.json"), R"({"pooling_mode_mean_tokens": true})");
  write_file(path("theirs/vocab.txt"), "[PAD]\n[UNK]\n");
  EXPECT_THAT(import_it(), HasSubstr("has no head"));
  EXPECT_THAT(folder_.run("fill-mask --model ours", "a [MASK]\n").err,
              HasSubstr("and nothing else of 'head': it can begin a training (init_from), which "
                        "draws what is missing."));
  folder_.output("export --model ours --output home");
  EXPECT_EQ(parsed_json(path("home/config.json"))["architectures"], Record::array({"BertModel"}));
  EXPECT_EQ(parsed_json(path("home/config.json"))["bos_token_id"], 7);
  const TensorReader before(open_model_folder(path("theirs"))),
      after(open_model_folder(path("home")));
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (const StoredTensor& tensor : before.tensors()) {
    const StoredTensor* const home = after.find(tensor.name);
    ASSERT_NE(home, nullptr) << tensor.name;
    EXPECT_EQ(tensor.shape, home->shape);
    EXPECT_TRUE(values_of(before, tensor) == values_of(after, *home)) << tensor.name;
  }
  for (const char* file : {"modules.json", "1_Pooling/config.json", "vocab.txt",
                           "tokenizer_config.json", "tokenizer.json"}) {
    EXPECT_EQ(read_file(path(concat("home/", file))), read_file(path(concat("theirs/", file))));
  }
  // A module with weights of its own would be missing there.
  fs::remove_all(path("ours"));
  write_file(path("theirs/1_Pooling/model.safetensors"), "weights");
  import_it();
  folder_.output("export --model ours --output less");
  EXPECT_FALSE(fs::exists(path("less/modules.json")));
}

// Its model would fit into a bert, too.
TEST_F(ChangedFolder, AModelGoesHomeAsTheClassItCameAs) {
  copy("roberta");
  import_it();
  folder_.output("export --model ours --output home");
  EXPECT_EQ(parsed_json(path("home/config.json"))["model_type"], "roberta");
  EXPECT_EQ(parsed_json(path("home/config.json"))["max_position_embeddings"],
            parsed_json(path("theirs/config.json"))["max_position_embeddings"]);
  folder_.output("export --model ours --architecture bert --output other");
  EXPECT_EQ(parsed_json(path("other/config.json"))["model_type"], "bert");
  const TensorReader before(open_model_folder(path("theirs"))),
      after(open_model_folder(path("home")));
  for (const StoredTensor& tensor : before.tensors()) {
    const StoredTensor* const home = after.find(tensor.name);
    ASSERT_NE(home, nullptr) << tensor.name;
    EXPECT_TRUE(values_of(before, tensor) == values_of(after, *home)) << tensor.name;
  }
}

// IgLM's way: words of the vocabulary that only tokenizer_config.json calls tokens.
TEST_F(ChangedFolder, TokensOfTheFilesBesideAreTokens) {
  copy("bert");
  set("tokenizer_config.json",
      {{"tokenizer_class", "BertTokenizer"}, {"additional_special_tokens", {"man", "<no row>"}}});
  Record tokenizer = parsed_json(path("theirs/tokenizer.json"));
  const size_t rows = parsed_json(path("theirs/config.json"))["vocab_size"];
  tokenizer["model"]["vocab"]["wide"] = tokenizer["model"]["vocab"].size();
  for (size_t id = tokenizer["model"]["vocab"].size(); id < rows + 2; ++id) {
    tokenizer["model"]["vocab"][concat("more", id)] = id;
  }
  write_file(path("theirs/tokenizer.json"), tokenizer.dump());
  EXPECT_THAT(import_it(), HasSubstr(concat("3 tokens of the tokenizer have no row in the model's "
                                            "table, and no text gets them: '<no row>', 'more",
                                            rows, "', 'more", rows + 1, "'.")));
  folder_.output("fill-mask --model ours --attention one.json", "A [MASK] manly\n");
  const Record tokens = parsed_json(path("one.json"))["pages"][0]["axes"][0]["tokens"];
  EXPECT_EQ(tokens[3], "man") << tokens;
  EXPECT_NE(tokens[4], "##ly") << tokens;
  folder_.output("export --model ours --output home");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_file(path(concat("home/", file))), read_file(path(concat("theirs/", file))));
  }
}

TEST_F(ChangedFolder, BothNamesOfAMaskAreOne) {
  copy("bert");
  import_it();
  const std::string theirs = folder_.output("fill-mask --model ours", "A [MASK] in a blue shirt\n");
  EXPECT_NE(theirs, "\n");
  EXPECT_EQ(folder_.output("fill-mask --model ours", "A <mask> in a blue shirt\n"), theirs);
}

// float32 weights that stay as they are come home byte for byte, though training rounded them.
TEST_F(ChangedFolder, FrozenWeightsAreNotRounded) {
  copy("llama");
  write_file(path("some.txt"), "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  folder_.write("next.yaml",
                "task: clm\noutput_dir: run\ninit_from: theirs\ndtype: bfloat16\n"
                "data: {train: {text: some.txt}, block_size: 8}\n"
                "training: {batch_type: sentences, batch_size: 2, max_steps: 1, "
                "lora: {rank: 2}}\n");
  ASSERT_EQ(folder_.train("next", "run"), 0) << folder_.messages();
  ASSERT_EQ(folder_.train("next", "run", {"training.max_steps=2"}), 0) << folder_.messages();
  folder_.output("export --model run --output home");
  const TensorReader before(open_model_folder(path("theirs"))),
      after(open_model_folder(path("home")));
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"}) {
    EXPECT_TRUE(values_of(before, *before.find(name)) == values_of(after, *after.find(name)))
        << name;
  }
}

// Every format takes a model of prompts: prefix_lm is off.
TEST_F(ChangedFolder, AModelOfPromptsGoesEverywhere) {
  const std::vector<std::string> like_gpt2 = {
      "training.max_steps=2",       "model.norm_position=pre",      "model.scale_embeddings=false",
      "model.hidden_act=gelu_tanh", "tokenizer.byte_fallback=true", "tokenizer.vocab_size=284"};
  ASSERT_EQ(folder_.train("prompts", "run", like_gpt2), 0) << folder_.messages();
  for (const char* format : {"huggingface", "gguf", "ctranslate2"}) {
    folder_.output(concat("export --model run --format ", format, " --output ", format));
  }
  EXPECT_EQ(parsed_json(path("huggingface/config.json"))["model_type"], "gpt2");
  auto adapted = like_gpt2;
  adapted.insert(adapted.end(),
                 {"init_from=huggingface", "tokenizer={}", "training.lora={rank: 2}"});
  ASSERT_EQ(folder_.train("prompts", "adapted", adapted), 0) << folder_.messages();
  folder_.output("export --model adapted --format peft --output peft");
  auto prefix = like_gpt2;
  prefix.push_back("model.prefix_lm=true");
  ASSERT_EQ(folder_.train("prompts", "prefix", prefix), 0) << folder_.messages();
  const auto outcome = folder_.run("export --model prefix --output never");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("model.prefix_lm: true has no place in gpt2"));
}

// Llama 2's way: a tokenizer.model alone, whose texts begin with its own bos, 1.
TEST_F(ChangedFolder, TextsBeginAsTheTokenizerDoes) {
  const std::string pieces = project_file("tests/fixtures/tokenizers/llama2/tokenizer.model");
  ASSERT_EQ(folder_.train("clm", "run",
                          {"training.max_steps=2", concat("tokenizer={path: ", pieces, '}'),
                           "model.norm=rmsnorm", "model.norm_position=pre",
                           "model.hidden_act=swiglu", "model.position_embedding=rope",
                           "model.scale_embeddings=false", "model.bias=false"}),
            0)
      << folder_.messages();
  folder_.output("export --model run --output home");
  EXPECT_EQ(parsed_json(path("home/config.json"))["bos_token_id"], 1);
  const std::string frame = parsed_json(path("home/tokenizer.json"))["post_processor"].dump();
  EXPECT_THAT(frame, HasSubstr("\"<s>\""));
  EXPECT_THAT(frame, testing::Not(HasSubstr("\"</s>\"")));
  folder_.output("export --model run --format gguf --output gguf");
  const std::string gguf = read_file(path("gguf/model.gguf"));
  const auto number = [&](const std::string& key) {
    const size_t at = gguf.find(key) + key.size() + sizeof(uint32_t);
    return static_cast<int>(gguf.at(at));
  };
  EXPECT_EQ(number("tokenizer.ggml.bos_token_id"), 1);
  EXPECT_EQ(number("tokenizer.ggml.eos_token_id"), 2);
  EXPECT_EQ(number("tokenizer.ggml.add_bos_token"), 1);
}

}  // namespace
}  // namespace tapestry::interop
