#include <set>

#include "apps/config/sections.h"

namespace tapestry {
namespace {

void bind_corpora(ConfigSection& s, const char* key, const TaskKind& task,
                  std::vector<CorpusSpec>& corpora) {
  s.section_list(key, corpora, [&](ConfigSection& c, CorpusSpec& corpus) {
    task.bind_corpus(c, corpus);
    c.read("limit", corpus.limit, at_least(0));
  });
}

void check_labels(ConfigSection& s, const std::vector<std::string>& labels) {
  if (labels.size() == 1) {
    s.complain("labels", "'data.labels' must name two classes or more, got one.");
  }
  std::set<std::string> seen;
  for (const std::string& label : labels) {
    if (seen.insert(label).second) continue;
    s.complain("labels", "'data.labels' must name each class once, got '", label, "' twice.");
  }
}

}  // namespace

// Pairs of sentences: source and target files, a TSV, or the Ding dictionary.
void bind_pairs(ConfigSection& s, CorpusSpec& corpus) {
  const bool tsv = s.has("tsv") || !corpus.tsv.empty();
  const bool ding = s.has("ding") || !corpus.ding.empty();
  const bool pair = s.has("source") || s.has("target") || !corpus.source.empty();
  if (tsv + ding + pair > 1) {
    s.complain(tsv ? "tsv" : "ding", '\'', s.full_name(tsv ? "tsv" : "ding"),
               "' excludes the others: give either source and target, or tsv, or ding.");
  }
  if (ding) {
    s.read_input_file("ding", corpus.ding);
    s.read_choice("direction", corpus.direction, names({"de-en", "en-de"}));
    s.read_choice("split", corpus.split, names({"all", "train", "valid", "test"}));
  }
  if (tsv) {
    s.read_input_file("tsv", corpus.tsv);
    s.read("source_column", corpus.source_column, at_least(1));
    s.read("target_column", corpus.target_column, at_least(1));
    if (corpus.source_column == corpus.target_column) {
      s.complain("target_column", '\'', s.full_name("target_column"),
                 "' must differ from source_column, got ", corpus.target_column, " twice.");
    }
  }
  if (pair || !(tsv || ding)) {
    if (pair) {
      s.demand("source");
      s.demand("target");
    } else {
      s.complain("", '\'', s.full_name("source"),
                 "' is missing: give source and target, or tsv, or ding.");
    }
    s.read_input_file("source", corpus.source);
    s.read_input_file("target", corpus.target);
  }
}

// Text without translations.
void bind_text(ConfigSection& s, CorpusSpec& corpus) {
  s.demand("text");
  s.read_input_file("text", corpus.text);
  s.read_choice("documents", corpus.documents, names({"lines", "paragraphs", "fortunes", "file"}));
  bind_range(s, corpus, corpus.documents == "file");
  s.read_choice("split", corpus.split, names({"all", "train", "valid", "test"}));
}

// Texts or images with a class each.
void bind_labelled(ConfigSection& s, CorpusSpec& corpus) {
  if (s.has("images") || !corpus.images.empty()) return bind_image_corpus(s, corpus);
  s.know("images");
  s.demand("tsv");
  s.read_input_file("tsv", corpus.tsv);
  if (corpus.label_column == 0) corpus.label_column = 1, corpus.text_column = 2;
  s.read("label_column", corpus.label_column, at_least(1));
  s.read("text_column", corpus.text_column, at_least(1));
  if (corpus.label_column == corpus.text_column) {
    s.complain("text_column", '\'', s.full_name("text_column"),
               "' must differ from label_column, got ", corpus.text_column, " twice.");
  }
  s.read_choice("split", corpus.split, names({"all", "train", "valid", "test"}));
}

void bind_range(ConfigSection& s, CorpusSpec& corpus, bool applies) {
  std::vector<double> range = {corpus.range_begin, corpus.range_end};
  s.read_if(applies, "without documents: file", "range", range, between(0, 1));
  if (range.size() == 2 && range[0] < range[1]) {
    corpus.range_begin = range[0], corpus.range_end = range[1];
  } else {
    s.complain("range", '\'', s.full_name("range"),
               "' must be two numbers, the first the smaller, such as [0, 0.9].");
  }
}

void bind_data(ConfigSection& s, Config& config) {
  DataOptions& data = config.data;
  s.demand("train");
  bind_corpora(s, "train", *config.task, data.train);
  if (s.given("train") && data.train.empty()) {
    s.complain("train", "'data.train' must name a corpus, got none.");
  }
  bind_corpora(s, "valid", *config.task, data.valid);
  const bool blocks = config.task->reads_blocks;
  const bool images = reads_images(config);
  if (images) bind_image_data(s, config);
  const std::string why = images ? "with images"
                                 : concat("with task: ", config.task->name, "; see ",
                                          blocks ? "block_size" : "max_length");
  s.read_if(blocks, why, "block_size", data.block_size, at_least(2));
  s.read_if(blocks, why, "cache", data.cache);
  // bos, a token and eos; of pairs a token and eos.
  const double shortest = config.task->has_classes ? 3 : 2;
  s.read_if(!blocks && !images, why, "max_length", data.corpus.max_length, at_least(shortest));
  s.read_choice_if(!blocks && !images, why, "overlong", data.corpus.overlong,
                   names({"drop", "truncate", "error"}));
  s.read_if(config.task->has_classes, concat("with task: ", config.task->name), "labels",
            data.labels);
  check_labels(s, data.labels);
}

void bind_tokenizer(ConfigSection& s, Config& config) {
  TokenizerOptions& tokenizer = config.tokenizer;
  const size_t problems = s.problems();
  s.read_choice("type", tokenizer.type, names({"sentencepiece", "char"}));
  s.read_input_file("path", tokenizer.path);
  const bool trains = tokenizer.type == "sentencepiece" && tokenizer.path.empty();
  const std::string why = tokenizer.path.empty() ? "with type: char" : "with path";
  s.read_choice_if(trains, why, "algorithm", tokenizer.algorithm,
                   names({"bpe", "unigram", "char"}));
  s.read("vocab_size", tokenizer.vocab_size, between(8, 1 << 24));
  s.read("share", tokenizer.share);
  s.read_if(trains, why, "character_coverage", tokenizer.character_coverage, between(0.98, 1));
  s.read_if(trains, why, "byte_fallback", tokenizer.byte_fallback);
  s.read_choice_if(trains, why, "normalization", tokenizer.normalization,
                   names({"nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"}));
  s.read_if(trains, why, "max_sentences", tokenizer.max_sentences, at_least(0));
  // Pieces that the objective writes into the text.
  tokenizer.mask_piece = config.task->needs_mask_piece;
  tokenizer.sentinels = config.task->sentinels;
  if (tokenizer.byte_fallback && tokenizer.vocab_size < 261) {
    s.complain("vocab_size", "'tokenizer.vocab_size' must be at least 261 with byte_fallback, got ",
               tokenizer.vocab_size, '.');
  }
  complain_unless_valid(s, problems, "vocab_size", tokenizer);
}

void bind_masking(ConfigSection& s, Config& config) {
  MaskingOptions& masking = config.masking;
  const size_t problems = s.problems();
  s.read("probability", masking.probability, between(0, 1));
  s.read("mask_share", masking.mask_share, between(0, 1));
  s.read("random_share", masking.random_share, between(0, 1));
  s.read("whole_word", masking.whole_word);
  if (masking.mask_share + masking.random_share > 1) {
    s.complain("random_share", "'masking.mask_share' and random_share are at most 1 together, got ",
               masking.mask_share, " and ", masking.random_share, '.');
  }
  complain_unless_valid(s, problems, "probability", masking);
}

void bind_denoising(ConfigSection& s, Config& config) {
  DenoisingOptions& denoising = config.denoising;
  const size_t problems = s.problems();
  s.read_choice("objective", denoising.objective, names({"span_corruption", "infilling"}));
  s.read("noise_density", denoising.noise_density, from_up_to_below(0, 1));
  s.read("mean_span_length", denoising.mean_span_length, at_least(1));
  denoising.max_length = config.data.corpus.max_length;
  complain_unless_valid(s, problems, "mean_span_length", denoising);
}

}  // namespace tapestry
