// Readers under fire: each target gives the bytes to a reader, which may refuse them with an Error.
// Anything else (another exception, a sanitizer's report, ten seconds) is a defect.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

struct FuzzTarget {
  const char* name;
  std::vector<std::string> (*seeds)();  ///< good files, made here, small
  void (*read)(std::string_view bytes);
};

/// A room each.
std::span<const FuzzTarget> data_targets();
std::span<const FuzzTarget> tokenizer_targets();
std::span<const FuzzTarget> checkpoint_targets();
std::span<const FuzzTarget> serve_targets();

/// All of them.
std::vector<FuzzTarget> fuzz_targets();
/// Null where there is none of that name.
const FuzzTarget* find_fuzz_target(std::string_view name);

/// Writes a file of this process, in memory where the system has a place for that, and returns its
/// path.
std::string fuzzed_file(std::string_view bytes, const char* name = "input");
/// The folder of these files.
std::string fuzzed_folder();

/// Reads, and takes an Error for an answer.
void read_fuzzed(const FuzzTarget& target, std::string_view bytes);

}  // namespace tapestry
