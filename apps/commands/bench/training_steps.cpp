#include "apps/commands/bench/training_steps.h"

#include <cstdio>
#include <functional>

#include "apps/checkpoint/model_bundle.h"
#include "apps/run/updates.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/task.h"
#include "apps/tasks/training_loss.h"
#include "core/allocator.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/base/progress.h"
#include "core/device_runtime.h"
#include "nn/models/r_drop.h"
#include "optim/backward_steps.h"

namespace tapestry {
namespace {

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

}  // namespace

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

}  // namespace tapestry
