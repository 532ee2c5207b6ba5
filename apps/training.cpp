#include "apps/training.h"

namespace tapestry {

void load_parameters(const ParamStore& store, const NamedTensors& tensors,
                     const std::string& file) {
  std::map<std::string, Tensor> by_name(tensors.begin(), tensors.end());
  for (const Parameter& parameter : store.parameters()) {
    const auto found = by_name.find(parameter.name);
    if (found == by_name.end()) {
      fail(ErrorKind::kData, "[checkpoint] ", file, " has no ", parameter.name,
           ", the model needs ", parameter.var.shape(), '.');
    }
    if (!(found->second.shape() == parameter.var.shape())) {
      fail(ErrorKind::kData, "[checkpoint] ", parameter.name, " is ", found->second.shape(), " in ",
           file, ", the model needs ", parameter.var.shape(), '.');
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!store.contains(name)) {
      fail(ErrorKind::kData, "[checkpoint] ", file, " has ", name,
           ", the model has no such parameter.");
    }
    const Tensor& target = store.at(name).var.value();
    target.copy_from(tensor.to(target.dtype()).to(target.device()));
  }
}

bool larger_is_better(const std::string& metric) {
  return metric == "bleu" || metric == "chrf" || metric == "accuracy";
}

}  // namespace tapestry
