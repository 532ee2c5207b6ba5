#include "autograd/first_not_finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/finite.h"

namespace tapestry {
namespace {

int64_t count_not_finite(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  return std::ranges::count_if(values, [](double value) { return !std::isfinite(value); });
}

// A mask fills in infinity on purpose, so only NaN counts in its output.
std::optional<int64_t> first_wrong(const TapeOperation& operation, const Tensor& value) {
  if (operation.name.str() != "masked_fill" || !first_not_finite(value)) {
    return first_not_finite(value);
  }
  const std::vector<double> values = value.to_vector<double>();
  const auto found = std::ranges::find_if(values, [](double x) { return std::isnan(x); });
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

// (2, 17, 5)
std::string place_of(int64_t element, const Shape& shape) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = concat(element % shape[axis], text.empty() ? "" : ", ", text);
    element /= shape[axis];
  }
  return concat('(', text, ')');
}

}  // namespace

std::string FirstNotFinite::Finding::str() const {
  std::string text = concat(backward ? "backward" : "forward", ", operation ", number, ", ",
                            operation, parameters.empty() ? "" : concat(" of ", parameters), ": ");
  text += backward ? concat("the gradient of ", of.empty() ? "an input" : of, ' ')
                   : std::string("the output ");
  text += concat(shape, " has ", count, count == 1 ? " element" : " elements",
                 " not finite, the first at ", place_of(element, shape));
  if (!input.empty()) text += concat("; it read ", input, ", which is not finite either");
  return text;
}

FirstNotFinite::FirstNotFinite(const NamedVars& parameters) : TapeObserver(/*backward=*/true) {
  for (const auto& [name, var] : parameters) {
    names_[var.value().raw()] = name;
    gradient_names_[var.gradient().get()] = name;
  }
}

std::string FirstNotFinite::names_of(std::span<const Var* const> inputs) const {
  std::string text;
  for (const Var* input : inputs) {
    if (!input->defined()) continue;
    const auto found = names_.find(input->value().raw());
    if (found != names_.end()) text += concat(text.empty() ? "" : ", ", found->second);
  }
  return text;
}

void FirstNotFinite::computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                              std::span<const Var* const> outputs, bool recorded) {
  if (finding_) return;
  if (recorded) parameters_of_[operation.number] = names_of(inputs);
  for (const Var* output : outputs) {
    if (!output->defined()) continue;
    const auto element = first_wrong(operation, output->value());
    if (!element) continue;
    finding_ = Finding{.backward = false,
                       .operation = operation.name.str(),
                       .number = operation.number,
                       .parameters = names_of(inputs),
                       .shape = output->shape(),
                       .element = *element,
                       .count = count_not_finite(output->value())};
    for (const Var* input : inputs) {
      if (!input->defined() || !first_not_finite(input->value())) continue;
      const auto found = names_.find(input->value().raw());
      finding_->input = found == names_.end() ? "an input" : found->second;
    }
    return;
  }
}

void FirstNotFinite::walked_back(const TapeOperation& operation,
                                 std::span<const std::shared_ptr<Gradient>> gradients) {
  if (finding_) return;
  for (const std::shared_ptr<Gradient>& gradient : gradients) {
    const Tensor value = gradient->value();
    if (!value.defined()) continue;
    const auto element = first_not_finite(value);
    if (!element) continue;
    const auto named = gradient_names_.find(gradient.get());
    finding_ = Finding{.backward = true,
                       .operation = operation.name.str(),
                       .number = operation.number,
                       .parameters = parameters_of_[operation.number],
                       .shape = value.shape(),
                       .element = *element,
                       .count = count_not_finite(value),
                       .of = named == gradient_names_.end() ? "" : named->second};
    return;
  }
}

}  // namespace tapestry
