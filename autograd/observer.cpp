#include "autograd/observer.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace tapestry {
namespace {

thread_local std::vector<TapeObserver*> observers;
thread_local int looking_back = 0;
thread_local int64_t operations = 0;

}  // namespace

// "tapestry::Var tapestry::{anonymous}::name(const tapestry::Var&) [with ...]"
std::string OperationName::str() const {
  std::string_view name = text;
  constexpr std::string_view kNameless = "(anonymous namespace)";  // as another compiler has it
  if (const size_t at = name.find(kNameless); at != std::string_view::npos) {
    name.remove_prefix(at + kNameless.size());
  }
  name = name.substr(0, name.find('('));
  if (const size_t at = name.find_last_of(": "); at != std::string_view::npos) {
    name.remove_prefix(at + 1);
  }
  return std::string(name);
}

TapeObserver::TapeObserver(bool backward) : backward_(backward) {
  if (observers.empty()) operations = 0;
  observers.push_back(this);
  looking_back += backward_ ? 1 : 0;
}

TapeObserver::~TapeObserver() {
  std::erase(observers, this);
  looking_back -= backward_ ? 1 : 0;
}

bool TapeObserver::looks_on() { return !observers.empty(); }
bool TapeObserver::looks_back() { return looking_back > 0; }

TapeOperation TapeObserver::begin(OperationName name) { return {operations++, name}; }

void TapeObserver::tell_computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                                 std::span<const Var* const> outputs, bool recorded) {
  for (TapeObserver* observer : observers) {
    observer->computed(operation, inputs, outputs, recorded);
  }
}

void TapeObserver::tell_walked_back(const TapeOperation& operation,
                                    std::span<const std::shared_ptr<Gradient>> gradients) {
  for (TapeObserver* observer : observers) {
    if (observer->backward_) observer->walked_back(operation, gradients);
  }
}

}  // namespace tapestry
