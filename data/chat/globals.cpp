// The functions that templates find: Jinja's range, dict and namespace, and those that transformers
// adds.
#include <algorithm>
#include <array>
#include <ctime>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/interpreter.h"
#include "data/chat/value_text.h"

namespace tapestry::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox

constexpr std::array<std::string_view, 5> kGlobals = {"range", "dict", "namespace",
                                                      "raise_exception", "strftime_now"};

Value range(const Arguments& arguments) {
  const Bound bound("range", {"begin", "end", "step"}, 1, arguments);
  const bool has_end = bound.has(1);
  const int64_t begin = has_end ? bound.integer(0, 0) : 0;
  const int64_t end = bound.integer(has_end ? 1 : 0, 0), step = bound.integer(2, 1);
  if (step == 0) throw Problem("the step of 'range' is zero");
  Values numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(numbers) == kMaxRange) {
      throw Problem(concat("'range' may have ", kMaxRange, " numbers, not more"));
    }
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(numbers));
}

// Members of a dictionary, then those that are named.
Members members_of(const char* who, const Arguments& arguments) {
  Members members;
  if (arguments.positional.size() > 1) throw Problem(concat("'", who, "' takes one dictionary"));
  if (!arguments.positional.empty()) {
    const Dict* const dict = arguments.positional.front().as_dict();
    if (dict == nullptr) throw Problem(concat("'", who, "' takes a dictionary"));
    members = dict->members;
  }
  for (const Member& member : arguments.named) {
    const auto found = std::ranges::find(members, member.first, &Member::first);
    if (found != members.end()) {
      found->second = member.second;
    } else {
      members.push_back(member);
    }
  }
  return members;
}

std::string time_text(const std::string& format, std::time_t now) {
  std::tm local = {};
  localtime_r(&now, &local);
  if (format.size() > 1000) throw Problem("the format of a time is too long");
  std::string text(format.size() * 32 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

}  // namespace

bool is_global(std::string_view name) { return std::ranges::count(kGlobals, name) > 0; }

Value Interpreter::call_global(const std::string& name, const Arguments& arguments) {
  if (name == "range") return range(arguments);
  if (name == "dict") return Value::dict(members_of("dict", arguments));
  if (name == "namespace") {
    namespaces_.push_back(
        std::make_shared<Namespace>(Namespace{members_of("namespace", arguments)}));
    return namespaces_.back();
  }
  const Bound bound(name, {"text"}, 1, arguments);
  if (name == "strftime_now") return time_text(bound.text(0), now_);
  throw Problem(concat("the template refuses: ", to_text(bound[0])));
}

}  // namespace tapestry::jinja
