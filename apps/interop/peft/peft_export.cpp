#include <algorithm>
#include <set>

#include "apps/checkpoint/safetensors.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/huggingface_export.h"
#include "apps/interop/peft/peft.h"
#include "core/base/text.h"

namespace tapestry::interop {

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

namespace {

// What has the rows of W. Their layers may keep W transposed, but never A and B.
TensorPair row_pair(const TensorPair& weight, const char* ours, const char* theirs) {
  TensorPair pair{.theirs = {},
                  .ours = module_of(weight.ours) + ours,
                  .our_shape = {weight.our_shape[0]},
                  .parts = weight.parts,
                  .stream = weight.stream == Stream::kWrites ? Stream::kWrites : Stream::kNone,
                  .change = weight.change};
  if (pair.change == Change::kTranspose) pair.change = Change::kNone;
  for (size_t i = 0; i < weight.theirs.size(); ++i) {
    pair.theirs.push_back(module_of(weight.theirs[i]) + theirs);
    pair.their_shapes.emplace_back(Shape{weight.parts[i]});
  }
  return pair;
}

}  // namespace

TensorPair up_pair(const TensorPair& weight, int64_t rank) {
  TensorPair pair = row_pair(weight, ".lora_B", ".lora_B.weight");
  pair.our_shape = {weight.our_shape[0], rank};
  for (Shape& shape : pair.their_shapes) shape = {shape[0], rank};
  return pair;
}

TensorPair magnitude_pair(const TensorPair& weight) {
  return row_pair(weight, ".lora_magnitude", ".lora_magnitude_vector");
}

TensorPair down_pair(const TensorPair& weight, int64_t rank, size_t index) {
  const Shape shape{rank, weight.our_shape[1]};
  return {.theirs = {module_of(weight.theirs[index]) + ".lora_A.weight"},
          .their_shapes = {shape},
          .ours = module_of(weight.ours) + ".lora_A",
          .our_shape = shape,
          .parts = {rank},
          .stream = weight.stream == Stream::kReads ? Stream::kReads : Stream::kNone};
}

namespace {

// PEFT's name for the task of a model; null if it has no class for it.
Json task_type(const Config& config) {
  const std::string task = config.task->name_of_models();
  if (task == "clm") return "CAUSAL_LM";
  if (task == "translation") return "SEQ_2_SEQ_LM";
  if (task == "classification" && examples_of(config).of_text()) return "SEQ_CLS";
  return nullptr;
}

// The path of the model without its adapters, if it came from a folder of theirs.
Json base_of(const Config& config) {
  const std::string& from = config.init_from;
  if (from.empty() || !is_huggingface_folder(from)) return nullptr;
  if (!is_peft_folder(from)) return from;
  return read_json(from + "/" + kAdapterConfigFile).value("base_model_name_or_path", Json());
}

struct Adapters {
  std::vector<TensorPair> pairs;
  Json layers = Json::array();   // of theirs that have an adapter
  Json modules = Json::array();  // of theirs that learnt as a whole
  bool transposed = false;
};

void add_layers(const ModelFiles& model, const std::vector<TensorPair>& table, Adapters& adapters,
                Reasons& reasons) {
  std::set<std::string> placed;
  const int64_t rank = model.config.lora.rank;
  for (const TensorPair& weight : table) {
    const std::string layer = module_of(weight.ours);
    if (weight.is_bias || model.tensors.find(layer + ".lora_A") == nullptr) continue;
    if (weight.change == Change::kPatches) continue;  // theirs is a convolution
    placed.insert(layer);
    adapters.transposed |= weight.change == Change::kTranspose;
    for (size_t i = 0; i < weight.theirs.size(); ++i) {
      adapters.layers.push_back(module_of(weight.theirs[i]));
      adapters.pairs.push_back(down_pair(weight, rank, i));
    }
    adapters.pairs.push_back(up_pair(weight, rank));
    if (model.config.lora.dora) adapters.pairs.push_back(magnitude_pair(weight));
  }
  for (const StoredTensor& tensor : model.tensors.tensors()) {
    const std::string layer = module_of(tensor.name);
    if (!tensor.name.ends_with(".lora_A") || placed.contains(layer)) continue;
    reasons.push_back(concat("the adapter of ", layer, " has no place in PEFT's files"));
  }
}

// PEFT keeps whole modules, so that a bias that did not learn goes with its weight.
void add_modules(const ModelFiles& model, const ModelFacts& facts,
                 const std::vector<TensorPair>& table, Adapters& adapters, Reasons& reasons) {
  std::set<std::string> weights, learnt;
  for (const TensorPair& pair : table) {
    for (const std::string& name : pair.theirs) {
      if (name.ends_with(".weight")) weights.insert(module_of(name));
    }
  }
  for (const TensorPair& pair : table) {
    if (!learns(model.config, pair.ours) || model.tensors.find(pair.ours) == nullptr) continue;
    const bool tied = facts.config.model.tie_word_embeddings && pair.ours == "embedding.weight";
    for (const std::string& name : pair.theirs) {
      const std::string module = module_of(name);
      if (tied || !weights.contains(module)) {
        reasons.push_back(
            concat(pair.ours, " learnt, and ", name,
                   tied ? " is tied to the classifier" : " is no module of theirs with a weight"));
      } else if (learnt.insert(module).second) {
        adapters.modules.push_back(module);
      }
    }
  }
  for (const TensorPair& pair : table) {
    const bool whole = std::any_of(pair.theirs.begin(), pair.theirs.end(), [&](const auto& name) {
      return learnt.contains(module_of(name));
    });
    if (whole) adapters.pairs.push_back(pair);
  }
}

Json config_of(const ModelFiles& model, const Adapters& adapters) {
  const LoraOptions& lora = model.config.lora;
  Json alpha = lora.alpha;
  if (lora.alpha == static_cast<double>(static_cast<int64_t>(lora.alpha))) {
    alpha = static_cast<int64_t>(lora.alpha);
  }
  return {{"peft_type", "LORA"},
          {"task_type", task_type(model.config)},
          {"base_model_name_or_path", base_of(model.config)},
          {"inference_mode", true},
          {"r", lora.rank},
          {"lora_alpha", alpha},
          {"lora_dropout", lora.dropout},
          {"use_rslora", false},
          {"use_dora", lora.dora},
          {"init_lora_weights", true},
          {"bias", "none"},
          {"fan_in_fan_out", adapters.transposed},
          {"target_modules", adapters.layers},
          {"modules_to_save", adapters.modules.empty() ? Json() : adapters.modules}};
}

}  // namespace

CheckpointContent peft_files(const ModelFiles& model, const std::string& name,
                             const std::string& dtype) {
  if (model.config.lora.rank == 0) {
    fail(ErrorKind::kConfig, "[export] ", model.folder,
         " has no adapters (training.lora); --format huggingface writes the whole model.");
  }
  const Architecture& architecture = fitting_architecture(model, name);
  const ModelFacts facts = exported_facts(architecture, model);
  std::vector<TensorPair> table = tensor_pairs(architecture, facts);
  if (folds_scale(architecture, model.config)) fold_scale(model.config, table);
  // PEFT looks for modules by name, not for tensors.
  for (TensorPair& pair : table) {
    for (std::string& tensor : pair.theirs) {
      tensor = todays_spelling(architecture, std::move(tensor));
    }
  }
  Adapters adapters;
  Reasons reasons;
  add_layers(model, table, adapters, reasons);
  add_modules(model, facts, table, adapters, reasons);
  if (!reasons.empty()) {
    fail(ErrorKind::kConfig, "[export] ", model.folder, " has no place in PEFT's files of a ",
         architecture.name, ":\n  ", join(reasons, ";\n  "), '.');
  }
  for (TensorPair& pair : adapters.pairs) {
    for (std::string& tensor : pair.theirs) tensor = kAdapterPrefix + tensor;
  }
  Layout layout = layout_of(facts);
  layout.halves_of_sinusoids = architecture.sinusoids;
  CheckpointContent files;
  files[kAdapterConfigFile] = config_of(model, adapters).dump(2) + "\n";
  std::vector<TensorToWrite> tensors =
      converted_tensors(model, adapters.pairs, layout, model.config.dtype);
  store_as(dtype, tensors);
  files[kAdapterFile] = [tensors = std::move(tensors)](const ByteSink& sink) {
    write_safetensors(tensors, {{"format", "pt"}}, sink);
  };
  return files;
}

}  // namespace tapestry::interop
