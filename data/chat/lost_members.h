// Members of talks that a chat template would lose.
#pragma once

#include <string>

#include "data/chat/chat_format.h"

namespace tapestry {

/// The first member of a message that tells something and that the template does not read: calls of
/// tools, thoughts, or of a talk that is learnt a weight other than 1; then the record's own tools
/// and documents. "" if there is none. The record must be a talk.
std::string lost_member(const ChatFormat& format, const nlohmann::ordered_json& record,
                        const std::string& messages, bool learnt = true);

}  // namespace tapestry
