#include "apps/interop/architectures/tensor_names.h"

#include <algorithm>

#include "core/base/text.h"
#include "data/files/files.h"

namespace tapestry::interop {
namespace {

std::string replaced(std::string name, const char* from, const char* to) {
  const size_t at = name.find(from);
  if (at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
  return name;
}

std::string spelled(const Architecture& architecture, std::string name) {
  for (const Renaming& renaming : architecture.renamings) {
    name = replaced(std::move(name), renaming.from, renaming.to);
  }
  for (const Renaming& old : {Renaming{".gamma", ".weight"}, Renaming{".beta", ".bias"}}) {
    if (name.ends_with(old.from)) {
      name.replace(name.size() - std::string_view(old.from).size(), std::string::npos, old.to);
    }
  }
  return name;
}

}  // namespace

TensorNames::TensorNames(const Architecture& architecture, const std::vector<std::string>& stored,
                         const std::string& cut) {
  const auto own = [&](const std::string& name) {
    return name.starts_with(cut) ? name.substr(cut.size()) : name;
  };
  // Files of a base model lack the prefix.
  const bool whole = std::any_of(stored.begin(), stored.end(), [&](const std::string& name) {
    return own(name).starts_with(architecture.prefix);
  });
  for (const std::string& name : stored) {
    const std::string full = whole ? own(name) : architecture.prefix + own(name);
    stored_.emplace(spelled(architecture, full), name);
  }
}

std::string todays_spelling(const Architecture& architecture, std::string name) {
  for (const Renaming& renaming : architecture.renamings) {
    name = replaced(std::move(name), renaming.to, renaming.from);
  }
  return name;
}

Json read_json(const std::string& path) {
  const std::string text = read_file(path);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto end = text.begin() + static_cast<int64_t>(std::min(error.byte, text.size()));
    fail(ErrorKind::kData, "[import] ", path, ':', 1 + std::count(text.begin(), end, '\n'),
         ": is no JSON.");
  }
  if (!json.is_object()) fail(ErrorKind::kData, "[import] ", path, " is not a JSON object.");
  return json;
}

void refuse(const std::string& folder, const Reasons& reasons) {
  fail(ErrorKind::kData, "[import] ", folder, " is no model of Tapestry's:\n  ",
       join(reasons, ";\n  "), '.');
}

}  // namespace tapestry::interop
