#include "apps/interop/huggingface_import.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/made_file.h"
#include "apps/checkpoint/parameters.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/peft.h"
#include "apps/interop/special_ids.h"
#include "apps/interop/tensor_names.h"
#include "apps/interop/tokenizer_files.h"
#include "core/pattern.h"
#include "core/text.h"
#include "data/files.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

Json read_json_if_there(const std::string& path) {
  return fs::exists(path) ? read_json(path) : Json::object();
}

struct Folder {
  std::string path;
  const Architecture* architecture;
  Json config;
  TensorReader reader;
  TensorNames names;
};

Folder open_folder(const std::string& path) {
  const std::string config_path = path + "/" + kConfigFile;
  Json config = read_json(config_path);
  const Json type = config.value("model_type", Json());
  const Architecture* const architecture =
      type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
  if (architecture == nullptr) {
    std::vector<std::string> known;
    for (const Architecture* row : architectures()) known.emplace_back(row->name);
    fail(ErrorKind::kData, "[import] ", config_path, " has model_type ", type.dump(),
         ", expected one of ", join(known, ", "), '.');
  }
  TensorReader reader = open_model_folder(path);
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  TensorNames names(*architecture, stored);
  return {path, architecture, std::move(config), std::move(reader), std::move(names)};
}

// The task of the head that the tensors have; "" without one.
std::string task_of_head(const Folder& folder) {
  const TensorNames& names = folder.names;
  if (folder.architecture->type != ModelType::kEncoder) {
    return folder.architecture->classes.front().task;
  }
  if (names.has("classifier.weight") || names.has("classifier.out_proj.weight")) {
    return "classification";
  }
  for (const char* name : {"cls.predictions.transform.dense.weight", "lm_head.dense.weight"}) {
    if (names.has(name)) return "mlm";
  }
  return "";
}

Json labels_of(const Json& theirs, Reasons& reasons) {
  Json labels = Json::array();
  const auto found = theirs.find("id2label");
  if (found == theirs.end() || !found->is_object()) return {"LABEL_0", "LABEL_1"};
  for (size_t i = 0; i < found->size(); ++i) {
    const auto label = found->find(std::to_string(i));
    if (label == found->end() || !label->is_string()) {
      reasons.push_back(concat("id2label must name the classes 0 to ", found->size() - 1));
      return labels;
    }
    labels.push_back(*label);
  }
  return labels;
}

// One number for both sides, or height and width.
std::pair<int64_t, int64_t> image_size(const Json& theirs, Reasons& reasons) {
  const auto found = theirs.find("image_size");
  if (found != theirs.end() && found->is_array() && found->size() == 2 &&
      (*found)[0].is_number_integer() && (*found)[1].is_number_integer()) {
    return {(*found)[0].get<int64_t>(), (*found)[1].get<int64_t>()};
  }
  const int64_t size = number_of(theirs, "image_size", 224, reasons);
  return {size, size};
}

Json image_format(const Folder& folder, Reasons& reasons) {
  const auto [height, width] = image_size(folder.config, reasons);
  const int64_t channels = number_of(folder.config, "num_channels", 3, reasons);
  constexpr int64_t kMostChannels = 1024;
  if (channels < 1 || channels > kMostChannels) {
    reasons.push_back(concat("num_channels is ", channels, ", expected 1 to ", kMostChannels));
    return {};
  }
  Json format = {{"height", height}, {"width", width}, {"channels", channels}};
  const Json processor = read_json_if_there(folder.path + "/preprocessor_config.json");
  for (const auto& [theirs, ours] : {std::pair{"image_mean", "mean"}, {"image_std", "std"}}) {
    const auto found = processor.find(theirs);
    format[ours] = found != processor.end() && found->is_array() && !found->empty()
                       ? *found
                       : Json(std::vector<double>(static_cast<size_t>(channels), 0.5));
  }
  return format;
}

// A model of theirs has no corpus; its folder stands where a config names one.
Json corpus_of(const std::string& task, const std::string& folder, bool images, bool one_document) {
  if (task == "translation") return {{"source", folder}, {"target", folder}};
  if (task == "classification") return {{images ? "images" : "tsv", folder}};
  if (one_document) return {{"text", folder}, {"documents", "file"}};
  return {{"text", folder}};
}

bool any_not_zero(const TensorReader& reader, const StoredTensor& tensor) {
  const Tensor values = Tensor::empty(tensor.shape, DType::kFloat64);
  reader.read(tensor.name, values);
  const double* const x = values.data<double>();
  return std::any_of(x, x + values.numel(), [](double value) { return value != 0; });
}

Config our_config(const Folder& folder, const std::string& task, Reasons& reasons) {
  const Architecture& architecture = *folder.architecture;
  Json model = our_model(architecture, folder.config, reasons);
  const bool images = architecture.type == ModelType::kVit;
  if (task == "translation" && folder.names.has("final_logits_bias")) {
    const StoredTensor& bias = *folder.reader.find(folder.names.stored("final_logits_bias"));
    model["output_bias"] = any_not_zero(folder.reader, bias);
  }
  bool doubles = !folder.reader.empty();
  for (const StoredTensor& tensor : folder.reader.tensors()) {
    if (tensor.type == StoredType::kF32 || tensor.type == StoredType::kF16 ||
        tensor.type == StoredType::kBF16) {
      doubles = false;
    }
  }
  const auto bos = folder.config.find("bos_token_id");
  const bool one_document = bos != folder.config.end() && bos->is_null();
  Json data = {{"train", corpus_of(task, fs::absolute(folder.path).string(), images,
                                   one_document && task == "clm")}};
  // An example is no longer than the model's positions.
  const Json positions = model.value("max_position_embeddings", Json());
  if (positions.is_number_integer()) {
    const bool blocks = find_task(task)->reads_blocks;
    const int64_t usual = blocks ? DataOptions().block_size : CorpusOptions().max_length;
    data[blocks ? "block_size" : "max_length"] = std::min(usual, positions.get<int64_t>());
  }
  if (task == "classification") data["labels"] = labels_of(folder.config, reasons);
  if (images) data["image"] = image_format(folder, reasons);
  const Json config = {
      {"task", task},
      {"dtype", doubles ? "float64" : "float32"},
      {"output_dir", (fs::path("runs") / fs::canonical(folder.path).filename()).string()},
      {"data", data},
      {"model", model},
      {"training", {{"max_steps", 1}}}};
  try {
    return load_checkpoint_config(config.dump(), folder.path);
  } catch (const Error& error) {
    reasons.emplace_back(error.what());
    return {};
  }
}

Counts counts_of(const Folder& folder, const Config& config, Reasons& reasons) {
  const Json& theirs = folder.config;
  Counts counts;
  counts.classes = static_cast<int64_t>(config.data.labels.size());
  if (folder.architecture->type == ModelType::kVit) return counts;
  if (!theirs.contains("vocab_size")) reasons.emplace_back("vocab_size is missing");
  counts.source_vocab = number_of(theirs, "vocab_size", 0, reasons);
  counts.target_vocab = number_of(theirs, "decoder_vocab_size", counts.source_vocab, reasons);
  const auto share = theirs.find("share_encoder_decoder_embeddings");
  counts.shared_vocab = folder.architecture != &kMarian || share == theirs.end() || *share != false;
  if (counts.shared_vocab) counts.target_vocab = counts.source_vocab;
  return counts;
}

// A tied tensor may be stored under the name of a copy.
std::string place_of(const Folder& folder, const std::string& name) {
  if (folder.names.has(name)) return name;
  for (const auto& [tensor, copy] : folder.architecture->tied) {
    if (name == tensor && folder.names.has(copy)) return copy;
  }
  return "";
}

bool is_skipped(const Folder& folder, const std::string& name) {
  const auto& skipped = folder.architecture->skipped;
  return std::any_of(skipped.begin(), skipped.end(),
                     [&](const char* pattern) { return matches(name, pattern); });
}

// Sinusoids that are stored must be ours.
void compare_sinusoids(const Folder& folder, const Config& config, Reasons& reasons) {
  for (const char* name : folder.architecture->stored_sinusoids) {
    if (!folder.names.has(name)) continue;
    const StoredTensor& stored = *folder.reader.find(folder.names.stored(name));
    const int64_t size = config.model.hidden_size;
    if (stored.shape.rank() != 2 || stored.shape[1] != size) {
      reasons.push_back(concat(name, " is ", stored.shape, ", expected ", size, " columns"));
      continue;
    }
    const Tensor theirs = Tensor::empty(stored.shape, DType::kFloat64);
    folder.reader.read(stored.name, theirs);
    const Tensor ours = sinusoids_in_halves(stored.shape[0], size, DType::kFloat64);
    double largest = 0;
    for (int64_t i = 0; i < ours.numel(); ++i) {
      largest = std::max(largest, std::abs(ours.data<double>()[i] - theirs.data<double>()[i]));
    }
    // They are written as float32 or less.
    if (largest > 1e-3) reasons.push_back(concat(name, " holds other positions than sinusoids"));
  }
}

// Which tensors are used, by the names of the tables; what is missing or has another shape is a
// reason.
std::vector<TensorPair> check_tensors(const Folder& folder, const ModelFacts& facts,
                                      Reasons& reasons) {
  std::set<std::string> used;
  std::vector<TensorPair> pairs;
  for (TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    const bool absent = pair.optional && !pair.is_bias && !folder.names.has(pair.theirs[0]);
    const bool no_use = pair.ours == "output.bias" && !facts.output_bias;
    if (no_use) used.insert(pair.theirs[0]);
    if (absent || no_use) continue;
    for (size_t i = 0; i < pair.theirs.size(); ++i) {
      const std::string place = place_of(folder, pair.theirs[i]);
      if (place.empty()) {
        reasons.push_back(concat("no tensor ", pair.theirs[i], ' ', pair.their_shapes[i]));
        continue;
      }
      used.insert(place);
      pair.theirs[i] = folder.names.stored(place);
      const StoredTensor& stored = *folder.reader.find(pair.theirs[i]);
      if (stored.shape != pair.their_shapes[i] || !fits(stored.type, DType::kFloat32)) {
        reasons.push_back(concat(stored.name, " is ", name_of(stored.type), ' ', stored.shape,
                                 ", expected ", pair.their_shapes[i]));
      }
    }
    pairs.push_back(std::move(pair));
  }
  std::set<std::string> positions(folder.architecture->stored_sinusoids.begin(),
                                  folder.architecture->stored_sinusoids.end());
  for (const auto& [name, stored] : folder.names.all()) {
    if (used.contains(name) || positions.contains(name) || is_skipped(folder, name)) continue;
    reasons.push_back(concat("tensor ", stored, " has no place in Tapestry"));
  }
  return pairs;
}

}  // namespace

bool is_huggingface_folder(const std::string& path) {
  if (is_peft_folder(path)) return true;
  const std::string config = path + "/" + kConfigFile;
  if (is_checkpoint(path) || !fs::is_regular_file(config)) return false;
  const Json json = Json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("model_type");
}

ImportedModel import_model(const std::string& path) {
  const Folder folder = open_folder(path);
  Reasons reasons;
  const std::string head = task_of_head(folder);
  const Config config = our_config(folder, head.empty() ? "mlm" : head, reasons);
  if (!reasons.empty()) refuse(path, reasons);  // the sizes of the tensors follow from the config
  const Counts counts = counts_of(folder, config, reasons);
  ModelFacts facts = facts_for(*folder.architecture, config, counts);
  if (head.empty()) facts.masked = facts.fills_tied = facts.fills_untied = false;
  const std::vector<TensorPair> pairs = check_tensors(folder, facts, reasons);
  compare_sinusoids(folder, config, reasons);
  if (!reasons.empty()) refuse(path, reasons);

  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = folder.architecture->sinusoids;
  ImportedModel imported{.config = config, .counts = counts, .tensors = {}};
  for (const TensorPair& pair : pairs) {
    imported.tensors.emplace_back(
        pair.ours, pair.our_shape, config.dtype,
        [pair, layout, dtype = config.dtype, reader = folder.reader] {
          return to_ours(pair, layout, dtype, [&](const std::string& name, const Tensor& into) {
            reader.read(name, into);
          });
        });
  }
  if (head.empty()) {
    imported.notes.push_back(
        concat(path, " has no head: init_from takes it, and trains a new one."));
  }
  return imported;
}

namespace {

// The ids that rows of ours begin and end with must be those that the model has learnt.
void check_ids(const Json& theirs, const Config& config, const Counts& counts,
               const TokenizerPair& tokenizers, Reasons& reasons) {
  const SpecialIds ids = special_ids(*tokenizers.target);
  const auto expect = [&](const char* key, std::optional<int32_t> own) {
    const auto found = theirs.find(key);
    if (found == theirs.end() || !found->is_number_integer() || *found < 0 || !own) return;
    if (*found == *own) return;
    reasons.push_back(concat(key, " is ", found->dump(), ", the tokenizer's is ", *own));
  };
  expect("pad_token_id", ids.pad);
  expect("eos_token_id", ids.eos);
  if (config.model_type == ModelType::kEncoderDecoder) {
    if (config.model.tie_word_embeddings && counts.shared_vocab != tokenizers.shared()) {
      reasons.push_back(concat("the model has ", counts.shared_vocab ? "one table" : "two tables",
                               " of embeddings, the tokenizers have ",
                               tokenizers.shared() ? "one vocabulary" : "two vocabularies"));
    }
    const tapestry::SpecialIds& target = tokenizers.target->special();
    expect("decoder_start_token_id", target.start.value_or(*ids.bos));
    // mBART-50 has the language in front: that of the sources, unless the folder names another.
    const std::vector<int32_t> before = target.target().before;
    if (!target.first && !before.empty() && before != std::vector<int32_t>{target.bos}) {
      reasons.push_back(concat("forced_bos_token_id is missing: translations would begin with '",
                               tokenizers.target->piece(before[0]), "', as the sources do"));
    }
  }
}

}  // namespace

ImportedFolder import_folder(const std::string& path, const std::string& base) {
  const bool adapted = is_peft_folder(path);
  if (!adapted && !base.empty()) {
    fail(ErrorKind::kConfig, "[import] --base is for adapters, and ", path,
         " has no adapter_config.json.");
  }
  const std::string folder = adapted ? base_of_adapters(path, base) : path;
  ImportedFolder imported{adapted ? import_adapted_model(path, folder) : import_model(folder), {}};
  ImportedModel& model = imported.model;
  if (!reads_text(model.config)) return imported;
  Json theirs = read_json(folder + "/" + kConfigFile);
  // Releases differ in the file that has it.
  const Json generation = read_json_if_there(folder + "/generation_config.json");
  const char* const first = "forced_bos_token_id";
  if (theirs.value(first, Json()).is_null()) theirs[first] = generation.value(first, Json());
  imported.tokenizers = find_tokenizers(folder, model.counts, theirs);
  Reasons reasons;
  check_ids(theirs, model.config, model.counts, imported.tokenizers, reasons);
  if (!reasons.empty()) refuse(folder, reasons);
  return imported;
}

ModelFiles model_files(ImportedFolder imported, const std::string& folder) {
  const ByteSource source = safetensors_source(std::move(imported.model.tensors), folder);
  return {.folder = folder,
          .config = std::move(imported.model.config),
          .tokenizers = std::move(imported.tokenizers),
          .tensors = TensorReader(source)};
}

}  // namespace tapestry::interop
