// Lines with more tokens than a model can read: one behaviour of all commands that answer lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

/// "line 7"
std::string place_of_line(int64_t number);

/// The part of the tokens to keep: a text to be continued needs its end.
enum class Kept { kFirst, kLast };

/// Cuts the tokens of a line to `most`, with a warning on stderr if there are more.
void cut_long_line(std::vector<int32_t>& ids, int64_t most, const std::string& place,
                   Kept kept = Kept::kFirst);

}  // namespace tapestry
