// What must stay as it is while the code moves: the weights of short trainings, and runs of an
// older commit. A change that means to change them writes the files again and says so:
//   TAPESTRY_WRITE_GOLDEN=1 build/release/tests/apps_tests --gtest_filter='*Golden*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <regex>
#include <set>

#include "core/build_info.h"
#include "core/cpu/vector_target.h"
#include "tests/apps/run/kept_results.h"
#include "tests/apps/tiny_runs.h"
#include "tests/environment_variable.h"
#include "tests/golden.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVectors = "AVX2";

bool has_vectors() { return vector_target().starts_with("AVX"); }

/// Chooses kernels that every AVX2 processor has, so that all of them give the same figures.
class ChosenKernels {
 public:
  ChosenKernels() {
    if (!has_vectors()) return;
    variables_.emplace_back("OPENBLAS_CORETYPE", "Haswell");
    variables_.emplace_back("TAPESTRY_VECTORS", kVectors);
    variables_.emplace_back("TAPESTRY_BFLOAT16", "float32");
  }

 private:
  std::list<EnvironmentVariable> variables_;
};

/// What the bits of a training depend on, beside its config. The program has the options of this
/// one.
std::string kernel_family() {
  return concat(build_info().type, ", ", build_info().compiler, ", ",
                has_vectors() ? kVectors : vector_target());
}

/// The config's own data has no place in a test: files of the same kind that TinyRunFolder makes.
std::vector<std::string> tiny_data(const std::string& config) {
  const auto both = [](const std::string& train, std::vector<std::string> more = {}) {
    std::string valid = train;
    for (size_t at = 0; (at = valid.find("train", at)) != std::string::npos;) {
      valid.replace(at, 5, "valid");
    }
    more.insert(more.begin(), {concat("data.train=", train), concat("data.valid=", valid)});
    return more;
  };
  const auto has = [&](const char* text) { return config.find(text) != std::string::npos; };
  if (has("task: translation")) return both("{source: train.src, target: train.tgt}");
  if (has("task: question_answering")) return both("{squad: train.json}");
  if (has("task: regression")) return both("{csv: train.csv}");
  if (has("answer: ")) {
    return both(R"({jsonl: train.jsonl, prompt: "{text}\nwhen:", answer: " {when}"})");
  }
  if (has("images: ")) {
    return both("{images: train-images.gz, labels: train-labels}",
                {"data.labels=[north-west, north-east, south-west]",
                 "data.image={height: 8, width: 8, channels: 1}"});
  }
  if (has("task: classification")) return both("{tsv: train.tsv}");
  return both("{text: train.src}");
}

/// Sizes of which none is left as large as the config has it.
constexpr std::pair<const char*, int> kSmall[] = {
    {"model.hidden_size", 16},
    {"model.intermediate_size", 32},
    {"model.num_attention_heads", 2},
    {"model.num_key_value_heads", 1},
    {"model.kv_latent_size", 8},
    {"model.rope_head_size", 4},
    {"model.encoder_layers", 2},
    {"model.decoder_layers", 2},
    {"model.num_hidden_layers", 2},
    {"model.max_position_embeddings", 32},
    {"model.patch_size", 4},
    {"data.block_size", 16},
    {"data.max_length", 32},
    {"training.batch_size", 128},
    {"training.gradient_accumulation_steps", 2},
    {"training.warmup_steps", 5},
    {"training.eval_steps", 20},
    {"training.save_steps", 20},
};

/// The value of `key: 12` in a YAML text.
int64_t number_of(const std::string& yaml, const std::string& full_name) {
  const std::string key = full_name.substr(full_name.rfind('.') + 1) + ": ";
  const size_t at = yaml.find(' ' + key);
  return at == std::string::npos ? 0 : std::atoll(yaml.c_str() + at + 1 + key.size());
}

std::vector<std::string> small_variant(const std::string& config) {
  std::vector<std::string> overrides = tiny_data(config);
  for (const auto& [key, size] : kSmall) {
    if (number_of(config, key) > size) overrides.push_back(concat(key, '=', size));
  }
  // The text of these files has few pieces; bytes and marks of gaps have tokens of their own.
  const bool bytes = config.find("byte_fallback: true") != std::string::npos;
  const bool gaps = config.find("task: denoising") != std::string::npos;
  if (number_of(config, "tokenizer.vocab_size") > 0) {
    overrides.push_back(concat("tokenizer.vocab_size=", bytes ? 300 : gaps ? 140 : 40));
  }
  // What auto chooses, it measures.
  if (config.find("dtype: auto") != std::string::npos) overrides.emplace_back("dtype=float32");
  for (const char* text : {"training.max_steps=20", "training.logging_steps=20", "threads=1",
                           "device=cpu", "training.max_hours=1"}) {
    overrides.emplace_back(text);
  }
  return overrides;
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(project_file("configs"))) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenWeights : public testing::TestWithParam<std::string> {};

TEST_P(GoldenWeights, AreThoseOfTheFile) {
  const ChosenKernels kernels;
  const TinyRunFolder folder("golden-" + GetParam());
  const std::string yaml = read_file(project_file(concat("configs/", GetParam(), ".yaml")));
  folder.write(GetParam() + ".yaml", yaml);
  ASSERT_EQ(folder.train(GetParam(), "run", small_variant(yaml)), 0) << folder.messages();
  const CheckpointFiles files = read_checkpoint(folder.path("run/last"));
  const std::string weights =
      hash_of(parse_safetensors(files.at("model.safetensors"), "model.safetensors"));
  double loss = 0;
  for (const auto& entry : folder.metrics("run")) {
    if (entry["kind"] == "train") loss = entry["loss"];
  }
  GoldenFile golden("weights.txt",
                    "Kernels, config, loss and hash of the weights after 20 updates.");
  const std::string name = concat(kernel_family(), '\t', GetParam());
  golden.expect(name, concat(loss, '\t', weights));
  // Other kernels sum in another order.
  for (const auto& [other, value] : golden.entries()) {
    if (!other.ends_with('\t' + GetParam())) continue;
    EXPECT_NEAR(std::stod(value), loss, 1e-4 * std::abs(loss)) << other;
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, GoldenWeights, testing::ValuesIn(shipped_names()),
                         [](const auto& info) { return info.param; });

std::vector<std::string> tiny_names() {
  std::vector<std::string> names = {"regression"};
  for (const auto& [name, config] : kTinyTasks) {
    static const std::set<std::string> kYounger = {"documents", "chat",      "tokens", "several",
                                                   "vectors",   "preference"};  // than the files
    if (!kYounger.contains(name)) names.push_back(name);
  }
  return names;
}

/// Equal texts but for the last digits of their numbers, which other kernels round otherwise.
void expect_same_answers(const std::string& ours, const std::string& theirs) {
  const auto words_of = [](const std::string& text) {
    std::istringstream in(text);
    return std::vector<std::string>{std::istream_iterator<std::string>(in), {}};
  };
  const std::vector<std::string> mine = words_of(ours), expected = words_of(theirs);
  ASSERT_EQ(mine.size(), expected.size()) << ours << "\nagainst\n" << theirs;
  for (size_t i = 0; i < mine.size(); ++i) {
    char *end_of_mine = nullptr, *end_of_expected = nullptr;
    const double x = std::strtod(mine[i].c_str(), &end_of_mine);
    const double y = std::strtod(expected[i].c_str(), &end_of_expected);
    if (*end_of_mine == '\0' && *end_of_expected == '\0') {
      EXPECT_NEAR(x, y, 1e-4 + 1e-4 * std::abs(y));
    } else {
      EXPECT_EQ(mine[i], expected[i]) << ours << "\nagainst\n" << theirs;
    }
  }
  EXPECT_EQ(std::ranges::count(ours, '\n'), std::ranges::count(theirs, '\n'));
}

// Ten updates of the program of commit bfa6eca, written by
//   TAPESTRY_BINARY=<that program> TAPESTRY_WRITE_GOLDEN=1 apps_tests --gtest_filter='*GoldenRun*'
class GoldenRun : public testing::TestWithParam<std::string> {
 protected:
  /// What the run says, and the loss that it has ten updates later.
  std::map<std::string, std::string> answers() const {
    std::map<std::string, std::string> all;
    for (const auto& [command, input] : questions_of(GetParam())) {
      all[concat(command.substr(0, command.find(' ')), ".txt")] = folder_.output(command, input);
    }
    EXPECT_EQ(folder_.train(GetParam(), "run", {"training.max_steps=20"}), 0) << folder_.messages();
    for (const auto& entry : folder_.metrics("run")) {
      if (entry["kind"] == "train") all["loss.txt"] = concat(entry["loss"].get<double>(), '\n');
    }
    return all;
  }

  const ChosenKernels kernels_;
  TinyRunFolder folder_{concat("golden-run-", GetParam())};
};

TEST_P(GoldenRun, AnswersAndResumesAsItDid) {
  const fs::path kept = golden_path("runs/" + GetParam());
  if (writes_golden()) {
    ASSERT_EQ(folder_.train(GetParam(), "run", {"training.max_steps=10", "training.save_steps=10"}),
              0)
        << folder_.messages();
    fs::remove_all(kept);
    fs::create_directories(kept);
    fs::copy(folder_.path("run/checkpoint-10"), kept / "checkpoint-10");
    for (const auto& [name, text] : answers()) std::ofstream(kept / name) << text;
    return;
  }
  // Those checkpoints know their data by its path alone.
  CheckpointFiles files = read_checkpoint((kept / "checkpoint-10").string());
  static const std::regex old_folder(R"(/[^" ]*tapestry-runs-\d+-golden-run-\w+)");
  const std::string here = folder_.path("").substr(0, folder_.path("").size() - 1);
  files["config.json"] = std::regex_replace(files.at("config.json"), old_folder, here);
  fs::create_directories(folder_.path("run"));
  write_checkpoint(folder_.path("run/checkpoint-10"), {files.begin(), files.end()});
  fs::create_symlink("checkpoint-10", folder_.path("run/last"));
  fs::create_symlink("checkpoint-10", folder_.path("run/best"));
  for (const auto& [name, text] : answers()) {
    SCOPED_TRACE(name);
    expect_same_answers(text, read_file((kept / name).string()));
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, GoldenRun, testing::ValuesIn(tiny_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tapestry
