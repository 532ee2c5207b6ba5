// Encoding of corpora: one thread reads blocks of raw pairs, all threads encode them, then they are
// filtered by length in order.
#include "data/corpora/encode_corpus.h"

#include <filesystem>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>

#include "core/base/error.h"
#include "core/base/prefetcher.h"
#include "core/cpu/parallel.h"
#include "data/corpora/empty_text.h"
#include "data/corpora/shards.h"
#include "data/files/atomic_file.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr int64_t kBlockPairs = 1 << 14;
constexpr int64_t kTilePairs = 64;

// The same for pairs in one row: the prompt is cut at its beginning, the answer stays whole.
bool fit_row(EncodedPair& pair, const TableRequest& request, FilterCounts& counts) {
  const LengthRule& rule = request.rule;
  const auto most = static_cast<size_t>(rule.max_length - rule.specials);
  const bool has_target = request.target_tokenizer != nullptr;
  const std::optional<int64_t> kept =
      has_target ? std::max(std::ssize(pair.target), std::ssize(pair.rejected))
                 : request.whole_tokens(pair);
  if (!kept) {
    counts.drop(Drop::kEmpty, concat(pair.text.place, ": no answer to learn"));
    return false;
  }
  const auto whole = static_cast<size_t>(*kept);
  const size_t tokens = pair.source.size() + (has_target ? whole : 0);
  if (tokens > most) {
    if (rule.overlong == "error") {
      fail(ErrorKind::kData, "[data] ", pair.text.place, " has ",
           static_cast<int64_t>(tokens) + rule.specials,
           has_target ? " tokens of prompt and answer" : " tokens", ", max_length is ",
           rule.max_length, '.');
    }
    if (rule.overlong == "drop" || whole >= most) {
      counts.drop(Drop::kOverlong, pair.text.place);
      return false;
    }
    pair.source.erase(pair.source.begin(),
                      pair.source.begin() + static_cast<std::ptrdiff_t>(tokens - most));
    ++counts.truncated;
  }
  ++counts.kept;
  return true;
}

// A text of which the tokenizer leaves nothing is as empty as one without characters.
bool is_empty(const EncodedPair& pair, const TableRequest& request) {
  return is_empty_text(pair.text.source, pair.source) ||
         (request.target_tokenizer != nullptr && is_empty_text(pair.text.target, pair.target)) ||
         (!pair.text.rejected.empty() && is_empty_text(pair.text.rejected, pair.rejected)) ||
         (!pair.text.second.empty() && is_empty_text(pair.text.second, pair.second));
}

void count_unknown(const EncodedPair& pair, const TableRequest& request, FilterCounts& counts) {
  for (const auto* text : {&pair.source, &pair.second}) {
    counts.unknown[0].count(*text, request.source_tokenizer.special().unk, pair.text.place);
  }
  if (request.target_tokenizer == nullptr) return;
  for (const auto* answer : {&pair.target, &pair.rejected}) {
    counts.unknown[1].count(*answer, request.target_tokenizer->special().unk, pair.text.place);
  }
}

// A side that was cut takes the links of its lost tokens along.
void cut_alignment(EncodedPair& pair) {
  std::vector<int32_t> kept;
  for (size_t i = 0; i + 1 < pair.alignment.size(); i += 2) {
    const int32_t s = pair.alignment[i], t = pair.alignment[i + 1];
    if (s < std::ssize(pair.source) && t < std::ssize(pair.target)) kept.insert(kept.end(), {s, t});
  }
  pair.alignment = std::move(kept);
}

// Applies the length rule; false when the pair is dropped.
bool fit_length(EncodedPair& pair, const TableRequest& request, FilterCounts& counts) {
  const LengthRule& rule = request.rule;
  if (rule.one_row) return fit_row(pair, request, counts);
  const auto most = static_cast<size_t>(rule.max_length - rule.specials);
  const size_t of_source = pair.source.size() + pair.second.size();
  // A negative is read like a target.
  const size_t of_target = std::max(pair.target.size(), pair.rejected.size());
  if (of_source <= most && of_target <= most) {
    ++counts.kept;
    return true;
  }
  if (rule.overlong == "error") {
    const bool source = of_source > most;
    fail(ErrorKind::kData, "[data] ", pair.text.place, " has ",
         static_cast<int64_t>(source ? of_source : of_target) + rule.specials,
         source ? " source" : " target", " tokens, max_length is ", rule.max_length, '.');
  }
  if (rule.overlong == "drop") {
    counts.drop(Drop::kOverlong, pair.text.place);
    return false;
  }
  cut_longest_first(pair.source, pair.second, static_cast<int64_t>(most));
  for (auto* side : {&pair.target, &pair.rejected}) side->resize(std::min(side->size(), most));
  cut_alignment(pair);
  ++counts.truncated;
  ++counts.kept;
  return true;
}

// Pairs as they were read, and the reader's facts after them.
struct Block {
  std::vector<EncodedPair> pairs = {};
  bool last = false;
  FilterCounts counts = {};  // of the last block
  int64_t bytes = 0;         // read until then
};

Block read_block(PairReader& reader) {
  Block block;
  size_t bytes = 0;
  TextPair text;
  while (std::ssize(block.pairs) < kBlockPairs && bytes < kBlockBytes) {
    if (!reader.next(text)) {
      block.last = true;
      block.counts = reader.counts();
      break;
    }
    bytes += text.source.size() + text.target.size() + text.rejected.size() + text.second.size();
    block.pairs.push_back({std::move(text), {}, {}});
  }
  block.bytes = bytes_read();
  return block;
}

// The tokens of the words that belong together.
void align(EncodedPair& pair, const TableRequest& request) {
  if (pair.text.links.empty() || request.target_tokenizer == nullptr) return;
  pair.alignment =
      token_links(pair.text.links, words_of_tokens(request.source_tokenizer, pair.text.source),
                  words_of_tokens(*request.target_tokenizer, pair.text.target));
}

void encode_block(std::vector<EncodedPair>& pairs, const TableRequest& request) {
  const Tokenizer* const target = request.target_tokenizer;
  parallel_ranges(std::ssize(pairs), kTilePairs, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      EncodedPair& pair = pairs[static_cast<size_t>(i)];
      if (request.encode) {
        request.encode(pair);
        continue;
      }
      pair.source = request.source_tokenizer.encode(pair.text.source);
      if (!pair.text.second.empty()) {
        pair.second = request.source_tokenizer.encode(pair.text.second);
      }
      if (target == nullptr) continue;
      pair.target = request.rule.one_row ? target->encode_continuation(pair.text.target)
                                         : target->encode(pair.text.target);
      if (!pair.text.rejected.empty()) pair.rejected = target->encode(pair.text.rejected);
      align(pair, request);
    }
  });
}

CorpusFacts encode_corpora(const TableRequest& request, TableBuilder& table) {
  ProgressMeter meter(request.specs);
  CorpusFacts facts;
  int64_t bytes_before = 0, read = 0;
  const auto seen = std::make_shared<SeenTexts>();
  for (const CorpusSpec& spec : request.specs) {
    const int64_t first = table.rows();
    FilterCounts lengths;
    // The reader is created in the queue's thread, so that its errors arrive like those of the
    // others.
    std::unique_ptr<PairReader> reader;
    Prefetcher<Block> blocks(
        [&reader, &spec, seen, ended = false]() mutable {
          if (ended) return Block{.last = true};
          if (reader == nullptr) reader = open_corpus(spec, seen);
          Block block = read_block(*reader);
          ended = block.last;
          return block;
        },
        /*depth=*/2);
    for (bool more = true; more;) {
      Block block = blocks.next();
      encode_block(block.pairs, request);
      for (EncodedPair& pair : block.pairs) {
        if (is_empty(pair, request)) {
          lengths.drop(Drop::kEmpty, pair.text.place);
        } else if (fit_length(pair, request, lengths)) {
          count_unknown(pair, request, lengths);
          request.add(pair, table);
        }
      }
      read += std::ssize(block.pairs);
      meter.tell(read, bytes_before + block.bytes);
      more = !block.last;
      if (more) continue;
      bytes_before += block.bytes;
      block.counts.kept = 0;
      block.counts.add(lengths);
      check_kept(spec, block.counts);
      facts.counts.add(block.counts);
      if (request.specs.size() == 1) continue;
      block.counts.corpus = spec.str();
      facts.counts.of_corpora.push_back(std::move(block.counts));
    }
    facts.parts.push_back(table.rows() - first);
  }
  return facts;
}

// True if each corpus has rows, and they are those of the table.
bool are_rows_of(const TokenTable& table, int64_t corpora) {
  int64_t rest = table.rows();
  for (const int64_t rows : table.facts().parts) {
    if (rows < 1 || rows > rest) return false;
    rest -= rows;
  }
  return rest == 0 && std::ssize(table.facts().parts) == corpora;
}

std::string path_of(const char* kind, uint64_t key, const LoadContext& context) {
  if (!context.cache_is_shared) return context.cache;
  std::ostringstream name;
  name << kind << '-' << std::hex << std::setw(16) << std::setfill('0') << key << ".bin";
  return (std::filesystem::path(context.cache) / name.str()).string();
}

// Found or made.
std::shared_ptr<const TokenTable> table_of(
    const char* kind, int64_t columns, const CorpusKey& key, const LoadContext& context,
    const std::function<CorpusFacts(TableBuilder& table)>& make,
    const std::function<bool(const TokenTable& table)>& is_sound) {
  const std::optional<uint64_t> number = key.value();
  if (!context.cache.empty() && number) {
    const std::string path = path_of(kind, *number, context);
    if (auto table = TokenTable::open(path, *number, columns); table && is_sound(*table)) {
      return table;
    }
    try {
      TableBuilder builder(columns, path, *number);
      CorpusFacts facts = make(builder);
      return builder.finish(std::move(facts));
    } catch (const WriteFailure& failure) {
      if (context.warn) {
        context.warn(concat("the encoded data cannot be kept (", failure.what(),
                            "): it stays in memory, and the next start encodes it again"));
      }
    }
  }
  TableBuilder builder(columns);
  CorpusFacts facts = make(builder);
  return builder.finish(std::move(facts));
}

constexpr int64_t kPercent = 100;

}  // namespace

ProgressMeter::ProgressMeter(const std::vector<CorpusSpec>& specs) {
  const std::vector<std::string> files = files_of(specs);
  const std::string first = files.empty() ? "data" : std::filesystem::path(files[0]).filename();
  progress_.emplace(concat("reading ", first, files.size() > 1 ? " and others" : ""), kPercent,
                    "%");
  for (const CorpusSpec& spec : specs) {
    most_ +=
        spec.limit > 0 ? static_cast<double>(spec.limit) : std::numeric_limits<double>::infinity();
  }
  for (const std::string& path : files) {
    std::error_code unknown;
    const auto bytes = std::filesystem::file_size(path, unknown);
    if (!unknown) all_bytes_ += static_cast<double>(bytes);
  }
}

void ProgressMeter::tell(int64_t read, int64_t bytes) {
  const double of_bytes = all_bytes_ > 0 ? static_cast<double>(bytes) / all_bytes_ : 0;
  const double share = std::max(of_bytes, static_cast<double>(read) / most_);
  progress_->to(static_cast<int64_t>(kPercent * std::min(1.0, share)));
}

void check_kept(const CorpusSpec& spec, const FilterCounts& counts) {
  if (counts.kept > 0) return;
  const bool misfits = counts.of(Drop::kMissingColumn) + counts.of(Drop::kMalformed) > 0;
  const std::string advice =
      spec.has_records() && misfits ? format_advice(shards_of(spec).front().records) : "";
  fail(ErrorKind::kData, "[data] ", spec.str(), " leaves no sentence: ", counts.summary(), advice,
       '.');
}

std::shared_ptr<const TokenTable> cached_table(
    const char* kind, int64_t columns, const CorpusKey& key, const LoadContext& context,
    const std::function<CorpusFacts(TableBuilder& table)>& make,
    const std::function<bool(const TokenTable& table)>& is_sound) {
  auto table = table_of(kind, columns, key, context, make, is_sound);
  if (context.loaded) context.loaded(table->facts().checksum);
  return table;
}

std::shared_ptr<const TokenTable> load_table(const TableRequest& request,
                                             const LoadContext& context) {
  CorpusKey key;
  if (!context.cache.empty()) {
    key.add(request.kind);
    key.add(request.source_tokenizer.serialized());
    key.add(request.target_tokenizer != nullptr ? request.target_tokenizer->serialized() : "");
    const LengthRule& rule = request.rule;
    key.add(concat(rule.max_length, ' ', rule.overlong, ' ', rule.specials, ' ', rule.one_row));
    key.add(request.specs);
  }
  const auto make = [&](TableBuilder& table) {
    request.begin();
    CorpusFacts facts = encode_corpora(request, table);
    request.source_tokenizer.forget_words();
    if (request.target_tokenizer != nullptr) request.target_tokenizer->forget_words();
    request.end(facts);
    return facts;
  };
  const auto is_sound = [&](const TokenTable& table) {
    const Tokenizer* const target = request.target_tokenizer;
    return are_rows_of(table, std::ssize(request.specs)) &&
           table.ids_are_below(0, request.source_tokenizer.vocab_size()) &&
           (target == nullptr || table.ids_are_below(1, target->vocab_size())) &&
           request.is_sound(table);
  };
  return cached_table(request.kind, request.columns, key, context, make, is_sound);
}

}  // namespace tapestry
