#include "data/examples/tagged.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/corpora/class_names.h"
#include "data/corpora/encode_corpus.h"

namespace tapestry {
namespace {

// The columns of a table.
enum TaggedColumn : int64_t { kTokens, kFirstTokens, kTags, kTaggedColumns };

// The first token of each word, among the first `count` of the text.
std::vector<int32_t> first_tokens_of(const std::vector<PlacedToken>& tokens, size_t count,
                                     const std::vector<TaggedWord>& words) {
  std::vector<int32_t> first;
  size_t at = 0;
  for (const TaggedWord& word : words) {
    while (at < count && tokens[at].end <= word.begin) ++at;
    const bool found = at < count && tokens[at].begin < word.end;
    first.push_back(found ? static_cast<int32_t>(at) : TaggedCorpus::kNoToken);
    if (found) ++at;  // a token has the tag of one word
  }
  return first;
}

int64_t room_of(const SpecialIds& special, int64_t max_length) {
  const int64_t specials = special.classified().size();
  if (max_length <= specials) {
    fail(ErrorKind::kConfig, "[data] max_length of token_classification must be ", specials + 1,
         " or more, got ", max_length, '.');
  }
  return max_length - specials;
}

// Cuts sentences in front of words.
void add_windows(TaggedCorpus& corpus, int64_t sentence, int64_t room) {
  const int64_t count = corpus.tokens.length(sentence);
  const auto first_tokens = corpus.first_tokens[sentence];
  for (int64_t begin = 0; begin < count;) {
    int64_t end = std::min(begin + room, count);
    if (end < count) {
      int64_t cut = begin;
      for (const int32_t first : first_tokens) {
        if (first <= end) cut = std::max<int64_t>(cut, first);
      }
      if (cut > begin) end = cut;  // else a word is longer than a row
    }
    corpus.windows.push_back({sentence, begin, end - begin});
    begin = end;
  }
}

// Its class: a name, or a number where `names` has no such name.
int32_t class_of(const std::vector<std::string>& names, const std::string& tag,
                 const std::string& place) {
  const bool named = std::ranges::find(names, tag) != names.end();
  int32_t number = -1;
  const char* const end = tag.data() + tag.size();
  const auto [at, error] = std::from_chars(tag.data(), end, number);
  const bool is_number = error == std::errc() && at == end && number >= 0;
  if (!named && is_number && number < std::ssize(names)) return number;
  return class_number(names, tag, place);
}

// Numbers alone tell nothing about names that begin and go on.
void refuse_numbers(const std::vector<std::string>& tags, const CorpusSpec& spec) {
  const bool numbers = std::ranges::all_of(tags, [](const std::string& tag) {
    return tag.find_first_not_of("0123456789") == std::string::npos;
  });
  if (!numbers || tags.empty()) return;
  fail(ErrorKind::kData, "[data] ", spec.str(),
       " has numbers for tags: data.labels must name them in their order, such as [O, B-PER, "
       "I-PER].");
}

// The tags in the order of the text, and the place of the first sentence with each.
class FoundTags {
 public:
  int32_t number_of(std::string_view tag, const std::string& place) {
    const auto next = static_cast<int32_t>(numbers_.size());
    const auto [found, is_new] = numbers_.try_emplace(std::string(tag), next);
    if (is_new) names_and_places_.insert(names_and_places_.end(), {std::string(tag), place});
    return found->second;
  }
  void clear() {
    numbers_.clear();
    names_and_places_.clear();
  }
  const std::vector<std::string>& names_and_places() const { return names_and_places_; }

 private:
  std::unordered_map<std::string, int32_t> numbers_;
  std::vector<std::string> names_and_places_;
};

// True if words have places among the tokens, and tags among those found.
bool is_sound(const TokenTable& table) {
  const int64_t texts = std::ssize(table.facts().texts);
  for (int64_t row = 0; row < table.rows(); ++row) {
    const auto first = table.list(row, kFirstTokens);
    if (std::ssize(first) != table.length(row, kTags)) return false;
    for (const int32_t token : first) {
      if (token < TaggedCorpus::kNoToken || token >= table.length(row, kTokens)) return false;
    }
  }
  return texts % 2 == 0 && table.ids_are_below(kTags, texts / 2);
}

void set_labels(const CorpusFacts& facts, const std::vector<std::string>& label_names,
                const CorpusSpec& spec, TaggedCorpus& corpus) {
  std::vector<std::string> names;
  for (size_t i = 0; i < facts.texts.size(); i += 2) names.push_back(facts.texts[i]);
  if (label_names.empty()) refuse_numbers(names, spec);
  corpus.label_names =
      label_names.empty() ? class_names_of(names, spec.str(), corpus.counts) : label_names;
  for (size_t i = 0; i < facts.texts.size(); i += 2) {
    corpus.classes.push_back(class_of(corpus.label_names, facts.texts[i], facts.texts[i + 1]));
  }
}

void set_windows(const std::vector<int64_t>& sentences_of_parts, int64_t room,
                 TaggedCorpus& corpus) {
  int64_t sentence = 0;
  for (const int64_t sentences : sentences_of_parts) {
    const int64_t before = std::ssize(corpus.windows);
    for (int64_t i = 0; i < sentences; ++i) add_windows(corpus, sentence++, room);
    corpus.parts.push_back(std::ssize(corpus.windows) - before);
  }
}

}  // namespace

TaggedCorpus load_tagged(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                         const CorpusOptions& options, bool whole,
                         const std::vector<std::string>& label_names, const LoadContext& context) {
  options.validate();
  check_not_empty(specs);
  const int64_t room = room_of(tokenizer.special(), options.max_length);
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kTagged) continue;
    fail(ErrorKind::kConfig, "[data] token_classification needs a conll, or a ",
         record_format_names(), " with tokens_column and tags_column, got ", spec.str(), '.');
  }
  FoundTags tags;
  const LengthRule rule{whole ? std::numeric_limits<int32_t>::max() : options.max_length,
                        options.overlong, options.max_length - room};
  const auto add = [&](const EncodedPair& pair, TableBuilder& rows) {
    const std::vector<TaggedWord> words = words_of(pair.text);
    std::vector<int32_t> numbers;
    for (const TaggedWord& word : words) {
      numbers.push_back(tags.number_of(word.tag, pair.text.place));
    }
    // `source` may be cut.
    const auto placed = tokenizer.encode_with_places(pair.text.source);
    rows.add({pair.source, first_tokens_of(placed, pair.source.size(), words), numbers});
  };
  const auto table =
      load_table({.kind = "tagged",
                  .columns = kTaggedColumns,
                  .specs = specs,
                  .source_tokenizer = tokenizer,
                  .target_tokenizer = nullptr,
                  .rule = rule,
                  .add = add,
                  .begin = [&] { tags.clear(); },
                  .is_sound = is_sound,
                  .end = [&](CorpusFacts& facts) { facts.texts = tags.names_and_places(); }},
                 context);
  const CorpusFacts& facts = table->facts();
  TaggedCorpus corpus;
  corpus.tokens = TokenLists(table, kTokens);
  corpus.first_tokens = TokenLists(table, kFirstTokens);
  corpus.found_tags = TokenLists(table, kTags);
  corpus.counts = facts.counts;
  corpus.from_cache = table->from_cache();
  corpus.special = tokenizer.special();
  set_labels(facts, label_names, specs.front(), corpus);
  set_windows(facts.parts, room, corpus);
  return corpus;
}

TaggedCorpus encode_words(const std::vector<std::vector<std::string>>& sentences,
                          const Tokenizer& tokenizer, int64_t max_length) {
  TaggedCorpus corpus;
  corpus.special = tokenizer.special();
  corpus.classes = {0};
  for (const std::vector<std::string>& words : sentences) {
    const std::vector<std::string> tags(words.size(), "?");
    const TextPair pair = tagged_pair(words, tags, "a line");
    const auto placed = tokenizer.encode_with_places(pair.source);
    std::vector<int32_t> ids;
    for (const PlacedToken& token : placed) ids.push_back(token.id);
    corpus.tokens.push_back(ids);
    corpus.first_tokens.push_back(first_tokens_of(placed, placed.size(), words_of(pair)));
    corpus.found_tags.push_back(std::vector<int32_t>(words.size(), 0));
  }
  set_windows({corpus.size()}, room_of(corpus.special, max_length), corpus);
  return corpus;
}

std::vector<PlacedWord> words_in(const TaggedCorpus& corpus, int64_t window) {
  const TaggedCorpus::Window& row = corpus.windows[static_cast<size_t>(window)];
  const auto first = corpus.first_tokens[row.sentence];
  const int64_t shift = std::ssize(corpus.special.classified().before) - row.first;
  std::vector<PlacedWord> words;
  for (size_t word = 0; word < first.size(); ++word) {
    if (first[word] < row.first || first[word] >= row.first + row.count) continue;
    words.push_back({static_cast<int64_t>(word), first[word] + shift});
  }
  return words;
}

TaggedBatch make_tagged_batch(const TaggedCorpus& corpus, std::span<const int64_t> windows) {
  const TextFrame frame = corpus.special.classified();
  TaggedBatch batch;
  batch.rows = std::ssize(windows);
  batch.windows.assign(windows.begin(), windows.end());
  int64_t width = 0;
  for (const int64_t i : windows) {
    const int64_t length = corpus.windows[static_cast<size_t>(i)].count + frame.size();
    width = std::max(width, length);
    batch.tokens += length;
  }
  batch.ids = Tensor::full({batch.rows, width}, corpus.special.filler(), DType::kInt32);
  batch.labels = Tensor::full({batch.rows, width}, kNoTarget, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t number = windows[static_cast<size_t>(row)];
    const auto& window = corpus.windows[static_cast<size_t>(number)];
    const auto tokens = corpus.tokens[window.sentence].subspan(static_cast<size_t>(window.first),
                                                               static_cast<size_t>(window.count));
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    at = std::ranges::copy(frame.before, at).out;
    at = std::ranges::copy(tokens, at).out;
    std::ranges::copy(frame.after, at);
    batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(window.count + frame.size());
    for (const PlacedWord& word : words_in(corpus, number)) {
      batch.labels.data<int32_t>()[row * width + word.place] =
          corpus.label(window.sentence, word.word);
    }
  }
  return batch;
}

TaggedBatch rows_of(const TaggedBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  TaggedBatch part{.ids = rows(batch.ids),
                   .lengths = rows(batch.lengths),
                   .labels = rows(batch.labels),
                   .rows = rows.count(),
                   .windows = rows(batch.windows)};
  part.tokens = sum_of(part.lengths);
  return part;
}

TaggedBatches::TaggedBatches(const TaggedCorpus& corpus, const BatchOptions& options,
                             DataPosition start)
    : corpus_(&corpus),
      walk_(EpochPlans::of_lengths(
                mixture_of(std::ssize(corpus.windows), corpus.parts, options),
                [&corpus, specials = corpus.special.classified().size()](int64_t, int64_t row) {
                  const int64_t length = corpus.windows[static_cast<size_t>(row)].count + specials;
                  return RowLength{length, length};
                },
                options),
            start) {}

}  // namespace tapestry
