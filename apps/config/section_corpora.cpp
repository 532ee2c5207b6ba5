#include "apps/config/sections.h"
#include "core/base/text.h"
#include "data/corpora/shards.h"

namespace tapestry {
namespace {

// The patterns of two keys must match equally many files.
void check_shards(ConfigSection& s, const CorpusSpec& corpus, const char* key) {
  if (!s.checks_files() || !s.given(key)) return;
  const std::string problem = mismatch_of_shards(corpus, key);
  if (!problem.empty()) s.complain(key, '\'', s.full_name(key), "' ", problem, '.');
}

using FileKeys = std::vector<std::string>;

FileKeys format_names() {
  FileKeys names;
  for (const RecordFormat* format : record_formats()) names.emplace_back(format->name);
  return names;
}

// Keys of which a corpus has one: `first`, those of records, and `last` if it is not empty.
FileKeys with_records(const std::string& first, const std::string& last = {}) {
  FileKeys keys = format_names();
  if (!first.empty()) keys.insert(keys.begin(), first);
  if (!last.empty()) keys.push_back(last);
  return keys;
}

// A kind of corpus on the command line replaces the file's with all its keys.
void prefer_overrides(ConfigSection& s, const FileKeys& keys) {
  std::vector<std::vector<std::string>> kinds;
  for (const std::string& key : keys) {
    kinds.push_back({key});
    if (key == "source") kinds.back().emplace_back("target");
  }
  s.replace_by_overrides(kinds);
}

// True if the key is given, or has a value by default.
template <class Value>
bool has(const ConfigSection& s, const std::string& key, const Value& value) {
  return s.given(key) || !value.empty();
}

// The first of these keys that is given, or has a value by default; "" if there is none. A second
// one is an error. The keys that are not chosen are known.
std::string choose(ConfigSection& s, const CorpusSpec& corpus, const FileKeys& keys) {
  prefer_overrides(s, keys);
  std::string chosen;
  FileKeys all = keys;
  std::ranges::replace(all, "source", "source and target");
  for (const std::string& key : keys) {
    const bool given = has(s, key, corpus.file(key)) || (key == "source" && s.given("target"));
    if (given && chosen.empty()) {
      chosen = key;
      continue;
    }
    s.know(key);
    if (!given) continue;
    s.complain(key, '\'', s.full_name(key), "' excludes '", chosen, "': give one of ",
               join(all, ", ", " or "), '.');
  }
  return chosen;
}

const RecordFormat* format_named(const std::string& name) {
  const auto formats = record_formats();
  const auto found = std::ranges::find(formats, name, &RecordFormat::name);
  return found == formats.end() ? nullptr : *found;
}

// Records of any format; `usual` where none is given.
const RecordFormat& chosen_format(ConfigSection& s, const CorpusSpec& corpus,
                                  const RecordFormat& usual) {
  FileKeys keys = format_names();
  std::ranges::stable_partition(keys, [&](const std::string& key) { return key == usual.name; });
  const RecordFormat* const format = format_named(choose(s, corpus, keys));
  return format != nullptr ? *format : usual;
}

struct ColumnKey {
  const char* key;
  std::string CorpusSpec::*member;
  const char* meaning;
};

// The keys of records: the file, its columns, its header.
void bind_records(ConfigSection& s, CorpusSpec& corpus, const RecordFormat& format,
                  CorpusSpec::Kind kind, const std::vector<ColumnKey>& columns) {
  s.demand(format.name);
  corpus.records.format = &format;
  s.read_input_files(format.name, corpus.records.path, format.meaning);
  corpus.settle_columns(kind);
  for (const ColumnKey& column : columns) {
    s.read_column(column.key, corpus.*column.member, column.meaning);
  }
  s.read_choice_if(
      format.has_columns, concat("with ", format.name), "header", corpus.records.header,
      names(RecordFile::kHeaders),
      "Whether the first line names the columns; auto: that of a csv does, and that of "
      "a tsv where a column is given by its name.");
}

void bind_split(ConfigSection& s, CorpusSpec& corpus) {
  s.read_choice(
      "split", corpus.split, names(CorpusSpec::kSplits),
      "Part of a corpus that has no files for its parts: all, or train, valid, test (98, 1 and 1 % "
      "of the texts, told apart by a hash of the text).");
}

}  // namespace

void bind_corpora(ConfigSection& s, const char* key, const char* meaning, const TaskKind& task,
                  std::vector<CorpusSpec>& corpora) {
  s.section_list(key, corpora, meaning, [&](ConfigSection& c, CorpusSpec& corpus) {
    bind_corpus(c, task, corpus);
    const ExampleKind& kind = examples_of(task, &corpus, TextRows::kBlocks);
    const bool trains = std::string(key) == "train";
    c.read_if(trains && kind.of_text(),
              trains ? "with images or points"
                     : concat("in data.", key, ", whose examples all come once"),
              "weight", corpus.weight,
              "Share of this corpus in an epoch, in proportion to the weights of the others in the "
              "list, whatever their sizes; 0 for all: every example comes once in an epoch.",
              between(0, MixOptions::kLargestWeight));
    if (!kind.has_targets) return;
    const auto why = [&](const std::string& without) {
      return trains ? concat("without ", without)
                    : concat("in data.", key, ", whose pairs all count the same");
    };
    c.read_input_files_if(
        trains && !corpus.source.empty(), why("source and target"), "pair_weights",
        corpus.pair_weights,
        "File with a number in each line: the weight of that pair in the loss. A pair of weight 2 "
        "counts as if it stood there twice, one of weight 0 is left out.");
    check_shards(c, corpus, "pair_weights");
    c.read_column_if(trains && corpus.has_records(), why(record_format_names()),
                     "pair_weight_column", corpus.pair_weight_column,
                     "Column of the weight of a pair in the loss, as of pair_weights: its number "
                     "from 1, or its name.");
  });
}

void bind_corpus(ConfigSection& s, const TaskKind& task, CorpusSpec& corpus) {
  task.bind_corpus(s, corpus);
  for (const char* key : {"target", "labels"}) check_shards(s, corpus, key);
  s.read("limit", corpus.limit, "Reads only so many usable examples; 0: all of them.", at_least(0));
}

// Pairs of sentences: source and target files, records, or the Ding dictionary.
void bind_pairs(ConfigSection& s, CorpusSpec& corpus) {
  const std::string kind = choose(s, corpus, with_records("source", "ding"));
  if (kind == "ding") {
    s.demand("ding");
    s.read_input_files("ding", corpus.ding, "File of the Ding dictionary (German and English).");
    s.read_choice("direction", corpus.direction, names(CorpusSpec::kDirections),
                  "Which side of the dictionary is translated into which.");
    s.read("min_words", corpus.min_words,
           "Leaves out entries one side of which has fewer words; 1: single words are read, too.",
           between(1, 1000));
    return bind_split(s, corpus);
  }
  if (const RecordFormat* format = format_named(kind)) {
    if (s.given("target")) s.know("target");
    bind_records(s, corpus, *format, CorpusSpec::Kind::kPairs,
                 {{"source_column", &CorpusSpec::source_column,
                   "Column of the source: its number from 1, or its name. tsv: 1; csv, jsonl, "
                   "parquet: source."},
                  {"target_column", &CorpusSpec::target_column,
                   "Column of the target: its number from 1, or its name. tsv: 2; csv, jsonl, "
                   "parquet: target."}});
    return bind_split(s, corpus);
  }
  if (kind.empty()) {
    s.complain("", '\'', s.full_name("source"), "' is missing: give source and target, or one of ",
               record_format_names(", "), " or ding.");
  } else {
    s.demand("source");
    s.demand("target");
  }
  s.read_input_files("source", corpus.source, "File with one sentence in each line.");
  s.read_input_files("target", corpus.target, "File with the translation of each line.");
}

// Pairs of texts, with a text that does not belong to them, or a number.
void bind_text_pairs(ConfigSection& s, CorpusSpec& corpus) {
  bind_pairs(s, corpus);
  const std::string without = concat("without ", record_format_names());
  s.read_column_if(
      corpus.has_records(), without, "negative_column", corpus.negative_column,
      "Column of a text that does not belong to the source, though it may seem so: one "
      "more text among which the target is to be found. Its number from 1, or its "
      "name.");
  // It makes other examples of the pairs, with other metrics (key_families.cpp).
  if (!has(s, "score_column", corpus.score_column)) return s.know("score_column");
  s.read_column_if(corpus.has_records(), without, "score_column", corpus.score_column,
                   "Column of a number that says how alike both texts are: pairs with a larger one "
                   "shall have vectors with a larger product (CoSENT), and spearman tells how well "
                   "they agree. Its number from 1, or its name.");
}

// Text without translations.
void bind_text(ConfigSection& s, CorpusSpec& corpus) {
  const std::string kind = choose(s, corpus, with_records("text"));
  if (const RecordFormat* format = format_named(kind)) {
    bind_records(s, corpus, *format, CorpusSpec::Kind::kText,
                 {{"text_column", &CorpusSpec::text_column,
                   "Column of the text: its number from 1, or its name. tsv: 1; csv, jsonl, "
                   "parquet: text."}});
    return bind_split(s, corpus);
  }
  s.demand("text");
  s.read_input_files("text", corpus.text, "File of plain text.");
  s.read_choice("documents", corpus.documents, names(CorpusSpec::kDocuments),
                "What one document is: each line, a paragraph (up to a blank line), a fortune (up "
                "to a line with only %), or the whole file.");
  bind_range(s, corpus, corpus.documents == "file");
  bind_split(s, corpus);
}

// Records from which templates make prompts and answers.
void bind_text_or_prompts(ConfigSection& s, CorpusSpec& corpus) {
  prefer_overrides(s, with_records("text"));
  if (has(s, "messages_column", corpus.messages_column)) {
    for (const char* key : {"prompt", "answer"}) s.know(key);
    bind_records(s, corpus, chosen_format(s, corpus, kJsonl), CorpusSpec::Kind::kTalks, {});
    s.require("messages_column", corpus.messages_column,
              "Field with the messages of a talk, each with role and content: the loss is on what "
              "the assistant says (data.loss_on). The other fields, such as tools, are variables "
              "of the chat template.");
    if (corpus.messages_column.empty()) {
      s.complain("messages_column", '\'', s.full_name("messages_column"),
                 "' must name a field, got nothing.");
    }
    return bind_split(s, corpus);
  }
  s.know("messages_column");
  if (!has(s, "prompt", corpus.prompt) && !has(s, "answer", corpus.answer)) {
    for (const char* key : {"prompt", "answer"}) s.know(key);
    return bind_text(s, corpus);
  }
  bind_records(s, corpus, chosen_format(s, corpus, kJsonl), CorpusSpec::Kind::kPrompted, {});
  s.require(
      "prompt", corpus.prompt,
      "What the model reads, with fields of the record in braces: \"Question: "
      "{question}\\nAnswer:\". The columns of a tsv are {1}, {2}, ...; {{ and }} are braces.");
  s.require("answer", corpus.answer,
            "What it must write then, likewise: only this counts in the loss. Spaces between the "
            "two belong to the answer: \" {answer}\".");
  bind_split(s, corpus);
}

// Templates of a prompt and two answers, or the messages of two talks.
void bind_preferences(ConfigSection& s, CorpusSpec& corpus) {
  prefer_overrides(s, with_records(""));
  const RecordFormat& format = chosen_format(s, corpus, kJsonl);
  const bool talks = has(s, "chosen_column", corpus.chosen_column) ||
                     has(s, "rejected_column", corpus.rejected_column);
  bind_records(s, corpus, format, CorpusSpec::Kind::kPreferences, {});
  constexpr const char* kTexts[] = {"prompt", "chosen", "rejected"};
  constexpr const char* kTalks[] = {"prompt_column", "chosen_column", "rejected_column"};
  for (const char* key : talks ? kTexts : kTalks) s.know(key);
  if (talks) {
    s.require("chosen_column", corpus.chosen_column,
              "Instead of templates: the field with the messages of the better talk, each with "
              "role and content. What differs from the other talk is the answer.");
    s.require("rejected_column", corpus.rejected_column,
              "Field with the messages of the worse talk.");
    s.read("prompt_column", corpus.prompt_column,
           "Field with the messages that both talks begin with, where theirs are not whole.");
  } else {
    s.require("prompt", corpus.prompt,
              "What the model reads, with fields of the record in braces, as in task clm: "
              "\"{prompt}\".");
    s.require("chosen", corpus.chosen, "The better answer, likewise: \"{chosen}\".");
    s.require("rejected", corpus.rejected, "The worse answer, likewise: \"{rejected}\".");
  }
  bind_split(s, corpus);
}

// Keys of questions whose answers are spans of a context.
void bind_questions(ConfigSection& s, CorpusSpec& corpus) {
  const std::string kind = choose(s, corpus, with_records("squad"));
  if (const RecordFormat* format = format_named(kind)) {
    return bind_records(
        s, corpus, *format, CorpusSpec::Kind::kQuestions,
        {{"context_column", &CorpusSpec::context_column,
          "Column of the text that holds the answer, by number from 1 or by name (csv, jsonl, "
          "parquet: context)."},
         {"question_column", &CorpusSpec::question_column,
          "Column of the question: its number from 1, or its name. tsv: 2; csv, jsonl, parquet: "
          "question."},
         {"answer_column", &CorpusSpec::answer_column,
          "Column of the answer, which stands in the context, by number from 1 or by name (csv, "
          "jsonl, parquet: answer). Without it a jsonl or parquet may have lists of answers, "
          "answers.text and answers.answer_start, the first of which is learnt."},
         {"answer_start_column", &CorpusSpec::answer_start_column,
          "Column of the character of the context where it begins, from 0, by number from 1 or by "
          "name (csv, jsonl, parquet: answer_start)."}});
  }
  s.demand("squad");
  s.read_input_files("squad", corpus.squad,
                     "File of questions in SQuAD's format: one JSON document.");
}

namespace {

void bind_label_columns(ConfigSection& s, CorpusSpec& corpus, const RecordFormat* format,
                        const char* meaning) {
  bind_records(
      s, corpus, format != nullptr ? *format : kTsv, CorpusSpec::Kind::kLabelled,
      {{"label_column", &CorpusSpec::label_column, meaning},
       {"text_column", &CorpusSpec::text_column,
        "Column of the text: its number from 1, or its name. tsv: 2; csv, jsonl, parquet: text."}});
  s.read_column_if(true, "", "text_pair_column", corpus.text_pair_column,
                   "Column of a second text, which the model reads behind the first one, in the "
                   "same row: a hypothesis behind its premise, a passage behind its query.");
  bind_split(s, corpus);
}

}  // namespace

// Texts or images with a class each.
void bind_labelled(ConfigSection& s, CorpusSpec& corpus) {
  const std::string kind = choose(s, corpus, with_records("images"));
  if (kind == "images") return bind_image_corpus(s, corpus);
  bind_label_columns(s, corpus, format_named(kind),
                     "Column of the class: its number from 1, or its name. tsv: 1; csv, jsonl, "
                     "parquet: label.");
}

void bind_labelled_texts(ConfigSection& s, CorpusSpec& corpus) {
  corpus.label_lists = true;
  bind_label_columns(
      s, corpus, &chosen_format(s, corpus, kTsv),
      "Column of the label, by number from 1 or by name (csv, jsonl, parquet: label): of a "
      "text_regression a number, of multi_label names with commas between them, or "
      "- for none; in a jsonl or parquet also a list of them.");
}

// Words with a tag each.
void bind_tagged(ConfigSection& s, CorpusSpec& corpus) {
  const std::string kind = choose(s, corpus, with_records("conll"));
  const ColumnKey words{
      "tokens_column", &CorpusSpec::tokens_column,
      "Column of the words, by number from 1 or by name: of a conll the number, 1 where none is "
      "given; of a jsonl or parquet a list (tokens); of a tsv or csv a text with spaces between "
      "the words."};
  const ColumnKey tags{
      "tags_column", &CorpusSpec::tags_column,
      "Column of their tags: of a conll a number from 1, or last; of a jsonl or parquet a list "
      "(tags, labels or ner_tags, which the first record has) of names, or of places of "
      "data.labels from 0."};
  if (const RecordFormat* format = format_named(kind)) {
    bind_records(s, corpus, *format, CorpusSpec::Kind::kTagged, {words, tags});
    return bind_split(s, corpus);
  }
  s.demand("conll");
  s.read_input_files(
      "conll", corpus.conll,
      "File with a word and its tag in each line, in columns between spaces or tabs; "
      "a blank line ends a sentence (CoNLL 2003).");
  corpus.settle_columns(CorpusSpec::Kind::kTagged);
  for (const ColumnKey& column : {words, tags}) {
    s.read_column(column.key, corpus.*column.member, column.meaning);
  }
  bind_split(s, corpus);
}

void bind_points(ConfigSection& s, CorpusSpec& corpus) {
  const RecordFormat& format = chosen_format(s, corpus, kCsv);
  const bool several = has(s, "x_columns", corpus.x_columns);
  const bool classes = has(s, "class_column", corpus.class_column);
  s.read_optional_list(
      "x_columns", corpus.x_columns,
      "Columns of several features of a point, instead of x_column: [length, width]. One "
      "width of the kernel measures all, so they should be of one size.");
  s.read_column_if(true, "", "class_column", corpus.class_column,
                   "Column of the class of a point, instead of y_column: what is predicted is the "
                   "share of each class among the neighbours.");
  std::vector<ColumnKey> columns;
  const auto read_or_refuse = [&](bool applies, const char* other, const ColumnKey& column) {
    if (applies) return columns.push_back(column);
    s.read_column_if(false, concat("with ", other), column.key, corpus.*column.member,
                     column.meaning);
  };
  read_or_refuse(
      !several, "x_columns",
      {"x_column", &CorpusSpec::x_column,
       "Column of the points' x: its number from 1, or its name. csv, tsv: 1; others: x."});
  read_or_refuse(
      !classes, "class_column",
      {"y_column", &CorpusSpec::y_column,
       "Column of the points' y: its number from 1, or its name. csv, tsv: 2; others: y."});
  bind_records(s, corpus, format, CorpusSpec::Kind::kPoints, columns);
}

}  // namespace tapestry
