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
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/foreign_folder.h"
#include "apps/interop/foreign_generation.h"
#include "apps/interop/foreign_head.h"
#include "apps/interop/foreign_images.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/peft/peft.h"
#include "apps/interop/sentence_vectors.h"
#include "apps/interop/special_ids.h"
#include "apps/interop/tokenizer_files.h"
#include "core/base/pattern.h"
#include "core/base/text.h"
#include "data/files/files.h"
#include "data/files/utf8.h"
#include "data/tokenizers/huggingface_files.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

// A model of theirs has no corpus; its folder stands in for the config's data.
Json corpus_of(const TaskKind& task, const std::string& folder, bool images) {
  const bool pairs = task.can(kTranslates) || task.can(kEmbedsTexts);
  if (pairs) return {{"source", folder}, {"target", folder}};
  if (task.can(kFindsAnswers)) return {{"squad", folder}};
  if (task.can(kLabelsWords)) return {{"conll", folder}};
  const bool labelled = task.usual().has_classes || task.can(kRatesTexts);
  if (labelled) return {{images ? "images" : "tsv", folder}};
  return {{"text", folder}};
}

bool any_not_zero(const TensorReader& reader, const StoredTensor& tensor) {
  const Tensor values = Tensor::empty(tensor.shape, DType::kFloat64);
  reader.read(tensor.name, values);
  const double* const x = values.data<double>();
  return std::any_of(x, x + values.numel(), [](double value) { return value != 0; });
}

// The `data` section of a model of theirs.
Json data_of(const Folder& folder, const TaskKind& task, const Json& labels, const Json& model,
             Reasons& reasons) {
  const bool images = folder.architecture->type == ModelType::kVit;
  Json data = {{"train", corpus_of(task, fs::absolute(folder.path).string(), images)}};
  // An example is no longer than the model's positions.
  const Json positions = model.value("max_position_embeddings", Json());
  if (positions.is_number_integer()) {
    const auto most = positions.get<int64_t>();
    if (most < 1) reasons.push_back(concat("the model has ", most, " positions"));
    const bool blocks = task.usual().joined;
    const int64_t usual = blocks ? DataOptions().block_size : CorpusOptions().max_length;
    int64_t longest = std::min(usual, most);
    // Their classifiers read what has a position, and their answers are looked for in windows of
    // 384 tokens: one that answers no longer knows what it was trained with.
    const bool whole = task.usual().has_classes || task.can(kRatesTexts) || task.can(kEmbedsTexts);
    if (whole) longest = most;
    if (task.can(kFindsAnswers)) {
      constexpr int64_t kWindow = 384;
      longest = std::min(kWindow, most);
      data["doc_stride"] = std::max<int64_t>(1, longest / 3);
    }
    data[blocks ? "block_size" : "max_length"] = longest;
  }
  if (task.usual().has_classes) data["labels"] = labels;
  if (images)
    data["image"] = our_image_format(
        folder.config, read_json_if_there(folder.path + "/" + kPreprocessorFile), reasons);
  return data;
}

// Our config, and sentences about differences from config.json.
// None if they leave no config to go on with.
std::optional<Config> our_config(const Folder& folder, const TaskKind& task, bool has_head,
                                 Reasons& reasons, Reasons& notes) {
  const Architecture& architecture = *folder.architecture;
  Json model = our_model(architecture, folder.config, reasons);
  const bool predicts =
      has_head && (task.can(kFillsMasks) || task.can(kContinuesText) || task.can(kTranslates));
  if (predicts) compare_tied(folder, model, reasons, notes);
  SentenceVectors vectors;
  if (task.can(kEmbedsTexts)) {
    vectors = sentence_vectors_of(folder.path, reasons, notes);
    model["pooling"] = vectors.pooling;
    model["normalize"] = vectors.normalize;
    model["vector_size"] = vectors.size;
    if (vectors.size > 0) {
      model["vector_act"] = vectors.tanh ? "tanh" : "none";
      model["vector_bias"] = vectors.bias;
    }
  }
  const Json labels = task.usual().has_classes ? labels_of(folder.config, reasons) : Json::array();
  if (task.can(kClassifies)) check_classes(folder.config, labels, reasons);
  for (const char* key : architecture.only_trained) {
    const Json value = folder.config.value(key, Json());
    const double ours = std::string_view(key).find("classif") != std::string_view::npos
                            ? model.value("dropout", Json(0)).get<double>()
                            : 0;
    if (!value.is_number() || value.get<double>() == ours) continue;
    notes.push_back(concat(key, " is ", value.dump(), ", a training here has ", ours, '.'));
  }
  if (task.can(kTranslates) && folder.names.has("final_logits_bias")) {
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
  Json data = data_of(folder, task, labels, model, reasons);
  if (vectors.max_length > 0) {
    data["max_length"] = std::min(vectors.max_length, data.value("max_length", vectors.max_length));
  }
  const fs::path path = fs::canonical(folder.path);
  const bool is_file = fs::is_regular_file(path);
  Json config = {
      {"task", task.name},
      {"dtype", doubles ? "float64" : "float32"},
      {"output_dir", (fs::path("runs") / (is_file ? path.stem() : path.filename())).string()},
      {"data", data},
      {"model", model},
      {"training", {{"max_steps", 1}}}};
  const bool writes =
      architecture.type == ModelType::kDecoder || architecture.type == ModelType::kEncoderDecoder;
  if (writes)
    config["generation"] =
        our_generation(read_generation(folder.path, folder.config), architecture.type, notes);
  try {
    Config read = load_checkpoint_config(config.dump(), folder.path);
    class_facts_of(model).add_to(read);
    if (!reasons.empty()) return read;
    const std::vector<std::string> open = undetermined_keys(model, read);
    const RopeScaling& rope = read.model.rope_scaling;
    if (rope.type == RopeScalingType::kLongrope) {
      notes.push_back(concat(
          "frequencies of positions are those of texts beyond ",
          rope.original_max_position_embeddings,
          " tokens if model.max_position_embeddings is more, whatever a text's own length."));
    }
    check(open.empty(), "import", architecture.name, " does not say what model.", join(open, ", "),
          " is.");
    return read;
  } catch (const Error& error) {
    // Else it may follow from them.
    if (reasons.empty()) reasons.push_back(in_their_words(error.what(), folder.path, architecture));
    return std::nullopt;
  }
}

Counts counts_of(const Folder& folder, const Config& config, Reasons& reasons) {
  const Json& theirs = folder.config;
  Counts counts;
  counts.classes = outputs_of(config);
  if (folder.architecture->type == ModelType::kVit) return counts;
  if (!theirs.contains("vocab_size")) reasons.emplace_back("vocab_size is missing");
  const auto size_of = [&](const char* key, int64_t fallback) {
    constexpr int64_t kMostTokens = int64_t{1} << 31;
    const int64_t size = number_of(theirs, key, fallback, reasons);
    if (size >= 0 && size < kMostTokens) return size;
    reasons.push_back(concat(key, " is ", size, ", expected a number of tokens"));
    return int64_t{0};
  };
  counts.source_vocab = size_of("vocab_size", 0);
  counts.target_vocab = size_of("decoder_vocab_size", counts.source_vocab);
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

// Tensors of the heads that the architecture's classes have. Vectors of texts need none, and their
// program reads none.
std::set<std::string> unread_head(const Folder& folder, ModelFacts facts, Reasons& notes) {
  std::set<std::string> found;
  if (!facts.config.task->can(kEmbedsTexts)) return found;
  const std::string_view prefix = folder.architecture->prefix;
  facts.counts.classes = 1;
  facts.masked = facts.fills_tied = facts.fills_untied = facts.classifies = facts.pooled =
      facts.finds_spans = facts.tags = true;
  for (const TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    for (const std::string& name : pair.theirs) {
      if (!name.starts_with(prefix) && folder.names.has(name)) found.insert(name);
    }
  }
  if (!found.empty()) {
    notes.push_back(concat("vectors of texts have no head: left out are ", join(found, ", "), '.'));
  }
  return found;
}

// The tensors to use, by the names of the tables; a missing tensor or another shape is a reason.
std::vector<TensorPair> check_tensors(const Folder& folder, const ModelFacts& facts,
                                      Reasons& reasons, Reasons& notes) {
  std::set<std::string> used = unread_head(folder, facts, notes);
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
std::vector<TensorPair> pooler_in(const Folder& folder, ModelFacts facts) {
  if (facts.pooled || facts.pooled_tokens || folder.architecture->type != ModelType::kEncoder)
    return {};
  facts.pooled = true;
  std::vector<TensorPair> found;
  for (TensorPair& pair : tensor_pairs(*folder.architecture, facts)) {
    if (!pair.ours.starts_with("pooler") || !folder.names.has(pair.theirs[0])) continue;
    const bool of_head = !pair.theirs[0].starts_with(folder.architecture->prefix);
    if (of_head && facts.config.task->can(kEmbedsTexts)) continue;
    pair.theirs[0] = folder.names.stored(pair.theirs[0]);
    const StoredTensor& stored = *folder.reader.find(pair.theirs[0]);
    if (stored.shape != pair.their_shapes[0] || !fits(stored.type, DType::kFloat32)) return {};
    found.push_back(std::move(pair));
  }
  return found;
}

}  // namespace

bool is_huggingface_folder(const std::string& path) {
  if (is_peft_folder(path)) return true;
  const std::string config = path + "/" + kConfigFile;
  if (is_checkpoint(path)) return false;
  if (!fs::is_regular_file(config)) return has_modules(path);
  const Json json = Json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("model_type");
}

bool is_foreign_model(const std::string& path) {
  return is_huggingface_folder(path) || gguf_file_of(path).has_value();
}

ClassFacts class_facts_of_origin(const std::map<std::string, std::string>& came_with) {
  const auto file = came_with.find(kConfigFile);
  if (file == came_with.end()) return {};
  const Json theirs = Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  const Architecture* const architecture = theirs.is_object() ? architecture_of(theirs) : nullptr;
  if (architecture == nullptr) return {};
  Reasons ignored;
  return class_facts_of(our_model(*architecture, theirs, ignored));
}

ImportedModel import_model(const std::string& path) {
  if (const auto file = gguf_file_of(path)) return import_gguf_model(*file);
  return import_model(open_folder(path));
}

ImportedModel import_model(const Folder& folder) {
  const std::string& path = folder.path;
  Reasons reasons, notes;
  const std::string head = task_of_head(folder, reasons);
  const bool encoder = folder.architecture->type == ModelType::kEncoder;
  const std::string task = !head.empty() ? head
                           : encoder     ? "mlm"
                                         : folder.architecture->classes.front().task;
  const std::optional<Config> found =
      our_config(folder, *find_task(task), !head.empty(), reasons, notes);
  if (!found) refuse(path, reasons);  // the sizes of the tensors follow from the config
  const Config& config = *found;
  const Counts counts = counts_of(folder, config, reasons);
  ModelFacts facts = facts_for(*folder.architecture, config, counts);
  if (head.empty()) facts.masked = facts.fills_tied = facts.fills_untied = false;
  const std::vector<TensorPair> pairs = check_tensors(folder, facts, reasons, notes);
  compare_sinusoids(folder, config, reasons);
  std::vector<TensorToWrite> dense;
  if (config.model.vector_size > 0) {
    Reasons said;  // above
    dense = dense_tensors(sentence_vectors_of(path, said, said), config, reasons);
  }
  if (!reasons.empty()) refuse(path, reasons);

  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = folder.architecture->sinusoids;
  ImportedModel imported{.config = config, .counts = counts, .tensors = {}, .notes = notes};
  const auto add = [&](const TensorPair& pair, std::vector<TensorToWrite>& tensors) {
    tensors.emplace_back(pair.ours, pair.our_shape, config.dtype,
                         [pair, layout, dtype = config.dtype, reader = folder.reader] {
                           return to_ours(pair, layout, dtype,
                                          [&](const std::string& name, const Tensor& into) {
                                            read_finite(reader, name, into);
                                          });
                         });
    if (!keeps_rows(pair, layout)) return;
    tensors.back().rows = [pair, dtype = config.dtype, reader = folder.reader](int64_t first,
                                                                               int64_t count) {
      const Tensor rows = Tensor::empty(pair.our_shape.with(0, count), dtype);
      reader.read_rows(pair.theirs[0], first, rows);
      return rows;
    };
  };
  for (const TensorPair& pair : pairs) add(pair, imported.tensors);
  std::ranges::move(dense, std::back_inserter(imported.tensors));
  for (const TensorPair& pair : pooler_in(folder, facts)) {
    // A model without a head keeps it for the way home.
    const bool keeps = head.empty() || config.task->can(kEmbedsTexts);
    add(pair, keeps ? imported.tensors : imported.spare);
  }
  if (!encoder && has_modules(path)) {
    imported.notes.push_back(
        concat(path,
               " makes vectors of texts (modules.json), which Tapestry's task embedding does "
               "with encoders only: this is its model of task ",
               task, '.'));
  }
  if (head.empty()) {
    imported.notes.push_back(
        concat(path, " has no head: init_from takes it, and trains a new one."));
  }
  return imported;
}

}  // namespace tapestry::interop
