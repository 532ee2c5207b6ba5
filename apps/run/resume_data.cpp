// What a run that goes on makes of other data, other batches and another validation.
#include <algorithm>
#include <functional>

#include "apps/checkpoint/file_names.h"
#include "apps/run/data_files.h"
#include "apps/run/resume.h"
#include "apps/tasks/prompts/talk_format.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

// True if a key only names a file; the file's bytes are compared separately.
bool is_path_of_data(const std::string& key) {
  const std::string name = key.substr(key.rfind('.') + 1);
  return std::ranges::any_of(CorpusSpec::file_keys(),
                             [&](const std::string& file) { return name == file; });
}

bool is_below(const std::string& key, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* prefix) {
    return key == prefix || key.starts_with(std::string(prefix) + '.') ||
           key.starts_with(std::string(prefix) + '[');
  });
}

// Keys that decide which rows an epoch has, and their order, beside batch_size and batch_type. The
// lengths of sampled texts decide it, too.
bool orders_rows(const std::string& key) {
  if (key == "seed" || is_below(key, {"denoising", "tokenizer.sampling"})) return true;
  return is_below(key, {"data"}) &&
         !is_below(key, {"data.valid", "data.test", "data.cache", "data.cache_dir", "data.labels",
                         "data.image", "data.augment", "data.document_mask"});
}

// Keys that change the meaning of a validation metric.
bool decides_metric(const std::string& key, const std::string& metric) {
  static constexpr const char* kOfTargets[] = {"nll", "loss", "ppl", "accuracy", "mse"};
  const bool of_answers = std::none_of(std::begin(kOfTargets), std::end(kOfTargets),
                                       [&](const char* name) { return metric == name; });
  if (is_below(key, {"evaluation.rouge", "evaluation.extra_metrics"})) return false;
  if (of_answers && is_below(key, {"evaluation", "generation", "answers"})) return true;
  if (key == "training.label_smoothing") return metric == "loss";
  if (is_below(key, {"masking", "denoising"})) return true;
  return is_below(key, {"data"}) &&
         !is_below(key, {"data.train", "data.test", "data.cache", "data.cache_dir", "data.labels",
                         "data.augment", "data.sampling_temperature"});
}

// The keys whose values differ. Paths do not count if the bytes of the files are known.
std::vector<std::string> changed_keys(const Config& old, const Config& config, bool knows_files) {
  const auto before = flat_keys(old), after = flat_keys(config);
  std::vector<std::string> changed;
  const auto note = [&](const std::string& key) {
    if (knows_files && is_below(key, {"data"}) && is_path_of_data(key)) return;
    if (knows_files && key == "training.guided_alignment.file") return;
    // The templates themselves are compared.
    if (key == "data.chat_template" || key == "data.chat_template_path") return;
    changed.push_back(key);
  };
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    if (found == before.end() || found->second != value) note(key);
  }
  for (const auto& [key, value] : before) {
    if (!after.contains(key)) note(key);
  }
  return changed;
}

std::vector<std::string> those(const std::vector<std::string>& keys,
                               const std::function<bool(const std::string&)>& test) {
  std::vector<std::string> found;
  std::ranges::copy_if(keys, std::back_inserter(found), test);
  return found;
}

// The names of the first files: shards can be many.
std::string named(const std::vector<std::string>& files) {
  constexpr size_t kNamed = 3;
  if (files.size() <= kNamed + 1) return join(files, ", ");
  return concat(join(std::vector(files.begin(), files.begin() + kNamed), ", "), " and ",
                files.size() - kNamed, " others");
}

// The chat template that the config chooses, if it is not that of the checkpoint.
std::vector<std::string> other_template(const Config& config, const TokenizerPair& before) {
  const DataOptions& data = config.data;
  const bool own =
      data.chat_template_path.empty() && data.chat_template == DataOptions::kOwnTemplate;
  if (!examples_of(config).talks || own) return {};
  const ChatTemplate now = chosen_template(data);
  if (now.source() == chat_template_of(before)) return {};
  return {now.name()};
}

// The teacher's weights, in the checkpoint that its folder stands for now.
std::vector<std::string> teacher_files(const Config& config) {
  const std::string& teacher = config.training.teacher;
  if (teacher.empty()) return {};
  return {concat(resolve_checkpoint(teacher), '/', kModelFile)};
}

}  // namespace

void Resume::follow_teacher(const Config& config) {
  const std::vector<DataFile> before = std::move(state_.teacher_files);
  state_.teacher_files = data_files(teacher_files(config), before);
  if (state_.teacher_files.empty()) return;
  const std::vector<std::string> others = changed_files(before, state_.teacher_files);
  if (others.empty()) return;
  warnings_.push_back(concat(join(others, ", "),
                             " is not the teacher of the checkpoint: from here on the run learns "
                             "from another one"));
}

void Resume::follow_data(const Config& config) {
  const std::vector<DataFile> train_before = std::move(state_.train_files),
                              valid_before = std::move(state_.valid_files);
  state_.train_files = data_files(config.data.train, train_before);
  state_.valid_files = data_files(config.data.valid, valid_before);
  follow_teacher(config);
  if (!before_) return;
  if (train_before.empty() && config.schedule.type == ScheduleType::kStep) {
    warnings_.push_back(
        "the checkpoint is of a version whose lr_scheduler_type step multiplied by lr_gamma one "
        "update later: from here on it comes in each update that lr_step_size divides");
  }
  follow_rows(config, train_before);
  follow_metrics(config, valid_before);
}

// The rows to come: the rest of the epoch, if that is still the same.
void Resume::follow_rows(const Config& config, const std::vector<DataFile>& train_before) {
  const std::vector<std::string> other_text = changed_files(train_before, state_.train_files);
  std::vector<std::string> reasons =
      those(changed_keys(*before_, config, !train_before.empty()), orders_rows);
  reasons.insert(reasons.begin(), other_text.begin(), other_text.end());
  const std::vector<std::string> other_chat = other_template(config, tokenizers_);
  reasons.insert(reasons.end(), other_chat.begin(), other_chat.end());
  DataPosition& position = state_.position;
  const bool in_epoch = position.batch > 0 || !position.before.empty();
  const BatchOptions &was = before_->batch, &is = config.batch;
  const bool other_batches = was.batch_type != is.batch_type || was.batch_size != is.batch_size;
  if (!reasons.empty()) {
    if (in_epoch) position = {position.epoch + 1, 0};
    const std::string end = in_epoch
                                ? concat("; epoch ", position.epoch,
                                         " begins, what was left of the one before is not read")
                                : "";
    if (!other_chat.empty()) {
      warnings_.push_back(
          concat(other_chat.front(), " is not the chat template of the checkpoint", end));
    } else if (!other_text.empty()) {
      warnings_.push_back(
          concat(named(other_text), " is not the training data of the checkpoint", end));
    } else if (in_epoch) {
      consequences_.push_back(concat(join(reasons, ", "), " changed: other training data", end));
    }
  } else if (other_batches && position.batch > 0) {
    position.before.push_back({was.batch_type, was.batch_size, position.batch});
    position.batch = 0;
    consequences_.push_back(concat("epoch ", position.epoch,
                                   " goes on with the examples that are left, in other batches"));
  }
  state_.counts_anew =
      (!reasons.empty() && in_epoch) || other_batches ||
      before_->training.gradient_accumulation_steps != config.training.gradient_accumulation_steps;
}

// The best value is one of a metric, of its options, and of a text.
void Resume::follow_metrics(const Config& config, const std::vector<DataFile>& valid_before) {
  const std::vector<std::string> other_valid = changed_files(valid_before, state_.valid_files);
  const std::vector<std::string> keys = changed_keys(*before_, config, !valid_before.empty());
  if (!other_valid.empty()) {
    warnings_.push_back(
        concat(named(other_valid), " is not the validation data of the checkpoint"));
  }
  const std::vector<std::string> other_chat = other_template(config, tokenizers_);
  const auto measured_otherwise = [&](const char* key_of_metric, const std::string& metric) {
    std::vector<std::string> found = those(keys, [&](const std::string& key) {
      return key == key_of_metric || decides_metric(key, metric);
    });
    found.insert(found.end(), other_valid.begin(), other_valid.end());
    found.insert(found.end(), other_chat.begin(), other_chat.end());
    return found;
  };
  const std::string& metric = config.training.metric_for_best_model;
  const auto others = measured_otherwise("training.metric_for_best_model", metric);
  if (!others.empty() && state_.best_step >= 0) {
    consequences_.push_back(concat("the best ", metric, " begins anew, without the one of update ",
                                   state_.best_step, ": ", named(others), " changed"));
    state_.best_step = -1;
    state_.best_metric = 0;
    state_.validations_without_best = 0;
  }
  if (state_.plateau.has_best &&
      !measured_otherwise("training.lr_metric", config.training.lr_metric).empty()) {
    consequences_.push_back(
        concat("the plateau of ", config.training.lr_metric, " begins anew, too"));
    state_.plateau.has_best = false;
    state_.plateau.best = 0;
    state_.plateau.without_best = 0;
  }
}

}  // namespace tapestry
