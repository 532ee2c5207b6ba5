// tapestry bench: times training steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/bench.h"
#include "apps/commands/bench_ranks.h"
#include "apps/commands/number_bounds.h"
#include "apps/run/pretrained.h"
#include "apps/run/updates.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/task.h"
#include "apps/tasks/training_loss.h"
#include "core/allocator.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/base/progress.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/device_runtime.h"
#include "core/gemm_rate.h"
#include "core/profile.h"
#include "data/files/files.h"
#include "nn/models/r_drop.h"
#include "optim/backward_steps.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct TrainingBench : BenchArguments {
  DecodingBench decode = {};  ///< with --decode
};

// Rows, and the tokens of a source and a target row. A language model has only targets.
struct BatchShape {
  int64_t rows = 0, source = 0, target = 0;
  int64_t tokens() const { return rows * (source + target); }
};

BatchShape parse_shape(const std::string& text, bool both_sides) {
  BatchShape shape;
  char rest = 0;
  const bool read =
      both_sides ? std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &shape.rows, &shape.source,
                               &shape.target, &rest) == 3 &&
                       shape.source >= 1
                 : std::sscanf(text.c_str(), "%ldx%ld%c", &shape.rows, &shape.target, &rest) == 2;
  if (!read || shape.rows < 1 || shape.target < 1) {
    fail(ErrorKind::kConfig, "[bench] --shape must be ",
         both_sides ? "SENTENCESxSOURCExTARGET" : "ROWSxTOKENS", ", got '", text, "'.");
  }
  return shape;
}

// Uniformly random tokens without padding, so that every cell counts in the formulas.
Tensor synthetic_ids(int64_t rows, int64_t length, int64_t vocab, uint32_t number,
                     uint32_t stream) {
  Tensor tensor = Tensor::empty({rows, length}, DType::kInt32);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data<int32_t>()[i] =
        static_cast<int32_t>(4 + philox_below({7, number, stream}, static_cast<uint64_t>(i),
                                              static_cast<uint64_t>(vocab - 4)));
  }
  return tensor;
}

// Floating-point operations of the matrix products of one step: 2 per multiply-add, forward once
// and backward twice. Products that a causal mask hides are not computed and do not
// count.
double step_flops(const Config& config, const BatchShape& s) {
  const ModelOptions& m = config.model;
  const double d = double(m.hidden_size), f = double(m.intermediate_size);
  const int64_t groups = m.num_key_value_heads == 0 ? m.num_attention_heads : m.num_key_value_heads;
  // Widths of all queries, and of all values; the default's are d.
  const double q = double(m.num_attention_heads * m.chosen_head_size());
  const double v = double(m.num_attention_heads) *
                   double(m.value_head_size > 0 ? m.value_head_size : m.chosen_head_size());
  const double kv = (q + v) * double(groups) / double(m.num_attention_heads);
  const double b = double(s.rows), source = double(s.source), target = double(s.target);
  const double self = d * (q + kv) + v * d, ffn = (m.hidden_act.gated ? 3 : 2) * d * f;
  const auto layer = [&](double length, bool causal) {
    return length * (self + ffn) + length * (causal ? (length + 1) / 2 : length) * (q + v);
  };
  const double classifier = target * d * double(config.tokenizer.vocab_size);
  if (s.source == 0) {
    return 6 * b * (double(m.num_hidden_layers) * layer(target, /*causal=*/true) + classifier);
  }
  const double decoder =
      m.is_recurrent() ? target * (2 * d * d + ffn) : layer(target, /*causal=*/true);
  const double cross = target * d * (q + v) + source * d * kv + target * source * (q + v);
  return 6 * b *
         (double(m.encoder_layers) * layer(source, /*causal=*/false) +
          double(m.decoder_layers) * (decoder + cross) + classifier);
}

// The rate of square products on the device of the run: of float32 on a CPU, of the run's own type
// and precision on a GPU.
double gemm_peak(const Config& config, Device device) {
  if (device.is_cpu()) return gemm_rate(device, DType::kFloat32, Precision::kFull);
  const Numbers numbers = numbers_of(config, ModelUse::kTraining, device);
  return gemm_rate(device, numbers.dtype, numbers.precision);
}

struct Measured {
  std::vector<double> seconds;
  std::vector<double> tokens;  ///< of source and target, without padding
  double flops = 0;            ///< of one step; 0 when steps differ
  PartSeconds parts{};         ///< of the timed steps together
  int64_t system_calls = 0;    ///< allocations that the warm steps took from the system
  double loss = 0;
  double update_seconds = 0;           ///< of all timed steps, on a CPU
  std::optional<RanksMeasured> ranks;  ///< if there are several
};

// The loss of the next batch, and its tokens.
using NextLoss = std::function<CrossEntropy(double& tokens)>;

// After steps of this rank alone.
RanksMeasured share_steps(const Config& config, const std::vector<ParamGroup>& groups,
                          const BenchArguments& arguments, Ranks& ranks, const Measured& alone,
                          const NextLoss& next_loss) {
  const double update = alone.update_seconds / static_cast<double>(arguments.steps);
  return measure_ranks(ranks, config, groups,
                       {.steps = arguments.steps,
                        .warmup_steps = arguments.warmup_steps,
                        .micro_batch_seconds = median(alone.seconds) - update,
                        .update_seconds = update,
                        .micro_batch = [&] {
                          double tokens = 0;
                          Tape tape({config.seed, 0, 0});
                          tape.backward(next_loss(tokens).loss);
                        }});
}

// Runs steps as the trainer does: forward, backward, clip, update.
Measured run_steps(const Config& config, const ParamStore& store, const BenchArguments& arguments,
                   Ranks& ranks, const NextLoss& next_loss) {
  const std::vector<ParamGroup> groups =
      update_groups(config, trained_parameters(store.named(), config), store);
  Optimizer optimizer(config.optimizer, groups);
  std::optional<BackwardSteps> in_backward;
  if (config.training.optimizer_in_backward) {
    if (!ranks.is_alone()) {
      fail(ErrorKind::kConfig, "[bench] training.optimizer_in_backward is for one rank.");
    }
    in_backward.emplace(optimizer);
  } else {
    for (const ParamGroup& group : groups) reserve_gradients(group.params);
  }
  Measured measured;
  ranks.communicator().doing("measuring steps alone");
  ranks.communicator().all_gather("");  // all are as busy
  Tensor loss;
  // CUDA graphs are made in the third step.
  const int64_t warmup_steps =
      std::max<int64_t>(arguments.warmup_steps, config.cuda_graphs ? 3 : 0);
  std::optional<Progress> progress;
  if (ranks.is_first()) progress.emplace("timing", warmup_steps + arguments.steps, "steps");
  for (int64_t step = 0; step < warmup_steps + arguments.steps; ++step) {
    if (progress) progress->to(step);
    if (step == warmup_steps) {
      measured.system_calls = memory_of(store.device()).system_calls;
      forget_kernel_times();
    }
    const double start = steady_seconds();
    double tokens = 0;
    PartSeconds untimed{};
    const Profile profile(step < warmup_steps ? untimed : measured.parts);
    const auto forward_and_backward = [&] {
      Tape tape({config.seed, static_cast<uint32_t>(step), 0});
      const CrossEntropy result = next_loss(tokens);
      loss = result.loss.value();
      if (in_backward) {
        if (step > 0) optimizer.outcome();
        in_backward->open(config.learning_rate, config.training.clip_options());
      }
      tape.backward(result.loss);
      if (in_backward) in_backward->close();
    };
    if (config.cuda_graphs) {
      as_graph(store.device(), std::ref(forward_and_backward));  // by reference: no allocation
    } else {
      forward_and_backward();
    }
    const double computed = steady_seconds();
    if (!in_backward) {
      if (step > 0) optimizer.outcome();
      optimizer.launch(config.learning_rate, config.training.clip_options());
      optimizer.zero_grad();
    }
    const int64_t left = warmup_steps + arguments.steps - 1 - step;
    if (left == 0 || left == arguments.steps) synchronize(store.device());
    if (step < warmup_steps) continue;
    measured.seconds.push_back(steady_seconds() - start);
    measured.update_seconds += steady_seconds() - computed;
    measured.tokens.push_back(tokens);
  }
  measured.system_calls = memory_of(store.device()).system_calls - measured.system_calls;
  measured.loss = loss.item();
  if (!ranks.is_alone()) {
    optimizer.outcome();
    measured.ranks = share_steps(config, groups, arguments, ranks, measured, next_loss);
  }
  return measured;
}

// The config's teacher with random weights, which take the same time; null if it has none.
std::unique_ptr<Teacher> untrained_teacher(Config config) {
  if (config.training.teacher.empty()) return nullptr;
  const TokenizerPair tokenizers = placeholder_tokenizers(config, [](const std::string&) {});
  return teacher_of(config, tokenizers, Teacher::Weights::kSizesOnly);
}

Measured measure_synthetic(const Config& config, const BenchArguments& arguments, Ranks& ranks) {
  const ModelTraits& traits = traits_of(config.model_type);
  const bool both_sides = traits.reads_two_texts;
  if (!traits.has_cache()) {
    fail(ErrorKind::kConfig, "[bench] --shape has no batches for task ", config.task->name,
         " and model.type ", name_of(config.model_type),
         "; leave it out to use the config's data.");
  }
  const BatchShape shape = parse_shape(arguments.shape, both_sides);
  const int64_t vocab = config.tokenizer.vocab_size;
  const Device device = parse_device(config.device);
  const CrossEntropyOptions options{.label_smoothing = config.training.label_smoothing};
  constexpr uint32_t kBatches = 4;
  const auto targets = [&](uint32_t number, uint32_t stream) {  // on the host, as in training
    return synthetic_ids(shape.rows, shape.target, vocab, number, stream);
  };
  const double alpha = config.training.r_drop;
  const auto ids = [&](int64_t length, uint32_t number, uint32_t stream) {
    const Tensor rows = synthetic_ids(shape.rows, length, vocab, number, stream);
    return (alpha > 0 ? twice(rows) : rows).to(device);
  };
  ParamStore store = make_store(config, ModelUse::kTraining);
  const std::unique_ptr<Teacher> teacher = untrained_teacher(config);
  Measured measured;
  const auto measure = [&](const auto& batches, const auto& loss) {
    uint32_t next = 0;
    measured = run_steps(config, store, arguments, ranks, [&](double& tokens) {
      tokens = double(shape.tokens());
      return loss(batches[next++ % kBatches]);
    });
  };
  if (both_sides) {
    const EncoderDecoder model(
        config.model,
        {.source_size = vocab, .target_size = vocab, .shared = config.tokenizer.share},
        store.root());
    const int64_t rows = alpha > 0 ? 2 * shape.rows : shape.rows;
    const Tensor lengths = Tensor::full({rows}, double(shape.source), DType::kInt32, device);
    std::vector<EncoderDecoder::Batch> batches;
    for (uint32_t i = 0; i < kBatches; ++i) {
      batches.push_back({ids(shape.source, i, 0), lengths, ids(shape.target, i, 1), targets(i, 2)});
      if (config.model.alignment_layer == 0) continue;
      batches.back().alignment = {
          Tensor::zeros({shape.rows, shape.target, shape.source}).to(device),
          Tensor::zeros({rows, 1, shape.source}).to(device), config.training.alignment_weight};
    }
    measure(batches, [&](const EncoderDecoder::Batch& batch) {
      return alpha > 0 ? r_drop_loss(model, batch, options, alpha)
                       : training_loss(model, batch, options, teacher.get());
    });
  } else {
    const LanguageModel model(config.model, {.size = vocab}, /*causal=*/true, store.root());
    std::vector<LanguageModel::Batch> batches;
    for (uint32_t i = 0; i < kBatches; ++i) {
      batches.push_back({ids(shape.target, i, 0), targets(i, 1)});
    }
    measure(batches, [&](const LanguageModel::Batch& batch) {
      return training_loss(model, batch, options, teacher.get());
    });
  }
  const double passes = alpha > 0 ? 2 : 1;
  const bool counted = config.model.kv_latent_size == 0 && !teacher;
  if (counted) measured.flops = passes * step_flops(config, shape);
  return measured;
}

Measured measure_data(Config config, const BenchArguments& arguments, Ranks& ranks) {
  if (config.data.cache_dir.empty()) config.data.cache = false;  // there is no run
  const std::unique_ptr<TrainingTask> task =
      make_task(config, {}, {},
                [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); });
  return run_steps(config, task->parameters(), arguments, ranks, [&](double& tokens) {
    const UpdateSize size = [&] {
      const ProfileScope waiting(Part::kData);
      return task->next_update(1);
    }();
    tokens = double(size.tokens);
    return task->loss(0, {.label_smoothing = config.training.label_smoothing});
  });
}

// Rounded to four digits, which repeat from run to run. The file has all digits.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  return std::abs(number) >= 1000 ? fmt::format("{:.0f}", number) : fmt::format("{:.4g}", number);
}

// What the GPU, or the kernels of bfloat16, did besides.
void add_device(const Config& config, Device device, Json& figures) {
  if (config.cuda_graphs) {
    const GraphStats graphs = graph_stats();
    figures["graphs"] = graphs.graphs;
    figures["graph_updates"] = graphs.updates;
    if (!graphs.refusal.empty()) figures["graph_refusal"] = graphs.refusal;
  }
  if (!device.is_cpu()) {
    const ProductStats products = product_stats();
    figures["products_without_algorithm"] = products.without_algorithm;
    figures["products_refused"] = products.refused;
    if (!products.refusal.empty()) figures["product_refusal"] = products.refusal;
  }
  const Numbers numbers = numbers_of(config, ModelUse::kTraining, device);
  if (numbers.precision != Precision::kFull) figures["precision"] = name_of(numbers.precision);
  if (device.is_cpu() &&
      (numbers.dtype == DType::kBFloat16 || numbers.precision == Precision::kBf16x3)) {
    figures["bfloat16_kernel"] = name_of(bfloat16_kernel());
  }
}

Json figures_of(const Config& config, const BenchArguments& arguments, const Measured& measured,
                Device device, double peak) {
  const double seconds = median(measured.seconds);
  const double total = std::accumulate(measured.seconds.begin(), measured.seconds.end(), 0.0);
  const double tokens = std::accumulate(measured.tokens.begin(), measured.tokens.end(), 0.0);
  // Steps are launched before the GPU has finished the last one: only their sum is meaningful.
  const bool like_steps = !arguments.shape.empty() && device.is_cpu();
  const double step_seconds = like_steps ? seconds : total / static_cast<double>(arguments.steps);
  Json figures{{"config", arguments.config},
               {"shape", arguments.shape},
               {"threads", num_threads()},
               {"blas", blas_description()},
               {"steps", arguments.steps},
               {"median_s", seconds},
               {"tokens_per_s", like_steps ? measured.tokens[0] / seconds : tokens / total},
               {"gemm_peak_gflops", peak},
               {"peak_memory_bytes", memory_of(device).peak_bytes},
               {"system_allocations_in_warm_steps", measured.system_calls},
               {"graph_launches", graph_stats().launches},
               {"loss", measured.loss}};
  add_device(config, device, figures);
  double known = 0;
  for (int i = 0; i < kParts && device.is_cpu(); ++i) {
    const double part = measured.parts[static_cast<size_t>(i)];
    figures[concat("share_of_time_", name_of(static_cast<Part>(i)))] = part / total;
    known += part;
  }
  if (device.is_cpu()) figures["share_of_time_other"] = 1 - known / total;
  if (measured.flops > 0) {
    figures["gflops"] = 1e-9 * measured.flops / step_seconds;
    figures["share_of_peak"] = 1e-9 * measured.flops / step_seconds / peak;
  }
  if (measured.ranks) add_ranks(*measured.ranks, figures);
  return figures;
}

int run_bench(const TrainingBench& arguments, Program& program) {
  if (arguments.decode) return arguments.decode(arguments);
  Ranks& ranks = program.ranks;
  Config config = load_run_config(arguments.config, arguments.overrides,
                                  /*check_files=*/arguments.shape.empty());
  ranks.join(config.distributed);
  config.device = ranks.device(config.device);
  set_num_threads(config.threads > 0 ? config.threads : ranks.threads());
  const Device device = parse_device(config.device);
  if (const std::string warning = blas_warning(); !warning.empty()) {
    fmt::print(stderr, "warning: {}{}\n", ranks.prefix(), warning);
  }
  if (!arguments.shape.empty()) settle_vocab_size(config);
  const double peak = gemm_peak(config, device);
  reset_peak_bytes();
  const Measured measured = arguments.shape.empty() ? measure_data(config, arguments, ranks)
                                                    : measure_synthetic(config, arguments, ranks);
  if (!ranks.is_first()) return 0;
  const Json figures = figures_of(config, arguments, measured, device, peak);
  for (const auto& [name, value] : figures.items()) {
    if (value.is_array()) continue;
    fmt::print("{:<34} {}\n", name, text_of(value));
  }
  if (measured.ranks) print_prediction(figures);
  if (!arguments.json.empty()) write_file(arguments.json, figures.dump(2) + '\n');
  return 0;
}

void add_bench(CLI::App& app, TrainingBench& arguments) {
  add_config(app, arguments);
  app.add_option("--shape", arguments.shape,
                 "BxSxT, or BxT for a language model: synthetic tokens (default: the config's "
                 "data); with --decode BxSxT for all: answers, tokens of each source or prompt, "
                 "tokens of each answer");
  add_decoding(app, arguments.decode);
  app.add_option("--steps", arguments.steps, "timed steps, or rounds of --decode")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str();
  app.add_option("--warmup-steps", arguments.warmup_steps, "steps before those")
      ->check(number<int64_t>(at_least(0)))
      ->capture_default_str();
  app.add_option("--json", arguments.json, "also write the figures to this file");
}

}  // namespace

extern const Command kBench(
    "bench", "Time training steps, or with --decode the answers of a config's model or of a run",
    add_bench, run_bench);

}  // namespace tapestry
