// The classes of labelled data; private to data/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpora/filter_counts.h"

namespace tapestry {

/// The labels that occur, each once, in byte order. Throws Error(kData), naming `where` and what of
/// it was left out, if there are fewer than two.
std::vector<std::string> class_names_of(std::vector<std::string> labels, const std::string& where,
                                        const FilterCounts& counts = {});

/// The index of `label` in `names`. Throws Error(kData), naming `place`, if it is not one of them.
int32_t class_number(const std::vector<std::string>& names, const std::string& label,
                     const std::string& place);

/// The names of a label that is a list of them with commas between; none of "-". Nothing if a name
/// is blank, or "-" beside others.
std::optional<std::vector<std::string>> names_in_label(std::string_view label);

}  // namespace tapestry
