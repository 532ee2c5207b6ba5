// Lines in, answers out, in order: what all commands that answer line by line have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/commands/output_file.h"
#include "core/progress.h"

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
  /// dropped. Throws Error(kData) naming a line that is not UTF-8, after those before it are
  /// answered; throws when the output cannot be written.
  void run(int64_t block_lines,
           const std::function<void(const std::vector<std::string>&, int64_t)>& answer);

  /// So many lines more are answered: what out() got goes to its reader. run() counts what `answer`
  /// did not.
  void answered(int64_t lines);

  /// The end of a run without failure: the output file gets its name.
  void finish();

 private:
  class Lines;

  const std::string who_;
  OutputFile output_;
  std::unique_ptr<Lines> lines_;
  bool shows_progress_ = false;
  int64_t total_ = 0;  ///< lines of the input; 0: not known
  std::optional<Progress> progress_;
  int64_t answered_ = 0;
};

/// Lines that are answered together: the longest first, and others join those that are searched as
/// soon as some are done. Only the last ones of a window leave places empty.
constexpr int64_t window_of(int64_t batch_size) { return batch_size == 1 ? 1 : 32 * batch_size; }

}  // namespace tapestry
