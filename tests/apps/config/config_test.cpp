// The Config of Tapestry: what is read, what is refused and in which words, what is written back.
#include "apps/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/config/config_fixture.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

/// Ten lines that are enough for a run; tests append to "training", which is last.
const char* const kGood =
    "task: translation\n"
    "output_dir: run\n"
    "data:\n"
    "  train: {source: data/a.en, target: data/a.de}\n"
    "  max_length: 64\n"
    "model:\n"
    "  hidden_size: 64\n"
    "training:\n"
    "  max_steps: 10\n";

TEST_F(ConfigTest, FillsDefaultsAndResolvesPaths) {
  const Config config = load_config(write(kGood));
  EXPECT_EQ(config.training.max_steps, 10);
  EXPECT_EQ(config.model.hidden_size, 64);
  EXPECT_EQ(config.model.intermediate_size, ModelOptions().intermediate_size);
  EXPECT_EQ(config.generation.num_beams, SearchOptions().num_beams);
  ASSERT_EQ(config.data.train.size(), 1u);
  EXPECT_EQ(config.data.train[0].source, (folder_ / "data/a.en").string());
  EXPECT_EQ(config.output_dir, (fs::current_path() / "run").string());
  EXPECT_TRUE(config.data.valid.empty());
}

TEST_F(ConfigTest, ReadsNumbersAsYamlWritesThem) {
  const Config config =
      load_config(write(std::string(kGood) + "  learning_rate: 1e-4\n"
                                             "  label_smoothing: .5\n"
                                             "  max_grad_norm: +2.\n"
                                             "  optimizer: {eps: 1E-9, betas: [0.9, .98]}\n"));
  EXPECT_EQ(config.learning_rate, 1e-4);
  EXPECT_EQ(config.training.label_smoothing, 0.5);
  EXPECT_EQ(config.optimizer.eps, 1e-9);
  EXPECT_EQ(config.optimizer.betas[1], 0.98);
  EXPECT_EQ(config.training.max_grad_norm, 2.0);
}

TEST_F(ConfigTest, OverridesWinAndLaterOnesWinOverEarlierOnes) {
  const Config config =
      load_config(write(kGood), {"training.max_steps=7", "training.max_steps=8", "model.dropout=0",
                                 "training.optimizer.betas=[0.5, 0.6]", "generation.num_beams=2",
                                 "data.valid={tsv: " + (folder_ / "data/b.tsv").string() + "}"});
  EXPECT_EQ(config.training.max_steps, 8);
  EXPECT_EQ(config.model.dropout, 0.0);
  EXPECT_EQ(config.generation.num_beams, 2);
  ASSERT_EQ(config.data.valid.size(), 1u);
  EXPECT_EQ(config.data.valid[0].records.path, (folder_ / "data/b.tsv").string());
}

TEST_F(ConfigTest, OverridePathsStartAtTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "data");
  const Config config = load_config(write(kGood), {"data.train.target=a.en"});
  fs::current_path(before);
  EXPECT_EQ(config.data.train[0].target, (folder_ / "data/a.en").string());
}

TEST_F(ConfigTest, OverridesReachListEntriesByNumber) {
  const std::string list =
      "task: translation\noutput_dir: run\ntraining: {max_steps: 1}\ndata:\n  train:\n"
      "    - {source: data/a.en, target: data/a.de}\n    - {tsv: data/b.tsv}\n";
  EXPECT_EQ(load_config(write(list), {"data.train.1.source_column=3"}).data.train[1].source_column,
            "3");
  EXPECT_EQ(error_of(list, {"data.train.2.limit=3"}),
            "command line: data.train.2.limit=3: 'data.train' has 2 entries; 2 is out of range "
            "(they count from 0).");
  EXPECT_EQ(error_of(list, {"data.train.limit=3"}),
            "command line: data.train.limit=3: 'data.train' is a list; name its entry by number, "
            "as in data.train.0.limit, or give the whole list.");
}

TEST_F(ConfigTest, OverridesGiveAnEmptyListItsEntry) {
  const std::string list =
      "task: translation\noutput_dir: run\ntraining: {max_steps: 1}\ndata:\n"
      "  train: {tsv: data/b.tsv}\n  valid: []\n";
  EXPECT_EQ(load_config(write(list), {"data.valid.tsv=" + (folder_ / "data/b.tsv").string()})
                .data.valid.size(),
            1u);
  EXPECT_EQ(error_of(list, {"data.valid.0.tsv=data/b.tsv"}),
            "command line: data.valid.0.tsv=data/b.tsv: 'data.valid' has 0 entries; 0 is out of "
            "range (they count from 0).");
}

TEST_F(ConfigTest, ReadsEveryKindOfCorpus) {
  const Config config =
      load_config(write("task: translation\noutput_dir: run\ntraining: {max_steps: 1}\ndata:\n"
                        "  train:\n"
                        "    - {source: data/a.en, target: data/a.de}\n"
                        "    - {tsv: data/b.tsv, source_column: 2, target_column: 1}\n"
                        "    - {ding: data/ding.txt, direction: en-de, split: train}\n"
                        "  valid: {ding: data/ding.txt, split: valid, limit: 9}\n"));
  ASSERT_EQ(config.data.train.size(), 3u);
  EXPECT_EQ(config.data.train[1].source_column, "2");
  EXPECT_EQ(config.data.train[2].direction, "en-de");
  EXPECT_EQ(config.data.valid[0].split, "valid");
  EXPECT_EQ(config.data.valid[0].limit, 9);
}

TEST_F(ConfigTest, Bfloat16IsMixedPrecisionWhileAModelTrains) {
  const Config mixed = load_config(write(kGood), {"dtype=bfloat16"});
  const Device cpu, gpu{Device::Kind::kCuda, 0};
  EXPECT_EQ(mixed.dtype, DType::kFloat32);
  EXPECT_EQ(numbers_of(mixed, ModelUse::kTraining, cpu).dtype, DType::kBFloat16);
  EXPECT_EQ(numbers_of(mixed, ModelUse::kTraining, gpu).dtype, DType::kBFloat16);
  EXPECT_EQ(numbers_of(mixed, ModelUse::kAnswers, cpu).dtype, DType::kFloat32);
  EXPECT_EQ(numbers_of(mixed, ModelUse::kAnswers, gpu).dtype, DType::kBFloat16);
  EXPECT_THAT(to_yaml(mixed), testing::HasSubstr("dtype: bfloat16\n"));
  EXPECT_TRUE(parse_config(to_yaml(mixed)).mixed);
  EXPECT_FALSE(load_config(write(kGood)).mixed);
}

TEST_F(ConfigTest, WhatIsAllowedIsOfADeviceWhileAModelTrains) {
  Config config = load_config(write(kGood), {"allow_tf32=true"});
  config.allow_bf16x3 = true;  // which is refused where it is not to be had
  const Device cpu, gpu{Device::Kind::kCuda, 0};
  EXPECT_EQ(numbers_of(config, ModelUse::kTraining, cpu).precision, Precision::kBf16x3);
  EXPECT_EQ(numbers_of(config, ModelUse::kTraining, gpu).precision, Precision::kTf32);
  EXPECT_EQ(numbers_of(config, ModelUse::kAnswers, cpu).precision, Precision::kFull);
  EXPECT_EQ(numbers_of(config, ModelUse::kAnswers, gpu).precision, Precision::kFull);
  const Config plain = load_config(write(kGood));
  EXPECT_EQ(numbers_of(plain, ModelUse::kTraining, cpu).precision, Precision::kFull);
  EXPECT_EQ(numbers_of(plain, ModelUse::kTraining, gpu).precision, Precision::kFull);
}

TEST_F(ConfigTest, EveryActivationHasAName) {
  EXPECT_EQ(load_config(write(kGood), {"model.hidden_act=geglu"}).model.hidden_act,
            HiddenAct(Activation::kGelu, /*gated=*/true));
  for (const HiddenAct& act : hidden_acts()) {
    const Config config = load_config(write(kGood), {concat("model.hidden_act=", name_of(act))});
    EXPECT_EQ(config.model.hidden_act, act);
    EXPECT_THAT(to_yaml(config), testing::HasSubstr(concat("hidden_act: ", name_of(act), "\n")));
  }
}

// YAML would take " #3" for a comment, and drop the space.
TEST_F(ConfigTest, AnOverrideHasAllThatTheShellGave) {
  const auto named = [&](const std::string& value) {
    const Config config = load_config(write(kGood), {"output_dir=" + value});
    return std::filesystem::path(config.output_dir).filename().string();
  };
  EXPECT_EQ(named("nn #3"), "nn #3");
  EXPECT_EQ(named("#3"), "#3");
  EXPECT_EQ(named(" a b "), " a b ");
  EXPECT_EQ(load_config(write(kGood), {"seed= 5 ", "model.hidden_act= gelu"}).seed, 5u);
  EXPECT_EQ(named("\"nn\" # quoted"), "nn");
  EXPECT_THAT(error_of(kGood, {"seed=5 # five"}), testing::HasSubstr("got '5 # five'"));
}

TEST_F(ConfigTest, AFileThatIsNoTextIsNoConfig) {
  const std::string text = kGood;
  EXPECT_THAT(error_of(text + '\0' + text, {}),
              testing::HasSubstr(": expected a YAML file, got one that is not text."));
}

TEST_F(ConfigTest, ResolvedTextReadsBackToTheSameConfig) {
  const Config config = load_config(
      write(kGood), {"training.learning_rate=3e-5", "model.hidden_act=gelu_tanh", "seed=77",
                     "training.optimizer.eps=1e-9", "data.valid=[]", "dtype=float64",
                     "generation.length_penalty_type=gnmt", "training.ema_decay=0.9999",
                     "output_dir=\"" + (folder_ / "a b: #c").string() + "\""});
  const std::string yaml = to_yaml(config);
  const Config again = parse_config(yaml);
  EXPECT_EQ(to_yaml(again), yaml);
  EXPECT_EQ(again.learning_rate, 3e-5);
  EXPECT_EQ(again.model.hidden_act, Activation::kGeluTanh);
  EXPECT_EQ(again.dtype, DType::kFloat64);
  EXPECT_EQ(again.output_dir, (folder_ / "a b: #c").string());
  EXPECT_EQ(again.data.train[0].source, config.data.train[0].source);
  // Every default is spelled out.
  EXPECT_THAT(yaml, testing::HasSubstr("\n  norm_position: post\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("\n    betas: [0.9, "));
}

TEST_F(ConfigTest, EveryOptimizerAndScheduleReadsBackToTheSameText) {
  for (const OptimizerType type : kOptimizerTypes) {
    const Config config =
        load_config(write(kGood),
                    {concat("training.optimizer={name: ", name_of(type), ", weight_decay: 0.5}")});
    EXPECT_EQ(config.optimizer.type, type);
    EXPECT_EQ(config.optimizer.weight_decay, 0.5);
    EXPECT_EQ(config.optimizer.eps, optimizer_defaults(type).eps);
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
  }
  for (const char* schedule :
       {"constant", "linear", "cosine", "inverse_sqrt", "noam", "polynomial"}) {
    const Config config = load_config(
        write(kGood), {concat("training.lr_scheduler_type=", schedule), "training.warmup_steps=3"});
    EXPECT_EQ(config.schedule.max_steps, 10);
    EXPECT_EQ(config.schedule.model_size, 64);
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
  }
}

TEST_F(ConfigTest, MuonHasTwoRates) {
  const auto rates = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"training.optimizer={name: muon}"});
    const Config config = load_config(write(kGood), overrides);
    return std::pair{config.learning_rate, config.training.adamw_learning_rate};
  };
  using Rates = std::pair<double, double>;
  EXPECT_EQ(rates({"training.learning_rate=0.03"}), (Rates{0.03, 1e-3}));
  EXPECT_EQ(rates({"training.learning_rate=0.03", "training.optimizer.adamw_learning_rate=0.004"}),
            (Rates{0.03, 0.004}));
  EXPECT_EQ(rates({}), (Rates{0.02, 1e-3}));
  EXPECT_EQ(rates({"training.optimizer.adjust_lr_fn=match_rms_adamw"}), (Rates{1e-3, 1e-3}));
  EXPECT_EQ(rates({"training.lr_scheduler_type=noam", "training.warmup_steps=3"}), (Rates{1, 1}));
}

TEST_F(ConfigTest, CheckpointConfigNeedsNoDataFiles) {
  const std::string json = to_json(load_config(write(kGood)));
  fs::remove_all(folder_ / "data");
  const Config again = load_checkpoint_config(json, "config.json");
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(again.training.max_steps, 10);
  EXPECT_THROW(parse_config(json), Error);
}

/// A config that must be refused.
struct Broken {
  const char* name;
  const char* text;  ///< added to a good config; or the whole file when it starts with "!"
  std::vector<std::string> overrides;
  const char* message;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenConfigTest : public ConfigTest, public testing::WithParamInterface<Broken> {};

TEST_P(BrokenConfigTest, IsRefusedInTheseWords) {
  const Broken& broken = GetParam();
  const std::string text = broken.text;
  EXPECT_EQ(error_of(text.starts_with('!') ? text.substr(1) : kGood + text, broken.overrides),
            broken.message);
}

const Broken kBroken[] = {
    {"UnknownKeyNearAKnownOne",
     "  learning_rat: 1\n",
     {},
     "c.yaml:10:3: unknown key 'learning_rat' in 'training'; did you mean 'learning_rate'?"},
    {"UnknownKeyWithPartsOfAKnownOne",
     "",
     {"model.num_heads=4"},
     "command line: model.num_heads=4: unknown key 'num_heads' in 'model'; did you mean "
     "'num_attention_heads'?"},
    {"UnknownKeyOfAnotherSection",
     "  num_beams: 4\n",
     {},
     "c.yaml:10:3: unknown key 'num_beams' in 'training'; 'num_beams' belongs to 'generation'."},
    {"UnknownKeyWithoutARelative",
     "evaluation: {zzz: 4}\n",
     {},
     "c.yaml:10:14: unknown key 'zzz' in 'evaluation'; known: bleu_tokenize, lowercase, "
     "rouge, extra_metrics, num_beams."},
    {"UnknownSection",
     "trainng: {max_steps: 4}\n",
     {},
     "c.yaml:10:1: unknown key 'trainng'; did you mean 'training'?"},
    {"DuplicateKey",
     "  max_steps: 12\n",
     {},
     "c.yaml:10:3: duplicate key 'max_steps' in 'training'; it stands first at c.yaml:9:3."},
    {"DuplicateSection",
     "model: {dropout: 0.1}\n",
     {},
     "c.yaml:10:1: duplicate key 'model'; it stands first at c.yaml:6:1."},
    {"FractionForAnInteger",
     "  batch_size: 4096.5\n",
     {},
     "c.yaml:10:15: 'training.batch_size' must be an integer, got 4096.5."},
    {"TextForAnInteger",
     "",
     {"training.max_steps=abc"},
     "command line: training.max_steps=abc: 'training.max_steps' must be an integer, got 'abc'."},
    {"QuotedNumber",
     "  batch_size: \"64\"\n",
     {},
     "c.yaml:10:15: 'training.batch_size' must be an integer, got the string \"64\"."},
    {"UnderscoreIsNoYamlNumber",
     "  batch_size: 1_000\n",
     {},
     "c.yaml:10:15: 'training.batch_size' must be an integer, got '1_000'."},
    {"IntegerTooLarge",
     "",
     {"threads=99999999999"},
     "command line: threads=99999999999: 'threads' must be in [-2147483648, 2147483647], got "
     "99999999999."},
    {"NegativeSeed",
     "seed: -1\n",
     {},
     "c.yaml:10:7: 'seed' must be in [0, 9223372036854775807], got -1."},
    {"NothingForANumber",
     "  learning_rate:\n",
     {},
     "c.yaml:10:3: 'training.learning_rate' must be a number, got nothing."},
    {"InfinityIsNoNumber",
     "  learning_rate: .inf\n",
     {},
     "c.yaml:10:18: 'training.learning_rate' must be a number, got '.inf'."},
    {"ListForANumber",
     "  learning_rate: [1, 2]\n",
     {},
     "c.yaml:10:18: 'training.learning_rate' must be a number, got a list."},
    {"WordForABool",
     "tokenizer: {share: yes}\n",
     {},
     "c.yaml:10:20: 'tokenizer.share' must be true or false, got 'yes'."},
    {"DropoutOutOfRange",
     "",
     {"model.dropout=1.0"},
     "command line: model.dropout=1.0: 'model.dropout' must be in [0, 1), got 1.0."},
    {"NotPositive",
     "  gradient_accumulation_steps: 0\n",
     {},
     "c.yaml:10:32: 'training.gradient_accumulation_steps' must be in [1, 65536], got 0."},
    {"HeadsDoNotDivide",
     "",
     {"model.num_attention_heads=3"},
     "c.yaml:7:16: 'model.hidden_size' must be a multiple of num_attention_heads without "
     "head_size, got 64 and 3."},
    {"GroupsDoNotDivide",
     "",
     {"model.num_key_value_heads=3"},
     "command line: model.num_key_value_heads=3: 'model.num_key_value_heads' must divide "
     "num_attention_heads, got 3 and 4."},
    {"PositionsTooFew",
     "",
     {"model.position_embedding=learned", "model.max_position_embeddings=32"},
     "command line: model.max_position_embeddings=32: 'model.max_position_embeddings' must be at "
     "least data.max_length for learned positions, got 32 and 64."},
    {"BatchSmallerThanASentence",
     "  batch_size: 63\n",
     {},
     "c.yaml:10:15: 'training.batch_size' must hold the tokens of data.max_length, got 63 and "
     "64."},
    {"BytesNeedAVocabulary",
     "",
     {"tokenizer={vocab_size: 260, byte_fallback: true}"},
     "command line: tokenizer={vocab_size: 260, byte_fallback: true}: 'tokenizer.vocab_size' must "
     "be in [261, 16777216] with byte_fallback, got 260."},
    {"UnknownChoice",
     "  lr_scheduler_type: inverse_sqr\n",
     {},
     "c.yaml:10:22: 'training.lr_scheduler_type' must be one of constant, linear, cosine, "
     "inverse_sqrt, noam, polynomial, step, exponential, cosine_with_restarts, "
     "warmup_stable_decay, reduce_lr_on_plateau, got 'inverse_sqr'. Did you mean "
     "'inverse_sqrt'?"},
    {"KeyOfAnotherOptimizer",
     "  optimizer: {momentum: 0.9}\n",
     {},
     "c.yaml:10:25: 'training.optimizer.momentum' has no effect with name: adam."},
    {"KeyOfAnotherSchedule",
     "  lr_power: 2\n",
     {},
     "c.yaml:10:13: 'training.lr_power' has no effect with lr_scheduler_type: constant."},
    {"ScheduleWithoutItsWarmUp",
     "  lr_scheduler_type: noam\n",
     {},
     "c.yaml:9:3: 'training.warmup_steps' must be 1 or more for noam, got 0."},
    {"TypeOfAnotherTask",
     "",
     {"model.type=vit"},
     "command line: model.type=vit: 'model.type' must be one of encoder_decoder, rnn_attention "
     "with task: translation, got 'vit'."},
    {"UnknownDtype",
     "",
     {"dtype=float16"},
     "command line: dtype=float16: 'dtype' must be one of float32, float64, bfloat16, auto, got "
     "'float16'. Did you mean 'bfloat16'?"},
    {"BadDevice",
     "device: cuda:x\n",
     {},
     "c.yaml:10:9: 'device' must be one of auto, cpu, cuda, cuda:N, got 'cuda:x'."},
    {"OneBetaOnly",
     "  optimizer: {betas: [0.9]}\n",
     {},
     "c.yaml:10:22: 'training.optimizer.betas' must be two numbers, got 1."},
    {"BetaOutOfRange",
     "  optimizer: {betas: [0.9, 1]}\n",
     {},
     "c.yaml:10:28: every number of 'training.optimizer.betas' must be in [0, 1), got 1."},
    {"ScalarForASection",
     "tokenizer: sentencepiece\n",
     {},
     "c.yaml:10:12: 'tokenizer' must be a map of keys, got 'sentencepiece'."},
    {"TokenizerOptionOfAnotherType",
     "tokenizer: {type: char, byte_fallback: true}\n",
     {},
     "c.yaml:10:40: 'tokenizer.byte_fallback' has no effect with type: char."},
    {"TokenizerFileForTwoSides",
     "",
     {"tokenizer.share=false", "tokenizer.path=/dev/null"},
     "command line: tokenizer.share=false: 'tokenizer.share' must be true with path, which gives "
     "one "
     "tokenizer to both sides."},
    {"PatienceWithoutValidation",
     "  early_stopping_patience: 3\n",
     {},
     "c.yaml:10:28: 'training.early_stopping_patience' needs a validation set, got no "
     "'data.valid'."},
    {"MissingDataFile",
     "",
     {"data.train.source=/nowhere/x.en"},
     "command line: data.train.source=/nowhere/x.en: 'data.train.source': file /nowhere/x.en does "
     "not exist."},
    {"DirectoryForADataFile",
     "!task: translation\noutput_dir: run\ntraining: {max_steps: 1}\n"
     "data: {train: {source: data, target: data/a.de}}\n",
     {},
     "c.yaml:4:24: 'data.train.source': file data is a directory, expected a file."},
    {"HalfACorpus",
     "!task: translation\noutput_dir: run\ntraining: {max_steps: 1}\n"
     "data: {train: {source: data/a.en}}\n",
     {},
     "c.yaml:4:15: missing key 'target' in 'data.train'."},
    {"AnotherKindOfCorpus",
     "",
     {"data.train.ding=/nowhere/d"},
     "command line: data.train.ding=/nowhere/d: 'data.train.ding': file /nowhere/d does not "
     "exist."},
    {"EmptyCorpus",
     "",
     {"data.train={}"},
     "command line: data.train={}: 'data.train.source' is missing: give source and target, or one "
     "of tsv, csv, jsonl, parquet or ding."},
    {"NoCorpus",
     "",
     {"data.train=[]"},
     "command line: data.train=[]: 'data.train' must name a corpus, got none."},
    {"SameColumnTwice",
     "",
     {"data.train={tsv: /dev/null, target_column: 1}"},
     "command line: data.train={tsv: /dev/null, target_column: 1}: 'data.train.target_column' must "
     "differ from source_column, got 1 twice."},
    {"EmptyFile",
     "!",
     {},
     "4 errors in the configuration:\n"
     "  c.yaml:1:1: missing key 'task' at the top level.\n"
     "  c.yaml:1:1: missing key 'output_dir' at the top level.\n"
     "  c.yaml:1:1: missing key 'train' in 'data'.\n"
     "  c.yaml:1:1: missing key 'max_steps' in 'training'."},
    {"EverythingAtOnce",
     "  max_grad_nrm: 1\n  batch_size: x\nsed: 1\n",
     {"model.dropout=2"},
     "4 errors in the configuration:\n"
     "  c.yaml:10:3: unknown key 'max_grad_nrm' in 'training'; did you mean 'max_grad_norm'?\n"
     "  c.yaml:11:15: 'training.batch_size' must be an integer, got 'x'.\n"
     "  c.yaml:12:1: unknown key 'sed'; did you mean 'seed'?\n"
     "  command line: model.dropout=2: 'model.dropout' must be in [0, 1), got 2."},
    {"NotAMap",
     "!- a\n- b\n",
     {},
     "5 errors in the configuration:\n"
     "  c.yaml:1:1: the configuration must be a map of keys, got a list.\n"
     "  c.yaml:1:1: missing key 'task' at the top level.\n"
     "  c.yaml:1:1: missing key 'output_dir' at the top level.\n"
     "  c.yaml:1:1: missing key 'train' in 'data'.\n"
     "  c.yaml:1:1: missing key 'max_steps' in 'training'."},
    {"SyntaxError",
     "  optimizer: {name: adam\n",
     {},
     "c.yaml:11:1: YAML syntax error: end of map flow not found."},
    {"TabForIndentation",
     "\tseed: 1\n",
     {},
     "c.yaml:10:1: YAML syntax error: illegal tab when looking for indentation."},
    {"SecondDocument",
     "---\nseed: 1\n",
     {},
     "c.yaml:11:1: expected one YAML document, got a second one."},
    {"Anchor",
     "tokenizer: &t {share: true}\n",
     {},
     "c.yaml:10:12: anchors (&name) are not supported; write the value out."},
    {"MergeKey",
     "tokenizer: {<<: {share: true}}\n",
     {},
     "c.yaml:10:13: merge keys (<<) are not supported; write the keys out."},
    {"Tag", "seed: !!int 4\n", {}, "c.yaml:10:7: tags (!name) are not supported."},
    {"ListAsAKey",
     "? [a, b]\n: 1\n",
     {},
     "c.yaml:10:3: a key must be plain text, got a list or a map; is a bracket "
     "left open?"},
    {"OverrideWithoutValue",
     "",
     {"training.max_steps"},
     "command line: training.max_steps: expected section.key=value."},
    {"OverrideWithAnEmptyPart",
     "",
     {"training..max_steps=1"},
     "command line: training..max_steps=1: a part of the key is empty."},
    {"OverrideBelowAScalar",
     "seed: 4\n",
     {"seed.x=1"},
     "command line: seed.x=1: 'seed' is 4 and has no key 'x'."},
    {"OverrideSyntaxError",
     "",
     {"training.optimizer={name: adam"},
     "command line: training.optimizer={name: adam: a key must be plain text, got a list or a "
     "map; is a bracket left open?"},
};

INSTANTIATE_TEST_SUITE_P(All, BrokenConfigTest, testing::ValuesIn(kBroken),
                         [](const auto& info) { return info.param.name; });

TEST_F(ConfigTest, NamesAFileThatCannotBeRead) {
  try {
    load_config((folder_ / "none.yaml").string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_EQ(without_folder(error.what()),
              "none.yaml: cannot be read: No such file or directory.");
  }
  EXPECT_THROW(load_config(folder_.string()), Error);
}

}  // namespace
}  // namespace tapestry
