// The key of an encoded corpus: everything that it depends on, in one number; private to /.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/corpora/corpus.h"

typedef struct XXH3_state_s XXH3_state_t;

namespace tapestry {

/// Adds the parts of a key. A file counts by its path, its size and its bytes; one of more than
/// kWholeBytes by the time of its last change and a sample of its bytes.
class CorpusKey {
 public:
  static constexpr int64_t kWholeBytes = int64_t{64} << 20;

  CorpusKey();
  ~CorpusKey();
  CorpusKey(const CorpusKey&) = delete;
  CorpusKey& operator=(const CorpusKey&) = delete;

  void add(const std::string& text);
  void add(const std::vector<CorpusSpec>& specs);
  /// Nothing if an input is not a regular file and so cannot be read twice.
  std::optional<uint64_t> value() const;

 private:
  void add_file(const std::string& path);

  XXH3_state_t* state_;
  bool has_value_ = true;
};

}  // namespace tapestry
