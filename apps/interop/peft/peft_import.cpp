#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/peft/adapter_layers.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

// Kinds of adapters that ours are not: keys with the one value that they may have.
constexpr FixedKey kFixed[] = {
    {"peft_type", "\"LORA\"", "\"LORA\""},
    {"bias", "\"none\"", "\"none\""},
    {"lora_bias", "false", "false"},
    {"layer_replication", "null", "null"},
    {"trainable_token_indices", "null", "null"},
    {"use_qalora", "false", "false"},
    {"alora_invocation_tokens", "null", "null"},
    {"use_bdlora", "null", "null"},
    {"kasa_config", "null", "null"},
    {"arrow_config", "null", "null"},
    {"monteclora_config", "null", "null"},
};

// Whole tensors that learnt beside the adapters take the place of the model's.
void take_modules(const AdapterFolder& folder, const std::vector<TensorPair>& table,
                  const Layout& layout, ImportedModel& model, std::set<std::string>& used,
                  Reasons& reasons) {
  for (const TensorPair& pair : table) {
    const auto there = [&](const std::string& name) { return folder.names.has(name); };
    if (std::none_of(pair.theirs.begin(), pair.theirs.end(), there)) continue;
    bool whole = true;
    for (size_t i = 0; i < pair.theirs.size(); ++i) {
      used.insert(pair.theirs[i]);
      whole &= has_shape(folder, pair.theirs[i], pair.their_shapes[i], reasons);
    }
    const auto place = std::find_if(model.tensors.begin(), model.tensors.end(),
                                    [&](const auto& tensor) { return tensor.name == pair.ours; });
    if (!whole || place == model.tensors.end()) continue;
    const DType dtype = model.config.dtype;
    place->replace([folder, pair, layout, dtype] {
      return to_ours(pair, layout, dtype, [&](const std::string& name, const Tensor& into) {
        read_finite(folder.reader, folder.names.stored(name), into);
      });
    });
    model.config.training.modules_to_save.push_back(pair.ours);
  }
}

// A trained table is a module of its own there: the tables tied to it stay as they were.
void untie(const AdapterFolder& folder, const Architecture& architecture, ImportedModel& model,
           Reasons& reasons) {
  const ModelFacts facts = facts_for(architecture, model.config, model.counts);
  const bool predicts =
      facts.both_sides || facts.masked || model.config.model_type == ModelType::kDecoder;
  if (!facts.tied || !predicts) return;
  Config apart = model.config;
  apart.model.tie_word_embeddings = false;
  std::string learnt;
  for (const TensorPair& pair :
       tensor_pairs(architecture, facts_for(architecture, apart, model.counts))) {
    const bool table = pair.ours.ends_with("embedding.weight") || pair.ours == "output.weight";
    if (table && folder.names.has(pair.theirs[0])) learnt = pair.theirs[0];
  }
  if (facts.both_sides && folder.names.has("model.shared.weight")) learnt = "model.shared.weight";
  if (learnt.empty()) return;
  if (facts.both_sides) {
    reasons.push_back(concat(module_of(learnt),
                             " is in modules_to_save, and tied to other tables "
                             "that PEFT leaves as they were"));
    return;
  }
  const auto table = std::ranges::find(model.tensors, "embedding.weight", &TensorToWrite::name);
  check(table != model.tensors.end(), "import", "a model has no embedding.weight.");
  TensorToWrite classifier = *table;
  classifier.name = "output.weight";
  model.tensors.push_back(std::move(classifier));
  model.config.model.tie_word_embeddings = false;
  model.notes.push_back(concat(module_of(learnt),
                               " learnt by itself: tie_word_embeddings is false "
                               "here."));
}

void take_adapters(const AdapterFolder& folder, const Architecture& architecture,
                   ImportedModel& model) {
  Reasons reasons;
  for (const FixedKey& fixed : kFixed) {
    const Json value = folder.config.value(fixed.key, Json());
    if (value.is_null() || value == Json::parse(fixed.value)) continue;
    reasons.push_back(concat(fixed.key, " is ", value.dump(), ", Tapestry has ", fixed.value));
  }
  const Json alpha = alpha_of(folder);
  const Json dropout = folder.config.value("lora_dropout", Json(0));
  if (folder.rank < 1) reasons.emplace_back("r must be a number of at least 1");
  constexpr double kLargestAlpha = 1e9;
  if (!alpha.is_number() || alpha <= 0 || alpha > kLargestAlpha) {
    reasons.push_back(concat("lora_alpha is ", alpha.dump(), ", expected a number above 0, up to ",
                             kLargestAlpha));
  }
  if (!dropout.is_number() || dropout < 0 || dropout >= 1) {
    reasons.push_back(
        concat("lora_dropout is ", dropout.dump(), ", expected a number from 0 to below 1"));
  }
  constexpr double kLargestRank = 1 << 16;
  check_pattern(folder.config, "rank_pattern", kLargestRank, reasons);
  check_pattern(folder.config, "alpha_pattern", kLargestAlpha, reasons);
  for (const char* key : {"use_rslora", "use_dora"}) {
    const Json value = folder.config.value(key, Json(false));
    if (value.is_boolean()) continue;
    reasons.push_back(concat(key, " is ", value.dump(), ", expected true or false"));
  }
  // The other ways to begin (pissa, olora, corda, ...) take what adapters begin with out of the
  // base, whose folder has it still.
  const Json begin = folder.config.value("init_lora_weights", Json(true));
  const std::set<Json> plain = {true, false, "gaussian", "eva", "orthogonal"};
  if (!begin.is_null() && !plain.contains(begin)) {
    reasons.push_back(concat("init_lora_weights is ", begin.dump(),
                             ", whose base is not that of its folder: save the adapters with "
                             "path_initial_model_for_weight_conversion"));
  }
  untie(folder, architecture, model, reasons);
  if (!reasons.empty()) refuse(folder.path, reasons);

  const ModelFacts facts = facts_for(architecture, model.config, model.counts);
  const std::vector<TensorPair> table = tensor_pairs(architecture, facts);
  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = architecture.sinusoids;
  std::set<std::string> used;
  std::vector<Layer> layers;
  int64_t rank = folder.rank;
  for (const TensorPair& weight : table) {
    if (std::optional<Layer> layer = layer_of(folder, weight, used, reasons)) {
      rank = std::max(rank, layer->rank());
      layers.push_back(*std::move(layer));
    }
  }
  take_modules(folder, table, layout, model, used, reasons);
  for (const auto& [name, stored] : folder.names.all()) {
    if (!used.contains(name))
      reasons.push_back(concat("tensor ", stored, " has no place in Tapestry"));
  }
  bool told = true;
  for (const std::string& name : used) {
    if (!name.ends_with(".lora_A.weight") || !folder.names.has(name)) continue;
    const std::optional<bool> adapted = is_adapted(folder.config, module_with(folder, name));
    told &= adapted.has_value();
    if (adapted.value_or(true)) continue;
    reasons.push_back(
        concat("tensor ", name, " is of a module that target_modules, ",
               "exclude_modules or layers_to_transform leave out, where PEFT drops it"));
  }
  if (!told) {
    model.notes.emplace_back(
        "target_modules or exclude_modules is an expression of Python's: all adapters count.");
  }
  if (layers.empty() && reasons.empty()) reasons.emplace_back("no adapter is in it");
  if (!reasons.empty()) refuse(folder.path, reasons);

  LoraOptions& lora = model.config.lora;
  const double usual = alpha.get<double>() * static_cast<double>(rank);
  lora = {.rank = rank,
          .alpha = folder.scale(usual, folder.rank),
          .dropout = dropout.get<double>(),
          .dora = folder.dora,
          .target = {}};
  for (const Layer& layer : layers) {
    lora.target.push_back(module_of(layer.weight.ours));
    add_layer(folder, layer, lora, layout, model.config.dtype, model.tensors);
  }
  if (rank != folder.rank) {
    model.notes.push_back(
        concat("layers that are one here have several adapters there, or adapters "
               "have ranks of their own: all become adapters of rank ",
               lora.rank, " and alpha ", lora.alpha, '.'));
  }
}

}  // namespace

bool is_peft_folder(const std::string& path) {
  return fs::is_regular_file(path + "/" + kAdapterConfigFile);
}

std::string base_of_adapters(const std::string& path, const std::string& given) {
  if (!given.empty()) return given;
  const Json named =
      read_json(path + "/" + kAdapterConfigFile).value("base_model_name_or_path", Json());
  if (named.is_string()) {
    const auto name = named.get<std::string>();
    for (const std::string& folder : {name, path + "/" + name}) {
      if (!name.empty() && is_huggingface_folder(folder)) return folder;
    }
  }
  fail(ErrorKind::kData, "[import] ", path, " has adapters of ", named.dump(),
       ", which is no Hugging Face folder here. Name it by import --base.");
}

ImportedModel import_adapted_model(const std::string& path, const std::string& base) {
  if (gguf_file_of(base)) {
    fail(ErrorKind::kData,
         "[import] adapters of PEFT name the tensors of a Hugging Face folder, got ", base,
         ". Import it, and export it as such a folder.");
  }
  ImportedModel model = import_model(base);
  const Json type = read_json(base + "/" + kConfigFile).at("model_type");
  const Architecture& architecture = *find_architecture(type.get<std::string>());
  const Json config = read_json(path + "/" + kAdapterConfigFile);
  const Json rank = config.value("r", Json(8));
  const std::string old = "adapter_model.bin";
  if (!fs::exists(path + "/" + kAdapterFile) && fs::exists(path + "/" + old)) {
    refuse_other_format(path, old);
  }
  TensorReader reader(open_source(path + "/" + kAdapterFile));
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  TensorNames names(architecture, stored, kAdapterPrefix);
  const auto says = [&](const char* key) { return config.value(key, Json()) == true; };
  const AdapterFolder folder{.path = path,
                             .config = config,
                             .reader = std::move(reader),
                             .names = std::move(names),
                             .rank = rank.is_number_integer() ? rank.get<int64_t>() : 0,
                             .dora = says("use_dora"),
                             .stable = says("use_rslora")};
  take_adapters(folder, architecture, model);
  model.config.init_from = fs::absolute(base).string();
  return model;
}

}  // namespace tapestry::interop
