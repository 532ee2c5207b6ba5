// Names of the tensors in a file of theirs, as the tables of
// apps/interop/architectures/architectures.h have them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// Names with the prefix, in the old spelling.
class TensorNames {
 public:
  /// `cut` is in front of each name and belongs to no table.
  TensorNames(const Architecture& architecture, const std::vector<std::string>& stored,
              const std::string& cut = "");

  bool has(const std::string& name) const { return stored_.contains(name); }
  /// The name in the file.
  const std::string& stored(const std::string& name) const { return stored_.at(name); }
  const std::map<std::string, std::string>& all() const { return stored_; }

 private:
  std::map<std::string, std::string> stored_;
};

/// Among the files that a model came with: {name of a table: numbers of the rows of a tensor that
/// no token reads}. It stays in checkpoints.
constexpr const char* kUnreadRowsFile = "unread_rows.json";

/// A name of a table as today's releases call the module that holds the tensor.
std::string todays_spelling(const Architecture& architecture, std::string name);

/// Reads a Hugging Face JSON file. Throws Error(kData) if it is not an object.
Json read_json(const std::string& path);
/// Throws Error(kData) with all of them.
[[noreturn]] void refuse(const std::string& folder, const Reasons& reasons);

}  // namespace tapestry::interop
