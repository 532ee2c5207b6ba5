// The Ding German-English dictionary (F. Richter, TU Chemnitz; Debian package trans-de-en).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/corpora/corpus.h"

namespace tapestry {

/// A dictionary line is `German :: English`; both sides have parts separated by `|` that correspond
/// one to one (headword, inflections, example phrases), and each part has synonyms separated by
/// `;`.
///
/// The rule: remove text in {}, [], () and <>, also nested, and abbreviations (/lat./); pair the
/// i-th part of German with the i-th of English; keep the first synonym of each; collapse white
/// space. Appends the (German, English) pairs to `pairs`, including those with an empty side.
/// Returns false and sets `reason` for a line without exactly one " :: ", with unbalanced brackets
/// (kMalformed) or with different numbers of parts (kUnaligned).
bool parse_ding_line(std::string_view line, std::vector<std::pair<std::string, std::string>>& pairs,
                     Drop& reason);

}  // namespace tapestry
