// Talks of users with an assistant: records with a list of messages in each.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/corpora/corpus.h"

namespace tapestry {

/// Sets `record` to the value of a line. Returns what is wrong with the line, or "": no JSON, or an
/// object that names a member twice, of which one would be lost.
std::string parse_talk(const std::string& line, nlohmann::ordered_json& record);

/// Of kTalks the talk as a pair: its text by the template of the spec, or by usual_chat_template()
/// without one, with the bytes that are learnt. Malformed are records that talk_problem() finds
/// something about, and talks that the template refuses. Of kPreferences what compare_talks()
/// finds. Throws Error(kData) if the first hundred records, or all, are malformed.
std::unique_ptr<PairReader> open_talks(const CorpusSpec& spec);

}  // namespace tapestry
