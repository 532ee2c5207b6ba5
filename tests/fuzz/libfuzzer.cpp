// The entry points of libFuzzer (tests/fuzz.sh): FUZZ_TARGET names the reader; with FUZZ_SEEDS its
// seeds are written into that folder, and nothing else is done.
#include <cstdio>
#include <cstdlib>

#include "data/files/files.h"
#include "tests/fuzz/fuzz.h"

namespace {

const tapestry::FuzzTarget* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("FUZZ_TARGET");
  target = tapestry::find_fuzz_target(name == nullptr ? "" : name);
  const char* const folder = std::getenv("FUZZ_SEEDS");
  if (target != nullptr && folder == nullptr) return 0;
  if (target != nullptr) {
    int number = 0;
    for (const std::string& seed : target->seeds()) {
      tapestry::write_file(std::string(folder) + "/seed-" + std::to_string(number++), seed);
    }
    std::exit(0);
  }
  std::fprintf(stderr, "FUZZ_TARGET must name one of:\n");
  for (const auto& known : tapestry::fuzz_targets()) std::fprintf(stderr, "  %s\n", known.name);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  tapestry::read_fuzzed(*target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
