#include "data/examples/document_packing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/draws.h"

namespace tapestry {

DocumentPacking::DocumentPacking(const TokenStream& stream, const Options& options)
    : stream_(stream), options_(options) {}

std::span<const BlockPlace> DocumentPacking::Rows::row(int64_t number) const {
  const auto i = static_cast<size_t>(number);
  const int64_t begin = i == 0 ? 0 : ends[i - 1];
  return std::span(places).subspan(static_cast<size_t>(begin),
                                   static_cast<size_t>(ends[i] - begin));
}

std::shared_ptr<const DocumentPacking::Rows> DocumentPacking::of(int64_t epoch) const {
  const int64_t drawn = options_.shuffle ? epoch : 0;
  const std::lock_guard lock(mutex_);
  if (epoch_ != drawn) {
    rows_ = std::make_shared<const Rows>(pack(drawn));
    epoch_ = drawn;
  }
  return rows_;
}

DocumentPacking::Rows DocumentPacking::pack(int64_t epoch) const {
  std::vector<BlockPlace> parts;
  const int64_t end = stream_.size() - options_.behind;
  for (int64_t i = 0; i < stream_.whole_documents(); ++i) {
    const int64_t last = std::min(end, stream_.start_of(i + 1));
    for (int64_t at = stream_.start_of(i); at < last; at += options_.width) {
      parts.push_back({at, std::min(options_.width, last - at)});
    }
  }
  if (options_.shuffle) shuffle(parts, draw_key(options_.seed, epoch, "data.packing"));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const BlockPlace& a, const BlockPlace& b) { return a.tokens > b.tokens; });
  std::vector<std::vector<BlockPlace>> rows;
  std::set<std::pair<int64_t, int64_t>> spaces;  // what is left of a row, and its number
  for (const BlockPlace& part : parts) {
    const auto best = spaces.lower_bound({part.tokens, 0});
    int64_t row = std::ssize(rows), space = options_.width;
    if (best != spaces.end()) {
      std::tie(space, row) = *best;
      spaces.erase(best);
    } else {
      rows.emplace_back();
    }
    rows[static_cast<size_t>(row)].push_back(part);
    if (space > part.tokens) spaces.insert({space - part.tokens, row});
  }
  const PhiloxKey in_row = draw_key(options_.seed, epoch, "data.packing_order");
  Rows packed;
  for (auto& row : rows) {
    // Where a document stands in its row must not tell its length.
    RowDraws(in_row, std::ssize(packed.ends)).shuffle(row);
    packed.places.insert(packed.places.end(), row.begin(), row.end());
    packed.ends.push_back(std::ssize(packed.places));
  }
  return packed;
}

}  // namespace tapestry
