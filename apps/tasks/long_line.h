// Lines as models read them, and lines with more tokens than a model can read: one behaviour of all
// commands that answer lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// "line 7"
std::string place_of_line(int64_t number);

/// Number of lines that are read together: the longest are searched first, and others join as soon
/// as some are done. Only the end of a window leaves places empty.
constexpr int64_t window_of(int64_t batch_size) { return batch_size == 1 ? 1 : 32 * batch_size; }

/// The part of the tokens to keep: a text to be continued needs its end.
enum class Kept { kFirst, kLast };

/// Cuts the tokens of a line to `most`, with a warning on stderr if there are more.
void cut_long_line(std::vector<int32_t>& ids, int64_t most, const std::string& place,
                   Kept kept = Kept::kFirst);

/// A line's ids in the frame of a text that is read as a whole; none of an empty one. One that is
/// longer than data.max_length is cut, as texts of a validation set are, with a warning that names
/// the line.
FramedText encoder_input(const Config& config, const Tokenizer& tokenizer, const std::string& text,
                         int64_t line);
/// The same of text `at` of a list, with the second text at that place unless there is none.
FramedText encoder_input(const Config& config, const Tokenizer& tokenizer,
                         const std::vector<std::string>& texts,
                         const std::vector<std::string>& seconds, size_t at);
/// The same of two texts in one row; nothing if one of them is empty.
FramedText encoder_input(const Config& config, const Tokenizer& tokenizer, const std::string& text,
                         const std::string& second, int64_t line);

}  // namespace tapestry
