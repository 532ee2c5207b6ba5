#include "data/chat/lost_members.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/error.h"

namespace tapestry {

using Json = nlohmann::ordered_json;

namespace {

bool is_something(const Json& value) {
  return !value.is_null() && value != "" && !(value.is_structured() && value.empty());
}

// Members of a message without which it says something else, and when they do.
struct TellingMember {
  const char* name;
  bool (*tells)(const Json& value);
  bool of_learning;  // it has no effect on a talk that is answered
  const char* advice;
};
constexpr TellingMember kTelling[] = {
    {"tool_calls", is_something, false, ""},
    {"function_call", is_something, false, ""},
    {"reasoning_content", is_something, false, ""},
    {"thinking", is_something, false, ""},
    {"weight", [](const Json& value) { return !value.is_null() && value != 1; }, true,
     "; what is learnt is said by data.loss_on or the template's generation blocks"},
};
// Members of a record that are variables of a template, and tell the model something, too.
constexpr const char* kTellingVariables[] = {"tools", "documents"};

// Whether the template has the name as a word: `enable_thinking` does not read `thinking`.
bool reads(const ChatFormat& format, std::string_view name) {
  const std::string& source = format.chat.source();
  const auto in_word = [&](size_t at) {
    return at < source.size() &&
           (source[at] == '_' || std::isalnum(static_cast<unsigned char>(source[at])) != 0);
  };
  for (size_t at = 0; (at = source.find(name, at)) != std::string::npos; at += name.size()) {
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + name.size())) return true;
  }
  return false;
}

std::string unread(const ChatFormat& format) {
  constexpr std::string_view kWhat = "the chat template ";
  const std::string& name = format.chat.name();
  return concat(", which ", name.starts_with(kWhat) ? "" : kWhat, name, " does not read");
}

}  // namespace

std::string lost_member(const ChatFormat& format, const Json& record, const std::string& messages,
                        bool learnt) {
  const Json& all = record.at(messages);
  for (const TellingMember& row : kTelling) {
    if (row.of_learning && !learnt) continue;
    if (reads(format, row.name)) continue;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto found = all[i].find(row.name);
      if (found == all[i].end() || !row.tells(*found)) continue;
      return concat("message ", i + 1, " of '", messages, "' has '", row.name, '\'', unread(format),
                    row.advice);
    }
  }
  for (const char* const name : kTellingVariables) {
    const auto found = record.find(name);
    if (found == record.end() || name == messages || !is_something(*found)) continue;
    if (!reads(format, name)) return concat("the field '", name, '\'', unread(format));
  }
  return "";
}

}  // namespace tapestry
