#include "optim/named.h"

#include <unordered_map>
#include <unordered_set>

namespace tapestry {

void check_parameters(const char* who, const NamedVars& params) {
  std::unordered_set<std::string> names;
  std::unordered_map<const void*, std::string> owners;
  for (const auto& [name, var] : params) {
    check(var.defined(), who, "parameter '", name, "' is undefined.");
    const Tensor& value = var.value();
    check(value.dtype() != DType::kInt32, who, "expected floating parameters, '", name, "' is ",
          value.dtype(), '.');
    const Tensor& first = params.front().second.value();
    const bool one_dtype = wider(value.dtype()) == wider(first.dtype());
    check(one_dtype && value.device() == first.device(), who,
          "expected parameters of one dtype on one device, '", name, "' is ", value.dtype(), " on ",
          value.device(), ", '", params.front().first, "' ", first.dtype(), " on ", first.device(),
          '.');
    check(names.insert(name).second, who, "parameter '", name, "' is listed twice.");
    const auto [owner, fresh] = owners.emplace(value.raw(), name);
    check(fresh || value.numel() == 0, who, "parameters '", owner->second, "' and '", name,
          "' are the same tensor; list it once.");
  }
}

void copy_named(const char* who, const NamedTensors& source, const NamedTensors& target) {
  std::unordered_map<std::string, const Tensor*> found;
  for (const auto& [name, tensor] : source) {
    check(found.emplace(name, &tensor).second, who, name, " is in the file twice.");
  }
  for (const auto& [name, tensor] : target) {
    const auto entry = found.find(name);
    check(entry != found.end(), who, name, " is needed, the file does not hold it.");
    const Tensor& stored = *entry->second;
    check(stored.shape() == tensor.shape(), who, name, " is ", stored.shape(),
          " in the file, the model needs ", tensor.shape(), '.');
    check(stored.dtype() == tensor.dtype(), who, name, " is ", stored.dtype(),
          " in the file, the model needs ", tensor.dtype(), '.');
  }
  if (source.size() != target.size()) {
    for (const auto& [name, tensor] : target) found.erase(name);
    check(false, who, found.begin()->first, " is in the file, but nothing here needs it.");
  }
  for (const auto& [name, tensor] : target) {
    Tensor destination = tensor;
    destination.copy_from(found.at(name)->to(tensor.device()));
  }
}

}  // namespace tapestry
