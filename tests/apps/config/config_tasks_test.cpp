// The Config of each task: its keys and defaults, and what is written back.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/apps/config/task_config_fixture.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

/// Overrides that go together.
struct Keys {
  const char* name;
  std::vector<const char*> tasks;
  std::vector<std::string> overrides;
};

void PrintTo(const Keys& keys, std::ostream* out) { *out << keys.name; }

class TaskKeysTest : public TaskConfigTest, public testing::WithParamInterface<Keys> {};

TEST_P(TaskKeysTest, AreReadAndWrittenBack) {
  for (const char* task : GetParam().tasks) {
    SCOPED_TRACE(task);
    const Config config = load(task, GetParam().overrides);
    const Json resolved = Json::parse(to_json(config));
    for (const std::string& override : GetParam().overrides) {
      const size_t equals = override.find('=');
      std::string pointer = concat('/', override.substr(0, equals));
      std::replace(pointer.begin(), pointer.end(), '.', '/');
      const std::string value = override.substr(equals + 1);
      const Json expected = Json::accept(value) ? Json::parse(value) : Json(value);
      EXPECT_EQ(resolved.at(Json::json_pointer(pointer)), expected) << override;
    }
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
    EXPECT_EQ(to_json(load_checkpoint_config(to_json(config), "config.json")), to_json(config));
  }
}

const std::vector<const char*> kAll = {"translation",
                                       "clm",
                                       "prompts",
                                       "mlm",
                                       "denoising",
                                       "classification",
                                       "question_answering",
                                       "token_classification",
                                       "multi_label"};
const std::vector<const char*> kOfOneSequence = {
    "clm", "prompts", "mlm", "classification", "question_answering", "token_classification"};

const Keys kKeys[] = {
    {"OfEveryModel",
     kAll,
     {"model.hidden_size=32",
      "model.intermediate_size=48",
      "model.num_attention_heads=4",
      "model.num_key_value_heads=2",
      "model.hidden_act=swiglu",
      "model.norm=rmsnorm",
      "model.norm_position=pre",
      "model.norm_eps=0.001",
      "model.final_norm=true",
      "model.bias=false",
      "model.position_embedding=rope",
      "model.rope_theta=5000",
      "model.rope_layout=interleaved",
      "model.max_position_embeddings=2000",
      "model.embedding_norm=true",
      "model.tie_word_embeddings=false",
      "model.scale_embeddings=false",
      "model.initializer_range=0.02",
      "model.dropout=0.2",
      "model.attention_dropout=0.3",
      "model.activation_dropout=0.4"}},
    {"OfEveryTokenizer",
     kAll,
     {"tokenizer.type=sentencepiece", "tokenizer.algorithm=unigram", "tokenizer.vocab_size=400",
      "tokenizer.byte_fallback=true", "tokenizer.normalization=identity",
      "tokenizer.character_coverage=0.99", "tokenizer.max_sentences=7"}},
    {"OfEveryTraining",
     kAll,
     {R"(training.freeze=["embedding.*", "layers.0.*"])", "training.metric_for_best_model=nll",
      "training.max_hours=0.5", "training.clip_value=2", "training.batch_type=sentences",
      "training.gradient_accumulation_steps=3", "training.ema_decay=0.99",
      "training.lr_scheduler_type=step", "training.lr_step_size=4", "training.lr_gamma=0.5",
      "training.min_learning_rate=0", "training.recompute=true"}},
    {"OfEncoderDecoders",
     {"translation", "denoising"},
     {"model.encoder_layers=2", "model.decoder_layers=1", "model.type=encoder_decoder",
      "data.max_length=99", "data.overlong=error"}},
    {"OfModelsOfOneSequence",
     kOfOneSequence,
     {"model.num_hidden_layers=3", "model.type_vocab_size=2"}},
    {"OfCausalModels", {"clm"}, {"model.type=decoder"}},
    {"OfEncoders",
     {"mlm", "classification", "question_answering", "token_classification"},
     {"model.type=encoder", "model.embedding_size=8"}},
    {"OfWholeTexts",
     {"classification", "multi_label", "text_regression"},
     {"model.pooler=gelu", "model.classifier_pooling=mean"}},
    {"OfTokens",
     {"question_answering", "token_classification"},
     {"model.pooled_tokens=true", "model.pooler=normed"}},
    {"OfQuestions",
     {"question_answering"},
     {"data.max_length=99", "data.overlong=truncate", "data.doc_stride=7", "data.train.limit=3",
      "answers.max_answer_length=9", "answers.no_answer=true",
      "training.metric_for_best_model=exact_match"}},
    {"OfBlocks", {"clm", "mlm"}, {"data.block_size=99", "data.cache=false"}},
    {"OfPrompts",
     {"prompts"},
     {"data.max_length=99", "data.overlong=truncate", "data.train.split=train",
      "data.train.limit=3", "training.metric_for_best_model=exact_match"}},
    {"OfText",
     {"clm", "mlm", "denoising"},
     {"data.train.documents=file", "data.train.range=[0.25,0.5]", "data.train.limit=3"}},
    {"OfManyDocuments",
     {"clm", "mlm", "denoising"},
     {"data.train.documents=fortunes", "data.train.split=valid"}},
    {"OfClasses",
     {"classification"},
     {"data.train.label_column=3", "data.train.text_column=2", R"(data.labels=["yes", "no"])",
      "data.max_length=99", "data.overlong=truncate", "data.train.split=train"}},
    {"OfTags",
     {"token_classification"},
     {"data.train.tokens_column=2", "data.train.tags_column=4", R"(data.labels=["O", "B-X"])",
      "data.max_length=99", "data.overlong=truncate", "data.train.split=train"}},
    {"OfImages",
     {"images"},
     {"data.train.range=[0.25,0.5]", "data.train.limit=3", R"(data.labels=["yes", "no"])",
      R"(data.image={"height":6,"width":4,"channels":2,"mean":[0.5,0.25],"std":[0.3,1]})",
      R"(data.augment={"shift":2,"flip":true})", "model.patch_size=2", "training.batch_size=64"}},
    {"OfVisionTransformers",
     {"images"},
     {"model.type=vit", "model.patch_size=2", "model.head=linear", "model.hidden_size=32",
      "model.intermediate_size=48", "model.num_attention_heads=4", "model.num_hidden_layers=3",
      "model.num_key_value_heads=2", "model.hidden_act=swiglu", "model.norm=rmsnorm",
      "model.norm_position=post", "model.position_embedding=rope", "model.initializer_range=0.02",
      "model.dropout=0.2", "model.attention_dropout=0.3", "model.activation_dropout=0.4"}},
    {"OfLinearModels", {"images"}, {"model.type=linear", "model.initializer_range=0.5"}},
    {"OfMasking",
     {"mlm"},
     {"masking.probability=0.3", "masking.mask_share=0.5", "masking.random_share=0.25",
      "masking.whole_word=true"}},
    {"OfDenoising",
     {"denoising"},
     {"denoising.objective=infilling", "denoising.noise_density=0.5",
      "denoising.mean_span_length=2.5"}},
    {"OfGeneration",
     {"translation", "clm", "denoising"},
     {"generation.num_beams=1", "generation.do_sample=true", "generation.temperature=0.7",
      "generation.top_k=5", "generation.top_p=0.9", "generation.min_p=0.1",
      "generation.frequency_penalty=0.25", "generation.presence_penalty=-0.5",
      "generation.repetition_penalty=1.25", "generation.no_repeat_ngram_size=3",
      "generation.max_repeat=4", "generation.min_new_tokens=2", "generation.max_new_tokens=9"}},
};

INSTANTIATE_TEST_SUITE_P(All, TaskKeysTest, testing::ValuesIn(kKeys),
                         [](const auto& info) { return info.param.name; });

TEST_F(TaskConfigTest, ARecurrentModelKeepsItsActivations) {
  EXPECT_EQ(error_of(text_of("translation"),
                     {"model={type: rnn_attention}", "training={max_steps: 1, recompute: true}"}),
            "command line: training={max_steps: 1, recompute: true}: 'training.recompute' has no "
            "effect with type: rnn_attention.");
}

TEST_F(TaskConfigTest, TheFirstMetricOfATaskTellsTheBestModel) {
  EXPECT_EQ(load("translation").training.metric_for_best_model, "bleu");
  EXPECT_EQ(load("clm").training.metric_for_best_model, "nll");
  EXPECT_EQ(load("mlm").training.metric_for_best_model, "nll");
  EXPECT_EQ(load("denoising").training.metric_for_best_model, "nll");
  EXPECT_EQ(load("classification").training.metric_for_best_model, "accuracy");
  EXPECT_EQ(load("prompts").training.metric_for_best_model, "nll");
  EXPECT_EQ(load("question_answering").training.metric_for_best_model, "f1");
  EXPECT_EQ(load("token_classification").training.metric_for_best_model, "f1");
  EXPECT_EQ(load("multi_label").training.metric_for_best_model, "micro_f1");
  EXPECT_EQ(load("text_regression").training.metric_for_best_model, "mse");
}

// A model from elsewhere keeps its vocabulary, which has no such marks.
TEST_F(TaskConfigTest, OnlyAVocabularyThatIsLearntGetsTheMarksOfTalks) {
  const std::vector<std::string> marks = {"<|im_start|>", "<|im_end|>"};
  EXPECT_EQ(load("chat").tokenizer.user_symbols, marks);
  for (const char* key :
       {"init_from=elsewhere", "tokenizer.path=/dev/null", "data.chat_template_path=/dev/null"}) {
    EXPECT_TRUE(load("chat", {key}).tokenizer.user_symbols.empty()) << key;
  }
}

TEST_F(TaskConfigTest, PromptsAndAnswersGoTogether) {
  const std::string half = "data.train={jsonl: /dev/null, prompt: '{a}'}";
  EXPECT_EQ(error_of(text_of("clm"), {half}),
            concat("command line: ", half, ": missing key 'answer' in 'data.train'."));
  EXPECT_EQ(load("clm", {"data.train={jsonl: /dev/null}"}).data.train[0].text_column, "text");
  const Config config = load("prompts");
  EXPECT_EQ(config.data.train[0].kind(), CorpusSpec::Kind::kPrompted);
  EXPECT_EQ(config.data.train[0].prompt, "Q: {q}\nA:");
  EXPECT_EQ(config.data.train[0].answer, " {a}");
  EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
  EXPECT_EQ(to_json(load_checkpoint_config(to_json(config), "config.json")), to_json(config));
}

TEST_F(TaskConfigTest, TheTaskChoosesTheModel) {
  EXPECT_EQ(load("translation").model_type, ModelType::kEncoderDecoder);
  EXPECT_EQ(load("clm").model_type, ModelType::kDecoder);
  EXPECT_EQ(load("mlm").model_type, ModelType::kEncoder);
  EXPECT_EQ(load("denoising").model_type, ModelType::kEncoderDecoder);
  EXPECT_EQ(load("classification").model_type, ModelType::kEncoder);
  EXPECT_EQ(load("images").model_type, ModelType::kVit);
}

TEST_F(TaskConfigTest, AVisionTransformerHasItsOwnDefaults) {
  const Config config = load("images", {"model.hidden_size=32"});
  EXPECT_EQ(config.model.norm_position, NormPosition::kPre);
  EXPECT_EQ(config.model.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(config.model.hidden_act, HiddenAct(Activation::kGelu));
  EXPECT_TRUE(config.model.pooled_head);
  EXPECT_EQ(config.batch.batch_size, 256);
  // A resolved config is read back as it is, not with the defaults again.
  const Config post = load("images", {"model.norm_position=post", "training.batch_size=7"});
  EXPECT_EQ(parse_config(to_yaml(post)).model.norm_position, NormPosition::kPost);
  EXPECT_EQ(parse_config(to_yaml(post)).batch.batch_size, 7);
}

TEST_F(TaskConfigTest, OpenEndedTextIsSampledAndTranslationsAreSearchedFor) {
  const SearchOptions open = load("clm").generation, translation = load("translation").generation;
  EXPECT_TRUE(open.do_sample);
  EXPECT_EQ(open.num_beams, 1);
  EXPECT_FALSE(translation.do_sample);
  EXPECT_EQ(translation.num_beams, SearchOptions().num_beams);
  const SearchOptions searched =
      load("clm", {"generation={do_sample: false, num_beams: 4}"}).generation;
  EXPECT_EQ(searched.num_beams, 4);
}

TEST_F(TaskConfigTest, TheObjectiveChoosesThePiecesOfTheTokenizer) {
  for (const auto& [task, corpus] : kCorpora) {
    const TokenizerOptions options = load(task).tokenizer;
    EXPECT_EQ(options.mask_piece, task == "mlm" || task == "denoising") << task;
    EXPECT_EQ(options.sentinels, task == "denoising" ? 100 : 0) << task;
  }
}

TEST_F(TaskConfigTest, ResolvedTextHoldsTheKeysOfItsTaskOnly) {
  const std::map<std::string, std::vector<std::string>> sections = {
      {"translation", {"generation", "evaluation"}},
      {"clm", {"generation"}},
      {"mlm", {"masking"}},
      {"denoising", {"denoising", "generation"}},
      {"classification", {}}};
  for (const auto& [task, present] : sections) {
    const Json resolved = Json::parse(to_json(load(task)));
    for (const std::string section : {"masking", "denoising", "generation", "evaluation"}) {
      const bool expected = std::count(present.begin(), present.end(), section) > 0;
      EXPECT_EQ(resolved.contains(section), expected) << task << ' ' << section;
    }
    EXPECT_FALSE(resolved.contains("init_from")) << task;
    EXPECT_EQ(resolved["model"].contains("rope_theta"), false) << task;
    EXPECT_EQ(resolved["training"]["freeze"], Json::array()) << task;
  }
}

TEST_F(TaskConfigTest, InitFromIsAFolderOfTheWorkingDirectory) {
  const Config config = load("clm", {"init_from=runs/x"});
  EXPECT_EQ(config.init_from, (std::filesystem::current_path() / "runs/x").string());
  EXPECT_EQ(parse_config(to_yaml(config)).init_from, config.init_from);
  EXPECT_EQ(load("clm").init_from, "");
}

TEST_F(TaskConfigTest, TextCorporaMayBeAList) {
  const std::string list =
      "task: clm\noutput_dir: run\ntraining: {max_steps: 1}\ndata:\n  train:\n"
      "    - {text: data/c.txt, documents: fortunes, split: train}\n"
      "    - {text: data/a.en, documents: file, range: [0, 0.9]}\n";
  const Config config = load_config(write(list), {"data.train.1.range=[0.5, 1]"});
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[0].documents, "fortunes");
  EXPECT_EQ(config.data.train[0].split, "train");
  EXPECT_EQ(config.data.train[1].range_begin, 0.5);
  EXPECT_EQ(config.data.train[1].range_end, 1.0);
  EXPECT_EQ(config.data.train[1].kind(), CorpusSpec::Kind::kText);
  EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
}

TEST_F(TaskConfigTest, ARuleOfACorpusStandsAtItsEntry) {
  const auto config = [](const std::string& corpora) {
    return concat("task: translation\noutput_dir: run\ntraining: {max_steps: 1}\ndata:\n  train:\n",
                  corpora);
  };
  const std::string bad = "    - {tsv: data/b.tsv, target_column: 1}\n";
  const char* const rule = "must differ from source_column, got 1 twice.";
  EXPECT_EQ(error_of(config(bad)), concat("c.yaml:6:40: 'data.train.target_column' ", rule));
  EXPECT_EQ(error_of(config("    - {tsv: data/b.tsv}\n" + bad)),
            concat("c.yaml:7:40: 'data.train.1.target_column' ", rule));
}

TEST_F(TaskConfigTest, PatchesMustDivideTheImages) {
  const std::string size = "data.image={height: 8, width: 12, channels: 1}";
  EXPECT_EQ(error_of(text_of("images"), {size, "model.patch_size=8"}),
            "command line: model.patch_size=8: 'model.patch_size' must divide the height and width "
            "of the images, got 8 and 8 x 12.");
  EXPECT_EQ(load("images", {size, "model.patch_size=4"}).model.patch_size, 4);
}

TEST_F(TaskConfigTest, ACheckpointKeepsTheFormatOfItsImages) {
  Config config = load("images");
  config.data.image = {{28, 20, 1}, {0.1 + 0.2}, {1.0 / 3}};
  config.model.patch_size = 4;
  const Config again = load_checkpoint_config(to_json(config), "config.json");
  EXPECT_EQ(again.data.image.size, config.data.image.size);
  EXPECT_EQ(again.data.image.mean, config.data.image.mean);
  EXPECT_EQ(again.data.image.std, config.data.image.std);
}

TEST_F(TaskConfigTest, ACheckpointKeepsItsClasses) {
  Config config = load("classification");
  EXPECT_EQ(config.data.train[0].kind(), CorpusSpec::Kind::kLabelled);
  config.data.labels = {"no", "1e3", "a b\"", "µ"};
  const Config again = load_checkpoint_config(to_json(config), "config.json");
  EXPECT_EQ(again.data.labels, config.data.labels);
}

}  // namespace
}  // namespace tapestry
