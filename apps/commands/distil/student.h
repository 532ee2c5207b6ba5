// The config of a student that trains on what its teachers wrote.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

inline constexpr const char* kStudentConfig = "student.yaml";

struct Student {
  Config config;                                  ///< its paths are absolute
  std::string yaml;                               ///< of kStudentConfig, beside the corpus
  std::map<std::string, std::string> tokenizers;  ///< files that it names, by name
};

/// The teacher's config with another corpus (pairs with weights if `weighted`), the tokenizers'
/// own files, and `overrides` of keys; the rest is the teacher's. `folder` will hold all of it.
/// Throws one Error(kConfig) that lists what is wrong with the overrides, or says that no config
/// can name these tokenizers.
Student make_student(const Config& teacher, const TokenizerPair& tokenizers,
                     const std::vector<std::string>& overrides, bool weighted,
                     const std::string& folder);

}  // namespace tapestry
