// tapestry bench --decode: how fast a model answers. Sources and prompts are synthetic, and every
// answer has the length that --shape asks for, so that models of all qualities do the same work.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/bench/bench.h"
#include "apps/commands/number_bounds.h"
#include "apps/run/pretrained.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/text_models.h"
#include "core/allocator.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/base/progress.h"
#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/device_runtime.h"
#include "core/read_rate.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct DecodeArguments {
  SearchArguments search = {};  ///< of the beam search
};

// The number of answers, and the tokens of each input and answer.
struct DecodeShape {
  int64_t rows = 0, read = 0, written = 0;
};

DecodeShape shape_of(const BenchArguments& arguments, bool translates) {
  std::string text = arguments.shape;
  if (text.empty()) text = translates ? "64x24x24" : "1x8x128";
  DecodeShape shape;
  char rest = 0;
  const bool read = std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &shape.rows, &shape.read,
                                &shape.written, &rest) == 3;
  if (!read || shape.rows < 1 || shape.read < 1 || shape.written < 1) {
    fail(ErrorKind::kConfig, "[bench] --shape must be ANSWERSxREADxWRITTEN with --decode, got '",
         text, "'.");
  }
  return shape;
}

std::vector<int32_t> synthetic_tokens(int64_t count, int64_t row, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t draw = philox_below({7, static_cast<uint32_t>(row), 3}, static_cast<uint64_t>(i),
                                       static_cast<uint64_t>(vocab - 4));
    tokens.push_back(static_cast<int32_t>(4 + draw));
  }
  return tokens;
}

// A model that answers the same questions each time.
struct Answerer {
  std::string weights = {};                               ///< the format
  std::function<void(const SearchOptions&)> answer = {};  ///< all rows once
  int64_t read_bytes = 0;                  ///< of weights, for each token of one prompt
  std::shared_ptr<const void> model = {};  ///< whatever `answer` needs
  int64_t held_bytes = 0;                  ///< of the model's memory
  int64_t load_bytes = 0;                  ///< the most that loading took
};

// Measures the device memory that work takes during its lifetime.
class MemoryMeter {
 public:
  explicit MemoryMeter(Device device) : device_(device) {
    reset_peak_bytes();
    before_ = memory_of(device).bytes_in_use;
  }
  int64_t held() const { return memory_of(device_).bytes_in_use - before_; }
  int64_t most() const { return memory_of(device_).peak_bytes - before_; }

 private:
  Device device_;
  int64_t before_;
};

Answerer translator_of(std::shared_ptr<const void> owner, const PairModels& models, int64_t vocab,
                       PairRows around, const DecodeShape& shape) {
  Sentences sentences{.rows = std::move(around), .log_probabilities = false};
  sentences.rows.banned.push_back(sentences.rows.eos);  // but at the end
  for (int64_t row = 0; row < shape.rows; ++row) {
    sentences.sources.push_back(synthetic_tokens(shape.read, row, vocab));
  }
  const auto answer = [=](const SearchOptions& options) {
    translate(models, sentences, options, /*sentences_at_once=*/0);
  };
  return {.answer = answer, .model = std::move(owner)};
}

Answerer generator_of(std::shared_ptr<const void> owner, const LanguageModel& model,
                      const ParamStore& store, const DecodeShape& shape) {
  SearchTask task{.sentences = shape.rows};
  task.force_eos = task.log_probabilities = false;
  task.banned = {task.eos_id};
  for (int64_t row = 0; row < shape.rows; ++row) {
    task.prompts.push_back(synthetic_tokens(shape.read, row, model.vocabulary.size));
    task.max_lengths.push_back(shape.written);
  }
  const auto answer = [&model, task](const SearchOptions& options) {
    const auto steps = [&model] { return std::make_unique<LanguageModelSteps>(model); };
    const auto done = [](int64_t, const std::vector<Hypothesis>&) {};
    search_together(steps, task, options, {}, done, model.table.device());
  };
  return {.answer = answer, .read_bytes = store.multiplied_bytes(), .model = std::move(owner)};
}

// A model from a config: fresh parameters, a vocabulary of the config's size.
struct FreshModel {
  FreshModel(const Config& config, WeightFormat format)
      : store(make_store(config, ModelUse::kAnswers)) {
    const int64_t vocab = config.tokenizer.vocab_size;
    if (!traits_of(config.model_type).reads_two_texts) {
      text.emplace(config.model, LanguageModel::Vocabulary{.size = vocab}, /*causal=*/true,
                   store.root());
    } else {
      pairs.emplace(
          config.model,
          Vocabulary{.source_size = vocab, .target_size = vocab, .shared = config.tokenizer.share},
          store.root());
    }
    store.pack(format);
  }

  ParamStore store;
  std::optional<LanguageModel> text;
  std::optional<EncoderDecoder> pairs;
};

Answerer fresh_answerer(const Config& config, WeightFormat format, const DecodeShape& shape) {
  const auto model = std::make_shared<const FreshModel>(config, format);
  if (model->text) return generator_of(model, *model->text, model->store, shape);
  return translator_of(model, {{&*model->pairs}}, config.tokenizer.vocab_size, {}, shape);
}

Answerer trained_answerer(const BenchArguments& arguments, const Config& config,
                          WeightFormat format, const DecodeShape& shape) {
  const ModelChoice choice{.paths = {arguments.config}, .format = format};
  if (!traits_of(config.model_type).reads_two_texts) {
    const auto models =
        std::make_shared<const TextModels>(choice, config.device, "bench", kContinuesText);
    return generator_of(models, models->first().model, models->first().store, shape);
  }
  const auto models =
      std::make_shared<const Translator>(choice, config.device, "bench", kTranslates);
  return translator_of(models, models->models(), models->tokenizers().source->vocab_size(),
                       models->rows(), shape);
}

SearchOptions options_of(const SearchOptions& config, int64_t beams, const DecodeShape& shape) {
  SearchOptions options;
  options.num_beams = beams;
  options.length_penalty = config.length_penalty;
  options.length_penalty_type = config.length_penalty_type;
  options.max_new_tokens = shape.written;
  return options;
}

struct Timed {
  Answerer* answerer;
  SearchOptions options;
  std::vector<double> seconds = {};
  int64_t peak_bytes = 0;  ///< of the model, and of the answers besides
};

double answer_once(Timed& timed, Device device) {
  const MemoryMeter memory(device);
  const double start = steady_seconds();
  timed.answerer->answer(timed.options);
  synchronize(device);
  const double seconds = steady_seconds() - start;
  timed.peak_bytes = std::max(timed.peak_bytes, timed.answerer->held_bytes + memory.most());
  timed.answerer->held_bytes += memory.held();  // the memory that the first answers add to a model
  return seconds;
}

Json figures_of(const Timed& timed, const DecodeShape& shape,
                std::optional<double> gigabytes_per_s) {
  const double seconds = median(timed.seconds);
  const auto rows = static_cast<double>(shape.rows), steps = static_cast<double>(shape.written);
  Json figures{{"weights", timed.answerer->weights},
               {"beams", timed.options.num_beams},
               {"median_s", seconds},
               {"tokens_per_s", rows * steps / seconds},
               {"answers_per_s", rows / seconds},
               {"ms_per_step", 1e3 * seconds / steps},
               {"peak_memory_bytes", timed.peak_bytes}};
  if (timed.answerer->load_bytes > 0) figures["load_memory_bytes"] = timed.answerer->load_bytes;
  if (gigabytes_per_s && shape.rows == 1 && timed.answerer->read_bytes > 0) {
    const auto bytes = static_cast<double>(timed.answerer->read_bytes);
    figures["weights_mb"] = 1e-6 * bytes;
    figures["share_of_bandwidth"] = 1e-9 * bytes * steps / seconds / *gigabytes_per_s;
  }
  return figures;
}

void print_decoding(const Json& rows) {
  for (const Json& row : rows) {
    fmt::print("{:<8} {}  {:>8.0f} tokens/s {:>8.1f} answers/s {:>8.3f} ms/step  {:>6.0f} MB",
               row["weights"].get<std::string>(),
               row["beams"] == 1 ? "greedy " : fmt::format("beam {:<2}", row["beams"].get<int>()),
               row["tokens_per_s"].get<double>(), row["answers_per_s"].get<double>(),
               row["ms_per_step"].get<double>(), 1e-6 * row["peak_memory_bytes"].get<double>());
    if (row.contains("load_memory_bytes")) {
      fmt::print(", {:.0f} MB to load", 1e-6 * row["load_memory_bytes"].get<double>());
    }
    if (row.contains("share_of_bandwidth")) {
      fmt::print("  {:.3f} of reading {:.0f} MB for each token",
                 row["share_of_bandwidth"].get<double>(), row["weights_mb"].get<double>());
    }
    fmt::print("\n");
  }
}

// Takes turns, so that disturbances of the machine affect all alike.
void time_in_turn(const BenchArguments& arguments, Device device, std::vector<Timed>& all) {
  const int64_t rounds = arguments.warmup_steps + arguments.steps;
  Progress progress("timing", rounds * std::ssize(all), "searches");
  for (int64_t round = 0; round < rounds; ++round) {
    for (Timed& timed : all) {
      const double seconds = answer_once(timed, device);
      if (round >= arguments.warmup_steps) timed.seconds.push_back(seconds);
      progress.add();
    }
  }
}

int bench_decoding(const BenchArguments& arguments, const DecodeArguments& decode) {
  decode.search.validate();
  const bool trained = std::filesystem::is_directory(arguments.config);
  if (trained && !arguments.overrides.empty()) {
    fail(ErrorKind::kConfig, "[bench] a run has its config: got '", arguments.overrides[0], "'.");
  }
  Config config = trained ? read_model_files(arguments.config).config
                          : load_run_config(arguments.config, arguments.overrides,
                                            /*check_files=*/false);
  const ModelTraits& traits = traits_of(config.model_type);
  const bool translates = traits.reads_two_texts, fits = traits.writes;
  if (!fits || (!trained && !traits.has_cache())) {
    fail(ErrorKind::kConfig, "[bench] --decode has no answers for task ", config.task->name,
         " and model.type ", name_of(config.model_type), fits ? " without a run." : ".");
  }
  set_num_threads(arguments.threads > 0 ? arguments.threads : config.threads);
  if (trained) config.device = "auto";
  if (!trained) settle_vocab_size(config);
  const Device device = parse_device(config.device);
  const DecodeShape shape = shape_of(arguments, translates);
  FiguresFile json(arguments.json);

  std::vector<Answerer> answerers;
  for (const WeightFormat format : kWeightFormats) {
    if (format != WeightFormat::kFloat32 && (!device.is_cpu() || config.dtype != DType::kFloat32))
      continue;
    const MemoryMeter memory(device);
    answerers.push_back(trained ? trained_answerer(arguments, config, format, shape)
                                : fresh_answerer(config, format, shape));
    answerers.back().weights = name_of(format);
    answerers.back().held_bytes = memory.held();
    if (trained) answerers.back().load_bytes = memory.most();
  }
  std::vector<Timed> all;
  const int64_t beams = override_search(config.generation, decode.search.overrides).num_beams;
  for (Answerer& answerer : answerers) {
    all.push_back({&answerer, options_of(config.generation, 1, shape)});
    if (beams > 1) all.push_back({&answerer, options_of(config.generation, beams, shape)});
  }
  time_in_turn(arguments, device, all);
  const std::optional<double> rate =
      device.is_cpu() ? std::optional(read_rate()) : std::optional<double>();
  Json figures{{"config", arguments.config},
               {"shape", fmt::format("{}x{}x{}", shape.rows, shape.read, shape.written)},
               {"threads", num_threads()},
               {"rounds", arguments.steps}};
  if (rate) figures["memory_gb_per_s"] = *rate;
  for (const auto& [name, value] : figures.items()) fmt::print("{:<17} {}\n", name, value.dump());
  figures["decoding"] = Json::array();
  for (const Timed& timed : all) figures["decoding"].push_back(figures_of(timed, shape, rate));
  print_decoding(figures["decoding"]);
  json.write(figures);
  return 0;
}

}  // namespace

void add_decoding(CLI::App& app, OtherBench& bench) {
  const auto decode = std::make_shared<DecodeArguments>();
  auto* flag = app.add_flag_function(
      "--decode",
      [decode, &bench](int64_t times) {
        if (times <= 0) return;
        bench = [decode](const BenchArguments& arguments, const Program&) {
          return bench_decoding(arguments, *decode);
        };
      },
      "greedy search and beam search, with weights of every format, and their memory; of one "
      "prompt also the share of what the memory's bandwidth allows");
  add_search_key(app, decode->search, "num_beams", "of --decode (default: the config's)")
      ->needs(flag);
}

}  // namespace tapestry
