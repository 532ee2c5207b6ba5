#include "apps/tasks/task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "apps/checkpoint/bytes.h"
#include "core/allocator.h"
#include "core/base/interruption.h"
#include "core/cpu/parallel.h"
#include "core/kernels/cross_entropy.h"
#include "data/scores/metrics.h"
#include "data/tokenizers/character_changes.h"

namespace tapestry {

const char* name_of(HeldOut set) { return set == HeldOut::kTest ? "test" : "validation"; }

const std::vector<CorpusSpec>& corpora_of(const Config& config, HeldOut set) {
  return set == HeldOut::kTest ? config.data.test : config.data.valid;
}

void report_checksum(const Report& report, std::initializer_list<std::span<const std::byte>> of) {
  if (!report.loaded) return;
  Checksum checksum;
  for (const auto& bytes : of) checksum.add(bytes.data(), bytes.size());
  report.loaded(checksum.text());
}

LoadContext context_with_cache(const Config& config, const Report& report,
                               const std::string& file) {
  LoadContext context{.warn = report.warn ? report.warn : report.say};
  if (report.loaded) {
    context.loaded = [tell = report.loaded](int64_t checksum) {
      tell(fmt::format("{:016x}", static_cast<uint64_t>(checksum)));
    };
  }
  const DataOptions& data = config.data;
  if (data.cache && !data.cache_dir.empty()) {
    context.cache = data.cache_dir;
    context.cache_is_shared = true;
  } else if (data.cache && !config.output_dir.empty()) {
    context.cache = concat(config.output_dir, '/', file);
  }
  return context;
}

void report_each_corpus(const FilterCounts& counts, const Report& report) {
  for (const FilterCounts& one : counts.of_corpora) {
    report(concat("of it ", one.corpus, ": ", one.summary()));
  }
}

void warn_of_counts(const std::string& what, const FilterCounts& counts, const Report& report) {
  for (const FilterCounts& one : counts.of_corpora) {
    warn_of_counts(concat(what, ", ", one.corpus), one, report);
  }
  if (!counts.of_corpora.empty()) return;
  const auto& warn = report.warn ? report.warn : report.say;
  const std::string loss = counts.loss();
  if (!loss.empty()) warn(concat(what, ": ", loss));
  const std::string many = counts.unknown_summary(kManyUnknown);
  if (many.empty()) return;
  warn(concat(what, ": ", many,
              " are unknown to the vocabulary, and no output can hold what they stand for; "
              "tokenizer.byte_fallback has pieces for everything"));
}

TokenizerPair settle_tokenizers(const Config& config, TokenizerPair given, const Report& report) {
  if (given.source) return with_languages(std::move(given), config.languages);
  TokenizerPair tokenizers = train_tokenizers(config.tokenizer, config.data.train, config.seed,
                                              context_with_cache(config, report, "tokenizer.bin"));
  const TokenizerOptions& options = config.tokenizer;
  const std::string kind = options.type == "sentencepiece" ? options.algorithm
                           : options.type == "char"        ? "characters"
                                                           : options.type;
  const size_t symbols = tokenizers.source->symbols().size();
  report(concat("tokenizer: ",
                !options.path.empty()          ? options.path
                : !options.source_path.empty() ? options.source_path
                                               : kind,
                ", ", tokenizers.source->vocab_size(), " pieces",
                tokenizers.shared() ? "" : " on the source side",
                symbols > 0 ? concat(", ", symbols, " of them symbols") : ""));
  release_free_memory();  // frees the memory of learning before the corpora are encoded
  return with_languages(std::move(tokenizers), config.languages);
}

namespace {

// The beginning of each corpus is enough, at every start.
constexpr int64_t kLookedAt = 2000;            // pairs of a corpus
constexpr size_t kLongestLookedAt = 1 << 17;   // bytes of a text
constexpr uintmax_t kLargestFile = 64U << 20;  // one document, which is read whole
constexpr double kWorthAWarning = 0.001;       // share of changed characters in text to be learnt

// True if the texts of a corpus come from a reader of pairs, and can be read twice.
bool can_be_looked_at(const CorpusSpec& spec) {
  using Kind = CorpusSpec::Kind;
  const Kind kind = spec.kind();
  if (kind == Kind::kImages || kind == Kind::kQuestions || kind == Kind::kPoints) return false;
  return std::ranges::all_of(files_of({spec}), [&](const std::string& path) {
    std::error_code unknown;
    return std::filesystem::is_regular_file(path, unknown) &&
           (spec.documents != "file" || std::filesystem::file_size(path, unknown) <= kLargestFile);
  });
}

void look_at(const Tokenizer& tokenizer, std::string_view text, CharacterChanges& changes) {
  size_t size = std::min(text.size(), kLongestLookedAt);
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  changes.add(tokenizer, text.substr(0, size));
}

// What talks of this format have that no decoding writes.
std::vector<std::string> left_out_of(const ChatFormat& format) {
  std::vector<std::string> texts = special_texts(format);
  texts.push_back(answer_end(format));
  std::erase(texts, "");
  return texts;
}

std::string up_to_any(std::string answer, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) answer.resize(std::min(answer.size(), answer.find(text)));
  return answer;
}

// The answers of a talk as the target, each up to such a text.
TextPair written_in(const TextPair& talk, const std::vector<std::string>& left_out) {
  TextPair written;
  for (const auto& [begin, end] : talk.answers) {
    written.target += up_to_any(
        talk.source.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), left_out);
  }
  return written;
}

}  // namespace

void report_changes(const Config& config, const TokenizerPair& tokenizers, const Report& report) {
  const bool writes = (config.task->abilities & (kTranslates | kContinuesText)) != 0;
  const auto tell = [&](const std::string& what, const CharacterChanges& changes, bool written) {
    if (changes.changed() == 0) return;
    const std::string sentence =
        fmt::format("encoding and decoding change {:.3g} % of the characters of {}, most often {}",
                    100 * changes.share(), what, changes.most_frequent());
    if (written && changes.share() > kWorthAWarning) {
      const bool learns = config.tokenizer.learns_pieces();
      const auto& warn = report.warn ? report.warn : report.say;
      warn(concat(sentence, ": the model cannot write them",
                  !learns ? ""
                  : config.task->can(kTranslates) && tokenizers.source != tokenizers.target
                      ? "; see tokenizer.target_normalization and byte_fallback"
                      : "; see tokenizer.normalization and byte_fallback"));
    } else {
      report(sentence);
    }
  };
  const auto look = [&](const char* name, const std::vector<CorpusSpec>& corpora) {
    for (const CorpusSpec& spec : corpora) {
      if (!can_be_looked_at(spec)) continue;
      const bool talks = spec.kind() == CorpusSpec::Kind::kTalks;
      const bool compared = spec.kind() == CorpusSpec::Kind::kPreferences;
      const bool prompts = talks || compared || spec.kind() == CorpusSpec::Kind::kPrompted;
      const bool pairs = spec.has_target();
      const auto left_out = spec.chat ? left_out_of(*spec.chat) : std::vector<std::string>();
      CharacterChanges source, target;
      const auto reader = open_corpus(spec);
      TextPair pair;
      for (int64_t i = 0; i < kLookedAt && reader->next(pair); ++i) {
        if (talks) pair = written_in(pair, left_out);
        // Both answers are there to be written.
        if (compared) {
          pair.target = up_to_any(pair.target, left_out) + up_to_any(pair.rejected, left_out);
        }
        if (compared && spec.chat) pair.source.clear();
        look_at(*tokenizers.source, pair.source, source);
        if (pairs || prompts) look_at(*tokenizers.target, pair.target, target);
      }
      const std::string files = concat(name, " data ", spec.str());
      tell(pairs ? concat("the sources of ", files) : files, source, writes && !pairs && !prompts);
      tell(concat(prompts ? "the answers of " : "the targets of ", files), target, writes);
    }
  };
  look("training", config.data.train);
  look("validation", config.data.valid);
  look("test", config.data.test);
}

TokenizerPair prepare_tokenizers(const Config& config, TokenizerPair given, const Report& report) {
  TokenizerPair tokenizers = settle_tokenizers(config, std::move(given), report);
  report_changes(config, tokenizers, report);
  return tokenizers;
}

LossSums::Part LossSums::part_of(const CrossEntropy& result) {
  stop_if_asked();  // every measurement of losses comes here, batch by batch
  const Tensor sums = result.sums.to(Device{});
  const auto* const values = sums.data<double>();
  return {values[0], values[1], values[2], result.tokens};
}

void LossSums::add(const Part& part) {
  const auto tokens = static_cast<double>(part.tokens);
  loss_.add(part.loss, tokens);
  nll_.add(part.nll, tokens);
  correct_.add(part.correct, tokens);
  tokens_ += part.tokens;
}

std::map<std::string, double> LossSums::metrics() const {
  return {{"loss", loss_.value()},
          {"nll", nll_.value()},
          {"ppl", std::exp(nll_.value())},
          {"accuracy", correct_.percent()}};
}

std::vector<double> target_log_probabilities(const Var& logits, const Tensor& targets) {
  const Tensor host = logits.value().to(Device{}).to(wider(logits.dtype()));
  const std::vector<int32_t> all = targets.to_vector<int32_t>();
  const int64_t vocab = logits.shape()[-1];
  std::vector<double> values(all.size());
  dispatch_wide(host.dtype(), [&](auto type) {
    const auto* const z = host.data<decltype(type)>();
    parallel_for(std::ssize(all), [&](int64_t r) {
      const int32_t target = all[static_cast<size_t>(r)];
      if (target == kNoTarget) return;
      const auto* const row = z + r * vocab;
      values[static_cast<size_t>(r)] =
          static_cast<double>(row[target]) - kernels::log_sum_exp(Cpu{}, row, vocab);
    });
  });
  return values;
}

namespace {

// Metrics that are better when they are larger, besides those of data/scores/metrics.h.
struct TaskScore {
  const char* name;
  bool in_percent = true;
};
constexpr TaskScore kScores[] = {
    {"accuracy"},
    {"exact_match"},
    {"f1"},
    {"micro_f1"},
    {"macro_f1"},
    {"precision"},
    {"recall"},
    {"rouge_1"},
    {"rouge_2"},
    {"rouge_l"},
    {"pearson", false},
    {"spearman", false},
    {"recall_at_1"},
    {"recall_at_5"},
    {"recall_at_10"},
    {"mrr", false},
    {"likelier"},
    {"margin", false},
    {"chosen_reward", false},
};

const TaskScore* find_score(const std::string& metric) {
  const auto* const found = std::ranges::find_if(
      kScores, [&](const TaskScore& score) { return std::string_view(score.name) == metric; });
  return found == std::end(kScores) ? nullptr : found;
}

}  // namespace

bool larger_is_better(const std::string& metric) {
  const MetricKind* const kind = find_metric(metric);
  return kind != nullptr ? kind->larger_is_better : find_score(metric) != nullptr;
}

bool is_in_percent(const std::string& metric) {
  if (const TaskScore* score = find_score(metric)) return score->in_percent;
  return larger_is_better(metric);
}

}  // namespace tapestry
