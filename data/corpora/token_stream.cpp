#include "data/corpora/token_stream.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "data/corpora/encode_corpus.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

std::shared_ptr<const TokenTable> table_of(const std::vector<int32_t>& ids) {
  TableBuilder table(1);
  table.add({ids});
  return table.finish({});
}

}  // namespace

TokenStream::TokenStream(const std::vector<int32_t>& ids, StreamFacts facts)
    : TokenStream(table_of(ids), std::move(facts)) {}

TokenStream::TokenStream(std::shared_ptr<const TokenTable> table, StreamFacts facts)
    : table_(std::move(table)), facts_(std::move(facts)) {}

std::vector<int64_t> TokenStream::parts() const {
  if (!table_ || table_->facts().parts.empty()) return {size()};
  std::vector<int64_t> tokens;
  int64_t row = 0;
  for (const int64_t documents : table_->facts().parts) {
    const std::span<const int32_t> first = table_->list(row, 0);
    row += documents;
    const std::span<const int32_t> last = table_->list(row - 1, 0);
    tokens.push_back(last.data() + last.size() - first.data());
  }
  return tokens;
}

int64_t TokenStream::start_of(int64_t document) const {
  if (document >= whole_documents()) return size();
  const std::span<const int32_t> ids = table_->list(document, 0);
  const int64_t first = ids.data() - tokens().data();
  const std::vector<int32_t>& begin = facts_.beginning;
  const bool has_both = document > 0 && !begin.empty() && ids.size() > begin.size() &&
                        ids[0] == facts_.end &&
                        std::equal(begin.begin(), begin.end(), ids.begin() + 1);
  return first + (has_both ? 1 : 0);
}

std::vector<int32_t> TokenStream::documents_in(int64_t begin, int64_t count) const {
  // The last document that begins at `begin` or before.
  int64_t low = 0, high = whole_documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (start_of(middle) <= begin ? low : high) = middle;
  }
  std::vector<int32_t> lengths;
  for (int64_t at = begin, end = begin + count; at < end; ++low) {
    const int64_t next = std::min(end, start_of(low + 1));
    if (next > at) lengths.push_back(static_cast<int32_t>(next - at));
    at = std::max(at, next);
  }
  return lengths;
}

TokenStream load_token_stream(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const LoadContext& context) {
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) spec.validate();
  int64_t characters = 0, bytes = 0;
  const LengthRule whole{std::numeric_limits<int64_t>::max(), "error", 0};
  const SpecialIds& special = tokenizer.special();
  const std::vector<int32_t> begin = special.document();
  const bool begins_with_end = begin == std::vector<int32_t>{special.eos};
  std::vector<int32_t> joined;
  std::vector<int32_t> last;  // of the document before
  const auto table = load_table(
      {.kind = "stream",
       .columns = 1,
       .specs = specs,
       .source_tokenizer = tokenizer,
       .target_tokenizer = nullptr,
       .rule = whole,
       .add =
           [&](const EncodedPair& pair, TableBuilder& rows) {
             std::span<const int32_t> document = pair.source;
             if (rows.rows() > 0) {  // the first may be a whole file, of which a copy is large
               joined = special.border(last, pair.source);
               joined.insert(joined.end(), pair.source.begin(), pair.source.end());
               document = joined;
             }
             const auto end = document.last(std::min<size_t>(1, document.size()));
             last.assign(end.begin(), end.end());
             rows.add({document});
             characters += count_code_points(pair.text.source);
             bytes += std::ssize(pair.text.source);
           },
       .begin = [&] { characters = bytes = 0; },
       .is_sound = [](const TokenTable& found) { return found.facts().numbers.size() == 2; },
       .end =
           [&](CorpusFacts& facts) {
             facts.numbers = {characters, bytes};
           }},
      context);
  return TokenStream(table, {.characters = table->facts().numbers.at(0),
                             .bytes = table->facts().numbers.at(1),
                             .documents = table->rows(),
                             .counts = table->facts().counts,
                             .filler = special.filler(),
                             .end = special.eos,
                             .beginning = begins_with_end ? std::vector<int32_t>() : begin});
}

}  // namespace tapestry
