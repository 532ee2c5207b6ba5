// Readers that know how the fields of their records are called; private to data/corpora/.
#pragma once

#include <string>
#include <vector>

namespace tapestry {

class NamedRecords {
 public:
  virtual ~NamedRecords() = default;
  /// The names of the fields of the record read last, or of the columns of its file; none of a
  /// table without a header.
  virtual std::vector<std::string> names() const = 0;
};

}  // namespace tapestry
