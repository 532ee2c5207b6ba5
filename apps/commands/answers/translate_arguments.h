// The options of tapestry translate.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/commands/answers/aligner.h"
#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/restored_lines.h"
#include "apps/tasks/answers/required_texts.h"

namespace tapestry {

struct TranslateArguments : FilterArguments {
  SearchArguments search = {};
  std::string prefix = {};     ///< file with what each translation begins with, or ""
  bool prefix_column = false;  ///< it is the second column of the input instead
  AlignmentArguments alignments = {};
  RestoreArguments restored = {};
  bool word_scores = false;  ///< behind a tab, the log-probability of each word and of the end
  std::string detail = {};   ///< "" or "jsonl"
  std::string n_best_format = "lines";            ///< lines | moses
  std::optional<int64_t> max_source_length = {};  ///< tokens that a source is cut to
  RequiredTextOptions required = {};
  std::string rescore = {};          ///< file of the scorers that choose, or ""
  std::string split_sentences = {};  ///< the language whose sentences lines are split into, or ""
};

void add_translate(CLI::App& app, TranslateArguments& arguments);

}  // namespace tapestry
