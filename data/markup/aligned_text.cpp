#include "data/markup/aligned_text.h"

namespace tapestry {

void AlignedText::append(const AlignedText& next, std::string_view gap) {
  text += gap;
  const size_t begin = text.size();
  const auto first = static_cast<int32_t>(units.size());
  text += next.text;
  for (const TextUnit& unit : next.units) {
    units.push_back({unit.begin + begin, unit.end + begin, unit.is_word});
  }
  for (const auto& [source, target] : next.pairs) pairs.emplace_back(source, target + first);
  for (const auto& [source, target] : next.guesses) guesses.emplace_back(source, target + first);
}

}  // namespace tapestry
