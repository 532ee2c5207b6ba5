// Names that an object of a JSON document has twice; private to data/corpora/records/.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tapestry {

/// Parses a document, discarded if it is none, and sets `twice` to the first name that an object
/// has twice, or to "": of two members a parser would keep one.
template <class AnyJson>
AnyJson parse_names_once(const std::string& text, std::string& twice) {
  std::vector<std::set<std::string>> open;  // the names of each object around the present place
  twice.clear();
  const auto look = [&](int, typename AnyJson::parse_event_t event, AnyJson& parsed) {
    using Event = typename AnyJson::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    const bool is_name = event == Event::key;
    if (is_name && !open.back().insert(parsed.template get<std::string>()).second &&
        twice.empty()) {
      twice = parsed.template get<std::string>();
    }
    return true;
  };
  return AnyJson::parse(text, look, /*allow_exceptions=*/false);
}

}  // namespace tapestry
