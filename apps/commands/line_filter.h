// Lines in, answers out, in order: what all commands that answer line by line have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/commands/output_file.h"
#include "core/progress.h"
#include "data/filter_counts.h"
#include "data/tokenizer.h"

namespace tapestry {

class LineFilter {
 public:
  /// Opens the files, so that a wrong name is told before a model is read. Throws Error(kData) for
  /// an input that cannot be read, and as OutputFile.
  LineFilter(std::string who, const FilterArguments& files);
  ~LineFilter();

  /// Where the answers go.
  std::ostream& out() { return output_.stream(); }

  /// Reads blocks of `block_lines` lines and calls answer(lines, number of the first one, from 0),
  /// so that memory does not grow with the input. Where no further line comes for a while, or they
  /// come slowly, a shorter block is answered: somebody waits for it. A CR at the end of a line is
  /// dropped, and a byte order mark in front of the first. What becomes of a line that is not UTF-8
  /// FilterArguments::ill_formed says: where it is an error, throws Error(kData) naming the line,
  /// after those before it are answered. Throws when the output cannot be written.
  void run(int64_t block_lines,
           const std::function<void(const std::vector<std::string>&, int64_t)>& answer);

  /// So many lines more are answered: what out() got goes to its reader. run() counts what `answer`
  /// did not.
  void answered(int64_t lines);

  /// Whether line `number` (from 0) of the block that is answered was ill-formed, and counts as
  /// empty.
  bool was_ill_formed(int64_t number) const { return ill_formed_now_.contains(number); }

  /// Calls `read`, which reads a record from line `number` (from 0). False where that throws
  /// Error(kData): the line is answered like an empty one, and finish() tells of it. Throws what
  /// `read` does where ill-formed lines are errors, and where RecordReader::kMostOdd lines have
  /// come and none was a record.
  bool takes_record(int64_t number, const std::function<void()>& read);

  /// Counts the tokens of line `number`, from 0, for what finish() tells.
  void read(std::span<const int32_t> ids, const Tokenizer& tokenizer, int64_t number);
  void read(const UnknownTokens& tokens) { unknown_.add(tokens); }

  /// The end of a run without failure: the output file gets its name. Tells (on stderr) how many
  /// lines were ill-formed, and which share of the tokens that read() got is unknown. Throws
  /// Error(kData) where no line was a record.
  void finish();

 private:
  class Lines;

  // Sees to a line that is not UTF-8 at a byte.
  void mend(std::string& line, int64_t number, size_t bad);

  const std::string who_, ill_formed_policy_;
  OutputFile output_;
  std::unique_ptr<Lines> lines_;
  bool shows_progress_ = false;
  int64_t total_ = 0;  ///< lines of the input; 0: not known
  std::optional<Progress> progress_;
  int64_t answered_ = 0;
  int64_t ill_formed_ = 0;
  std::string first_ill_formed_;  ///< "line 3 at byte 7"
  std::set<int64_t> ill_formed_now_;
  int64_t records_ = 0, odd_ = 0;  ///< what takes_record() took, and what it did not
  std::string first_odd_;
  UnknownTokens unknown_;
};

/// Lines that are answered together: the longest first, and others join those that are searched as
/// soon as some are done. Only the last ones of a window leave places empty.
constexpr int64_t window_of(int64_t batch_size) { return batch_size == 1 ? 1 : 32 * batch_size; }

}  // namespace tapestry
