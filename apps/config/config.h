// The configuration of one run: every option struct of the libraries, and the options of the
// trainer.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/task.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/precision.h"
#include "data/batches/batching.h"
#include "data/chat/chat_format.h"
#include "data/corpora/corpus.h"
#include "data/examples/denoising.h"
#include "data/examples/image_batching.h"
#include "data/examples/masking.h"
#include "data/tokenizers/languages.h"
#include "nn/decoding/decoding.h"
#include "nn/layers/adapter.h"
#include "nn/models/model_options.h"
#include "nn/models/preference.h"
#include "nn/models/text_embedder.h"
#include "optim/gradient_exchange.h"
#include "optim/optimizer.h"
#include "optim/plateau.h"
#include "optim/schedule.h"

namespace tapestry {

struct DataOptions {
  std::vector<CorpusSpec> train;
  std::vector<CorpusSpec> valid;  ///< empty: no validation
  std::vector<CorpusSpec> test;   ///< scored once, at the end
  CorpusOptions corpus;
  int64_t doc_stride = 64;            ///< question_answering: tokens from window to window
  TextRows rows = TextRows::kBlocks;  ///< clm, mlm
  int64_t block_size = 256;           ///< tokens of a block
  int64_t eval_stride = 0;            ///< of blocks in a validation (BlockOptions::stride)
  bool best_fit = false;              ///< of blocks, data.packing (BlockOptions::best_fit)
  bool document_mask = false;         ///< of blocks (BlockOptions::document_mask)
  bool cache = true;                  ///< token ids are kept ...
  std::string cache_dir;              ///< ... in this folder, absolute; empty: in output_dir
  static constexpr const char* kOwnTemplate = "auto";
  std::string chat_template = kOwnTemplate;  ///< of talks: the model's own, or one built in
  std::string chat_template_path;            ///< a file instead
  LossOn loss_on = LossOn::kAnswers;         ///< of talks
  std::vector<std::string> labels;  ///< classification: the classes; empty: those found in the data
  ImageFormat image;                ///< format of images; unset members are taken from the data
  AugmentOptions augment;           ///< of the images of `train`
  CleaningOptions clean;            ///< of the pairs of `train`, each of whose corpora has it
};

/// The template that the options choose: that of the file, the built-in one, or the usual one where
/// the model has none. Throws Error(kConfig) if it is not understood, and as read_file().
ChatTemplate chosen_template(const DataOptions& data);

/// Options of the training loop itself.
struct TrainingOptions {
  static constexpr const char* kReporters[] = {"tensorboard"};

  int64_t gradient_accumulation_steps = 1;  ///< batches per update
  int64_t splits = 1;           ///< parts of a batch that go through the model one after the other
  std::string memory_budget;    ///< "4GB"; empty: no limit
  int64_t max_steps = 0;        ///< updates; 0: num_train_epochs decides
  double num_train_epochs = 0;  ///< times through the data; 0: max_steps decides
  double max_hours = 0;         ///< saves and stops after this long; 0: no limit
  double cooldown_share = 0;    ///< of max_hours, at their end: the rate falls to 0; 0: none
  double label_smoothing = 0.0;
  double r_drop = 0;    ///< weight of R-Drop's divergence between two passes; 0: one pass
  std::string teacher;  ///< run or checkpoint whose predictions are learnt, too; empty: none
  double teacher_weight = 0.5;     ///< of the divergence from it (Distillation)
  double teacher_temperature = 1;  ///< divides the logits of both
  std::string alignments;          ///< guided_alignment.file of the training pairs; empty: none
  double alignment_weight = 0.1;   ///< of the loss of the guided attention
  int64_t alignment_layer = 0;     ///< of the decoder, from 1; 0: usual_alignment_layer()
  double max_grad_norm = 0;        ///< clips the global norm; 0: off
  /// Whose norm that is: of the update itself, or of the one before, which is known before
  /// backward.
  bool clips_by_former_norm = false;
  double clip_value = 0;               ///< clips each element; 0: off
  bool optimizer_in_backward = false;  ///< BackwardSteps
  double ema_decay = 0;                ///< exponential moving average of the weights; 0: off
  int64_t logging_steps = 50;
  int64_t eval_steps = 500;             ///< updates between validations; 0: only at the end
  int64_t eval_batch_size = 64;         ///< sentences decoded at a time
  int64_t samples = 4;                  ///< validation examples kept at each validation, to look at
  int64_t save_steps = 500;             ///< updates between checkpoints; 0: only at the end
  int64_t save_total_limit = 3;         ///< checkpoints kept, best and last among them; 0: all
  int64_t early_stopping_patience = 0;  ///< validations without a new best before it stops; 0: off
  int64_t divergence_patience = 100;    ///< updates in a row with a useless loss; 0: any number
  int64_t flight_records = 1000;        ///< updates that the flight recorder keeps; 0: none
  double loss_jump = 10;  ///< deviations above the usual loss that make an incident; 0: none
  int64_t incidents = 3;  ///< most that a run folder keeps
  std::string metric_for_best_model;         ///< one of the task's; empty: its first
  std::vector<std::string> report_to;        ///< some of kReporters
  std::vector<std::string> modules_to_save;  ///< learn besides adapters, as in `freeze`
  /// What matrices beside adapters are kept in, if they do not learn; none: as the run's dtype.
  std::optional<WeightFormat> lora_base;
  std::optional<WeightFormat> quantize;  ///< what --weights will be: int8 or int4; none: float32
  std::string lr_metric;                 ///< reduce_lr_on_plateau; empty: the same
  std::vector<std::string> freeze;  ///< parameters that stay as they are: names, `*` for any part
  bool decay_all = false;           ///< weight_decay pulls biases and norms too
  std::vector<std::string> decay_exclude;     ///< parameters that it never pulls, as in `freeze`
  double adamw_learning_rate = 0;             ///< muon's: of what adamw does; 0: usual_adamw_rate()
  std::vector<std::string> adamw_parameters;  ///< matrices that muon leaves to it, as in `freeze`

  ClipOptions clip_options(double former_norm = 0) const {
    return {max_grad_norm, clip_value,
            clips_by_former_norm ? std::optional(former_norm) : std::nullopt};
  }
};

struct EvaluationOptions {
  std::string bleu_tokenize = "13a";  ///< of word_rules(), one that needs no model
  int64_t num_beams = 1;  ///< of the translations made while training; 1: greedy, the fastest
  bool lowercase = false;
  bool rouge = false;                      ///< adds ROUGE to the metrics
  std::vector<std::string> extra_metrics;  ///< names of metric_kinds()
};

/// For models that find answers in a context.
struct AnswerOptions {
  int64_t max_answer_length = 30;  ///< in tokens
  bool no_answer = false;          ///< a context may have no answer
};

/// What follows the loss of a rank: the end of all, or a start of fewer from the last checkpoint.
enum class OnFailure { kStop, kShrink };

/// Options of several ranks that train together. They do not change the update.
struct DistributedOptions {
  static constexpr const char* kEngines[] = {"auto", "none", "mpi"};

  std::string engine = "auto";  ///< one of kEngines
  int64_t parts = 0;            ///< of an update (ExchangeOptions); 0: not settled
  Shard shard = Shard::kNone;
  double bucket_mb = 8;
  DeviceSums sum = DeviceSums::kTree;
  double timeout_seconds = 60;  ///< a rank that is silent for so long is dead
  OnFailure on_failure = OnFailure::kStop;
};

struct Config {
  const TaskKind* task = task_kinds().front();
  uint64_t seed = 1;
  std::string device = "auto";  ///< for parse_device()
  int threads = 0;              ///< 0: all cores
  DType dtype = DType::kFloat32;
  bool mixed = false;  ///< `dtype: bfloat16`: training's tensors are bfloat16, weights float32
  /// `dtype: auto`: `mixed` where bfloat16_is_faster(); a training settles it when it begins.
  bool auto_dtype = false;
  bool allow_tf32 = false;     ///< on a GPU the float32 products of dense layers may round to TF32
  bool allow_bf16x3 = false;   ///< on a CPU they may be sums of three products of bfloat16
  bool portable_bits = false;  ///< `deterministic: portable`, see core/cpu/portable_bits.h
  bool cuda_graphs = false;    ///< updates on a GPU run as CUDA graphs
  std::string output_dir;      ///< absolute
  /// True for checkpoints from before targets had a normalization of their own: theirs is the
  /// sources'.
  bool one_normalization = false;
  std::string init_from;  ///< run or checkpoint from which a new run takes tokenizer and parameters
  DataOptions data;
  TokenizerOptions tokenizer;
  VariationOptions variation;  ///< of training pairs: tokenizer.sampling, training.word_dropout
  MaskingOptions masking;
  DenoisingOptions denoising;
  ContrastiveOptions embedding;
  PreferenceOptions preference;
  ModelType model_type = ModelType::kEncoderDecoder;
  ModelOptions model;
  BatchOptions batch;
  OptimizerOptions optimizer;
  double learning_rate = 0;  ///< the schedule's base rate; 0: default_learning_rate()
  ScheduleOptions schedule;
  PlateauOptions plateau;  ///< used if the schedule is reduce_lr_on_plateau
  TrainingOptions training;
  LoraOptions lora;
  DistributedOptions distributed;
  SearchOptions generation;
  LanguageOptions languages;  ///< of translations; keys of `generation`
  EvaluationOptions evaluation;
  AnswerOptions answers;
};

/// Talks of all corpora become text in this way.
void set_format(const ChatFormat& format, Config& config);

/// The defaults of a task, by default for the first examples that it has. A Config that is filled
/// in C++ starts with these and ends with complete().
Config default_config(const TaskKind& task, const ExampleKind* examples = nullptr);

/// Sets everything that follows from other members: the schedule's max_steps and model_size, the
/// pieces that the task needs of a tokenizer, the batches' seed, ... Throws one Error(kConfig) that
/// lists all keys whose values conflict. Configs that are read are complete.
void complete(Config& config);

/// True if the device multiplies bfloat16 faster than float32. Every GPU that is supported does; of
/// processors core/cpu/bfloat16_kernel.h has a table.
bool bfloat16_is_faster(Device device);

/// Replaces `dtype: auto` by the faster type on `device`. Returns a sentence about it; "" if the
/// config names a type.
std::string settle_dtype(Config& config, Device device);

enum class ModelUse { kTraining, kAnswers };

/// The types of a model's tensors, and the precision of its dense layers.
struct Numbers {
  DType dtype = DType::kFloat32;
  Precision precision = Precision::kFull;
  bool operator==(const Numbers&) const = default;
};
/// The numbers of a model for this use on `device`. Mixed precision is bfloat16 tensors over
/// float32 master weights; on a CPU answers are computed in float32, whose weights can be packed.
Numbers numbers_of(const Config& config, ModelUse use, Device device);

/// The folder of a run, and its pretrained model.
struct RunPaths {
  std::string output_dir, init_from;
};

/// A config file, or a text instead of it.
struct ConfigSource {
  template <class Path>
  requires std::convertible_to<Path, std::string> ConfigSource(Path&& path)  // NOLINT: a file
      : path(std::forward<Path>(path)) {}
  ConfigSource(std::string name, std::string text) : path(std::move(name)), text(std::move(text)) {}

  std::string path;                      ///< of the text: its name in messages
  std::optional<std::string> text = {};  ///< whose relative paths start at the working directory
};

/// Reads a config file and applies overrides "section.key=value" in order. Paths become absolute.
/// Throws one Error(kConfig) that lists everything that is wrong: syntax, unknown, duplicate,
/// mistyped and missing keys, values out of range, input files that cannot be read. Without
/// `check_files` the input files need not exist. `pretrained` reads the config of the model that a
/// run with init_from resumes or begins with: without a `model` section it gives the defaults of
/// its keys.
Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides = {},
                   bool check_files = true,
                   const std::function<Config(const RunPaths& paths)>& pretrained = {});

/// The same for text; `name` stands in the locations, relative paths start at `directory`.
Config parse_config(const std::string& text, const std::string& name = "config",
                    const std::string& directory = "");

/// Reads the config.json of a checkpoint: input files need not exist on this machine.
Config load_checkpoint_config(const std::string& json, const std::string& name);

/// True if a parameter learns: with adapters only they and training.modules_to_save, without
/// adapters all; and nothing in training.freeze.
bool learns(const Config& config, const std::string& parameter);
/// A corpus of the config's task from keys as of data.train: "jsonl=FILE", "text_column=t". Open
/// keys are taken from data.train, if that is of the same kind, except for its part of a file.
/// Throws one Error(kConfig) that lists everything that is wrong.
CorpusSpec read_corpus(const Config& config, const std::vector<std::string>& keys);

/// Every key with its value; reads back to an equal Config.
std::string to_yaml(const Config& config);
/// "training.max_steps" -> "2000" for every key of to_yaml().
std::map<std::string, std::string> flat_keys(const Config& config);
std::string to_json(const Config& config);

}  // namespace tapestry
