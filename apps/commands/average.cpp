// tapestry average: the mean of the weights of several checkpoints of one run.
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/commands/command.h"
#include "apps/config/config.h"
#include "core/base/progress.h"
#include "core/base/text.h"
#include "core/dispatch.h"
#include "core/kernels/elementwise/convert.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

struct AverageArguments {
  std::vector<std::string> inputs = {};
  std::string output = {};
};

/// A checkpoint to average: its tensors, and its other files.
struct Input {
  std::string folder;
  TensorReader model;
  std::map<std::string, std::string> data;  ///< tokenizers, or the points of a regression
  std::string config;
};

Input open_input(const std::string& path) {
  Checkpoint checkpoint(resolve_checkpoint(path));
  for (const char* name : {kConfigFile, kModelFile}) {
    if (checkpoint.contains(name)) continue;
    fail(ErrorKind::kData, "[average] ", checkpoint.folder(), " has no ", name, '.');
  }
  std::map<std::string, std::string> data = tokenizer_files(checkpoint);
  if (checkpoint.contains(kPointsFile)) data[kPointsFile] = checkpoint.read(kPointsFile);
  return {.folder = checkpoint.folder(),
          .model = TensorReader(checkpoint.open(kModelFile)),
          .data = std::move(data),
          .config = checkpoint.read(kConfigFile)};
}

/// Throws unless both checkpoints name the same tensors, in shape and type.
void check_same_model(const Input& first, const Input& other) {
  const auto &a = first.model.tensors(), &b = other.model.tensors();
  if (a.size() != b.size()) {
    fail(ErrorKind::kData, "[average] ", other.folder, " has ", b.size(), " tensors, ",
         first.folder, " has ", a.size(), '.');
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name) {
      fail(ErrorKind::kData, "[average] ", other.folder, " has ", b[i].name, " where ",
           first.folder, " has ", a[i].name, '.');
    }
    if (a[i].shape != b[i].shape || a[i].type != b[i].type) {
      fail(ErrorKind::kData, "[average] ", a[i].name, " is ", name_of(b[i].type), ' ', b[i].shape,
           " in ", other.folder, ", ", name_of(a[i].type), ' ', a[i].shape, " in ", first.folder,
           '.');
    }
  }
}

/// Throws unless both have the same tokens, and answer from the same points.
void check_same_data(const Input& first, const Input& other) {
  std::vector<std::string> names = kTokenizerFileNames;
  names.emplace_back(kPointsFile);
  for (const std::string& name : names) {
    const auto a = first.data.find(name), b = other.data.find(name);
    const bool same = a == first.data.end() ? b == other.data.end()
                                            : b != other.data.end() && a->second == b->second;
    if (!same) {
      fail(ErrorKind::kData, "[average] ", name, " differs between ", first.folder, " and ",
           other.folder, name == kPointsFile ? "." : ": ids would not mean the same tokens.");
    }
  }
}

/// The keys that decide what the weights mean: not those of how they are trained and drawn.
std::map<std::string, std::string> meaning_of(const Config& config) {
  static const std::set<std::string> kOfTraining = {
      "model.dropout",     "model.attention_dropout", "model.activation_dropout",
      "model.initializer", "model.initializer_range", "model.zero_branches",
      "model.recompute"};
  std::map<std::string, std::string> keys = flat_keys(config);
  std::erase_if(keys, [](const auto& entry) {
    return !entry.first.starts_with("model.") || kOfTraining.contains(entry.first);
  });
  keys["data.labels"] = concat('[', join(config.data.labels, ", "), ']');
  return keys;
}

/// Throws unless both configs read the same model out of the same tensors.
void check_same_config(const Input& first, const Input& other) {
  if (first.config == other.config) return;
  const auto read = [](const Input& input) {
    return load_checkpoint_config(input.config, concat(input.folder, '/', kConfigFile));
  };
  const Config a = read(first), b = read(other);
  const auto refuse_where = [&](const std::string& key, const std::string& in_first,
                                const std::string& in_other) {
    if (in_first == in_other) return;
    fail(ErrorKind::kData, "[average] ", key, " is ", in_other, " in ", other.folder, ", ",
         in_first, " in ", first.folder, ": the weights would not mean the same.");
  };
  refuse_where("task", a.task->name, b.task->name);
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [key, value] : meaning_of(a)) both[key] = {value, "nothing"};
  for (const auto& [key, value] : meaning_of(b)) {
    both.try_emplace(key, "nothing", "").first->second.second = value;
  }
  for (const auto& [key, values] : both) refuse_where(key, values.first, values.second);
}

/// The mean of one tensor over all inputs, summed in double.
template <class T>
Tensor mean_of(const std::vector<Input>& inputs, const StoredTensor& tensor) {
  Tensor mean = Tensor::empty(tensor.shape, dtype_of<T>);
  T* const values = mean.data<T>();
  std::vector<double> sum(static_cast<size_t>(mean.numel()));
  for (const Input& input : inputs) {
    read_finite(input.model, tensor.name, mean);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += element_cast<double>(values[i]);
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    values[i] = element_cast<T>(sum[i] / static_cast<double>(inputs.size()));
  }
  return mean;
}

/// The means of all tensors, each made when it is written.
std::vector<TensorToWrite> means_of(const std::vector<Input>& inputs, Progress& progress) {
  std::vector<TensorToWrite> means;
  for (const StoredTensor& tensor : inputs[0].model.tensors()) {
    const std::optional<DType> dtype = as_dtype(tensor.type);
    if (!dtype || !is_floating(*dtype)) {
      fail(ErrorKind::kData, "[average] ", tensor.name, " is ", name_of(tensor.type), " in ",
           inputs[0].folder, ", expected float32, float64 or bfloat16.");
    }
    means.emplace_back(tensor.name, tensor.shape, *dtype, [&inputs, &progress, tensor, dtype] {
      Tensor mean;
      dispatch_dtype(*dtype, [&](auto type) { mean = mean_of<decltype(type)>(inputs, tensor); });
      progress.add();
      return mean;
    });
  }
  return means;
}

/// Replaces only an earlier mean: anything else, a training's checkpoint too, may be somebody's
/// work.
void check_output(const std::string& output) {
  if (!fs::exists(output) || (fs::is_directory(output) && fs::is_empty(output))) return;
  if (!is_checkpoint(output)) {
    fail(ErrorKind::kConfig, "[average] ", output,
         " exists and is no checkpoint; choose another --output.");
  }
  if (!Checkpoint(output).contains(kAverageFile)) {
    fail(ErrorKind::kConfig, "[average] ", output,
         " is a checkpoint that no average made; choose another --output.");
  }
}

int run_average(const AverageArguments& arguments) {
  check_output(arguments.output);
  std::vector<Input> inputs;
  nlohmann::ordered_json folders = nlohmann::ordered_json::array();
  for (const std::string& path : arguments.inputs) {
    inputs.push_back(open_input(path));
    check_same_model(inputs.front(), inputs.back());
    check_same_data(inputs.front(), inputs.back());
    check_same_config(inputs.front(), inputs.back());
    folders.push_back(inputs.back().folder);
  }
  const Input& first = inputs.front();
  Progress progress("averaging", std::ssize(first.model.tensors()), "tensors");
  const std::vector<TensorToWrite> means = means_of(inputs, progress);
  CheckpointContent output(first.data.begin(), first.data.end());
  output[kConfigFile] = first.config;
  output[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(means, {{"format", "tapestry"}}, sink);
  };
  output[kAverageFile] = nlohmann::ordered_json{{"averaged", folders}}.dump(2) + "\n";
  write_checkpoint(arguments.output, output);
  std::cerr << "averaged " << inputs.size() << " checkpoints into " << arguments.output << '\n';
  return 0;
}

void add_average(CLI::App& app, AverageArguments& arguments) {
  app.add_option("checkpoints", arguments.inputs, "checkpoint folders")->required();
  app.add_option("--output", arguments.output, "folder to write")->required();
}

}  // namespace

extern const Command kAverage("average", "Average the parameters of checkpoints", add_average,
                              run_average);

}  // namespace tapestry
