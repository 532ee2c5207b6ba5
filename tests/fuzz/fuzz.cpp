#include "tests/fuzz/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

// Removed at the end of the process that made it, not of its children.
struct Folder {
  Folder() {
    const char* const memory = "/dev/shm";
    const fs::path parent = fs::is_directory(memory) ? memory : fs::temp_directory_path();
    path = parent / concat("tapestry-fuzz-", owner);
    fs::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    if (owner == ::getpid()) fs::remove_all(path, ignored);
  }
  const pid_t owner = ::getpid();
  fs::path path;
};

}  // namespace

std::vector<FuzzTarget> fuzz_targets() {
  std::vector<FuzzTarget> all;
  for (const auto targets :
       {data_targets(), tokenizer_targets(), checkpoint_targets(), serve_targets()}) {
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

const FuzzTarget* find_fuzz_target(std::string_view name) {
  static const std::vector<FuzzTarget> all = fuzz_targets();
  const auto found = std::ranges::find(all, name, &FuzzTarget::name);
  return found == all.end() ? nullptr : &*found;
}

std::string fuzzed_folder() {
  static const Folder folder;
  return folder.path.string();
}

std::string fuzzed_file(std::string_view bytes, const char* name) {
  const std::string path = (fs::path(fuzzed_folder()) / name).string();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes << std::flush;
  check(out.good(), "fuzz", "cannot write ", path, '.');
  return path;
}

void read_fuzzed(const FuzzTarget& target, std::string_view bytes) {
  try {
    target.read(bytes);
  } catch (const Error&) {
  }
}

}  // namespace tapestry
