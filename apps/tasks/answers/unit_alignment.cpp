#include "apps/tasks/answers/unit_alignment.h"

#include <algorithm>
#include <utility>

#include "apps/tasks/answers/unknown_words.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

// The units [first, last) that each token stands in; none for white space.
std::vector<std::pair<size_t, size_t>> units_of_tokens(const std::vector<PlacedToken>& tokens,
                                                       const std::vector<TextUnit>& units) {
  std::vector<std::pair<size_t, size_t>> found;
  for (const PlacedToken& token : tokens) {
    const auto begin = static_cast<size_t>(token.begin), end = static_cast<size_t>(token.end);
    const size_t first = unit_at(units, begin);
    size_t last = first;
    while (last < units.size() && units[last].begin < end) ++last;
    // A part of a character that has no bytes belongs to the next unit.
    if (begin == end && first < units.size()) last = first + 1;
    found.emplace_back(first, last);
  }
  return found;
}

// The units of a part, placed in it.
std::vector<TextUnit> units_of_part(const PartToAlign& part, size_t first) {
  std::vector<TextUnit> units;
  const std::vector<TextUnit>& all = part.source->units;
  const size_t end = part.begin + part.placed->text.size();
  for (size_t i = first; i < all.size() && all[i].begin < end; ++i) {
    units.push_back({all[i].begin - part.begin, all[i].end - part.begin, all[i].is_word});
  }
  return units;
}

}  // namespace

UnitAttention unit_attention(const PartToAlign& part, const PlacedText& translation,
                             const Tensor& weights) {
  UnitAttention attention{.first = unit_at(part.source->units, part.begin),
                          .targets = text_units(translation.text)};
  const std::vector<TextUnit> units = units_of_part(part, attention.first);
  const auto from = units_of_tokens(part.placed->tokens, units);
  const auto to = units_of_tokens(translation.tokens, attention.targets);
  const int64_t columns = std::ssize(from) + 1;
  check(weights.shape() == Shape({std::ssize(to) + 1, columns}), "alignment",
        "expected weights of ", to.size(), " + 1 and ", from.size(), " + 1 tokens, got ",
        weights.shape(), '.');
  attention.sources = units.size();
  const size_t width = units.size() + 1;
  attention.weights.assign(attention.targets.size() * width, 0);
  std::vector<int64_t> tokens(attention.targets.size());
  std::vector<double> row(width);
  for (size_t t = 0; t < to.size(); ++t) {
    const double* const given = weights.data<double>() + static_cast<int64_t>(t) * columns;
    std::fill(row.begin(), row.end(), 0);
    row.back() = given[from.size()];
    for (size_t s = 0; s < from.size(); ++s) {
      const auto [first, last] = from[s];
      if (first == last) row.back() += given[s];
      for (size_t unit = first; unit < last; ++unit) row[unit] += given[s];
    }
    for (size_t unit = to[t].first; unit < to[t].second; ++unit, ++tokens[unit - 1]) {
      for (size_t s = 0; s < width; ++s) attention.weights[unit * width + s] += row[s];
    }
  }
  for (size_t unit = 0; unit < tokens.size(); ++unit) {
    const auto count = static_cast<double>(std::max<int64_t>(1, tokens[unit]));
    for (size_t s = 0; s < width; ++s) attention.weights[unit * width + s] /= count;
  }
  return attention;
}

AlignedText aligned_text(const UnitAttention& attention, std::string text) {
  AlignedText aligned{.text = std::move(text), .units = attention.targets};
  std::vector<bool> has_pair(attention.sources);
  const auto number = [&](size_t source) { return static_cast<int32_t>(attention.first + source); };
  for (size_t t = 0; t < attention.targets.size(); ++t) {
    size_t best = attention.sources;
    for (size_t s = 0; s < attention.sources; ++s) {
      if (attention.at(t, s) > attention.at(t, best)) best = s;
    }
    if (best == attention.sources) continue;
    has_pair[best] = true;
    aligned.pairs.emplace_back(number(best), static_cast<int32_t>(t));
  }
  for (size_t s = 0; s < attention.sources; ++s) {
    if (has_pair[s]) continue;
    size_t best = attention.targets.size();
    for (size_t t = 0; t < attention.targets.size(); ++t) {
      const double least = best == attention.targets.size() ? 0 : attention.at(best, s);
      if (attention.at(t, s) > least) best = t;
    }
    if (best == attention.targets.size()) continue;
    aligned.guesses.emplace_back(number(s), static_cast<int32_t>(best));
  }
  return aligned;
}

std::vector<AlignedText> align_units(const Translator& models,
                                     const std::vector<PartToAlign>& parts,
                                     const UnitAlignmentOptions& options) {
  const TokenizerPair& tokenizers = models.tokenizers();
  const int32_t unknown = options.copy_unknown ? tokenizers.source->special().unk.value_or(-1) : -1;
  std::vector<size_t> wanted;
  std::vector<std::vector<int32_t>> from, to;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<int32_t> ids = parts[i].placed->ids();
    const MarkedText& source = *parts[i].source;
    const bool copies = unknown >= 0 && std::ranges::find(ids, unknown) != ids.end();
    if (source.tags.empty() && source.entities.empty() && !copies) continue;
    wanted.push_back(i);
    from.push_back(std::move(ids));
    to.push_back(parts[i].tokens);
  }
  const std::vector<Tensor> weights =
      source_attention(models.models(), from, to, options.layer, options.batch_size, models.rows());
  std::vector<AlignedText> aligned(parts.size());
  for (size_t i = 0, next = 0; i < parts.size(); ++i) {
    PlacedText translation = placed_output(*tokenizers.target, parts[i].tokens);
    translation.text.erase(translation.text.find_last_not_of(' ') + 1);
    // Between blocks of the source it has a meaning.
    if (parts[i].source->text.find('\n') != std::string::npos) {
      std::ranges::replace(translation.text, '\n', ' ');
    }
    if (next == wanted.size() || wanted[next] != i) {
      aligned[i].text = std::move(translation.text);
      continue;
    }
    const UnitAttention attention = unit_attention(parts[i], translation, weights[next++]);
    aligned[i] = aligned_text(attention, std::move(translation.text));
    if (unknown >= 0) copy_unknown_words(parts[i], attention, unknown, aligned[i]);
  }
  return aligned;
}

}  // namespace tapestry
