#include "apps/checkpoint/parameters.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/finite.h"

namespace tapestry {
namespace {

struct Target {
  std::string name;
  Shape shape;
  DType dtype;
};

// Advice on a missing tensor. A model without a head has nothing else of the head either.
std::string advice_on_missing(const TensorReader& source, const std::string& name) {
  const std::string part = name.substr(0, name.find('.') + 1);
  const bool any_of_part = std::ranges::any_of(
      source.tensors(), [&](const StoredTensor& stored) { return stored.name.starts_with(part); });
  return any_of_part || part.empty()
             ? "."
             : concat(", and nothing else of '", part.substr(0, part.size() - 1),
                      "': it can begin a training (init_from), which draws "
                      "what is missing.");
}

void check_targets(const TensorReader& source, const std::vector<Target>& targets, Types types,
                   const CarriedTensors& carried = {}) {
  std::unordered_set<std::string> known;
  for (const auto& [name, shape, dtype] : targets) {
    known.insert(name);
    const StoredTensor* const stored = source.find(name);
    if (stored == nullptr) {
      fail(ErrorKind::kData, "[checkpoint] ", source.name(), " has no ", name, ", the model needs ",
           shape, advice_on_missing(source, name));
    }
    if (stored->shape != shape) {
      fail(ErrorKind::kData, "[checkpoint] ", name, " is ", stored->shape, " in ", source.name(),
           ", the model needs ", shape, '.');
    }
    const bool good =
        types == Types::kSame ? as_dtype(stored->type) == dtype : fits(stored->type, dtype);
    if (!good) {
      fail(ErrorKind::kData, "[checkpoint] ", name, " is ", name_of(stored->type), " in ",
           source.name(), ", the model needs ", dtype, '.');
    }
  }
  for (const StoredTensor& stored : source.tensors()) {
    const auto is_it = [&](const auto& one) { return one.first == stored.name; };
    const auto kept = std::ranges::find_if(carried, is_it);
    if (known.contains(stored.name)) continue;
    if (kept != carried.end()) {
      if (kept->second == stored.shape) continue;
      fail(ErrorKind::kData, "[checkpoint] ", stored.name, " is ", stored.shape, " in ",
           source.name(), ", expected ", kept->second, '.');
    }
    fail(ErrorKind::kData, "[checkpoint] ", source.name(), " has ", stored.name,
         ", the model has no such parameter.");
  }
}

void check_parameters(const TensorReader& source, const ParamStore& store,
                      const CarriedTensors& carried) {
  std::vector<Target> targets;
  for (const Parameter& parameter : store.parameters()) {
    targets.push_back({parameter.name, parameter.shape, parameter.dtype});
  }
  check_targets(source, targets, Types::kThatFit, carried);
}

}  // namespace

void read_finite(const TensorReader& source, const std::string& name, const Tensor& target) {
  source.read(name, target);
  const std::optional<int64_t> place = first_not_finite(target);
  if (!place) return;
  const Tensor flat = target.reshape({target.numel()});
  fail(ErrorKind::kData, "[checkpoint] ", name, " in ", source.name(),
       " must hold finite numbers, ", "got ",
       flat.slice(*place, *place + 1).to_vector<double>().front(), " at element ", *place, '.');
}

void read_parameter(const TensorReader& source, const Parameter& parameter) {
  const std::string& name = parameter.name;
  if (!parameter.frozen) return read_finite(source, name, parameter.var.value());
  const FrozenMatrix& matrix = *parameter.frozen;
  const StoredTensor* const stored = source.find(name);
  if (stored != nullptr && stored->frozen == matrix.format()) {
    return source.read_words(name, matrix);
  }
  if (stored != nullptr && stored->frozen) {
    fail(ErrorKind::kConfig, "[checkpoint] ", name, " is ", name_of(*stored->frozen), " in ",
         source.name(), ", and training.lora.base would round it again, to ",
         name_of(matrix.format()), ". Take the same, or begin with the model that it came from.");
  }
  constexpr int64_t kNumbers = int64_t{1} << 22;
  const int64_t step = std::max<int64_t>(1, kNumbers / std::max<int64_t>(1, matrix.cols()));
  for (int64_t begin = 0; begin < matrix.rows(); begin += step) {
    const int64_t count = std::min(step, matrix.rows() - begin);
    const Tensor rows = Tensor::empty({count, matrix.cols()}, DType::kFloat32);
    source.read_rows(name, begin, rows);
    if (const std::optional<int64_t> place = first_not_finite(rows)) {
      fail(ErrorKind::kData, "[checkpoint] ", name, " in ", source.name(),
           " must hold finite numbers, got ", rows.data<float>()[*place], " at element ",
           begin * matrix.cols() + *place, '.');
    }
    constexpr int64_t kGrain = 16;
    parallel_ranges(count, kGrain, [&](int64_t first, int64_t last) {
      matrix.store(begin + first, last - first, rows.data<float>() + first * matrix.cols());
    });
  }
}

void load_tensors(const TensorReader& source, const NamedTensors& tensors, Types types) {
  std::vector<Target> targets;
  for (const auto& [name, tensor] : tensors) {
    targets.push_back({name, tensor.shape(), tensor.dtype()});
  }
  check_targets(source, targets, types);
  for (const auto& [name, tensor] : tensors) read_finite(source, name, tensor);
}

void load_parameters(const ParamStore& store, const TensorReader& source,
                     const CarriedTensors& carried) {
  check_parameters(source, store, carried);
  for (const Parameter& parameter : store.parameters()) read_parameter(source, parameter);
}

void load_parameters(ParamStore& store, const TensorReader& source,
                     std::optional<WeightFormat> format, const CarriedTensors& carried) {
  check_parameters(source, store, carried);
  store.load([&](const Parameter& parameter) { read_parameter(source, parameter); }, format);
}

namespace {

// Adapters have hundreds of names.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += ' ' + names[i];
  if (names.size() > kShown) text += concat(" and ", names.size() - kShown, " more");
  return text;
}

}  // namespace

std::string take_over_parameters(const ParamStore& store, const TensorReader& source) {
  int64_t taken = 0;
  std::vector<std::string> left, fresh;
  for (const Parameter& parameter : store.parameters()) {
    const StoredTensor* const stored = source.find(parameter.name);
    if (stored == nullptr) {
      fresh.push_back(parameter.name);
      continue;
    }
    if (stored->shape != parameter.shape) {
      fail(ErrorKind::kData, "[init_from] ", parameter.name, " is ", stored->shape, " in ",
           source.name(), ", the model needs ", parameter.shape, '.');
    }
    read_parameter(source, parameter);
    ++taken;
  }
  store.derive([&](const std::string& name) { return source.find(name) == nullptr; });
  for (const StoredTensor& stored : source.tensors()) {
    if (!store.contains(stored.name)) left.push_back(stored.name);
  }
  if (taken == 0) {
    fail(ErrorKind::kData, "[init_from] no parameter of ", source.name(),
         " has a name of this model's.");
  }
  return concat(taken, " parameters from ", source.name(),
                fresh.empty() ? "" : "; fresh:", some_of(fresh),
                left.empty() ? "" : "; not used:", some_of(left));
}

std::map<std::string, std::string> tokenizer_files(Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const std::string& name : kTokenizerFileNames) {
    if (checkpoint.contains(name)) files[name] = checkpoint.read(name);
  }
  return files;
}

}  // namespace tapestry
