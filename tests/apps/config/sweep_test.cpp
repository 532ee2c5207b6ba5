// Every key of every task with values that nobody should give it: the answer is a config error that
// names the key, or a config that trains. Keys come from the resolved configs, so that a new key is
// swept by itself.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <regex>
#include <set>

#include "apps/config/config.h"
#include "apps/config/reference.h"
#include "apps/config/sections.h"
#include "tests/apps/config/schema_check.h"
#include "tests/apps/tiny_runs.h"
#include "tests/golden.h"

namespace tapestry {
namespace {

/// Beside each tiny task: what brings the keys to light that its own config does not have.
const std::vector<std::pair<std::string, std::vector<std::string>>> kVariants = {
    {"translation", {}},
    {"translation", {"training.lr_scheduler_type=step", "training.lr_step_size=5"}},
    {"translation", {"training.lr_scheduler_type=polynomial"}},
    {"translation", {"training.lr_scheduler_type=exponential", "training.lr_gamma=0.9"}},
    {"translation", {"training.lr_scheduler_type=cosine_with_restarts"}},
    {"translation",
     {"training.lr_scheduler_type=warmup_stable_decay", "training.lr_decay_steps=9"}},
    {"translation", {"training.lr_scheduler_type=reduce_lr_on_plateau"}},
    {"translation", {"training.max_hours=1"}},
    {"translation", {"data.clean={source_script: [Latin], target_script: [Latin]}"}},
    {"translation", {"generation={shortlist: train.src}"}},
    {"translation", {"training.optimizer={name: momentum}"}},
    {"translation", {"training.optimizer={name: rmsprop}"}},
    {"translation", {"training.optimizer={name: adadelta}"}},
    {"translation", {"training.optimizer={name: muon}"}},
    {"translation", {"model.decoder_self_attention=ssru"}},
    {"translation", {"data.train={tsv: train.tsv}", "data.max_length=64"}},
    {"translation", {"data.train={ding: train.ding}"}},
    {"translation",
     {"model={type: rnn_attention, hidden_size: 16, encoder_layers: 1, decoder_layers: 1}"}},
    {"vectors", {}},
    {"preference", {}},
    {"preference", {"preference.loss=simpo"}},
    {"clm", {}},
    {"clm", {"model.position_embedding=rope", "model.kv_latent_size=8"}},
    {"clm", {"model.position_embedding=rope", "model.rope_scaling={type: llama3}"}},
    {"clm", {"model.position_embedding=rope", "model.rope_scaling={type: yarn}"}},
    {"clm",
     {"model.position_embedding=rope",
      "model.rope_scaling={type: longrope, short_factor: [1, 1, 1, 2], long_factor: [1, 2, 3, "
      "4]}"}},
    {"clm", {"model.position_embedding=relative"}},
    {"clm", {"model.norm_position=pre", "model.parallel_residual=true"}},
    {"clm",
     {"model.position_embedding=rope", "model.attention_window=4",
      "model.layer_types=[window, full]"}},
    {"clm", {"training.lora={rank: 2, modules_to_save: [\"*norm*\"]}"}},
    {"prompts", {}},
    {"chat", {}},
    {"clm", {"model.norm=batchnorm"}},
    {"mlm", {}},
    {"mlm", {"data.train.documents=file"}},
    {"documents", {}},
    {"span_corruption", {}},
    {"infilling", {}},
    {"classification", {"data.labels=[early, late]"}},
    {"classification",
     {"data.train={tsv: three.tsv, text_pair_column: 3}",
      "data.valid={tsv: three.tsv, text_pair_column: 3}"}},
    {"vectors", {"model.vector_size=6"}},
    {"vectors", {"data.train={tsv: three.tsv, negative_column: 3}"}},
    {"vectors",
     {"data.train={tsv: scores.tsv, score_column: 3}",
      "data.valid={tsv: scores.tsv, score_column: 3}", "embedding={temperature: 0.1}",
      "training.metric_for_best_model=spearman"}},
    {"questions", {}},
    {"tokens", {}},
    {"tokens", {"model.pooled_tokens=true"}},
    {"several", {"data.labels=[ba, ce, mu]"}},
    {"rating", {}},
    {"tokens", {"data.train={jsonl: train.jsonl}"}},
    {"images", {}},
    {"images", {"data.image={height: 8, width: 8, channels: 1, mean: [0.5], std: [0.5]}"}},
    {"images", {"model={type: linear}"}},
    {"regression", {}},
    {"regression",
     {"data.train={csv: flowers.csv, x_columns: [1, 2], class_column: 3}",
      "data.valid={csv: flowers.csv, x_columns: [1, 2], class_column: 3}"}},
    {"translation", {"data.train={source: train.src, target: train.tgt, pair_weights: ones.txt}"}},
    {"translation", {"data.train={jsonl: pairs.jsonl, pair_weight_column: score}"}},
    {"translation", {"init_from=elsewhere"}},
    {"translation", {"training.teacher=elsewhere"}},
    {"translation", {"training.guided_alignment={file: train.align}"}},
    {"classification", {"data.train={csv: classes.csv}"}},
    {"clm", {"data.train={jsonl: train.jsonl}"}},
    {"clm", {"data.train={parquet: rows.parquet}"}},
    {"questions", {"data.train={jsonl: train.jsonl}"}},
    {"translation", {"data.cache_dir=elsewhere"}},
};

const std::string kLong(10000, 'a');
/// Values in YAML, by a name for messages.
const std::vector<std::pair<std::string, std::string>> kValues = {
    {"0", "0"},       {"-1", "-1"},       {"1", "1"},
    {"0.5", "0.5"},   {"1e308", "1e308"}, {"2^31", "2147483648"},
    {"nan", "nan"},   {".nan", ".nan"},   {"2^63-1", "9223372036854775807"},
    {"inf", "inf"},   {".inf", ".inf"},   {"2^63", "9223372036854775808"},
    {"nothing", ""},  {"empty", "\"\""},  {"a space", "\" \""},
    {"10 kB", kLong},
};

/// A folder with the resolved config of each variant, in which every key stands.
class SweepTest : public testing::Test {
 protected:
  SweepTest() : folder_("sweep") {
    folder_.write("train.ding", "Haus {n} :: house\ngroßes Haus :: large house\n");
    folder_.write("flowers.csv", "length,width,kind\n1,2,a\n2,4,b\n1,1,a\n");
    std::string ones, links, pairs, three, scores;
    for (const std::string& line : lines_of(read_file(folder_.path("train.src")))) {
      ones += "1\n";
      links += "0-0\n";
      pairs +=
          concat(R"({"source": ")", line, R"(", "target": ")", line, R"(", "score": 1})", '\n');
    }
    for (const std::string& line : lines_of(read_file(folder_.path("train.tsv")))) {
      three += concat(line, "\tba fo\n");
      scores += concat(line, '\t', line.size(), '\n');
    }
    folder_.write("three.tsv", three);
    folder_.write("scores.tsv", scores);
    folder_.write("ones.txt", ones);
    folder_.write("train.align", links);
    folder_.write("pairs.jsonl", pairs);
    folder_.write("rows.parquet", "not opened");
    folder_.write("classes.csv", "label,text\nearly,ba ce\nlate,mu lo\n");
    std::string output = concat("output_dir=", folder_.path("run"));
    for (size_t i = 0; i < kVariants.size(); ++i) {
      std::vector<std::string> overrides = {output};
      for (std::string text : kVariants[i].second) {
        for (const std::string file :
             {"train.tsv", "train.ding", "train.jsonl", "classes.csv", "flowers.csv", "train.src",
              "train.tgt", "train.align", "ones.txt", "pairs.jsonl", "rows.parquet", "three.tsv",
              "scores.tsv"}) {
          const size_t at = text.find(concat(": ", file));
          if (at != std::string::npos) text.replace(at + 2, file.size(), path_of(file));
        }
        overrides.push_back(text);
      }
      const Config config = load_config(folder_.path(kVariants[i].first + ".yaml"), overrides);
      keys_.push_back(flat_keys(config));
      folder_.write(file_of(i), to_yaml(config));
      roots_.push_back(parse_config_file(path_of(file_of(i))));
    }
  }

  std::string path_of(const std::string& name) const { return folder_.path(name); }
  /// As load_config() does, which parses the file each time.
  Config load(size_t variant, const std::string& override) const {
    ConfigNode root = roots_[variant];
    std::vector<ConfigProblem> problems;
    apply_override(root, override, 0, problems);
    return read_tree(root, {}, std::move(problems));
  }
  static std::string file_of(size_t variant) { return concat("resolved-", variant, ".yaml"); }

  TinyRunFolder folder_;
  std::vector<std::map<std::string, std::string>> keys_;  ///< of each variant
  std::vector<ConfigNode> roots_;                         ///< its file
};

/// The sweep takes minutes, so each test takes a share of the keys.
constexpr size_t kKeyShares = 8;

class SweepOfKeysTest : public SweepTest, public testing::WithParamInterface<size_t> {
 protected:
  SweepOfKeysTest() {
    std::set<std::string> all;
    for (const auto& keys : keys_) {
      for (const auto& [key, current] : keys) all.insert(key);
    }
    size_t place = 0;
    for (const std::string& key : all) {
      if (place++ % kKeyShares == GetParam()) mine_.insert(key);
    }
  }

  std::set<std::string> mine_;
};

INSTANTIATE_TEST_SUITE_P(Shares, SweepOfKeysTest, testing::Range(size_t{0}, kKeyShares));

/// "training.optimizer.betas" of "training.optimizer.betas.0".
std::string without_index(const std::string& key) {
  const size_t dot = key.rfind('.');
  const bool index =
      dot != std::string::npos && key.find_first_not_of("0123456789", dot + 1) == std::string::npos;
  return index ? key.substr(0, dot) : key;
}

/// Whether a message names the key: by its full name, or, in a sentence about another key that it
/// does not go with, by its last part.
bool names(const std::string& message, const std::string& key) {
  const std::string full = without_index(key);
  if (message.find(concat('\'', full, '\'')) != std::string::npos) return true;
  const std::string last = full.substr(full.rfind('.') + 1);
  const auto is_letter = [&](size_t at) {
    return at < message.size() && (std::isalnum(message[at]) != 0 || message[at] == '_');
  };
  for (size_t at = 0; (at = message.find(last, at)) != std::string::npos; ++at) {
    if (!is_letter(at - 1) && !is_letter(at + last.size())) return true;
  }
  return false;
}

TEST_F(SweepTest, SeesEveryKeyOfTheReference) {
  std::set<std::string> seen;
  for (const auto& keys : keys_) {
    for (const auto& [key, value] : keys) seen.insert(without_index(key));
  }
  // Lists that are empty have no entry to sweep, and a file must be there: their own tests are in
  // config_tasks_test.cpp and chat_test.cpp.
  const std::set<std::string> empty_lists = {
      "data.chat_template_path",          "training.freeze",
      "training.optimizer.decay_exclude", "training.optimizer.adamw_parameters",
      "tokenizer.user_symbols",           "training.report_to",
      "evaluation.extra_metrics"};
  for (const KeyEntry& entry : key_entries()) {
    const bool of_serve = entry.tasks.empty();
    if (entry.is_section() || of_serve || empty_lists.contains(entry.name)) continue;
    EXPECT_TRUE(seen.contains(entry.name)) << entry.name << ": no variant has it";
  }
}

TEST_P(SweepOfKeysTest, EveryValueIsTakenOrRefusedByTheKeysOwnName) {
  int taken = 0, refused = 0;
  std::set<std::string> done;
  for (size_t variant = 0; variant < keys_.size(); ++variant) {
    for (const auto& [key, current] : keys_[variant]) {
      if (!mine_.contains(key)) continue;
      for (const auto& [name, value] : kValues) {
        SCOPED_TRACE(concat(kVariants[variant].first, ' ', variant, ": ", key, '=', name));
        try {
          const Config config = load(variant, concat(key, '=', value));
          ++taken;
          if (!done.insert(concat(key, '=', name)).second) continue;
          EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
          EXPECT_TRUE(names(error.what(), key)) << std::string(error.what()).substr(0, 500);
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(taken, 1000 / static_cast<int>(kKeyShares));
  EXPECT_GT(refused, 10000 / static_cast<int>(kKeyShares));
}

/// A message as the golden file has it: in one line, without what differs from run to run.
std::string golden_message(std::string message, const std::string& folder) {
  const auto replace_all = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = message.find(from, at)) != std::string::npos; at += to.size()) {
      message.replace(at, from.size(), to);
    }
  };
  replace_all(folder, "");
  replace_all(std::filesystem::current_path().string() + '/', "");
  replace_all("\n", " / ");
  static const std::regex long_name("a{20,}(\\.\\.\\.)?"), place("resolved-[0-9]+\\.yaml:[0-9:]+");
  message = std::regex_replace(message, long_name, "a...");
  return std::regex_replace(message, place, "config.yaml:");
}

// What each key says of each value, in the first variant that has the key.
TEST_F(SweepTest, MessagesAreThoseOfTheGoldenFile) {
  std::set<std::string> done;
  std::map<std::string, std::string> entries;
  for (size_t variant = 0; variant < keys_.size(); ++variant) {
    for (const auto& [key, current] : keys_[variant]) {
      if (!done.insert(key).second) continue;
      std::map<std::string, std::string> values;  // by their message
      for (const auto& [name, value] : kValues) {
        try {
          load(variant, concat(key, '=', value));
        } catch (const Error& error) {
          std::string& names = values[golden_message(error.what(), folder_.path(""))];
          names += concat(names.empty() ? "" : ", ", name);
        }
      }
      for (const auto& [message, names] : values) entries[concat(key, ": ", names)] = message;
    }
  }
  GoldenFile("messages.txt", "Config keys with wrong values, and what is said of them.")
      .expect_all(entries);
}

// An editor marks nothing that the reader takes, and most of what it refuses.
TEST_F(SweepTest, TheSchemaTakesWhatTheReaderTakes) {
  SchemaCheck schema;
  std::set<std::string> done;
  int refused = 0, marked = 0;
  for (size_t variant = 0; variant < keys_.size(); ++variant) {
    const std::string yaml = read_file(folder_.path(file_of(variant)));
    EXPECT_EQ(schema.problems(yaml, {}), "") << kVariants[variant].first << ' ' << variant;
    for (const auto& [key, current] : keys_[variant]) {
      if (!done.insert(key).second) continue;
      for (const auto& [name, value] : kValues) {
        const std::string override = concat(key, '=', value);
        try {
          load(variant, override);
          EXPECT_EQ(schema.problems(yaml, {override}), "") << key << '=' << name;
        } catch (const Error&) {
          ++refused;
          marked += schema.problems(yaml, {override}).empty() ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(marked, 3 * refused / 4) << refused;
}

// What is taken trains an update, each key and value once, in the first variant that has the key.
TEST_P(SweepOfKeysTest, WhatIsTakenTrains) {
  std::set<std::string> done;
  int runs = 0;
  for (size_t variant = 0; variant < keys_.size(); ++variant) {
    for (const auto& [key, current] : keys_[variant]) {
      if (!mine_.contains(key) || !done.insert(key).second || key == "init_from" ||
          key == "output_dir" || key.starts_with("training.teacher"))
        continue;
      for (const auto& [name, value] : kValues) {
        const std::string override = concat(key, '=', value);
        try {
          load(variant, override);
        } catch (const Error&) {
          continue;
        }
        SCOPED_TRACE(concat(kVariants[variant].first, ' ', variant, ": ", key, '=', name));
        // A run of any length stops after its first update.
        const std::string limit =
            key == "training.max_hours" ? "training.max_steps=1" : "training.max_hours=1e-9";
        const TinyRunFolder::Outcome outcome =
            folder_.run(concat("train ", file_of(variant), " output_dir=run", ++runs, ' ', limit,
                               " training.gradient_accumulation_steps=1 '", override, "'"));
        const bool right =
            outcome.code == 0 ||
            (outcome.code == static_cast<int>(ErrorKind::kConfig) && names(outcome.err, key)) ||
            // Rates without a bound let training diverge, and it says so.
            outcome.code == static_cast<int>(ErrorKind::kDiverged) ||
            // The data does not have the column, the class or the format that the key names.
            (outcome.code == static_cast<int>(ErrorKind::kData) && key.starts_with("data.") &&
             outcome.err.find("[data] ") != std::string::npos);
        std::filesystem::remove_all(folder_.path(concat("run", runs)));
        EXPECT_TRUE(right) << "exit code " << outcome.code << '\n' << outcome.err.substr(0, 1000);
      }
    }
  }
  EXPECT_GT(runs, 200 / static_cast<int>(kKeyShares));
}

}  // namespace
}  // namespace tapestry
