#include "data/chat/lost_members.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace tapestry {

using Json = nlohmann::ordered_json;

namespace {

// Members of a message without which it says something else, and when they do.
struct TellingMember {
  const char* name;
  bool (*tells)(const Json& value);
  bool of_learning;  // it has no effect on a talk that is answered
  const char* advice;
};
constexpr TellingMember kTelling[] = {
    {"tool_calls", [](const Json& value) { return !value.is_null() && !value.empty(); }, false, ""},
    {"weight", [](const Json& value) { return !value.is_null() && value != 1; }, true,
     "; what is learnt is said by data.loss_on or the template's generation blocks"},
};

}  // namespace

std::string lost_member(const ChatFormat& format, const Json& record, const std::string& messages,
                        bool learnt) {
  const Json& all = record.at(messages);
  for (const TellingMember& row : kTelling) {
    if (row.of_learning && !learnt) continue;
    if (format.chat.source().find(row.name) != std::string::npos) continue;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto found = all[i].find(row.name);
      if (found == all[i].end() || !row.tells(*found)) continue;
      return concat("message ", i + 1, " of '", messages, "' has '", row.name,
                    "', which the chat template ", format.chat.name(), " does not read",
                    row.advice);
    }
  }
  return "";
}

}  // namespace tapestry
