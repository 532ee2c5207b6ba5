// Seeds and blind mutants of them, the same ones at every run, for any compiler: a smoke test. What
// a fuzzer that watches the branches finds takes tests/fuzz.sh.
//   fuzz_readers [--runs N] [--seed K] [--target NAME]      each reader, N mutants each
//   fuzz_readers --list                                     the names of the readers
//   fuzz_readers --seeds FOLDER --target NAME               writes the seeds as files
//   fuzz_readers --target NAME FILE...                      reads these files
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "data/files/files.h"
#include "tests/fuzz/fuzz.h"

namespace tapestry {
namespace {

using Random = std::mt19937_64;

// What breaks readers: limits of numbers, ends of texts, and words of the formats.
const std::string kMorsels[] = {std::string(1, '\0'),
                                "\xff",
                                "\x7f",
                                std::string(4, '\0'),
                                std::string(8, '\0'),
                                "\xff\xff\xff\xff",
                                "\xff\xff\xff\x7f",
                                "\xff\xff\xff\xff\xff\xff\xff\x7f",
                                std::string("\0\0\0\x80", 4),
                                "-1",
                                "0",
                                "1e999",
                                "99999999999999999999",
                                "9223372036854775807",
                                "null",
                                "true",
                                ".nan",
                                "{}",
                                "[]",
                                "\"\"",
                                "[[[[[[[[",
                                "{\"a\":",
                                "\n",
                                "\t",
                                "\r\n",
                                ": ",
                                "- ",
                                "&a ",
                                "*a",
                                "<<: ",
                                "\xc3\x28",
                                "\xed\xa0\x80",
                                "\xf4\x90\x80\x80",
                                "\\ud800",
                                "\\u0000"};

std::string mutant(const std::vector<std::string>& seeds, Random& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string bytes = seeds[below(seeds.size())];
  const size_t changes = std::array<size_t, 6>{1, 1, 1, 2, 4, 16}[below(6)];
  for (size_t change = 0; change < changes; ++change) {
    const size_t at = below(bytes.size() + 1);
    const std::string& morsel = kMorsels[below(std::size(kMorsels))];
    switch (bytes.empty() ? size_t{5} : below(8)) {
      case 0:
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        bytes[below(bytes.size())] = static_cast<char>(below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      case 4:
        bytes.replace(at, morsel.size(), morsel);
        break;
      case 5:
        bytes.insert(at, morsel);
        break;
      case 6: {
        const std::string part = bytes.substr(below(bytes.size()), 1 + below(50));
        bytes.insert(at, part);
        break;
      }
      default: {
        const std::string& other = seeds[below(seeds.size())];
        bytes.replace(at, std::string::npos, other.substr(below(other.size() + 1)));
      }
    }
  }
  return bytes;
}

// The first inputs are the seeds themselves.
std::string input_of(const std::vector<std::string>& seeds, uint64_t seed, int64_t number) {
  if (number < std::ssize(seeds)) return seeds[static_cast<size_t>(number)];
  Random random(seed * 1'000'003 + static_cast<uint64_t>(number));
  return mutant(seeds, random);
}

double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// In a child, so that the input is known that ended it. False where one did.
bool survives(const FuzzTarget& target, int64_t runs, uint64_t seed) {
  constexpr double kLongest = 10;  // of one input
  const std::vector<std::string> seeds = target.seeds();
  fuzzed_folder();  // of this process, which removes it at its end
  auto* const number = static_cast<std::atomic<int64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (number == MAP_FAILED) return false;
  const double began = seconds();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (*number = 0; *number < runs; ++*number) {
      const std::string input = input_of(seeds, seed, *number);
      const auto whole = static_cast<size_t>(*number) < seeds.size();
      if (whole) {
        target.read(input);  // a seed is good: an Error ends this process
      } else {
        read_fuzzed(target, input);
      }
    }
    _exit(0);
  }
  int status = 0;
  double since = seconds();
  for (int64_t last = -1; waitpid(child, &status, WNOHANG) == 0; usleep(2000)) {
    const int64_t now = *number;
    if (now != last) since = seconds();
    last = now;
    if (seconds() - since > kLongest) kill(child, SIGKILL);
  }
  const bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (fine) {
    std::printf("%-24s %zu seeds, %lld inputs, %.1f s\n", target.name, seeds.size(),
                static_cast<long long>(runs), seconds() - began);
  } else {
    const std::string file = std::string("fuzz-") + target.name;
    write_file(file, input_of(seeds, seed, *number));
    std::printf("%-24s input %lld ended the reader (status %d): written to %s\n", target.name,
                static_cast<long long>(*number), status, file.c_str());
  }
  munmap(number, 4096);
  return fine;
}

int run(int argc, char** argv) {
  int64_t runs = 1000;
  uint64_t seed = 1;
  std::string folder, only;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (word == "--list") {
      for (const FuzzTarget& target : fuzz_targets()) std::puts(target.name);
      return 0;
    } else if (word == "--runs") {
      runs = std::atoll(value().c_str());
    } else if (word == "--seed") {
      seed = std::strtoull(value().c_str(), nullptr, 10);
    } else if (word == "--target") {
      only = value();
    } else if (word == "--seeds") {
      folder = value();
    } else {
      files.push_back(word);
    }
  }
  const FuzzTarget* const one = find_fuzz_target(only);
  if (one == nullptr && (!only.empty() || !folder.empty() || !files.empty())) {
    std::fprintf(stderr, "--target must name a reader (--list), got '%s'.\n", only.c_str());
    return 2;
  }
  if (!folder.empty()) {
    const std::vector<std::string> seeds = one->seeds();
    std::filesystem::create_directories(folder);
    for (size_t i = 0; i < seeds.size(); ++i) {
      write_file(folder + "/seed-" + std::to_string(i), seeds[i]);
    }
    return 0;
  }
  for (const std::string& file : files) read_fuzzed(*one, read_file(file));
  if (!files.empty()) return 0;
  bool fine = true;
  for (const FuzzTarget& target : fuzz_targets()) {
    if (one == nullptr || only == target.name) fine &= survives(target, runs, seed);
  }
  return fine ? 0 : 1;
}

}  // namespace
}  // namespace tapestry

int main(int argc, char** argv) { return tapestry::run(argc, argv); }
