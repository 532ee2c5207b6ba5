#include "apps/checkpoint/model_bundle.h"

#include <algorithm>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/run_folder.h"
#include "core/cpu/portable_bits.h"

namespace tapestry {

namespace {

Vocabulary vocabulary_of(const TokenizerPair& tokenizers) {
  return {.source_size = tokenizers.source->vocab_size(),
          .target_size = tokenizers.target->vocab_size(),
          .shared = tokenizers.shared(),
          .no_target = kNoTarget};
}

LanguageModel::Vocabulary text_vocabulary(const TokenizerPair& tokenizers) {
  return {.size = tokenizers.source->vocab_size(), .no_target = kNoTarget};
}

}  // namespace

template <>
EncoderDecoder build_model(const Config& config, const TokenizerPair& tokenizers,
                           const ParamScope& scope) {
  return EncoderDecoder(config.model, vocabulary_of(tokenizers), scope);
}

template <>
RnnAttention build_model(const Config& config, const TokenizerPair& tokenizers,
                         const ParamScope& scope) {
  return RnnAttention(config.model, vocabulary_of(tokenizers), scope);
}

template <>
LanguageModel build_model(const Config& config, const TokenizerPair& tokenizers,
                          const ParamScope& scope) {
  return LanguageModel(config.model, text_vocabulary(tokenizers),
                       /*causal=*/traits_of(config.model_type).writes, scope);
}

template <>
SequenceClassifier build_model(const Config& config, const TokenizerPair& tokenizers,
                               const ParamScope& scope) {
  // Without classes it gives a number.
  const int64_t outputs = std::max<int64_t>(1, std::ssize(config.data.labels));
  return SequenceClassifier(config.model, text_vocabulary(tokenizers), outputs, scope);
}

template <>
SpanExtractor build_model(const Config& config, const TokenizerPair& tokenizers,
                          const ParamScope& scope) {
  return SpanExtractor(config.model, text_vocabulary(tokenizers), scope);
}

template <>
TokenClassifier build_model(const Config& config, const TokenizerPair& tokenizers,
                            const ParamScope& scope) {
  return TokenClassifier(config.model, text_vocabulary(tokenizers),
                         static_cast<int64_t>(config.data.labels.size()), scope);
}

template <>
TextEmbedder build_model(const Config& config, const TokenizerPair& tokenizers,
                         const ParamScope& scope) {
  return TextEmbedder(config.model, text_vocabulary(tokenizers), scope);
}

template <>
ImageClassifier build_model(const Config& config, const TokenizerPair&, const ParamScope& scope) {
  const ImageSize& size = config.data.image.size;
  if (!size.known()) {
    fail(ErrorKind::kConfig,
         "[model] data.image must give height, width and channels where no images are read.");
  }
  const ImageClasses data{.height = size.height,
                          .width = size.width,
                          .channels = size.channels,
                          .classes = static_cast<int64_t>(config.data.labels.size())};
  if (config.model_type == ModelType::kLinear) {
    return {LinearClassifier(config.model, data, scope)};
  }
  return {VisionTransformer(config.model, data, scope)};
}

Config config_of(Checkpoint& checkpoint) {
  const ByteSource& config = checkpoint.open(kConfigFile);
  return load_checkpoint_config(bytes_of(config), config.name);
}

namespace {

// A model of images has none, but may have come with files.
TokenizerPair tokenizers_for(const Config& config,
                             const std::map<std::string, std::string>& files) {
  const bool texts = examples_of(config).of_text();
  if (files.empty() && !texts) return {};
  TokenizerPair tokenizers = load_tokenizers(files);
  if (texts && tokenizers.source == nullptr) {
    fail(ErrorKind::kData, "[tokenizer] a model of texts needs a tokenizer, got none.");
  }
  return tokenizers;
}

}  // namespace

ModelFiles read_model_files(const std::string& path) {
  ModelFiles model;
  model.folder = resolve_checkpoint(path);
  Checkpoint checkpoint(model.folder);
  model.config = config_of(checkpoint);
  model.tokenizers = tokenizers_for(model.config, tokenizer_files(checkpoint));
  model.tensors = TensorReader(checkpoint.open(kModelFile));
  return model;
}

std::vector<ModelFiles> read_model_files(const std::vector<std::string>& paths) {
  std::vector<ModelFiles> models;
  for (const std::string& path : paths) {
    models.push_back(read_model_files(path));
    const ModelFiles &first = models.front(), &last = models.back();
    if (models.size() == 1 || examples_of(first.config).of_images() ||
        examples_of(last.config).of_images())
      continue;
    check_same_vocabulary(first.tokenizers, first.folder, last.tokenizers, last.folder);
  }
  return models;
}

CarriedTensors carried_tensors(const Config& config) {
  const bool fills = config.model_type == ModelType::kEncoder && config.task->can(kFillsMasks);
  if (!fills && !config.task->can(kEmbedsTexts)) return {};
  const int64_t size = config.model.hidden_size;
  return {{"pooler.weight", {size, size}}, {"pooler.bias", {size}}};
}

ParamStore make_store(const Config& config, ModelUse use, ParamStore::Start start) {
  const Device device = parse_device(config.device);
  if (config.portable_bits && device.is_cpu()) choose_portable_bits();
  const Numbers numbers = numbers_of(config, use, device);
  FrozenBase base;
  if (use == ModelUse::kTraining) {
    base = {.format = config.training.lora_base,
            .learning = config.training.modules_to_save,
            .drawn = config.init_from.empty()};
  }
  return ParamStore(config.seed, numbers.dtype, device, numbers.precision, config.lora, start,
                    std::move(base), config.training.quantize);
}

template <class Model>
std::unique_ptr<ModelBundle<Model>> ModelBundle<Model>::load(ModelFiles files,
                                                             const std::string& device,
                                                             const std::string& who,
                                                             Ability ability,
                                                             std::optional<WeightChoice> format) {
  if (!files.config.task->can(ability)) {
    fail(ErrorKind::kData, '[', who, "] expected a model of task ", tasks_that_can(ability), ", ",
         files.folder, " holds one of task ", files.config.task->name, '.');
  }
  files.config.device = device;
  auto bundle = std::make_unique<ModelBundle>(
      files.config, with_languages(std::move(files.tokenizers), files.config.languages),
      ModelUse::kAnswers, ParamStore::Start::kEmpty);
  std::optional<WeightFormat> packed;
  if (format) packed = format->format;
  if (format && !packed) packed = bundle->store.usual_format();
  load_parameters(bundle->store, files.tensors, packed, carried_tensors(bundle->config));
  return bundle;
}

template <class Model>
std::map<std::string, std::string> ModelBundle<Model>::files() const {
  std::map<std::string, std::string> files = tokenizers.files();
  files[kConfigFile] = to_json(config);
  return files;
}

template struct ModelBundle<EncoderDecoder>;
template struct ModelBundle<RnnAttention>;
template struct ModelBundle<LanguageModel>;
template struct ModelBundle<SequenceClassifier>;
template struct ModelBundle<SpanExtractor>;
template struct ModelBundle<TokenClassifier>;
template struct ModelBundle<TextEmbedder>;
template struct ModelBundle<ImageClassifier>;

}  // namespace tapestry
