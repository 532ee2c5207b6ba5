// Folders of transformers' with a tokenizer, through the commands: what they mean, and what goes
// home.
#include <gmock/gmock.h>

#include <set>

#include "apps/interop/ctranslate2.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_images.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Record = nlohmann::json;

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
  set("generation_config.json",
      {{"do_sample", true}, {"top_p", 0.7}, {"min_p", 0.1}, {"max_length", 99}});
  import_it();
  // Through a training, too.
  write_file(path("some.txt"), "A man in a blue shirt\nTwo young people\nThe dog runs\n");
  folder_.write("next.yaml",
                "task: clm\noutput_dir: run\ninit_from: theirs\n"
                "data: {train: {text: some.txt}, block_size: 8}\n"
                "training: {batch_type: sentences, batch_size: 2, max_steps: 1}\n");
  ASSERT_EQ(folder_.train("next", "run"), 0) << folder_.messages();
  EXPECT_EQ(parsed_json(path("run/last/config.json"))["generation"]["top_p"], 0.7);
  EXPECT_EQ(parsed_json(path("run/last/config.json"))["generation"]["min_p"], 0.1);
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

// The template that a training chose is the only one of the files that go home, and the token that
// ends its answers ends what is generated.
TEST_F(ChangedFolder, OneChatTemplateGoesHome) {
  copy("llama");
  const auto template_of = [](const std::string& end) {
    return "{% for m in messages %}{{ m.role + ' ' + m.content + '" + end + "' }}{% endfor %}" +
           "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}";
  };
  const std::string old = template_of("<|end_of_text|>"), chosen = template_of("<|begin_of_text|>");
  const std::string tools = template_of("tools");
  set("tokenizer_config.json",
      {{"chat_template",
        {{{"name", "tool_use"}, {"template", tools}}, {{"name", "default"}, {"template", old}}}}});
  write_file(path("theirs/chat_template.json"), nlohmann::json{{"chat_template", old}}.dump());
  write_file(path("chosen.jinja"), chosen);
  write_file(path("a.talks.jsonl"), R"({"messages": [{"role": "user", "content": "The dog"}, )"
                                    R"({"role": "assistant", "content": "runs"}]})"
                                    "\n");
  folder_.write("next.yaml",
                "task: clm\noutput_dir: run\ninit_from: theirs\n"
                "data: {train: {jsonl: a.talks.jsonl, messages_column: messages},\n"
                "  chat_template_path: chosen.jinja, max_length: 32}\n"
                "training: {batch_type: sentences, batch_size: 2, max_steps: 1}\n");
  ASSERT_EQ(folder_.train("next", "run"), 0) << folder_.messages();
  folder_.output("export --model run --output home");
  EXPECT_EQ(read_file(path("home/chat_template.jinja")), chosen);
  EXPECT_EQ(parsed_json(path("home/chat_template.json"))["chat_template"], chosen);
  const auto templates = parsed_json(path("home/tokenizer_config.json"))["chat_template"];
  ASSERT_EQ(templates.size(), 2u);
  EXPECT_EQ(templates[0]["template"], tools);
  EXPECT_EQ(templates[1]["name"], "default");
  EXPECT_EQ(templates[1]["template"], chosen);
  const auto ends = parsed_json(path("home/generation_config.json"))["eos_token_id"];
  ASSERT_TRUE(ends.is_array()) << ends;
  EXPECT_EQ(ends.size(), 2u);
}

TEST_F(ChangedFolder, AChatTemplateIsFoundOrNamed) {
  copy("llama");
  const std::string source =
      "{% for m in messages %}{{ m.content }}{% endfor %}{{ raise_exception('it is read') }}";
  const std::string talk = R"({"messages": [{"role": "user", "content": "The dog"}]})";
  write_file(path("theirs/chat_template.json"), nlohmann::json{{"chat_template", source}}.dump());
  import_it();
  const auto of_processor = folder_.run("generate --model ours --jsonl", talk);
  EXPECT_THAT(of_processor.err, HasSubstr("it is read"));
  set("tokenizer_config.json",
      {{"chat_template",
        {{{"name", "rag"}, {"template", source}}, {{"name", "tool_use"}, {"template", source}}}}});
  std::filesystem::remove_all(path("ours"));
  import_it();
  const auto several = folder_.run("generate --model ours --chat", "The dog\n");
  EXPECT_EQ(several.code, 2);
  EXPECT_THAT(several.err,
              HasSubstr("has the templates rag, tool_use, of which none is 'default'"));
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
  EXPECT_EQ(processor["image_mean"], Record::array({0.5, 0.5, 0.5}));  // which they do not read
}

// (byte * factor - mean) / std of theirs is (byte / 255 - mean) / std of ours.
TEST(ForeignImages, AnyScaleOfBytesIsTheirs) {
  const Json sizes = {{"image_size", 8}, {"num_channels", 2}};
  const auto format_of = [&](const Json& processor) {
    Reasons reasons;
    const Json format = our_image_format(sizes, processor, reasons);
    EXPECT_THAT(reasons, IsEmpty());
    return format;
  };
  const Json usual = format_of({{"image_mean", {0.25, 0.5}}, {"image_std", {0.5, 2}}});
  EXPECT_EQ(usual["mean"], Json::array({0.25, 0.5}));
  EXPECT_EQ(usual["std"], Json::array({0.5, 2.0}));
  // (byte / 127.5 - 1) / 1 = (byte / 255 - 0.5) / 0.5
  const Json doubled =
      format_of({{"rescale_factor", 1 / 127.5}, {"image_mean", 1}, {"image_std", {1, 1}}});
  const Json plain = format_of({{"do_rescale", false}, {"do_normalize", false}});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(doubled["mean"][i].get<double>(), 0.5, 1e-12);
    EXPECT_NEAR(doubled["std"][i].get<double>(), 0.5, 1e-12);
    EXPECT_EQ(plain["mean"][i], 0);
    EXPECT_NEAR(plain["std"][i].get<double>(), 1 / 255., 1e-15);  // bytes as they are
  }
  Reasons reasons;
  our_image_format(sizes, {{"image_mean", {0.5, 0.5, 0.5}}, {"rescale_factor", 0}}, reasons);
  EXPECT_THAT(reasons, ElementsAre("image_mean is [0.5,0.5,0.5], expected 2 numbers",
                                   "rescale_factor is 0, expected more than 0"));
}

// A format that a training changed is written as it is now.
TEST(ForeignImages, APreprocessorKeepsWhatItMeans) {
  const ImageFormat format{.size = {8, 8, 1}, .mean = {0.5}, .std = {0.5}};
  const Json came = {{"size", 8},
                     {"resample", 3},
                     {"rescale_factor", 1 / 127.5},
                     {"image_mean", {1.0}},
                     {"image_std", {1.0}}};
  const Json kept = their_preprocessor(format, came);
  EXPECT_EQ(kept["size"], 8);
  EXPECT_EQ(kept["rescale_factor"], 1 / 127.5);
  EXPECT_EQ(kept["image_mean"], Json::array({1.0}));
  const ImageFormat other{.size = {8, 4, 1}, .mean = {0.25}, .std = {0.5}};
  const Json changed = their_preprocessor(other, came);
  EXPECT_EQ(changed["size"], (Json{{"height", 8}, {"width", 4}}));
  EXPECT_EQ(changed["rescale_factor"], 1 / 255.0);
  EXPECT_EQ(changed["image_mean"], Json::array({0.25}));
  EXPECT_EQ(changed["resample"], 3);
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
  import_it();
  EXPECT_THAT(folder_.output("embed --model ours", "a b\n"), testing::StartsWith("["));
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
  const auto refused = [&] {
    const auto outcome = folder_.run("import theirs --output ours");
    EXPECT_EQ(outcome.code, 3);
    return outcome.err;
  };
  // What its vectors would need, and what a copy that normalises no more says at home.
  fs::remove_all(path("ours"));
  write_file(path("theirs/1_Pooling/config.json"), R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(refused(), HasSubstr("1_Pooling/config.json pools by pooling_mode_max_tokens, "
                                   "Tapestry by one of mean, cls, last"));
  write_file(path("theirs/1_Pooling/config.json"), R"({"pooling_mode": "cls"})");
  Record dense = modules;
  dense[2]["type"] = "sentence_transformers.models.LSTM";
  write_file(path("theirs/modules.json"), dense.dump());
  EXPECT_THAT(refused(), HasSubstr("has the modules Transformer, Pooling in '1_Pooling', LSTM in "
                                   "'2_Normalize', expected Transformer in the folder itself"));
  dense.erase(2);
  write_file(path("theirs/modules.json"), dense.dump());
  import_it();
  EXPECT_THAT(folder_.output("inspect ours"),
              testing::AllOf(HasSubstr("pooling: cls"), HasSubstr("normalize: false")));
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

// Their engine has a divisor of each frequency, of which a head of its own size has its own number.
TEST_F(ChangedFolder, GgufDividesEachFrequencyOfAHead) {
  ASSERT_EQ(folder_.train("clm", "run",
                          {"training.max_steps=2", "model.norm=rmsnorm", "model.norm_position=pre",
                           "model.hidden_act=swiglu", "model.position_embedding=rope",
                           "model.scale_embeddings=false", "model.bias=false", "model.head_size=24",
                           "model.value_head_size=24",
                           "model.rope_scaling={type: llama3, factor: 8, low_freq_factor: 1, "
                           "high_freq_factor: 4, original_max_position_embeddings: 16}"}),
            0)
      << folder_.messages();
  folder_.output("export --model run --format gguf --output gguf");
  const std::string gguf = read_file(path("gguf/model.gguf"));
  const std::string name = "rope_freqs.weight";
  const std::string shape("\1\0\0\0\14\0\0\0\0\0\0\0", 12);  // of one dimension, half of a head
  EXPECT_EQ(gguf.substr(gguf.find(name) + name.size(), shape.size()), shape);
}

}  // namespace
}  // namespace tapestry::interop
