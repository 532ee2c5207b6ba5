// Lines in, answers out, in order: the frame of all commands that answer line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/commands/answers/filter.h"
#include "apps/commands/output_file.h"
#include "apps/tasks/long_line.h"
#include "core/base/progress.h"
#include "data/corpora/filter_counts.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

class LineFilter {
 public:
  /// Opens the files, so that a wrong name is reported before a model is read. Throws Error(kData)
  /// for an input that cannot be read, and as OutputFile.
  /// Before that check_outputs() sees these files and those of `arguments`; only --output may be
  /// the input's own name, since it gets that name when all is read.
  LineFilter(std::string who, const FilterArguments& arguments, NamedFiles other_outputs = {},
             NamedFiles other_inputs = {});
  ~LineFilter();

  /// The stream for the answers.
  std::ostream& out() { return output_.stream(); }

  /// Reads blocks of `block_lines` lines and calls answer(lines, number of the first one, from 0),
  /// so that memory does not grow with the input. If no further line comes for a while, or lines
  /// come slowly, a shorter block is answered: somebody waits for it. A CR at the end of a line is
  /// dropped, and a byte order mark in front of the first. FilterArguments::ill_formed decides
  /// about lines that are not UTF-8: if it is "error", throws Error(kData) naming the line, after
  /// the lines before it are answered. Throws when the output cannot be written.
  void run(int64_t block_lines,
           const std::function<void(const std::vector<std::string>&, int64_t)>& answer);

  /// Marks this many more lines as answered, and flushes out(). run() counts the lines that
  /// `answer` did not.
  void answered(int64_t lines);

  /// True if line `number` (from 0) of the present block was ill-formed, and counts as empty.
  bool was_ill_formed(int64_t number) const { return ill_formed_now_.contains(number); }

  /// Calls `read`, which reads a record from line `number` (from 0). Returns false if that throws
  /// Error(kData): the line is answered like an empty one, and finish() reports it. Throws the
  /// error of `read` if ill-formed lines are errors, and if the first RecordReader::kMostOdd lines
  /// were all invalid.
  bool takes_record(int64_t number, const std::function<void()>& read);

  /// Counts the tokens of line `number`, from 0, for the report of finish().
  void read(std::span<const int32_t> ids, const Tokenizer& tokenizer, int64_t number);
  void read(const UnknownTokens& tokens) { unknown_.add(tokens); }

  /// Ends a run without failure: the output file gets its name. Reports (on stderr) the number of
  /// ill-formed lines, and the share of unknown tokens among those given to read(). Throws
  /// Error(kData) if no line was a record.
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
  int64_t records_ = 0, odd_ = 0;  ///< records that takes_record() accepted and refused
  std::string first_odd_;
  UnknownTokens unknown_;
};

}  // namespace tapestry
