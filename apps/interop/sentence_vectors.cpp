#include "apps/interop/sentence_vectors.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_folder.h"
#include "core/base/text.h"
#include "data/files/files.h"

namespace tapestry::interop {
namespace {

constexpr const char* kModulesFile = "modules.json";
constexpr const char* kLimitsFile = "sentence_bert_config.json";
constexpr const char* kProgramFile = "config_sentence_transformers.json";
constexpr const char* kPoolingFolder = "1_Pooling";
constexpr const char* kDenseFolder = "2_Dense";

// One way of pooling: our word, theirs today, and the key of older files.
struct PoolingRow {
  TextPooling pooling;
  const char* ours;
  const char* theirs;
  const char* key;
};
constexpr PoolingRow kPoolings[] = {
    {TextPooling::kMean, "mean", "mean", "pooling_mode_mean_tokens"},
    {TextPooling::kFirst, "cls", "cls", "pooling_mode_cls_token"},
    {TextPooling::kLast, "last", "lasttoken", "pooling_mode_lasttoken"},
};

// The name of a class of theirs in its module, "sentence_transformers.models.Pooling". Others keep
// their whole name, and arguments that change what theirs do.
std::string class_of(const Json& module) {
  const std::string type = module.is_object() ? value_of(module, "type", "").dump() : "";
  const std::string name = type.size() < 2 ? "" : type.substr(1, type.size() - 2);
  const Json arguments = module.is_object() ? value_of(module, "kwargs", Json()) : Json();
  if (!arguments.is_null() && !arguments.empty()) return concat(name, " with kwargs");
  return name.starts_with("sentence_transformers.") ? name.substr(name.rfind('.') + 1) : name;
}

// The ways of pooling that a file turns on, by our word or by its key.
std::vector<std::string> ways_of(const Json& pooling) {
  const Json mode = value_of(pooling, "pooling_mode", Json());
  std::vector<std::string> ways;
  for (const auto& [key, value] : pooling.items()) {
    const bool on = key.starts_with("pooling_mode_") ? value == true : false;
    if (on) ways.push_back(key);
  }
  for (const Json& way : mode.is_array() ? mode : Json::array({mode})) {
    if (way.is_string()) ways.push_back(way.get<std::string>());
  }
  for (std::string& way : ways) {
    for (const PoolingRow& row : kPoolings) {
      if (way == row.key || way == row.theirs) way = row.ours;
    }
  }
  std::ranges::sort(ways);
  ways.erase(std::ranges::unique(ways).begin(), ways.end());
  return ways;
}

// The folder of a module inside of the model's; "" is the model's own.
std::string path_of(const Json& module) {
  const Json path = module.is_object() ? value_of(module, "path", "") : Json();
  return path.is_string() ? path.get<std::string>() : "";
}

// "Transformer, Pooling in '1_Pooling'": what a list of modules says, for messages.
std::string listed(const Json& modules) {
  std::vector<std::string> names;
  for (const Json& module : modules) {
    const std::string name = class_of(module), path = path_of(module);
    names.push_back(concat(name.empty() ? "one without a type" : name,
                           path.empty() ? "" : concat(" in '", path, '\'')));
  }
  return names.empty() ? "none" : join(names, ", ");
}

// They work one after the other, so that their order counts.
bool are_ours(const Json& modules) {
  std::vector<std::string> names;
  for (const Json& module : modules) names.push_back(class_of(module));
  if (names.size() > 2 && names.back() == "Normalize") names.pop_back();
  if (names.size() > 2 && names.back() == "Dense") names.pop_back();
  return names == std::vector<std::string>{"Transformer", "Pooling"} && path_of(modules[0]).empty();
}

// The module of that class, or null.
const Json* find_module(const Json& modules, const char* name) {
  const auto found = std::ranges::find(modules, std::string(name), class_of);
  return found == modules.end() ? nullptr : &*found;
}

// What the file of a dense layer says.
void read_dense(const std::string& folder, const Json& module, SentenceVectors& vectors,
                Reasons& reasons) {
  vectors.dense_path = concat(folder, '/', path_of(module));
  const std::string file = vectors.dense_path + "/config.json";
  const Json dense = read_json_if_there(file);
  const Json size = value_of(dense, "out_features", Json()), bias = value_of(dense, "bias", true);
  if (size.is_number_integer() && size > 0) {
    vectors.size = size.get<int64_t>();
  } else {
    reasons.push_back(concat(file, " has out_features ", size.dump(), ", expected an integer"));
  }
  if (bias.is_boolean()) vectors.bias = bias;
  const Json named = value_of(dense, "activation_function", "Tanh");
  const std::string activation = named.is_string() ? named.get<std::string>() : named.dump();
  vectors.tanh = activation.ends_with("Tanh");
  if (!vectors.tanh && !activation.ends_with("Identity")) {
    reasons.push_back(
        concat(file, " has activation_function ", activation, ", Tapestry Tanh or Identity"));
  }
}

Json dense_of(const ModelOptions& model) {
  return {{"in_features", model.hidden_size},
          {"out_features", model.vector_size},
          {"bias", model.vector_bias},
          {"activation_function", model.vector_tanh ? "torch.nn.modules.activation.Tanh"
                                                    : "torch.nn.modules.linear.Identity"}};
}

Json read_modules(const std::string& folder) {
  return Json::parse(read_file(concat(folder, '/', kModulesFile)), nullptr,
                     /*allow_exceptions=*/false);
}

void read_pooling(const std::string& folder, const Json& module, SentenceVectors& vectors,
                  Reasons& reasons, Reasons& notes) {
  const std::string file = concat(folder, '/', path_of(module), "/config.json");
  const Json pooling = read_json_if_there(file);
  if (value_of(pooling, "include_prompt", true) == false) {
    notes.push_back(concat(file,
                           " has include_prompt: false, here the tokens of a prompt are pooled "
                           "like all others."));
  }
  const std::vector<std::string> ways = ways_of(pooling);
  const bool known = ways.size() == 1 && std::ranges::any_of(kPoolings, [&](const auto& row) {
                       return ways.front() == row.ours;
                     });
  if (known) {
    vectors.pooling = ways.front();
  } else {
    reasons.push_back(concat(file, " pools by ", ways.empty() ? "nothing" : join(ways, " and "),
                             ", Tapestry by one of mean, cls, last"));
  }
}

Json pooling_of(const ModelOptions& model) {
  Json pooling = {{"word_embedding_dimension", model.hidden_size}};
  for (const PoolingRow& row : kPoolings) pooling[row.key] = row.pooling == model.text_pooling;
  for (const char* key : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                          "pooling_mode_weightedmean_tokens"}) {
    pooling[key] = false;
  }
  pooling["include_prompt"] = true;
  return pooling;
}

Json modules_of(const ModelOptions& model) {
  Json modules = Json::array();
  const auto add = [&](const char* path, const char* type) {
    const auto number = modules.size();
    modules.push_back({{"idx", number},
                       {"name", std::to_string(number)},
                       {"path", path},
                       {"type", concat("sentence_transformers.models.", type)}});
  };
  add("", "Transformer");
  add(kPoolingFolder, "Pooling");
  if (model.vector_size > 0) add(kDenseFolder, "Dense");
  if (model.unit_vectors) add(model.vector_size > 0 ? "3_Normalize" : "2_Normalize", "Normalize");
  return modules;
}

// True if the files that a model came with say what it does.
bool came_alike(const ModelFiles& model) {
  const auto& came = model.tokenizers.came_with;
  const auto read = [&](const std::string& name) {
    const auto file = came.find(name);
    return file == came.end() ? Json()
                              : Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  };
  const Json modules = read(kModulesFile), limits = read(kLimitsFile);
  if (!modules.is_array()) return false;
  const ModelOptions& options = model.config.model;
  const auto config_of = [&](const char* name) {
    const Json* const module = find_module(modules, name);
    return module == nullptr ? Json() : read(concat(path_of(*module), "/config.json"));
  };
  const Json pooling = config_of("Pooling");
  const bool pools =
      pooling.is_object() && pooling.size() > 0 && ways_of(pooling) == ways_of(pooling_of(options));
  const bool normalize = find_module(modules, "Normalize") != nullptr;
  const Json dense = config_of("Dense");
  const Json wanted = options.vector_size > 0 ? dense_of(options) : Json();
  bool same = dense.is_object() == wanted.is_object();
  for (const auto& [key, value] : wanted.items())
    same &= value_of(dense, key.c_str(), value) == value;
  const Json length = limits.is_object() ? value_of(limits, "max_seq_length", Json()) : Json();
  return pools && same && normalize == options.unit_vectors &&
         (length.is_null() || length == model.config.data.corpus.max_length);
}

void read_limits(const std::string& folder, SentenceVectors& vectors, Reasons& reasons,
                 Reasons& notes) {
  const Json limits = read_json_if_there(concat(folder, '/', kLimitsFile));
  const Json length = value_of(limits, "max_seq_length", Json());
  if (length.is_number_integer() && length > 0) {
    vectors.max_length = length.get<int64_t>();
  } else if (!length.is_null()) {
    reasons.push_back(concat(kLimitsFile, " has max_seq_length ", length.dump(),
                             ", expected an integer from 1, or null"));
  }
  const Json lower = value_of(limits, "do_lower_case", Json());
  if (!lower.is_null() && !lower.is_boolean()) {
    reasons.push_back(
        concat(kLimitsFile, " has do_lower_case ", lower.dump(), ", expected true or false"));
  }
  if (lower == true) {
    notes.push_back(concat(kLimitsFile,
                           " has do_lower_case: texts must come in lower case, unless "
                           "the tokenizer folds them."));
  }
}

// True if their way of comparing vectors puts texts in another order than the cosine does.
bool differs_from_cosine(const Json& name, bool unit_vectors) {
  if (!name.is_string() || name == "cosine") return false;
  // Of vectors of length 1 the products are cosines, and the distances fall as those grow.
  return !unit_vectors || (name != "dot" && name != "euclidean");
}

void read_program(const std::string& folder, const SentenceVectors& vectors, Reasons& notes) {
  const Json program = read_json_if_there(concat(folder, '/', kProgramFile));
  const Json all = value_of(program, "prompts", Json::object());
  std::vector<std::string> prompts;
  for (const auto& [name, text] : all.items()) {
    if (all.is_object() && text != "") prompts.push_back(concat(name, ": ", text.dump()));
  }
  if (!prompts.empty()) {
    notes.push_back(concat(kProgramFile, " has prompts that belong before texts (",
                           join(prompts, ", "), "): write them there."));
  }
  const Json usual = value_of(program, "default_prompt_name", Json());
  if (!usual.is_null()) {
    notes.push_back(concat(kProgramFile, " puts the prompt ", usual.dump(),
                           " before each text: write it there."));
  }
  const Json compares = value_of(program, "similarity_fn_name", Json());
  if (differs_from_cosine(compares, vectors.normalize)) {
    notes.push_back(concat(kProgramFile, " compares vectors by ", compares.dump(),
                           ", which orders texts otherwise than the cosine."));
  }
}

}  // namespace

bool has_modules(const std::string& folder) {
  return std::filesystem::is_regular_file(concat(folder, '/', kModulesFile));
}

std::string folder_of_transformer(const std::string& folder) {
  const Json modules = read_modules(folder);
  if (!modules.is_array() || modules.empty()) return "";
  return class_of(modules[0]) == "Transformer" ? path_of(modules[0]) : "";
}

SentenceVectors sentence_vectors_of(const std::string& folder, Reasons& reasons, Reasons& notes) {
  SentenceVectors vectors;
  const std::string path = concat(folder, '/', kModulesFile);
  const Json modules = read_modules(folder);
  if (!modules.is_array()) {
    reasons.push_back(concat(path, " is no list of modules"));
    return vectors;
  }
  if (!are_ours(modules)) {
    reasons.push_back(concat(path, " has the modules ", listed(modules),
                             ", expected Transformer in the folder itself, Pooling, and perhaps "
                             "Dense and Normalize"));
    return vectors;
  }
  read_pooling(folder, modules[1], vectors, reasons, notes);
  if (const Json* dense = find_module(modules, "Dense")) {
    read_dense(folder, *dense, vectors, reasons);
  }
  vectors.normalize = find_module(modules, "Normalize") != nullptr;
  read_limits(folder, vectors, reasons, notes);
  read_program(folder, vectors, notes);
  return vectors;
}

std::vector<TensorToWrite> dense_tensors(const SentenceVectors& vectors, const Config& config,
                                         Reasons& reasons) {
  std::vector<TensorToWrite> tensors;
  if (vectors.dense_path.empty()) return tensors;
  const TensorReader reader = open_model_folder(vectors.dense_path);
  const auto add = [&](const char* ours, const char* theirs, const Shape& shape) {
    const StoredTensor* const stored = reader.find(theirs);
    if (stored == nullptr || stored->shape != shape || !fits(stored->type, DType::kFloat32)) {
      const std::string found =
          stored == nullptr ? "no tensor" : concat(name_of(stored->type), ' ', stored->shape);
      reasons.push_back(
          concat(reader.name(), " has ", found, " as ", theirs, ", expected ", shape));
      return;
    }
    tensors.emplace_back(ours, shape, config.dtype,
                         [reader, shape, name = std::string(theirs), dtype = config.dtype] {
                           const Tensor values = Tensor::empty(shape, dtype);
                           reader.read(name, values);
                           return values;
                         });
  };
  add("dense.weight", "linear.weight", {vectors.size, config.model.hidden_size});
  if (vectors.bias) add("dense.bias", "linear.bias", {vectors.size});
  for (const StoredTensor& stored : reader.tensors()) {
    const bool known =
        stored.name == "linear.weight" || (vectors.bias && stored.name == "linear.bias");
    if (!known) {
      reasons.push_back(
          concat(reader.name(), " has a tensor ", stored.name, ", which has no place"));
    }
  }
  return tensors;
}

CheckpointContent sentence_vector_files(const ModelFiles& model, const std::string& dtype) {
  const auto text = [](const Json& json) { return json.dump(2) + "\n"; };
  const ModelOptions& options = model.config.model;
  CheckpointContent files;
  std::string dense = kDenseFolder;
  if (came_alike(model)) {
    const auto modules = Json::parse(model.tokenizers.came_with.at(kModulesFile));
    if (const Json* module = find_module(modules, "Dense")) dense = path_of(*module);
  } else {
    files[kModulesFile] = text(modules_of(options));
    files[concat(kPoolingFolder, "/config.json")] = text(pooling_of(options));
    files[kLimitsFile] =
        text({{"max_seq_length", model.config.data.corpus.max_length}, {"do_lower_case", false}});
    if (options.vector_size > 0) files[dense + "/config.json"] = text(dense_of(options));
  }
  if (options.vector_size == 0) return files;
  std::vector<TensorPair> pairs;
  const auto pair = [&](const std::string& part, const Shape& shape) {
    pairs.push_back({.theirs = {"linear." + part},
                     .their_shapes = {shape},
                     .ours = "dense." + part,
                     .our_shape = shape,
                     .parts = {shape[0]}});
  };
  pair("weight", {options.vector_size, options.hidden_size});
  if (options.vector_bias) pair("bias", {options.vector_size});
  std::vector<TensorToWrite> tensors =
      converted_tensors(model, pairs, Layout(), model.config.dtype);
  store_as(dtype, tensors);
  files[concat(dense, "/model.safetensors")] = [tensors =
                                                    std::move(tensors)](const ByteSink& sink) {
    write_safetensors(tensors, {{"format", "pt"}}, sink);
  };
  return files;
}

}  // namespace tapestry::interop
