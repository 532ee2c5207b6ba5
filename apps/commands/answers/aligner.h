// The hard alignments of translations.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/output_file.h"
#include "apps/tasks/answers/alignment.h"
#include "apps/tasks/answers/translator.h"

namespace tapestry {

struct AlignmentArguments {
  std::string file = {};        ///< to write, "-": behind each translation, or ""
  std::string units = "words";  ///< words | tokens
  int64_t layer = 0;            ///< as in source_attention()
};
/// --alignments, --alignment-units and --alignment-layer
std::vector<CLI::Option*> add_alignments(CLI::App& app, AlignmentArguments& arguments);

class Aligner {
 public:
  /// Throws Error(kConfig) if the models have no such layer, and as OutputFile. Both outlive it.
  Aligner(const Translator& models, const AlignmentArguments& arguments);

  bool wanted() const { return !arguments_.file.empty(); }
  /// True if it needs the places of the sources' tokens.
  bool counts_words() const { return wanted() && arguments_.units == "words"; }
  bool inline_with_text() const { return arguments_.file == "-"; }

  /// The alignments of each source's results; `places` of the sources only if it counts words.
  std::vector<std::vector<Alignment>> align(const std::vector<std::vector<int32_t>>& sources,
                                            const std::vector<PlacedText>& places,
                                            const std::vector<std::vector<Hypothesis>>& results,
                                            int64_t batch_size) const;
  /// Writes a line to the file, if there is one.
  void write(const std::string& line) {
    if (file_) file_->stream() << line << '\n';
  }
  void finish() {
    if (file_) file_->finish();
  }

 private:
  const Translator& models_;
  const AlignmentArguments& arguments_;
  std::optional<OutputFile> file_;
};

}  // namespace tapestry
