// "Did you mean": finds the known name nearest to a mistyped one.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

/// The candidate that `word` most likely means, or an empty string: few edits away, its
/// initials ("lr" for "learning_rate"), or made of the same words ("num_heads" for
/// "num_attention_heads").
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace tapestry
