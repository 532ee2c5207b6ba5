#include "data/examples/talks.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/row_corpus.h"

namespace tapestry {
namespace {

// Encodes the whole text, as other programs do, and finds the tokens of its answers by their
// places.
void encode_talk(EncodedPair& pair, const Tokenizer& tokenizer, bool adds_end) {
  const std::vector<PlacedToken> placed = tokenizer.encode_with_places(pair.text.source);
  for (const PlacedToken& token : placed) pair.source.push_back(token.id);
  adds_end = adds_end && !placed.empty() && !tokenizer.special().is_end(placed.back().id);
  const int64_t count = std::ssize(placed) + (adds_end ? 1 : 0);
  if (adds_end) pair.source.push_back(tokenizer.special().eos);
  for (const auto& [begin, end] : pair.text.answers) {
    const auto first = std::ranges::find_if(placed, [begin = begin](const PlacedToken& token) {
      return token.end > begin || token.begin >= begin;
    });
    const auto last = std::find_if(
        first, placed.end(), [end = end](const PlacedToken& token) { return token.begin >= end; });
    const bool reaches_end = last == placed.end() && adds_end;
    if (first == last && !reaches_end) continue;
    pair.target.push_back(static_cast<int32_t>(count - (first - placed.begin())));
    pair.target.push_back(static_cast<int32_t>(reaches_end ? 0 : count - (last - placed.begin())));
  }
}

// Each answer lies behind the one before it.
bool are_answers(const TokenTable& table) {
  for (int64_t row = 0; row < table.rows(); ++row) {
    const auto answers = table.list(row, 1);
    if (answers.empty() || answers.size() % 2 != 0 ||
        !std::ranges::is_sorted(answers, std::greater<>()))
      return false;
    if (answers.back() < 0) return false;
  }
  return true;
}

std::vector<int32_t> row_of(const TalkCorpus& corpus, int64_t i) {
  const auto tokens = corpus.tokens[i];
  std::vector<int32_t> row = corpus.special.beginning_of(tokens);
  row.insert(row.end(), tokens.begin(), tokens.end());
  return row;
}

int64_t talk_length(const TalkCorpus& corpus, int64_t i) {
  const auto tokens = corpus.tokens[i];
  return std::max<int64_t>(
      1, std::ssize(corpus.special.beginning_of(tokens)) + std::ssize(tokens) - 1);
}

}  // namespace

TalkCorpus load_talks(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                      const CorpusOptions& options, const LoadContext& context) {
  options.validate();
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kTalks) continue;
    fail(ErrorKind::kConfig, "[data] expected a corpus with messages, got ", spec.str(), '.');
  }
  const ChatFormat format = specs.front().chat != nullptr ? *specs.front().chat : ChatFormat();
  const bool adds_end = answer_end(format).empty();
  const bool learns_all = format.loss_on == LossOn::kText;
  const auto table = load_table(
      {.kind = "talks",
       .columns = 2,
       .specs = specs,
       .source_tokenizer = tokenizer,
       .target_tokenizer = nullptr,
       .rule = {options.max_length, options.overlong, specials_of_row(tokenizer.special()),
                /*one_row=*/true},
       .add =
           [](const EncodedPair& pair, TableBuilder& rows) {
             rows.add({pair.source, pair.target});
           },
       .is_sound = are_answers,
       .encode = [&tokenizer,
                  adds_end](EncodedPair& pair) { encode_talk(pair, tokenizer, adds_end); },
       .whole_tokens = [learns_all](const EncodedPair& pair) -> std::optional<int64_t> {
         if (pair.target.empty()) return std::nullopt;
         return learns_all ? 0 : pair.target[pair.target.size() - 2];
       }},
      context);
  TalkCorpus corpus;
  corpus.tokens = TokenLists(table, 0);
  corpus.answers = TokenLists(table, 1);
  take_facts(*table, tokenizer, corpus);
  return corpus;
}

TalkBatches::TalkBatches(const TalkCorpus& corpus, const BatchOptions& options, DataPosition start)
    : corpus_(&corpus), walk_(walk_of_rows(corpus, talk_length, options, start)) {}

BlockBatch TalkBatches::next() {
  const auto talks = walk_.next();
  int64_t width = 1;
  for (const int64_t i : talks) width = std::max(width, talk_length(*corpus_, i));
  BlockBatch batch = empty_batch(std::ssize(talks), width, corpus_->special.filler());
  batch.indices.assign(talks.begin(), talks.end());
  int64_t row = 0;
  for (const int64_t i : batch.indices) {
    const std::vector<int32_t> ids = row_of(*corpus_, i);
    const int64_t own = row++, count = std::ssize(ids);
    if (count < 2) continue;  // nothing is predicted
    std::vector<int32_t> targets(ids.size() - 1, kNoTarget);
    const auto answers = corpus_->answers[i];
    for (size_t k = 0; k + 1 < answers.size(); k += 2) {
      // A talk that was cut may have lost the beginning of an answer; the first token of a row is
      // never predicted.
      for (int64_t t = std::max<int64_t>(1, count - answers[k]); t < count - answers[k + 1]; ++t) {
        targets[static_cast<size_t>(t - 1)] = ids[static_cast<size_t>(t)];
      }
    }
    fill_row(batch, own, std::span(ids).first(targets.size()), targets);
  }
  return with_lengths_if_needed(std::move(batch));
}

}  // namespace tapestry
