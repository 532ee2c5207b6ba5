// Commands that answer standard input line by line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "nn/decoding.h"

namespace tapestry {

/// Reads standard input in blocks of `block_lines` lines and calls answer(lines, number of the
/// first line, from 0), so that memory does not grow with the input. If no further line comes for a
/// while, a shorter block is answered, since somebody waits for it. Drops a CR at the end of a
/// line. Flushes standard output after each block. Throws Error(kData) naming a line that is not
/// UTF-8, after the lines before it are answered; throws when standard output cannot be written.
void filter_lines(const std::string& who, size_t block_lines,
                  const std::function<void(const std::vector<std::string>&, int64_t)>& answer);

/// A text as one line of a filter's output: its line ends are written \\n.
std::string one_line(const std::string& text);

/// The lines of a file, "-" for standard input. Throws as LineReader (data/text.h).
std::vector<std::string> read_lines(const std::string& path);

/// The config's options, overridden by those of the command line. Throws Error(kConfig).
SearchOptions search_options(SearchOptions options, const SearchArguments& arguments);

}  // namespace tapestry
