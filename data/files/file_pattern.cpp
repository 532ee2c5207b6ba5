#include "data/files/file_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

namespace tapestry {
namespace {

namespace fs = std::filesystem;

bool has_wildcards(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

bool is_there(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(fs::symlink_status(path, unknown));
}

// The paths in a folder ("": the working one) whose names match. Of a folder that cannot be read
// none.
void add_matches(const fs::path& folder, const std::string& pattern, std::vector<fs::path>& found) {
  std::error_code unread;
  fs::directory_iterator entries(folder.empty() ? fs::path(".") : folder, unread);
  for (const fs::directory_iterator end; !unread && entries != end; entries.increment(unread)) {
    const fs::path name = entries->path().filename();
    if (::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD | FNM_NOESCAPE) == 0) {
      found.push_back(folder / name);
    }
  }
}

}  // namespace

bool is_file_pattern(const std::string& path) { return has_wildcards(path) && !is_there(path); }

std::vector<std::string> matching_files(const std::string& path) {
  if (!is_file_pattern(path)) return {path};
  std::vector<fs::path> found = {fs::path()};
  for (const fs::path& part : fs::path(path)) {
    std::vector<fs::path> longer;
    for (const fs::path& begin : found) {
      if (has_wildcards(part) && !is_there(begin / part)) {
        add_matches(begin, part, longer);
      } else {
        longer.push_back(begin / part);
      }
    }
    found = std::move(longer);
  }
  std::vector<std::string> files;
  for (const fs::path& one : found) {
    std::error_code unknown;
    // A link that leads nowhere is a match, so that its reader says so.
    if (is_there(one) && !fs::is_directory(one, unknown)) files.push_back(one.string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace tapestry
