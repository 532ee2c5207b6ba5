#include "data/examples/labelled.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/batches/framed_rows.h"
#include "data/corpora/class_names.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/row_corpus.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

int64_t specials_of(const SpecialIds& special, bool two_texts) {
  return two_texts ? special.question().size() : special.classified().size();
}

void check_labelled(const std::vector<CorpusSpec>& specs, const CorpusOptions& options,
                    const SpecialIds& special) {
  options.validate();
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kLabelled) continue;
    fail(ErrorKind::kConfig, "[data] classification needs a ", record_format_names(),
         " with a label_column, got ", spec.str(), '.');
  }
  check_column_of_all(specs, &CorpusSpec::text_pair_column, "text_pair_column");
  const int64_t shortest = specials_of(special, specs[0].has_two_texts()) + 1;
  if (options.max_length < shortest) {
    fail(ErrorKind::kConfig, "[data] max_length of classification must be ", shortest,
         " or more, got ", options.max_length, '.');
  }
}

}  // namespace

FramedText LabelledCorpus::row(int64_t i) const {
  if (has_two_texts()) return in_frame(special.question(), tokens[i], seconds[i]);
  const auto text = tokens[i];
  return {.ids = in_frame(special.classified(), {text.begin(), text.end()})};
}

int64_t LabelledCorpus::row_length(int64_t i) const {
  const int64_t of_second = has_two_texts() ? seconds.length(i) : 0;
  return tokens.length(i) + of_second + specials_of(special, has_two_texts());
}

LabelledCorpus load_labelled(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                             const CorpusOptions& options,
                             const std::vector<std::string>& label_names,
                             const LoadContext& context) {
  check_labelled(specs, options, tokenizer.special());
  const bool two_texts = specs[0].has_two_texts();
  const int64_t specials = specials_of(tokenizer.special(), two_texts);
  // The names in the order of the text, and the place of the first text of each.
  std::unordered_map<std::string, int32_t> numbers;
  std::vector<std::string> names_and_places;
  const auto add = [&](const EncodedPair& pair, TableBuilder& rows) {
    const auto next = static_cast<int32_t>(numbers.size());
    const auto [found, is_new] = numbers.try_emplace(pair.text.target, next);
    if (is_new) {
      names_and_places.push_back(pair.text.target);
      names_and_places.push_back(pair.text.place);
    }
    const std::span<const int32_t> label(&found->second, 1);
    if (two_texts) {
      rows.add({pair.source, label, pair.second});
    } else {
      rows.add({pair.source, label});
    }
  };
  const auto is_sound = [&](const TokenTable& found) {
    const int64_t texts = std::ssize(found.facts().texts);
    for (int64_t row = 0; row < found.rows(); ++row) {
      if (found.length(row, 1) != 1) return false;
    }
    return texts % 2 == 0 && found.ids_are_below(1, texts / 2) &&
           (!two_texts || found.ids_are_below(2, tokenizer.vocab_size()));
  };
  const int64_t columns = two_texts ? 3 : 2;
  const LengthRule rule{options.max_length, options.overlong, specials};
  const auto table = load_table({.kind = "labelled",
                                 .columns = columns,
                                 .specs = specs,
                                 .source_tokenizer = tokenizer,
                                 .target_tokenizer = nullptr,
                                 .rule = rule,
                                 .add = add,
                                 .begin =
                                     [&] {
                                       numbers.clear();
                                       names_and_places.clear();
                                     },
                                 .is_sound = is_sound,
                                 .end = [&](CorpusFacts& end) { end.texts = names_and_places; }},
                                context);
  const CorpusFacts& facts = table->facts();
  LabelledCorpus corpus;
  corpus.tokens = TokenLists(table, 0);
  corpus.found_labels = TokenLists(table, 1);
  if (two_texts) corpus.seconds = TokenLists(table, 2);
  take_facts(*table, tokenizer, corpus);
  std::vector<std::string> names;
  for (size_t i = 0; i < facts.texts.size(); i += 2) names.push_back(facts.texts[i]);
  corpus.label_names =
      label_names.empty() ? class_names_of(names, specs.front().str(), corpus.counts) : label_names;
  for (size_t i = 0; i < facts.texts.size(); i += 2) {
    corpus.classes.push_back(class_number(corpus.label_names, facts.texts[i], facts.texts[i + 1]));
  }
  return corpus;
}

namespace {

// The reader has dropped texts whose labels are no lists.
std::vector<std::string> names_of_label(const std::string& label, const std::string& where) {
  std::optional<std::vector<std::string>> names = names_in_label(label);
  if (names) return std::move(*names);
  fail(ErrorKind::kData, "[data] ", where, " must have lists of names for labels, got '", label,
       "'.");
}

}  // namespace

LabelSets label_sets(const LabelledCorpus& corpus, const std::vector<std::string>& known,
                     const std::string& where) {
  LabelSets result{.names = known, .sets = {}};
  if (known.empty()) {
    std::vector<std::string> all;
    for (const std::string& label : corpus.label_names) {
      for (std::string& name : names_of_label(label, where)) all.push_back(std::move(name));
    }
    result.names = class_names_of(std::move(all), where, corpus.counts);
  }
  for (const std::string& label : corpus.label_names) {
    std::vector<int32_t>& set = result.sets.emplace_back(result.names.size(), 0);
    for (const std::string& name : names_of_label(label, where)) {
      set[static_cast<size_t>(class_number(result.names, name, where))] = 1;
    }
  }
  return result;
}

LabelledBatches::LabelledBatches(const LabelledCorpus& corpus, const BatchOptions& options,
                                 DataPosition start)
    : corpus_(&corpus),
      walk_(walk_of_rows(
          corpus, [](const LabelledCorpus& rows, int64_t row) { return rows.row_length(row); },
          options, start)) {}

LabelledBatch LabelledBatches::next() {
  const auto texts = walk_.next();
  std::vector<FramedText> framed;
  for (const int64_t text : texts) framed.push_back(corpus_->row(text));
  FramedRows rows = framed_rows(framed, corpus_->special.filler());
  LabelledBatch batch{.ids = std::move(rows.ids),
                      .segments = std::move(rows.segments),
                      .lengths = std::move(rows.lengths),
                      .labels = Tensor::empty({std::ssize(texts)}, DType::kInt32),
                      .rows = std::ssize(texts),
                      .tokens = rows.tokens,
                      .indices = {texts.begin(), texts.end()}};
  for (int64_t row = 0; row < batch.rows; ++row) {
    batch.labels.data<int32_t>()[row] = corpus_->label(texts[static_cast<size_t>(row)]);
  }
  return batch;
}

LabelledBatch rows_of(const LabelledBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  LabelledBatch part{.ids = rows(batch.ids),
                     .segments = rows(batch.segments),
                     .lengths = rows(batch.lengths),
                     .labels = rows(batch.labels),
                     .rows = rows.count(),
                     .indices = rows(batch.indices)};
  part.tokens = sum_of(part.lengths);
  return part;
}

}  // namespace tapestry
