// The variables of CTranslate2's model.bin that a model of ours becomes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/safetensors.h"

namespace tapestry::interop {

/// A number, or a tensor.
struct CTranslate2Variable {
  uint8_t type;  ///< 0 float32, 1 int8, 2 int16, 3 int32, 4 float16, 5 bfloat16
  std::string bytes = {};
  std::optional<TensorToWrite> tensor = {};
};
using CTranslate2Variables = std::map<std::string, CTranslate2Variable>;

/// Those of a model that fits; `dtype` as for store_as().
CTranslate2Variables ctranslate2_variables(const ModelFiles& model, const std::string& dtype);
/// Names of tables that are one, each with the variable that it names.
std::map<std::string, std::string> ctranslate2_aliases(const ModelFiles& model);

}  // namespace tapestry::interop
