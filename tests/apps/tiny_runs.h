// Tiny trainings for tests: one experiment for each kind of task, its data, and the binary that
// runs it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "data/files/files.h"
#include "tests/apps/checkpoint_bytes.h"
#include "tests/data/files/files.h"
#include "tests/data/images/image_files.h"
#include "tests/paths.h"

namespace tapestry {

/// The sections of each experiment that differ. Those of texts read the same made-up sentences: as
/// pairs (train.src, train.tgt, the words backwards), as text (train.src), and with a class each,
/// told by the first word (train.tsv, and as records train.jsonl), and as talks about both
/// (train.talks.jsonl) and with a wrong answer, too (train.answers.jsonl),
/// and with a question each, what comes after a word (train.json), and with a tag each word
/// (train.conll), the names among its words (train.several) and half of their number (train.rated);
/// "valid" likewise. Those of images read IDX files of pictures whose class is the corner with a
/// bright square.
inline const std::map<std::string, std::string> kTinyTasks = {
    {"translation", R"(task: translation
data:
  train: {source: train.src, target: train.tgt}
  valid: {source: valid.src, target: valid.tgt}
  max_length: 32
tokenizer: {vocab_size: 40}
generation: {num_beams: 2}
model:
  encoder_layers: 1
  decoder_layers: 1
)"},
    {"clm", R"(task: clm
data:
  train: {text: train.src}
  valid: {text: valid.src}
  block_size: 16
tokenizer: {vocab_size: 40}
generation: {max_new_tokens: 8}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"prompts", R"(task: clm
data:
  train: {jsonl: train.jsonl, prompt: "{text}\nwhen:", answer: " {when}"}
  valid: {jsonl: valid.jsonl, prompt: "{text}\nwhen:", answer: " {when}"}
  max_length: 32
tokenizer: {vocab_size: 40}
generation: {do_sample: false}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 32
)"},
    {"chat", R"(task: clm
data:
  train: {jsonl: train.talks.jsonl, messages_column: messages}
  valid: {jsonl: valid.talks.jsonl, messages_column: messages}
  max_length: 40
tokenizer: {vocab_size: 44}
generation: {do_sample: false}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 64
)"},
    {"preference", R"(task: preference
data:
  train: {jsonl: train.answers.jsonl, prompt: "{text} when", chosen: " {when}", rejected: " {not}"}
  valid: {jsonl: valid.answers.jsonl, prompt: "{text} when", chosen: " {when}", rejected: " {not}"}
  max_length: 32
tokenizer: {vocab_size: 40}
generation: {do_sample: false}
preference: {beta: 0.5, chosen_weight: 1}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 32
)"},
    {"mlm", R"(task: mlm
data:
  train: {text: train.src}
  valid: {text: valid.src}
  block_size: 16
tokenizer: {vocab_size: 40}
masking: {probability: 0.3, whole_word: true}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"span_corruption", R"(task: denoising
data:
  train: {text: train.src}
  valid: {text: valid.src}
  max_length: 32
tokenizer: {vocab_size: 140}
denoising: {objective: span_corruption, noise_density: 0.3}
model:
  encoder_layers: 1
  decoder_layers: 1
)"},
    {"documents", R"(task: mlm
data:
  train: {text: train.src}
  valid: {text: valid.src}
  rows: documents
  max_length: 16
  overlong: truncate
tokenizer: {vocab_size: 40}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"infilling", R"(task: denoising
data:
  train: {text: train.src}
  valid: {text: valid.src}
  max_length: 32
tokenizer: {vocab_size: 140}
denoising: {objective: infilling}
model:
  encoder_layers: 1
  decoder_layers: 1
)"},
    {"classification", R"(task: classification
data:
  train: {tsv: train.tsv}
  valid: {tsv: valid.tsv}
  max_length: 16
tokenizer: {vocab_size: 40}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"questions", R"(task: question_answering
data:
  train: {squad: train.json}
  valid: {squad: valid.json}
  max_length: 16
  doc_stride: 4
tokenizer: {vocab_size: 40}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
  type_vocab_size: 2
)"},
    {"tokens", R"(task: token_classification
data:
  train: {conll: train.conll}
  valid: {conll: valid.conll}
  max_length: 16
tokenizer: {vocab_size: 40}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"several", R"(task: multi_label
data:
  train: {tsv: train.several}
  valid: {tsv: valid.several}
  max_length: 16
tokenizer: {vocab_size: 40}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"vectors", R"(task: embedding
data:
  train: {source: train.src, target: train.tgt}
  valid: {source: valid.src, target: valid.tgt}
  max_length: 16
tokenizer: {vocab_size: 40}
embedding: {both_directions: true}
model:
  num_hidden_layers: 1
  position_embedding: learned
  max_position_embeddings: 16
)"},
    {"images", R"(task: classification
data:
  train: {images: train-images.gz, labels: train-labels}
  valid: {images: valid-images.gz, labels: valid-labels}
  labels: [north-west, north-east, south-west]
  augment: {shift: 1}
model:
  patch_size: 4
  num_hidden_layers: 1
)"}};

/// Whether an experiment is of texts, so that it has a tokenizer.
inline bool has_tokenizer(const std::string& task) { return task != "images"; }

/// What all of them have: dropout, accumulation, averages and several epochs, everything that a
/// resumed run must get right.
inline const char* const kTinyRun = R"(  hidden_size: 16
  intermediate_size: 32
  num_attention_heads: 2
  dropout: 0.1
  attention_dropout: 0.1
output_dir: run
device: cpu
threads: 1
training:
  batch_size: 128
  gradient_accumulation_steps: 2
  max_steps: 60
  learning_rate: 5e-3
  lr_scheduler_type: inverse_sqrt
  warmup_steps: 10
  label_smoothing: 0.1
  max_grad_norm: 1.0
  ema_decay: 0.9
  logging_steps: 5
  eval_steps: 20
  save_steps: 5
  metric_for_best_model: nll
)";

/// An experiment of kTinyTasks.
inline std::string tiny_config(const std::string& task) {
  std::string config = kTinyTasks.at(task) + std::string(kTinyRun);
  const std::string smoothing = "  label_smoothing: 0.1\n";
  const bool chooses = task != "vectors" && task != "preference";
  if (!chooses) config.erase(config.find(smoothing), smoothing.size());
  return config;
}

/// Texts with a number each: how many words they have. It has no likelihood.
inline std::string tiny_rating() {
  std::string config = tiny_config("several");
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"multi_label", "text_regression"},
                                          {".several", ".rated"},
                                          {"  label_smoothing: 0.1\n", ""},
                                          {"model: nll", "model: mse"}}) {
    for (size_t at = 0; (at = config.find(from, at)) != std::string::npos; at += to.size()) {
      config.replace(at, from.size(), to);
    }
  }
  return config;
}

/// A regression has neither layers nor a tokenizer, so it stands beside the others.
inline const char* const kTinyRegression = R"(task: regression
data:
  train: {csv: train.csv}
  valid: {csv: valid.csv}
model: {kernel: gaussian, width: 0.5, learn_width: true}
output_dir: run
device: cpu
threads: 1
training:
  batch_size: 7
  gradient_accumulation_steps: 2
  max_steps: 60
  learning_rate: 5e-2
  lr_scheduler_type: constant
  max_grad_norm: 1.0
  ema_decay: 0.9
  logging_steps: 5
  eval_steps: 20
  save_steps: 5
)";

/// Whole lines of a text.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Noise of 8 x 8 pixels with a brighter square in a corner: 0 north-west, 1 north-east, 2
/// south-west.
inline TestPicture corner_picture(int corner, const PhiloxKey& key) {
  TestPicture picture{8, 8, 1, std::vector<uint8_t>(64)};
  for (int at = 0; at < 64; ++at) {
    const int y = at / 8, x = at % 8, left = corner == 1 ? 4 : 1, top = corner == 2 ? 4 : 1;
    const bool bright = y >= top && y < top + 3 && x >= left && x < left + 3;
    picture.pixels[static_cast<size_t>(at)] =
        static_cast<uint8_t>(philox_below(key, static_cast<uint64_t>(at), 60) + (bright ? 100 : 0));
  }
  return picture;
}

inline bool can_start_ranks() {
  const std::filesystem::path beside = std::filesystem::path(tapestry_binary()).parent_path();
  return std::filesystem::exists(beside / "../lib/tapestry/libtapestry_mpi.so") &&
         std::system("command -v mpirun >/dev/null") == 0;
}

/// The arguments of both.
inline std::vector<std::string> operator+(std::vector<std::string> a,
                                          const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A folder with the data and <task>.yaml of each experiment, in which the binary runs.
class TinyRunFolder {
 public:
  explicit TinyRunFolder(const std::string& name)
      : folder_(scratch() / concat("tapestry-runs-", getpid(), '-', name)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write_corpus("train", 200, 1);
    write_corpus("valid", 20, 2);
    write_images("train", 900, 1);
    write_images("valid", 60, 2);
    for (const auto& [task, config] : kTinyTasks) write(task + ".yaml", tiny_config(task));
    write_points("train", 40, 1);
    write_points("valid", 15, 2);
    write("regression.yaml", kTinyRegression);
    write("rating.yaml", tiny_rating());
    write("chat.jinja", "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}");
  }
  ~TinyRunFolder() { std::filesystem::remove_all(folder_); }
  TinyRunFolder(const TinyRunFolder&) = delete;
  TinyRunFolder& operator=(const TinyRunFolder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  /// Starts `tapestry train <task>.yaml output_dir=<run> <overrides>`; messages are added to "err".
  pid_t start(const std::string& task, const std::string& run,
              std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(),
                     {tapestry_binary(), "train", task + ".yaml", "output_dir=" + run});
    std::vector<char*> argv;
    for (std::string& argument : overrides) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const int err = open(path("err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (chdir(folder_.c_str()) != 0 || dup2(err, STDERR_FILENO) < 0) _exit(99);
      execv(argv[0], argv.data());
      _exit(99);
    }
    return child;
  }
  /// The exit code, or 1000 and the number of the signal that ended it.
  static int wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int train(const std::string& task, const std::string& run,
            const std::vector<std::string>& overrides = {}) const {
    return wait(start(task, run, overrides));
  }

  struct Outcome {
    int code = -1;
    std::string out;
    std::string err;
  };
  /// Runs `tapestry <arguments>` through the shell, with this text as its standard input.
  Outcome run(const std::string& arguments, const std::string& input = "") const {
    return run_shell("", arguments, input);
  }
  /// The same on so many ranks, which mpirun starts.
  Outcome run_ranks(int ranks, const std::string& arguments) const {
    if (ranks == 1) return run(arguments);
    return run_shell(concat(mpi_variables(), "mpirun -np ", ranks, " --oversubscribe"), arguments,
                     "");
  }
  /// As run(), by a shell that has these variables.
  Outcome run_with(const std::string& variables, const std::string& arguments) const {
    return run_shell(variables, arguments, "");
  }
  /// Variables for mpirun, which as root and in containers wants to be told that it may. Two starts
  /// at once race for the folder that all of a user's share: each has its own.
  std::string mpi_variables() const {
    return concat(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS="
        "detect_leaks=0:allocator_may_return_null=1 OMPI_MCA_orte_tmpdir_base='",
        folder_.string(), "' ");
  }
  /// Its standard output; it must succeed.
  std::string output(const std::string& arguments, const std::string& input = "") const {
    const Outcome outcome = run(arguments, input);
    EXPECT_EQ(outcome.code, 0) << arguments << '\n' << outcome.err;
    return outcome.out;
  }

  /// What the trainings said.
  std::string messages() const { return read_file(path("err")); }
  void forget_messages() const { std::filesystem::remove(path("err")); }

  /// What two equal runs must agree on: every file of the last checkpoint, but for time and names.
  CheckpointFiles result(const std::string& run) const {
    CheckpointFiles files = read_checkpoint(path(concat(run, "/last")));
    nlohmann::json state = nlohmann::json::parse(files.at("trainer_state.json"));
    state.erase("seconds");
    files["trainer_state.json"] = state.dump();
    files.erase("config.json");
    return files;
  }

  /// The lines of metrics.jsonl without what depends on the clock, the past or the memory.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> entries;
    for (const std::string& line : lines_of(read_file(path(concat(run, "/metrics.jsonl"))))) {
      entries.push_back(nlohmann::json::parse(line));
      for (const char* key : {"seconds", "tokens_per_s", "peak_bytes"}) entries.back().erase(key);
    }
    return entries;
  }

  /// The lines of samples.jsonl, but for pictures: each start shows them once.
  std::vector<nlohmann::json> samples(const std::string& run) const {
    std::vector<nlohmann::json> entries;
    for (const std::string& line : lines_of(read_file(path(concat(run, "/samples.jsonl"))))) {
      entries.push_back(nlohmann::json::parse(line));
      entries.back().erase("png");
    }
    return entries;
  }

 private:
  Outcome run_shell(const std::string& before, const std::string& arguments,
                    const std::string& input) const {
    write("in", input);
    const std::string command =
        concat("cd '", folder_.string(), "' && ", before, " '", tapestry_binary(), "' ", arguments,
               " <in >out 2>err-of-command");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("out")),
            read_file(path("err-of-command"))};
  }

  /// Memory where there is such a folder: every save is flushed, and a disk takes its time for
  /// that.
  static std::filesystem::path scratch() {
    const std::filesystem::path memory = "/dev/shm";
    return access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
  }

  void write_corpus(const std::string& name, int sentences, uint64_t seed) const {
    static const char* const kWords[] = {"ba", "ce", "di", "fo", "gu",
                                         "ha", "je", "ki", "lo", "mu"};
    std::string source, target, labelled, records, tagged, several, rated, talks, answers;
    nlohmann::json paragraphs = nlohmann::json::array();
    for (int i = 0; i < sentences; ++i) {
      const PhiloxKey key{seed, static_cast<uint32_t>(i), 0};
      const int words = 2 + static_cast<int>(philox_below(key, 100, 5));
      std::string forwards, backwards;
      for (int w = 0; w < words; ++w) {
        const std::string word = kWords[philox_below(key, static_cast<uint64_t>(w), 10)];
        const std::string space = w > 0 ? " " : "";
        // Three words are names, of which one goes on with the one before.
        const std::string tag = word == "ba"   ? "B-X"
                                : word == "ce" ? "I-X"
                                : word == "di" ? "B-Y"
                                               : "O";
        tagged += concat(word, " _ ", tag, '\n');
        forwards += space + word;
        backwards.insert(0, word + space);
      }
      tagged += '\n';
      std::string classes;
      for (const std::string word : {"ba", "ce", "mu"}) {
        if (forwards.find(word) == std::string::npos) continue;
        classes += concat(classes.empty() ? "" : ",", word);
      }
      several += concat(classes.empty() ? "-" : classes, '\t', forwards, '\n');
      rated += concat(0.5 * words, '\t', forwards, '\n');
      source += forwards + '\n';
      target += backwards + '\n';
      const char* const when = forwards[0] < 'h' ? "early" : "late";
      labelled += concat(when, '\t', forwards, '\n');
      const size_t space = forwards.find(' ');
      const std::string second = forwards.substr(space + 1, 2);
      paragraphs.push_back({{"context", forwards},
                            {"qas",
                             {{{"id", std::to_string(i)},
                               {"question", "after " + forwards.substr(0, space)},
                               {"answers", {{{"text", second}, {"answer_start", space + 1}}}}}}}});
      talks += concat(R"({"messages": [{"role": "user", "content": ")", forwards,
                      R"("}, {"role": "assistant", "content": ")", second,
                      R"("}, {"role": "user", "content": "when"}, )",
                      R"({"role": "assistant", "content": ")", when, "\"}]}\n");
      const char* const other = forwards[0] < 'h' ? "late" : "early";
      answers += concat(R"({"text": ")", forwards, R"(", "when": ")", when, R"(", "not": ")", other,
                        "\"}\n");
      records += concat("{\"text\": \"", forwards, "\", \"when\": \"", when,
                        "\", \"words\": ", words, "}\n");
    }
    write(name + ".src", source);
    write(name + ".tgt", target);
    write(name + ".tsv", labelled);
    write(name + ".jsonl", records);
    write(name + ".talks.jsonl", talks);
    write(name + ".answers.jsonl", answers);
    write(name + ".several", several);
    write(name + ".rated", rated);
    write(name + ".conll", "-DOCSTART- _ O\n\n" + tagged);
    write(name + ".json",
          nlohmann::json{{"data", {{{"title", name}, {"paragraphs", paragraphs}}}}}.dump());
  }

  // A parabola with noise, over [0, 4).
  void write_points(const std::string& name, uint64_t count, uint64_t seed) const {
    std::string text = "x,y\n";
    for (uint64_t i = 0; i < count; ++i) {
      const auto draw = [&](uint64_t stream) {
        return static_cast<double>(philox_below({seed, 0, 0}, 2 * i + stream, 1000)) / 1000;
      };
      const double x = 4 * draw(0);
      text += concat(x, ',', x * x / 4 + draw(1) - 0.5, '\n');
    }
    write(name + ".csv", text);
  }

  void write_images(const std::string& name, uint32_t count, uint64_t seed) const {
    std::vector<uint8_t> pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      const TestPicture picture = corner_picture(i % 3, {seed, i, 1});
      pixels.insert(pixels.end(), picture.pixels.begin(), picture.pixels.end());
      labels.push_back(static_cast<uint8_t>(i % 3));
    }
    write(name + "-images.gz", gzip(idx_file({count, 8, 8}, pixels)));
    write(name + "-labels", idx_file({count}, labels));
  }

  std::filesystem::path folder_;
};

/// The checkpoint of a run whose data may have other names and formats.
inline CheckpointFiles without_data_files(CheckpointFiles files) {
  std::string& bytes = files.at("trainer_state.json");
  nlohmann::json state = nlohmann::json::parse(bytes);
  state.erase("train_files");
  state.erase("valid_files");
  bytes = state.dump();
  return files;
}

inline void expect_equal(const CheckpointFiles& a, const CheckpointFiles& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, bytes] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(bytes == b.at(name)) << name << " differs";
  }
}

/// A folder whose "run" is the experiment as it is. It is trained once for all tests of a process
/// that compare with it.
inline const TinyRunFolder& plain(const std::string& task) {
  static std::map<std::string, std::unique_ptr<TinyRunFolder>> folders;
  std::unique_ptr<TinyRunFolder>& folder = folders[task];
  if (folder == nullptr) {
    folder = std::make_unique<TinyRunFolder>("plain-" + task);
    EXPECT_EQ(folder->train(task, "run"), 0) << folder->messages();
  }
  return *folder;
}

}  // namespace tapestry
