#include "apps/tasks/teacher.h"

#include <type_traits>
#include <utility>

#include "apps/checkpoint/bytes.h"
#include "nn/models/distillation.h"

namespace tapestry {
namespace {

constexpr const char* kWho = "training.teacher";

void check_fits(const ModelFiles& files, const Config& student) {
  if (files.config.task != student.task) {
    fail(ErrorKind::kData, '[', kWho, "] expected a model of task ", student.task->name, ", ",
         files.folder, " holds one of task ", files.config.task->name, '.');
  }
  if (files.config.model.prefix_lm != student.model.prefix_lm) {
    fail(ErrorKind::kData, '[', kWho, "] model.prefix_lm must be that of the model of ",
         files.folder, '.');
  }
  const int64_t longest = files.config.model.longest_sequence();
  const bool blocks = examples_of(student).joined;
  const int64_t needed = blocks ? student.data.block_size : student.data.corpus.max_length;
  if (needed > longest) {
    fail(ErrorKind::kData, '[', kWho, "] the model of ", files.folder, " reads at most ", longest,
         " tokens, data.", blocks ? "block_size" : "max_length", " is ", needed, '.');
  }
}

template <class Model>
std::unique_ptr<ModelBundle<Model>> make_bundle(ModelFiles files, const std::string& device,
                                                Teacher::Weights weights) {
  if (weights == Teacher::Weights::kRead) {
    constexpr Ability kNeeded = std::is_same_v<Model, LanguageModel> ? kModelsText : kTranslates;
    return ModelBundle<Model>::load(std::move(files), device, kWho, kNeeded);
  }
  files.config.device = device;
  return std::make_unique<ModelBundle<Model>>(files.config, std::move(files.tokenizers),
                                              ModelUse::kAnswers);
}

}  // namespace

Teacher::Teacher(const Config& student, const TokenizerPair& tokenizers, Weights weights)
    : weight_(student.training.teacher_weight), temperature_(student.training.teacher_temperature) {
  ModelFiles files = read_model_files(student.training.teacher);
  check_fits(files, student);
  if (weights == Weights::kRead) {
    check_same_vocabulary(files.tokenizers, files.folder, tokenizers, "this config");
  } else {
    files.tokenizers = tokenizers;  // they may only have a size
  }
  const std::string folder = files.folder;
  switch (files.config.model_type) {
    case ModelType::kEncoderDecoder:
      bundle_ = make_bundle<EncoderDecoder>(std::move(files), student.device, weights);
      break;
    case ModelType::kRnnAttention:
      bundle_ = make_bundle<RnnAttention>(std::move(files), student.device, weights);
      break;
    default:
      bundle_ = make_bundle<LanguageModel>(std::move(files), student.device, weights);
  }
  for (const Parameter& parameter : store().parameters()) bytes_ += parameter.var.value().bytes();
  summary_ = concat(store().elements(), " parameters of ", folder);
}

const ParamStore& Teacher::store() const {
  return std::visit([](const auto& bundle) -> const ParamStore& { return bundle->store; }, bundle_);
}

std::string Teacher::checksum() const {
  Checksum checksum;
  for (const Parameter& parameter : store().parameters()) {
    const Tensor host = parameter.var.value().to(Device{});
    checksum.add(host.raw(), static_cast<size_t>(host.bytes()));
  }
  return checksum.text();
}

template <class Batch>
Distillation Teacher::of_batch(const Batch& batch) const {
  Distillation result{.weight = weight_, .temperature = temperature_};
  std::visit(
      [&](const auto& bundle) {
        if constexpr (requires { target_states(bundle->model, batch); }) {
          result.logits = teacher_logits(bundle->model, batch);
        }
      },
      bundle_);
  check(result.logits != nullptr, kWho, "its model does not read such batches.");
  return result;
}

Distillation Teacher::of(const EncoderDecoder::Batch& batch) const { return of_batch(batch); }
Distillation Teacher::of(const LanguageModel::Batch& batch) const { return of_batch(batch); }

std::unique_ptr<Teacher> teacher_of(const Config& student, const TokenizerPair& tokenizers,
                                    Teacher::Weights weights) {
  if (student.training.teacher.empty()) return nullptr;
  return std::make_unique<Teacher>(student, tokenizers, weights);
}

}  // namespace tapestry
