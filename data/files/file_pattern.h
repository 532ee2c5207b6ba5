// Several files by one name with wildcards: the shards of a corpus.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

/// The files that a path stands for, sorted by their bytes. `*`, `?` and `[...]` stand for what
/// they do in a shell, in any part of the path; they match no `/`, and no dot that begins a name.
/// What exists under the literal name is meant, even if it looks like a pattern. A path without
/// wildcards stands for itself, whether it exists or not; a pattern may match nothing. Folders are
/// not matched.
std::vector<std::string> matching_files(const std::string& path);

/// True if the path has wildcards and no file of this name exists.
bool is_file_pattern(const std::string& path);

}  // namespace tapestry
