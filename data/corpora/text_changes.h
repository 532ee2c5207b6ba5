// Training texts as people write them at times: in capitals, without the mark at the end, with
// slips of the keyboard.
#pragma once

#include <string>
#include <string_view>

#include "core/base/draws.h"

namespace tapestry {

/// Shares of pairs that change, each drawn by itself.
struct TextChanges {
  double upper_case = 0;   ///< both sides in capitals
  double title_case = 0;   ///< both sides with a capital in front of each word
  double no_end_mark = 0;  ///< both sides without the marks at their end
  double typos = 0;        ///< slips in the source

  bool is_on() const { return upper_case > 0 || title_case > 0 || no_end_mark > 0 || typos > 0; }
};

/// What is drawn for a pair.
struct DrawnChanges {
  DrawnChanges(const TextChanges& shares, RowDraws& draws);

  bool any(bool source) const {
    return upper_case || title_case || no_end_mark || (source && typos);
  }

  bool upper_case, title_case, no_end_mark, typos;
};

/// A side of the pair after its changes; `draws` are for slips.
std::string changed_text(std::string_view text, const DrawnChanges& changes, bool source,
                         RowDraws& draws);

}  // namespace tapestry
