// The sources that `tapestry distil` has translated so far, in pieces of its folder that are whole
// or not there.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/run_folder.h"
#include "core/base/enumerators.h"

namespace tapestry {

/// Why a source or a translation is left out.
enum class LeftOut {
  kEmpty,     ///< the source or the translation shows nothing
  kOverlong,  ///< the source or the translation has more tokens than the student reads
  kCut,       ///< the translation ended at the length limit
  kTooLong,   ///< it has too many times the tokens of its source
  kRepeats,   ///< it repeats itself much more than its source does
  kScore,     ///< others have better scores
};
constexpr const char* name_of(LeftOut reason) {
  switch (reason) {
    case LeftOut::kEmpty:
      return "empty";
    case LeftOut::kOverlong:
      return "overlong";
    case LeftOut::kCut:
      return "cut at the length limit";
    case LeftOut::kTooLong:
      return "too long for its source";
    case LeftOut::kRepeats:
      return "repeats itself";
    case LeftOut::kScore:
      return "low score";
  }
  return nullptr;
}
inline constexpr auto kLeftOut = enumerators<LeftOut>();

struct ScoredText {
  std::string text;
  double score = 0;  ///< log-probability of a token, the end counted; rounded to 6 decimals
};

/// A source of the corpus with what becomes of it.
struct TranslatedSource {
  std::string source;
  float weight = 1;                      ///< of the pair in the loss
  std::vector<ScoredText> translations;  ///< none: `left_out` says why ...
  LeftOut left_out = LeftOut::kEmpty;
  ScoredText refused = {};  ///< ... and this is the best of what was found, if anything was
};

class TranslatedPieces {
 public:
  static constexpr int64_t kSources = 1024;  ///< of a piece, but for the last

  /// Finds the pieces of an earlier start. `identity` decides the results: throws Error(kConfig) if
  /// the folder was begun with another one, and Error(kData) if its record is damaged.
  TranslatedPieces(const RunFolder& folder, const nlohmann::ordered_json& identity);

  int64_t size() const { return pieces_; }
  void add(const std::vector<TranslatedSource>& sources);
  /// Calls `take` for each source, in their order. Throws Error(kData) for a damaged piece.
  void each(const std::function<void(const TranslatedSource&)>& take) const;
  /// Marks the record as finished with these figures, and removes the pieces.
  void finish(const nlohmann::ordered_json& figures);

 private:
  std::string name_of_piece(int64_t piece) const;

  const RunFolder& folder_;
  nlohmann::ordered_json identity_;
  int64_t pieces_ = 0;
};

/// The locked folder of a distillation. What was made for it goes again if nothing is written.
class DistilFolder {
 public:
  /// Throws Error(kConfig) unless the folder is new, empty, or one of an unfinished distillation,
  /// or if another process works in it.
  explicit DistilFolder(const std::string& path);
  ~DistilFolder();
  DistilFolder(const DistilFolder&) = delete;
  DistilFolder& operator=(const DistilFolder&) = delete;

  const RunFolder& files() const { return *files_; }

 private:
  bool made_ = false;
  std::optional<RunFolder> files_;
};

}  // namespace tapestry
