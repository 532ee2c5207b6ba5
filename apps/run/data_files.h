// The files of a run's data, by which a later start sees if they are still the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpora/corpus.h"

namespace tapestry {

struct DataFile {
  std::string path = {};  ///< not kept in a checkpoint: data may move
  int64_t bytes = 0;
  int64_t changed = 0;        ///< of a large file only: when, in nanoseconds since 1970
  std::string checksum = {};  ///< of all bytes, as Checksum (apps/checkpoint/bytes.h) writes it
};

/// The files that the corpora name. A large file is not read again if the one in `known` at its
/// place has its size and the time of its last change. Throws Error(kData) if a file cannot be
/// read.
std::vector<DataFile> data_files(const std::vector<CorpusSpec>& specs,
                                 const std::vector<DataFile>& known);

/// The same for files by their paths.
std::vector<DataFile> data_files(const std::vector<std::string>& paths,
                                 const std::vector<DataFile>& known);

/// The paths of files whose bytes have changed since `before`, and "the data" for files that are
/// missing now; none if nothing is known of before.
std::vector<std::string> changed_files(const std::vector<DataFile>& before,
                                       const std::vector<DataFile>& now);

}  // namespace tapestry
