// What translations get back from their sources by alignment: markup, and words that are unknown.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/tasks/answers/unit_alignment.h"
#include "data/files/sentences.h"
#include "data/markup/tag_transfer.h"

namespace tapestry {

struct RestoreArguments {
  std::string markup = {};  ///< "", "xml" or "html"
  bool copy_unknown = false;
};
/// --markup and --copy-unknown
void add_restored(CLI::App& app, RestoreArguments& arguments);

/// A line of the input, or a sentence of one, that gets something back.
struct RestoredPart {
  std::shared_ptr<const MarkedText> marked = {};  ///< the line; null: nothing is wanted
  std::string line = {};                          ///< as it came
  size_t begin = 0;                               ///< the part's first byte in the marked text
  std::vector<AlignedText> aligned = {};          ///< the translations
};

class RestoredLines {
 public:
  /// `layer` as in source_attention(). Throws Error(kConfig) if the models cannot do what is asked.
  RestoredLines(const Translator& models, const RestoreArguments& arguments, int64_t layer,
                int64_t batch_size);

  bool wanted() const { return !arguments_.markup.empty() || arguments_.copy_unknown; }
  /// Cuts a line that the models are to read into the parts that are translated by themselves, each
  /// with what follows it; what it leaves of the line is what they read. `splitter` may be null:
  /// then there is one part, and a space parts its blocks. `part` gets what is kept for all.
  std::vector<SentencePart> read(std::string& line, SentenceSplitter* splitter,
                                 RestoredPart& part) const;

  /// A part whose translations are to be aligned.
  struct ToAlign {
    RestoredPart* part;
    const PlacedText& placed;  ///< as the models read it
    const std::vector<Hypothesis>& translations;
  };
  void align(const std::vector<ToAlign>& parts) const;

  /// The n-th translation of a part, with what it gets back; of a blank one only that.
  static std::string text(const RestoredPart& part, size_t n, const TextOut& written) {
    return with_markup(*part.marked, n < part.aligned.size() ? part.aligned[n] : AlignedText{},
                       written);
  }
  /// Adds a sentence to its line, with what follows it. Returns the line if `ends` it.
  std::optional<std::string> join(const RestoredPart& part, const std::string& gap, bool ends,
                                  const TextOut& written);

 private:
  const Translator& models_;
  const RestoreArguments& arguments_;
  UnitAlignmentOptions options_;
  AlignedText joined_;
  std::string gap_;
};

}  // namespace tapestry
