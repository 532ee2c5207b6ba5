// tapestry average: the mean of the weights of several checkpoints of one run.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/checkpoint.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/commands/commands.h"
#include "core/dispatch.h"
#include "data/tokenizer.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kConfig = "config.json";

const std::string& file_of(const CheckpointFiles& files, const std::string& name,
                           const std::string& folder) {
  const auto found = files.find(name);
  if (found == files.end()) {
    fail(ErrorKind::kData, "[average] ", folder, " has no ", name, '.');
  }
  return found->second;
}

/// Throws unless both checkpoints name the same tensors, in shape and type, and the same tokens.
void check_same_model(const NamedTensors& first, const NamedTensors& other,
                      const std::string& first_folder, const std::string& folder) {
  if (first.size() != other.size()) {
    fail(ErrorKind::kData, "[average] ", folder, " has ", other.size(), " tensors, ", first_folder,
         " has ", first.size(), '.');
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const auto& [key, a] = first[i];
    const auto& [other_key, b] = other[i];
    if (key != other_key) {
      fail(ErrorKind::kData, "[average] ", folder, " has ", other_key, " where ", first_folder,
           " has ", key, '.');
    }
    if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
      fail(ErrorKind::kData, "[average] ", key, " is ", b.dtype(), ' ', b.shape(), " in ", folder,
           ", ", a.dtype(), ' ', a.shape(), " in ", first_folder, '.');
    }
  }
}

void check_same_tokenizer(const CheckpointFiles& first, const CheckpointFiles& other,
                          const std::string& first_folder, const std::string& folder) {
  for (const std::string& name : kTokenizerFileNames) {
    const auto a = first.find(name), b = other.find(name);
    const bool same =
        a == first.end() ? b == other.end() : b != other.end() && a->second == b->second;
    if (!same) {
      fail(ErrorKind::kData, "[average] ", name, " differs between ", first_folder, " and ", folder,
           ": ids would not mean the same tokens.");
    }
  }
}

template <class T>
void add_elements(std::vector<double>& sum, const Tensor& tensor) {
  const T* values = tensor.data<T>();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
}

template <class T>
Tensor quotient(const std::vector<double>& sum, size_t count, const Shape& shape) {
  Tensor mean = Tensor::empty(shape, dtype_of<T>);
  T* values = mean.data<T>();
  for (size_t i = 0; i < sum.size(); ++i) {
    values[i] = static_cast<T>(sum[i] / static_cast<double>(count));
  }
  return mean;
}

/// Sums of all tensors in double, so that one model at a time is in memory.
class Sums {
 public:
  void add(const NamedTensors& tensors) {
    sums_.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i].second;
      sums_[i].resize(static_cast<size_t>(tensor.numel()));
      dispatch_floating(Cpu{}, tensor.dtype(),
                        [&](auto type) { add_elements<decltype(type)>(sums_[i], tensor); });
    }
    ++count_;
  }

  /// The means, with the names, shapes and types of `like`.
  NamedTensors means(const NamedTensors& like) const {
    NamedTensors means;
    for (size_t i = 0; i < like.size(); ++i) {
      const auto& [name, tensor] = like[i];
      dispatch_floating(Cpu{}, tensor.dtype(), [&, &name = name, &tensor = tensor](auto type) {
        means.emplace_back(name, quotient<decltype(type)>(sums_[i], count_, tensor.shape()));
      });
    }
    return means;
  }

 private:
  std::vector<std::vector<double>> sums_;
  size_t count_ = 0;
};

/// A folder that is no checkpoint is somebody's work.
void check_output(const std::string& output) {
  if (!fs::exists(output) || fs::exists(fs::path(output) / "MANIFEST.json")) return;
  if (fs::is_directory(output) && fs::is_empty(output)) return;
  fail(ErrorKind::kConfig, "[average] ", output,
       " exists and is no checkpoint; choose another --output.");
}

}  // namespace

int run_average(const AverageArguments& arguments) {
  check_output(arguments.output);
  Sums sums;
  NamedTensors first;
  std::vector<std::string> folders;
  CheckpointFiles output;
  for (const std::string& path : arguments.inputs) {
    const std::string folder = resolve_checkpoint(path);
    const CheckpointFiles files = read_checkpoint(folder);
    const NamedTensors model =
        parse_safetensors(file_of(files, kModel, folder), folder + "/" + kModel);
    if (folders.empty()) {
      first = model;
      output[kConfig] = file_of(files, kConfig, folder);
      for (const std::string& name : kTokenizerFileNames) {
        if (files.contains(name)) output[name] = files.at(name);
      }
    } else {
      check_same_model(first, model, folders[0], folder);
      check_same_tokenizer(output, files, folders[0], folder);
    }
    sums.add(model);
    folders.push_back(folder);
  }

  output[kModel] = safetensors_bytes(sums.means(first), {{"format", "tapestry"}});
  output["average.json"] = nlohmann::ordered_json{{"averaged", folders}}.dump(2) + "\n";
  write_checkpoint(arguments.output, output);
  std::cerr << "averaged " << folders.size() << " checkpoints into " << arguments.output << '\n';
  return 0;
}

}  // namespace tapestry
