// The command line of `tapestry evaluate --hypothesis`. Options have sacreBLEU's names.
#include <CLI/CLI.hpp>

#include "apps/commands/evaluate_translations.h"
#include "core/error.h"
#include "core/text.h"

namespace tapestry {
namespace {

template <class Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

void add_bleu(CLI::App& command, TranslationArguments& arguments) {
  BleuOptions& bleu = arguments.options.bleu;
  std::string tokenizers;
  for (const WordRule& rule : word_rules()) {
    if (rule.make == nullptr) continue;
    tokenizers += concat(tokenizers.empty() ? "" : "; ", rule.name, ": ", rule.meaning);
  }
  command.add_option("--tokenize", bleu.tokenize, "how BLEU finds words: " + tokenizers)
      ->check(CLI::IsMember(names_of(word_rules())))
      ->capture_default_str();
  command.add_option("--spm-model", bleu.spm_model, "SentencePiece model, for --tokenize spm");
  command
      .add_option("--smooth-method", bleu.smooth, "of BLEU: " + join(names_of(kSmoothings), " | "))
      ->check(CLI::IsMember(names_of(kSmoothings)))
      ->capture_default_str();
  command.add_option("--smooth-value", bleu.smooth_value, "of floor (default 0.1) and add-k (1)")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--force", arguments.force,
                   "no warning about hypotheses that look tokenized already");
}

void add_chrf(CLI::App& command, ChrfOptions& chrf) {
  const CLI::Range orders(0, ChrfOptions::kMostOrder);
  command.add_option("--chrf-char-order", chrf.char_order, "longest n-gram of characters")
      ->check(CLI::Range(1, ChrfOptions::kMostOrder))
      ->capture_default_str();
  command
      .add_option("--chrf-word-order", chrf.word_order,
                  "longest n-gram of words; 2: chrF++, as --metrics chrf++")
      ->check(orders)
      ->capture_default_str();
  command.add_option("--chrf-beta", chrf.beta, "weight of recall against precision")
      ->check(CLI::Range(1, ChrfOptions::kMostBeta))
      ->capture_default_str();
  command.add_flag("--chrf-whitespace", chrf.whitespace, "n-grams of characters hold white space");
  command.add_flag("--chrf-lowercase", chrf.lowercase, "compare lower-cased text");
  command.add_flag("--chrf-eps-smoothing", chrf.eps_smoothing,
                   "average the F-scores of all orders, as NLTK and Moses");
}

void add_ter(CLI::App& command, TerOptions& ter) {
  command.add_flag("--ter-normalized", ter.normalized,
                   "undo entities and split punctuation off before TER");
  command.add_flag("--ter-no-punct", ter.no_punct, "remove punctuation before TER");
  command.add_flag("--ter-asian-support", ter.asian_support,
                   "with these two: also for Chinese and Japanese characters");
  command.add_flag("--ter-case-sensitive", ter.case_sensitive, "TER compares text as it is");
}

void add_tests(CLI::App& command, TranslationArguments& arguments) {
  auto* interval = command.add_flag("--confidence", arguments.confidence,
                                    "of one system: 95 % intervals by bootstrap resampling");
  auto* bootstrap = command.add_flag(
      "--paired-bs", arguments.paired_bs,
      "of several systems: intervals and p-values against the first by paired bootstrap");
  auto* randomization = command.add_flag(
      "--paired-ar", arguments.paired_ar,
      "of several systems: p-values against the first by approximate randomization");
  bootstrap->excludes(randomization);
  interval->excludes(bootstrap)->excludes(randomization);
  const CLI::Range samples(int64_t{1}, int64_t{100'000'000});
  command.add_option("--confidence-n", arguments.confidence_n, "resamples of --confidence")
      ->check(samples)
      ->capture_default_str();
  command.add_option("--paired-bs-n", arguments.paired_bs_n, "resamples of --paired-bs")
      ->check(samples)
      ->capture_default_str();
  command.add_option("--paired-ar-n", arguments.paired_ar_n, "trials of --paired-ar")
      ->check(samples)
      ->capture_default_str();
  command.add_option("--seed", arguments.seed, "of these draws, which are sacreBLEU's")
      ->capture_default_str();
}

}  // namespace

CLI::Option* add_translation_options(CLI::App& command, TranslationArguments& arguments) {
  std::vector<std::string> metrics = names_of(metric_kinds());
  metrics.emplace_back(kRouge);
  auto* hypothesis = command.add_option(
      "--hypothesis", arguments.hypotheses,
      "file; -: standard input; given again: several systems, the first the baseline");
  auto* reference =
      command.add_option("--reference", arguments.references, "file; given again: several");
  command
      .add_option("--num-refs", arguments.num_refs,
                  "references of a line, between tabs in one file")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  command.add_flag("--optional-references", arguments.optional_references,
                   "an empty line is no reference: sentences may have fewer than others");
  command
      .add_option("--metrics", arguments.metrics,
                  "of a hypothesis: " + join(metrics, ",") + " (default: bleu,chrf)")
      ->delimiter(',')
      ->check(CLI::IsMember(metrics));
  command.add_flag("--lowercase", arguments.lowercase, "BLEU and chrF compare lower-cased text");
  add_bleu(command, arguments);
  add_chrf(command, arguments.options.chrf);
  add_ter(command, arguments.options.ter);
  command.add_flag("--sentence-level", arguments.sentence_level, "a line for each sentence");
  command.add_option("--width", arguments.width, "digits of scores behind the point")
      ->check(CLI::Range(0, 17))
      ->capture_default_str();
  add_tests(command, arguments);
  hypothesis->needs(reference);
  reference->needs(hypothesis);
  return hypothesis;
}

}  // namespace tapestry
