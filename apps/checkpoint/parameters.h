// Reads a checkpoint into existing objects: a model's parameters, an optimizer's state, tokenizers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/safetensors.h"
#include "data/tokenizers/tokenizer.h"
#include "nn/layers/parameters.h"

namespace tapestry {

/// The types that a tensor may have in the file.
enum class Types {
  kThatFit,  ///< elements are converted
  kSame,
};

/// Reads a tensor into one of its shape. Throws Error(kData), naming it and the file, as
/// TensorReader::read() and if an element is not finite.
void read_finite(const TensorReader& source, const std::string& name, const Tensor& target);

/// Reads a parameter as read_finite(); a frozen matrix a few rows at a time, which are rounded to
/// its format. Throws Error(kConfig) if the file has it in another such format: it would be rounded
/// twice.
void read_parameter(const TensorReader& source, const Parameter& parameter);

/// Reads tensors into those of the same name. Throws Error(kData), naming the file, and changes
/// nothing, unless names, shapes and types agree; and as read_finite().
void load_tensors(const TensorReader& source, const NamedTensors& targets, Types types);

/// Names and shapes of tensors that a file may hold beside those that are read.
using CarriedTensors = std::vector<std::pair<std::string, Shape>>;

/// Reads all parameters of a model, of any type that fits. Throws like load_tensors().
void load_parameters(const ParamStore& store, const TensorReader& source,
                     const CarriedTensors& carried = {});
/// The same by ParamStore::load().
void load_parameters(ParamStore& store, const TensorReader& source,
                     std::optional<WeightFormat> format, const CarriedTensors& carried);

/// Reads the tensors whose name and shape a parameter has, for a model that differs in its head.
/// Returns a sentence about the parameters that were taken and those that were not. Throws
/// Error(kData), naming the file, when a parameter has another shape there, or when none has its
/// name.
std::string take_over_parameters(const ParamStore& store, const TensorReader& source);

/// The files of a checkpoint that are tokenizers, by name.
std::map<std::string, std::string> tokenizer_files(Checkpoint& checkpoint);

}  // namespace tapestry
