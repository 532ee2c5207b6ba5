#include "apps/interop/huggingface_import.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/made_file.h"
#include "apps/checkpoint/parameters.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/peft.h"
#include "apps/interop/special_ids.h"
#include "apps/interop/tensor_names.h"
#include "apps/interop/tokenizer_files.h"
#include "core/pattern.h"
#include "core/text.h"
#include "data/files.h"
#include "data/huggingface_files.h"
#include "data/utf8.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

Json read_json_if_there(const std::string& path) {
  return fs::exists(path) ? read_json(path) : Json::object();
}

// Releases of before wrote their tensors with Python's pickle, which is a program, not data.
TensorReader open_tensors(const std::string& folder) {
  const bool ours = fs::exists(folder + "/model.safetensors") ||
                    fs::exists(folder + "/model.safetensors.index.json");
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                           "flax_model.msgpack", "consolidated.00.pth"}) {
    if (!ours && fs::exists(folder + "/" + name)) refuse_other_format(folder, name);
  }
  return open_model_folder(folder);
}

struct Folder {
  std::string path;
  const Architecture* architecture;
  Json config;
  TensorReader reader;
  TensorNames names;
};

const Architecture* architecture_of(const Json& config) {
  const Json type = config.value("model_type", Json());
  return type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
}

// config.json, with their class's defaults for ids that it does not name.
Json config_with_defaults(const std::string& folder) {
  Json config = read_json(folder + "/" + kConfigFile);
  const Architecture* const architecture = architecture_of(config);
  if (architecture == nullptr) return config;
  for (const ClassDefault& row : architecture->ids) {
    if (!config.contains(row.key)) config[row.key] = Json::parse(row.value);
  }
  return config;
}

Folder open_folder(const std::string& path) {
  const std::string config_path = path + "/" + kConfigFile;
  Json config = config_with_defaults(path);
  const Json type = config.value("model_type", Json());
  const Architecture* const architecture = architecture_of(config);
  if (architecture == nullptr) {
    std::vector<std::string> known;
    for (const Architecture* row : architectures()) known.emplace_back(row->name);
    fail(ErrorKind::kData, "[import] ", config_path, " has model_type ", type.dump(),
         ", expected one of ", join(known, ", "), '.');
  }
  TensorReader reader = open_tensors(path);
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  TensorNames names(*architecture, stored);
  return {path, architecture, std::move(config), std::move(reader), std::move(names)};
}

// Names of a task's head in the file of an encoder.
constexpr std::pair<const char*, const char*> kHeads[] = {
    {"classification", "classifier.weight"},
    {"classification", "classifier.out_proj.weight"},
    {"mlm", "cls.predictions.transform.dense.weight"},
    {"mlm", "lm_head.dense.weight"},
    {"question_answering", "qa_outputs.weight"},
};

// Every place of a text has the same bias of spans: it changes no probability, and ours has none.
constexpr const char* kUnreadBias = "span_head.bias";

bool has_head(const Folder& folder, const std::string& task) {
  return std::ranges::any_of(kHeads, [&](const auto& head) {
    return task == head.first && folder.names.has(head.second);
  });
}

// The task of the head that the tensors have; "" without one.
std::string task_by_tensors(const Folder& folder) {
  if (folder.architecture->type != ModelType::kEncoder) {
    return folder.architecture->classes.front().task;
  }
  for (const auto& [task, tensor] : kHeads) {
    if (folder.names.has(tensor)) return task;
  }
  return "";
}

// The task of the class that the folder names: other classes use the same names of tensors. Without
// a class the tensors decide. "" without a head.
std::string task_of_head(const Folder& folder, Reasons& reasons) {
  const Architecture& architecture = *folder.architecture;
  const Json names = folder.config.value("architectures", Json());
  if (!names.is_array() || names.empty() || !names[0].is_string() ||
      names[0] == architecture.headless) {
    return task_by_tensors(folder);
  }
  std::vector<std::string> known = {architecture.headless};
  for (const ModelClass& row : architecture.classes) {
    if (names[0] == row.name) {
      const bool absent = architecture.type == ModelType::kEncoder && !has_head(folder, row.task);
      return absent ? "" : row.task;
    }
    if (row.name != known.back()) known.emplace_back(row.name);
  }
  reasons.push_back(concat("architectures names ", names[0].get<std::string>(), ", Tapestry has ",
                           join(known, ", ")));
  return "";
}

// Heads that give numbers, or answer each class on its own, have the tensors of a classifier.
void check_classes(const Json& theirs, const Json& labels, Reasons& reasons) {
  const Json type = theirs.value("problem_type", Json());
  if (!type.is_null() && type != "single_label_classification") {
    reasons.push_back(concat("problem_type is ", type.dump(),
                             ", Tapestry has \"single_label_classification\": one class of each "
                             "text or image, by a softmax"));
  } else if (labels.size() == 1) {
    reasons.emplace_back(
        "it has one label, so that its head gives a number (a regression); Tapestry's classifiers "
        "have two classes or more");
  }
}

Json labels_of(const Json& theirs, Reasons& reasons) {
  Json labels = Json::array();
  const auto found = theirs.find("id2label");
  if (found == theirs.end() || !found->is_object()) {
    const int64_t count = std::clamp<int64_t>(number_of(theirs, "num_labels", 2, reasons), 1, 4096);
    for (int64_t i = 0; i < count; ++i) labels.push_back(concat("LABEL_", i));
    return labels;
  }
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
  const bool plain = processor.value("do_normalize", Json(true)) == false;
  for (const auto& [theirs, ours] : {std::pair{"image_mean", "mean"}, {"image_std", "std"}}) {
    const auto found = processor.find(theirs);
    if (plain) {
      const double none = ours == std::string_view("std") ? 1 : 0;
      format[ours] = std::vector<double>(static_cast<size_t>(channels), none);
      continue;
    }
    format[ours] = found != processor.end() && found->is_array() && !found->empty()
                       ? *found
                       : Json(std::vector<double>(static_cast<size_t>(channels), 0.5));
  }
  return format;
}

// A model of theirs has no corpus; its folder stands in for the config's data.
Json corpus_of(const std::string& task, const std::string& folder, bool images) {
  if (task == "translation") return {{"source", folder}, {"target", folder}};
  if (task == "classification") return {{images ? "images" : "tsv", folder}};
  if (task == "question_answering") return {{"squad", folder}};
  return {{"text", folder}};
}

bool any_not_zero(const TensorReader& reader, const StoredTensor& tensor) {
  const Tensor values = Tensor::empty(tensor.shape, DType::kFloat64);
  reader.read(tensor.name, values);
  const double* const x = values.data<double>();
  return std::any_of(x, x + values.numel(), [](double value) { return value != 0; });
}

// Checks tables that config.json calls tied. If the file has both and they differ, the second one
// becomes a classifier of its own; models that share more than two tables cannot be untied so.
void compare_tied(const Folder& folder, Json& model, Reasons& reasons, Reasons& notes) {
  if (model.value("tie_word_embeddings", Json(true)) != true) return;
  const auto share = folder.config.find("share_encoder_decoder_embeddings");
  const bool two_tables =
      folder.architecture == &kMarian && share != folder.config.end() && *share == false;
  std::vector<std::pair<const char*, const char*>> pairs = folder.architecture->tied;
  if (two_tables) pairs = {{"model.decoder.embed_tokens.weight", "lm_head.weight"}};
  const bool both_sides = folder.architecture->type == ModelType::kEncoderDecoder;
  if (both_sides && !folder.names.has("model.shared.weight") && !two_tables) {
    pairs = {{"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
             {"model.encoder.embed_tokens.weight", "lm_head.weight"},
             {"model.decoder.embed_tokens.weight", "lm_head.weight"}};
  }
  for (const auto& [tensor, copy] : pairs) {
    if (!folder.names.has(tensor) || !folder.names.has(copy)) continue;
    if (folder.reader.equal(folder.names.stored(tensor), folder.names.stored(copy))) continue;
    if (both_sides || !std::string_view(copy).ends_with(".weight")) {
      // The bias of a classifier that is untied already is the copy.
      if (model["tie_word_embeddings"] == false) continue;
      reasons.push_back(
          concat(copy, " differs from ", tensor, ", and tie_word_embeddings is true"));
    } else {
      model["tie_word_embeddings"] = false;
      notes.push_back(
          concat(copy, " differs from ", tensor,
                 ", so that tie_word_embeddings: true is not so: they stay two tables."));
    }
  }
}

// Our config, and sentences about differences from config.json.
Config our_config(const Folder& folder, const std::string& task, bool has_head, Reasons& reasons,
                  Reasons& notes) {
  const Architecture& architecture = *folder.architecture;
  Json model = our_model(architecture, folder.config, reasons);
  const bool predicts = has_head && (task == "mlm" || task == "clm" || task == "translation");
  if (predicts) compare_tied(folder, model, reasons, notes);
  const Json labels = task == "classification" ? labels_of(folder.config, reasons) : Json::array();
  if (task == "classification") check_classes(folder.config, labels, reasons);
  for (const char* key : architecture.only_trained) {
    const Json value = folder.config.value(key, Json());
    const double ours = key == std::string_view("classifier_dropout")
                            ? model.value("dropout", Json(0)).get<double>()
                            : 0;
    if (!value.is_number() || value.get<double>() == ours) continue;
    notes.push_back(concat(key, " is ", value.dump(), ", a training here has ", ours, '.'));
  }
  if (!reasons.empty()) return {};
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
  Json data = {{"train", corpus_of(task, fs::absolute(folder.path).string(), images)}};
  // An example is no longer than the model's positions.
  const Json positions = model.value("max_position_embeddings", Json());
  if (positions.is_number_integer()) {
    const auto most = positions.get<int64_t>();
    const bool blocks = find_task(task)->reads_blocks;
    const int64_t usual = blocks ? DataOptions().block_size : CorpusOptions().max_length;
    int64_t longest = std::min(usual, most);
    // Their classifiers read what has a position, and their answers are looked for in windows of
    // 384 tokens: one that answers no longer knows what it was trained with.
    if (task == "classification") longest = most;
    if (task == "question_answering") {
      constexpr int64_t kWindow = 384;
      longest = std::min(kWindow, most);
      data["doc_stride"] = std::max<int64_t>(1, longest / 3);
    }
    data[blocks ? "block_size" : "max_length"] = longest;
  }
  if (task == "classification") data["labels"] = labels;
  if (images) data["image"] = image_format(folder, reasons);
  Json config = {
      {"task", task},
      {"dtype", doubles ? "float64" : "float32"},
      {"output_dir", (fs::path("runs") / fs::canonical(folder.path).filename()).string()},
      {"data", data},
      {"model", model},
      {"training", {{"max_steps", 1}}}};
  const bool writes =
      architecture.type == ModelType::kDecoder || architecture.type == ModelType::kEncoderDecoder;
  if (writes)
    config["generation"] =
        our_generation(read_generation(folder.path, folder.config), architecture.type, notes);
  try {
    const Config read = load_checkpoint_config(config.dump(), folder.path);
    const std::vector<std::string> open = undetermined_keys(model, read);
    check(open.empty(), "import", architecture.name, " does not say what model.", join(open, ", "),
          " is.");
    return read;
  } catch (const Error& error) {
    std::string message = error.what();
    if (message.ends_with('.')) message.pop_back();
    reasons.push_back(message);
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

// The tensors to use, by the names of the tables; a missing tensor or another shape is a reason.
std::vector<TensorPair> check_tensors(const Folder& folder, const ModelFacts& facts,
                                      Reasons& reasons) {
  std::set<std::string> used;
  std::vector<TensorPair> pairs;
  for (TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    const bool absent = pair.optional && !pair.is_bias && !folder.names.has(pair.theirs[0]);
    const bool no_use =
        (pair.ours == "output.bias" && !facts.output_bias) || pair.ours == kUnreadBias;
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

// The pooler in a file with another head, for a classifier that begins with it.
std::vector<TensorPair> pooler_of(const Folder& folder, ModelFacts facts) {
  if (facts.pooled || folder.architecture->type != ModelType::kEncoder) return {};
  facts.pooled = true;
  std::vector<TensorPair> found;
  for (TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    if (!pair.ours.starts_with("pooler.") || !folder.names.has(pair.theirs[0])) continue;
    pair.theirs[0] = folder.names.stored(pair.theirs[0]);
    const StoredTensor& stored = *folder.reader.find(pair.theirs[0]);
    if (stored.shape != pair.their_shapes[0] || !fits(stored.type, DType::kFloat32)) return {};
    found.push_back(std::move(pair));
  }
  return found;
}

}  // namespace

void refuse_other_format(const std::string& folder, const std::string& file) {
  fail(ErrorKind::kData, "[import] ", folder, " has its weights in ", file,
       ", expected safetensors. With their program: load the model there, and save it again "
       "(save_pretrained).");
}

bool is_huggingface_folder(const std::string& path) {
  if (is_peft_folder(path)) return true;
  const std::string config = path + "/" + kConfigFile;
  if (is_checkpoint(path) || !fs::is_regular_file(config)) return false;
  const Json json = Json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("model_type");
}

ImportedModel import_model(const std::string& path) {
  const Folder folder = open_folder(path);
  Reasons reasons, notes;
  const std::string head = task_of_head(folder, reasons);
  if (!reasons.empty()) refuse(path, reasons);
  const Config config =
      our_config(folder, head.empty() ? "mlm" : head, !head.empty(), reasons, notes);
  if (!reasons.empty()) refuse(path, reasons);  // the sizes of the tensors follow from the config
  const Counts counts = counts_of(folder, config, reasons);
  ModelFacts facts = facts_for(*folder.architecture, config, counts);
  if (head.empty()) facts.masked = facts.fills_tied = facts.fills_untied = false;
  const std::vector<TensorPair> pairs = check_tensors(folder, facts, reasons);
  compare_sinusoids(folder, config, reasons);
  if (!reasons.empty()) refuse(path, reasons);

  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = folder.architecture->sinusoids;
  ImportedModel imported{.config = config, .counts = counts, .tensors = {}, .notes = notes};
  const auto add = [&](const TensorPair& pair, std::vector<TensorToWrite>& tensors) {
    tensors.emplace_back(pair.ours, pair.our_shape, config.dtype,
                         [pair, layout, dtype = config.dtype, reader = folder.reader] {
                           return to_ours(pair, layout, dtype,
                                          [&](const std::string& name, const Tensor& into) {
                                            reader.read(name, into);
                                          });
                         });
  };
  for (const TensorPair& pair : pairs) add(pair, imported.tensors);
  for (const TensorPair& pair : pooler_of(folder, facts)) {
    add(pair, head.empty() ? imported.tensors : imported.spare);
  }
  if (head.empty()) {
    imported.notes.push_back(
        concat(path, " has no head: init_from takes it, and trains a new one."));
  }
  return imported;
}

namespace {

// Our rows must begin as the model has learnt it. An id without a row in the model's table does not
// count: classes have defaults beyond the end of many vocabularies.
void check_ids(const Json& theirs, const Config& config, const Counts& counts,
               const TokenizerPair& tokenizers, Reasons& reasons) {
  if (config.model_type != ModelType::kEncoderDecoder) return;
  if (config.model.tie_word_embeddings && counts.shared_vocab != tokenizers.shared()) {
    reasons.push_back(concat("the model has ", counts.shared_vocab ? "one table" : "two tables",
                             " of embeddings, the tokenizers have ",
                             tokenizers.shared() ? "one vocabulary" : "two vocabularies"));
  }
  const tapestry::SpecialIds& target = tokenizers.target->special();
  const int32_t start = target.start.value_or(target.bos);
  const Json id = theirs.value("decoder_start_token_id", Json());
  if (id.is_number_integer() && id >= 0 && id < counts.target_vocab && id != start) {
    reasons.push_back(
        concat("decoder_start_token_id is ", id.dump(), ", the tokenizer's is ", start));
  }
  // mBART-50 has the language in front: that of the sources, unless the folder names another.
  const std::vector<int32_t> before = target.target().before;
  if (!target.first && !before.empty() && before != std::vector<int32_t>{target.bos}) {
    reasons.push_back(concat("forced_bos_token_id is missing: translations would begin with '",
                             tokenizers.target->piece(before[0]), "', as the sources do"));
  }
}

// The ids of a key, which may be a list.
std::vector<int64_t> ids_of(const Json& theirs, const char* key) {
  std::vector<int64_t> ids;
  const auto found = theirs.find(key);
  if (found == theirs.end()) return ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// Special ids that releases have in one file or the other.
void add_generation(const Json& generation, ModelType type, Json& theirs) {
  const char* const first = "forced_bos_token_id";
  if (theirs.value(first, Json()).is_null()) theirs[first] = generation.value(first, Json());
  // An older key of BART's.
  if (theirs[first].is_null() && theirs.value("force_bos_token_to_be_generated", Json()) == true) {
    theirs[first] = theirs.value("bos_token_id", Json());
  }
  if (type == ModelType::kEncoder) return;
  std::vector<int64_t> ends = ids_of(theirs, "eos_token_id");
  for (const int64_t id : ids_of(generation, "eos_token_id")) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  }
  if (ends.size() > 1) theirs["eos_token_id"] = ends;
}

// A sentence if config.json and the tokenizer name different ends.
void tell_ends(const Json& theirs, const ImportedModel& model, const TokenizerPair& tokenizers,
               Reasons& notes) {
  if (model.config.model_type == ModelType::kEncoder) return;
  const tapestry::SpecialIds& special = tokenizers.target->special();
  std::vector<int32_t> more;
  for (const int64_t id : ids_of(theirs, "eos_token_id")) {
    if (id < 0 || id >= model.counts.target_vocab || id == special.eos) continue;
    const auto number = static_cast<int32_t>(id);
    if (!special.is_end(number)) {
      notes.push_back(concat("eos_token_id ", id, " ('", tokenizers.target->piece(number),
                             "') does not end a text here: this type of tokenizer has one end."));
    } else {
      more.push_back(number);
    }
  }
  if (more.empty()) return;
  notes.push_back(concat("a text ends with '", tokenizers.target->piece(special.eos), "' or ",
                         quoted_tokens(*tokenizers.target, more), '.'));
}

// The first rows of their tables that no token reads (Change::kTwoRows), and the bias that changes
// nothing, in the format of kUnreadRowsFile; "" if they are zeros.
std::string unread_rows(const std::string& path, const ImportedModel& model) {
  const Folder folder = open_folder(path);
  const ModelFacts facts = facts_for(*folder.architecture, model.config, model.counts);
  Json rows = Json::object();
  for (const TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    const bool whole = pair.ours == kUnreadBias;
    if ((pair.change != Change::kTwoRows && !whole) || !folder.names.has(pair.theirs[0])) continue;
    const std::string& name = folder.names.stored(pair.theirs[0]);
    const Tensor table = Tensor::empty(pair.their_shapes[0], DType::kFloat64);
    folder.reader.read(name, table);
    const std::vector<double> values = (whole ? table : table.slice(0, 2)).to_vector<double>();
    const bool zeros = std::ranges::all_of(values, [](double value) { return value == 0; });
    if (!zeros) rows[pair.theirs[0]] = values;
  }
  return rows.empty() ? "" : rows.dump();
}

// The files of sentence-transformers that say how the vectors of the tokens become one. None if a
// module has weights of its own, which would be missing.
void take_modules(const std::string& folder, const std::function<void(const std::string&)>& take) {
  const std::string path = folder + "/modules.json";
  if (!fs::is_regular_file(path)) return;
  const Json modules = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!modules.is_array()) return;
  std::vector<std::string> configs;
  for (const Json& module : modules) {
    const Json name = module.is_object() ? module.value("path", Json()) : Json();
    if (!name.is_string()) return;
    const auto part = name.get<std::string>();
    if (part.empty() || !fs::is_directory(folder + "/" + part)) continue;
    if (part.find('/') != std::string::npos || part.starts_with('.')) return;
    for (const auto& entry : fs::directory_iterator(folder + "/" + part)) {
      if (entry.path().filename() != kConfigFile) return;
    }
    configs.push_back(part + "/" + kConfigFile);
  }
  for (const std::string& name : configs) take(name);
  for (const char* name :
       {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}) {
    take(name);
  }
}

// Those of these files that a folder has, and that are text.
std::map<std::string, std::string> texts_of(const std::string& folder,
                                            const std::vector<std::string>& names) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path)) continue;
    std::string bytes = read_file(path);
    if (find_invalid_utf8(bytes) == std::string::npos) files[name] = std::move(bytes);
  }
  return files;
}

// The companion files of a foreign folder; a folder that our export wrote gets new ones.
std::map<std::string, std::string> companions_of(const std::string& folder,
                                                 const Tokenizer& tokenizer) {
  std::map<std::string, std::string> files =
      texts_of(folder, {kConfigFile, "tokenizer_config.json", "special_tokens_map.json",
                        "added_tokens.json", "chat_template.jinja", "chat_template.json",
                        "generation_config.json", "vocab.txt", "vocab.json", "merges.txt"});
  const auto take = [&](const std::string& name) { files.merge(texts_of(folder, {name})); };
  take_modules(folder, take);
  // The files beside it may have changed what it does: their program changes it itself.
  if (is_huggingface(tokenizer.serialized())) {
    take("tokenizer.json");
    const auto file = files.find("tokenizer.json");
    const bool same = file != files.end() &&
                      split_huggingface(tokenizer.serialized(), folder).tokenizer == file->second;
    if (same) files.erase(file);
  }
  return files;
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
  if (!reads_text(model.config)) {
    imported.tokenizers.came_with = texts_of(folder, {kConfigFile, "preprocessor_config.json"});
    return imported;
  }
  Json theirs = config_with_defaults(folder);
  add_generation(read_generation(folder, theirs), model.config.model_type, theirs);
  imported.tokenizers = find_tokenizers(folder, model.counts, theirs, model.notes);
  Reasons reasons;
  check_ids(theirs, model.config, model.counts, imported.tokenizers, reasons);
  if (!reasons.empty()) refuse(folder, reasons);
  tell_ends(theirs, model, imported.tokenizers, model.notes);
  if (imported.tokenizers.target->special().one_text) {
    imported.tokenizers.came_with = companions_of(folder, *imported.tokenizers.target);
    std::string rows = unread_rows(folder, model);
    if (!rows.empty()) imported.tokenizers.came_with[kUnreadRowsFile] = std::move(rows);
  } else if (theirs.contains("bos_token_id") && theirs["bos_token_id"].is_null() &&
             model.config.model_type == ModelType::kDecoder) {
    model.config.data.train[0].documents = "file";  // as in our export
  }
  return imported;
}

ModelFiles model_files(ImportedFolder imported, const std::string& folder, bool with_spare) {
  for (TensorToWrite& tensor : imported.model.spare) {
    if (with_spare) imported.model.tensors.push_back(std::move(tensor));
  }
  const ByteSource source = safetensors_source(std::move(imported.model.tensors), folder);
  return {.folder = folder,
          .config = std::move(imported.model.config),
          .tokenizers = std::move(imported.tokenizers),
          .tensors = TensorReader(source)};
}

}  // namespace tapestry::interop
