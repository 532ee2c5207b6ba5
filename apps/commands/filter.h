// Commands that answer standard input line by line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "nn/decoding.h"

namespace tapestry {

/// Reads standard input in blocks of `block_lines`, so that a long input needs no more memory than
/// a short one, and calls answer(lines, number of the first one, from 0). A shorter block is
/// answered when no further line comes for a while: somebody waits for it. A CR at the end of a
/// line is left out. Throws Error(kData) naming a line that is not UTF-8, the lines before it
/// answered. Flushes standard output after each block, and throws when it cannot be written.
void filter_lines(const std::string& who, size_t block_lines,
                  const std::function<void(const std::vector<std::string>&, int64_t)>& answer);

/// The lines of a file, "-" for standard input. Throws as LineReader (data/text.h).
std::vector<std::string> read_lines(const std::string& path);

/// The config's options with those of the command line over them. Throws Error(kConfig).
SearchOptions search_options(SearchOptions options, const SearchArguments& arguments);

}  // namespace tapestry
