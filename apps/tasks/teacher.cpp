#include "apps/tasks/teacher.h"

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
  const int64_t longest = files.config.model.longest_sequence();
  if (student.data.corpus.max_length > longest) {
    fail(ErrorKind::kData, '[', kWho, "] the model of ", files.folder, " reads at most ", longest,
         " tokens, data.max_length is ", student.data.corpus.max_length, '.');
  }
}

template <class Model>
std::unique_ptr<ModelBundle<Model>> make_bundle(ModelFiles files, const std::string& device,
                                                Teacher::Weights weights) {
  if (weights == Teacher::Weights::kRead) {
    return ModelBundle<Model>::load(std::move(files), device, kWho, kTranslates);
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
  if (files.config.model_type == ModelType::kRnnAttention) {
    bundle_ = make_bundle<RnnAttention>(std::move(files), student.device, weights);
  } else {
    bundle_ = make_bundle<EncoderDecoder>(std::move(files), student.device, weights);
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

Distillation Teacher::of(const EncoderDecoder::Batch& batch) const {
  return {.weight = weight_,
          .temperature = temperature_,
          .logits = std::visit(
              [&](const auto& bundle) { return teacher_logits(bundle->model, batch); }, bundle_)};
}

std::unique_ptr<Teacher> teacher_of(const Config& student, const TokenizerPair& tokenizers,
                                    Teacher::Weights weights) {
  if (student.training.teacher.empty()) return nullptr;
  return std::make_unique<Teacher>(student, tokenizers, weights);
}

}  // namespace tapestry
