// The layers of the project, read from the sources: core <- autograd <- {nn, optim} <- apps, core
// <- data <- apps, and the libraries that belong to one folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = tapestry::project_file("");

const std::map<std::string, std::set<std::string>> kMayUse = {
    {"core", {"core"}},
    {"autograd", {"autograd", "core"}},
    {"nn", {"nn", "autograd", "core"}},
    {"optim", {"optim", "autograd", "core"}},
    {"data", {"data", "core"}},
    {"apps", {"apps", "nn", "optim", "data", "autograd", "core"}},
};

// The rooms of a folder, each of which may use those before it, with all folders in them.
const std::map<std::string, std::vector<std::string>> kRooms = {
    {"nn", {"layers", "attention", "decoding", "models", "gradcheck"}},
    {"data",
     {"files", "parquet", "markup", "chat", "tokenizers", "corpora", "lexicon", "images", "batches",
      "examples", "scores", "n_best"}},
    {"apps", {"config", "checkpoint", "tasks", "interop", "run", "python", "commands"}},
};

struct LibraryRule {
  const char* name;
  const char* header;      ///< of #include
  const char* folder;      ///< the only one that may include it, or
  const char* other = "";  ///< one of two
};

const LibraryRule kLibraries[] = {
    {"CBLAS", R"((cblas|openblas/|f77blas|mkl).*)", "core"},
    {"CUDA", R"((cuda|cublas|curand|cudnn|nccl|nvrtc|nvtx|cooperative_groups|cub/|thrust/).*)",
     "core"},
    {"MPI", R"(mpi\.h)", "core"},
    {"yaml-cpp", R"(yaml-cpp/.*)", "apps"},
    {"spdlog", R"((spdlog|fmt)/.*)", "apps"},
    {"CLI11", R"(CLI/.*)", "apps"},
    {"cpp-httplib", R"(httplib\.h)", "apps"},
    {"nanobind", R"(nanobind/.*)", "apps"},
    {"nlohmann-json", R"(nlohmann/.*)", "apps", "data"},
    {"ICU", R"(unicode/.*)", "data"},
    {"Oniguruma", R"(onig.*\.h)", "data"},
    {"A compression library", R"((zlib|zstd|lzma|bzlib)\.h|lzma/.*)", "data"},
    {"SentencePiece", R"(sentencepiece.*)", "data"},
    {"An image library", R"((png|jpeglib|jerror)\.h)", "data"},
};

// What a library must not call: it throws, and main prints.
const std::regex kPrintsOrExits(
    R"(std::(cout|cerr|clog)\b|<iostream>|\b(v?f?printf|puts|putchar|perror|exit|_exit|abort|terminate)\s*\()");

// The source without comments, so that prose is not read as code.
std::string without_comments(const std::string& source) {
  std::string code;
  for (size_t at = 0; at < source.size();) {
    if (source.compare(at, 2, "//") == 0) {
      at = source.find('\n', at);
    } else if (source.compare(at, 2, "/*") == 0) {
      at = source.find("*/", at);
      if (at != std::string::npos) at += 2;
    } else {
      code += source[at++];
    }
  }
  return code;
}

// The room of a file or header of `folder`: its place in kRooms, or -1.
int room_of(const std::string& folder, const std::string& path) {
  const auto& rooms = kRooms.at(folder);
  for (size_t i = 0; i < rooms.size(); ++i) {
    if (path.starts_with(folder + '/' + rooms[i] + '/')) return static_cast<int>(i);
  }
  return -1;
}

// The project's headers that a source includes.
std::vector<std::string> headers_of(const std::string& source) {
  std::vector<std::string> headers;
  const std::string code = without_comments(source);
  static const std::regex include(R"re(#\s*include\s*"([^"]+)")re");
  for (std::sregex_iterator it(code.begin(), code.end(), include), end; it != end; ++it) {
    headers.push_back((*it)[1]);
  }
  return headers;
}

// What is wrong with a file in a room of `folder`, one line each.
std::vector<std::string> room_violations(const std::string& folder, int room,
                                         const std::string& source) {
  std::vector<std::string> found;
  for (const std::string& header : headers_of(source)) {
    if (!header.starts_with(folder + '/')) continue;
    const int other = room_of(folder, header);
    if (other < 0 || other > room) found.push_back("includes " + header);
  }
  return found;
}

// The folder that a header says it is private to, in its first comment; empty: to none.
std::string private_to(const std::string& source) {
  std::smatch match;
  const std::string comment = source.substr(0, source.find("#pragma once"));
  static const std::regex private_(R"(private to\s*(?://\s*)?([\w/]+/))");
  return std::regex_search(comment, match, private_) ? match[1].str() : "";
}

// The violations in a file of `folder`, one line each.
std::vector<std::string> violations(const std::string& folder, const std::string& source) {
  std::vector<std::string> found;
  const std::string code = without_comments(source);
  static const std::regex include(R"(#\s*include\s*([<"])([^>"]+)[>"])");
  for (std::sregex_iterator it(code.begin(), code.end(), include), end; it != end; ++it) {
    const std::string header = (*it)[2];
    const std::string first = header.substr(0, header.find('/'));
    if (first == header && (*it)[1] == "\"") found.push_back(header + " is not root-relative");
    if ((first == "tests" || kMayUse.contains(first)) && !kMayUse.at(folder).contains(first)) {
      found.push_back("includes " + header);
    }
    for (const LibraryRule& rule : kLibraries) {
      if (folder != rule.folder && folder != rule.other &&
          std::regex_match(header, std::regex(rule.header))) {
        found.push_back(std::string("includes ") + header + ": " + rule.name + " belongs to " +
                        rule.folder);
      }
    }
  }
  std::smatch match;
  if (folder != "core" && std::regex_search(code, match, std::regex(R"(\bcblas_\w+)"))) {
    found.push_back("calls " + match.str());
  }
  if (folder != "apps" && std::regex_search(code, match, kPrintsOrExits)) {
    found.push_back("libraries do not print or exit: " + match.str());
  }
  return found;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> sources_of(const std::string& folder) {
  static const std::set<std::string> extensions = {".c", ".h", ".cpp", ".cu", ".cuh"};
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (extensions.contains(entry.path().extension())) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Layering : public ::testing::TestWithParam<std::string> {};

TEST_P(Layering, SourcesFollowTheArrows) {
  const auto paths = sources_of(GetParam());
  EXPECT_FALSE(paths.empty());
  for (const fs::path& path : paths) {
    for (const std::string& violation : violations(GetParam(), read(path))) {
      ADD_FAILURE() << fs::relative(path, kRoot).string() << ": " << violation;
    }
  }
}

TEST_P(Layering, LinkedLibrariesFollowTheArrows) {
  const std::string cmake = read(kRoot / GetParam() / "CMakeLists.txt");
  static const std::regex library(R"(\btapestry_(core|autograd|nn|optim|data|apps)\b)");
  for (std::sregex_iterator it(cmake.begin(), cmake.end(), library), end; it != end; ++it) {
    EXPECT_TRUE(kMayUse.at(GetParam()).contains((*it)[1])) << it->str();
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Layering,
                         ::testing::Values("core", "autograd", "nn", "optim", "data", "apps"),
                         [](const auto& info) { return info.param; });

class Rooms : public ::testing::TestWithParam<std::string> {};

TEST_P(Rooms, FollowTheArrows) {
  std::set<int> seen;
  for (const fs::path& path : sources_of(GetParam())) {
    const std::string name = fs::relative(path, kRoot).string();
    if (name == "apps/main.cpp") continue;
    const int room = room_of(GetParam(), name);
    EXPECT_GE(room, 0) << name << " stands in no room";
    seen.insert(room);
    for (const std::string& violation : room_violations(GetParam(), room, read(path))) {
      ADD_FAILURE() << name << ": " << violation;
    }
  }
  EXPECT_EQ(seen.size(), kRooms.at(GetParam()).size());
}

INSTANTIATE_TEST_SUITE_P(Folders, Rooms, ::testing::Values("nn", "data", "apps"),
                         [](const auto& info) { return info.param; });

// core/base knows neither tensors nor devices.
TEST(Layering, BaseUsesNothingElse) {
  for (const fs::path& path : sources_of("core/base")) {
    for (const std::string& header : headers_of(read(path))) {
      EXPECT_TRUE(header.starts_with("core/base/")) << path << " includes " << header;
    }
  }
}

// Tests may look into what they test.
TEST(Layering, PrivateHeadersStayInTheirFolder) {
  std::map<std::string, std::string> homes;
  std::vector<std::pair<std::string, std::string>> sources;
  for (const auto& [folder, _] : kMayUse) {
    for (const fs::path& path : sources_of(folder)) {
      sources.emplace_back(fs::relative(path, kRoot).string(), read(path));
      const std::string home = private_to(sources.back().second);
      if (!home.empty()) homes[sources.back().first] = home;
    }
  }
  EXPECT_GE(homes.size(), 20u);
  for (const auto& [name, source] : sources) {
    for (const std::string& header : headers_of(source)) {
      const auto home = homes.find(header);
      if (home == homes.end()) continue;
      EXPECT_TRUE(name.starts_with(home->second))
          << name << " includes " << header << ", which is private to " << home->second;
    }
  }
}

// A folder that is read at a glance.
TEST(Layering, NoRoomHasMoreThanFortyFiles) {
  for (const auto& [folder, _] : kMayUse) {
    std::map<fs::path, int> files;
    for (const fs::path& path : sources_of(folder)) ++files[path.parent_path()];
    for (const auto& [room, count] : files) EXPECT_LE(count, 40) << room;
  }
}

// Within commands/: nothing but the answers knows how lines are answered.
TEST(Layering, OnlyAnswersKnowAnswers) {
  for (const fs::path& path : sources_of("apps/commands")) {
    if (path.parent_path().filename() == "answers") continue;
    EXPECT_EQ(read(path).find("apps/commands/answers/"), std::string::npos) << path;
  }
}

// core/dispatch_device.h has the only #if of CUDA in a header, and only who dispatches includes it:
// data and apps are the same for every build.
TEST(Layering, OneHeaderKnowsTheBuild) {
  for (const auto& [folder, _] : kMayUse) {
    for (const fs::path& path : sources_of(folder)) {
      const bool may = folder == "core" && path.extension() != ".h";
      if (may || path == kRoot / "core" / "dispatch_device.h") continue;
      const std::string code = without_comments(read(path));
      EXPECT_EQ(code.find("TAPESTRY_CUDA"), std::string::npos) << path;
      if (path.extension() == ".h" || folder == "data" || folder == "apps") {
        EXPECT_EQ(code.find("core/dispatch_device.h"), std::string::npos) << path;
      }
    }
  }
}

// ---- The check itself

using Found = std::vector<std::string>;

TEST(LayeringCatches, ArrowsThatPointBack) {
  EXPECT_EQ(violations("core", "#include \"autograd/var.h\"\n"), Found{"includes autograd/var.h"});
  EXPECT_EQ(violations("nn", "#include \"optim/optimizer.h\"\n"),
            Found{"includes optim/optimizer.h"});
  EXPECT_EQ(violations("data", "  # include  <autograd/ops.h>\n"),
            Found{"includes autograd/ops.h"});
  EXPECT_EQ(violations("apps", "#include \"tests/autograd/support.h\"\n"),
            Found{"includes tests/autograd/support.h"});
  EXPECT_EQ(violations("nn", "#include \"layers.h\"\n"), Found{"layers.h is not root-relative"});
  EXPECT_EQ(violations("nn", "#include \"nn/layers/layers.h\"\n#include <vector>\n"), Found{});
}

TEST(LayeringCatches, RoomsThatLookUp) {
  const int tasks = 2;
  EXPECT_EQ(room_violations("apps", tasks, "#include \"apps/commands/cli.h\"\n"),
            Found{"includes apps/commands/cli.h"});
  EXPECT_EQ(room_violations("apps", tasks, "#include \"apps/elsewhere.h\"\n"),
            Found{"includes apps/elsewhere.h"});
  EXPECT_EQ(room_violations("apps", tasks, "#include \"apps/config/config.h\"\n"), Found{});
  EXPECT_EQ(room_violations("apps", tasks, "#include \"apps/tasks/task.h\"\n"), Found{});
  EXPECT_EQ(room_violations("data", 0, "#include \"data/corpora/corpus.h\"\n"),
            Found{"includes data/corpora/corpus.h"});
}

TEST(LayeringCatches, HeadersThatArePrivate) {
  EXPECT_EQ(private_to("// Rows; private to data/files/.\n#pragma once\n"), "data/files/");
  EXPECT_EQ(private_to("// Rows, and more of them; private to\n// data/.\n#pragma once\n"),
            "data/");
  EXPECT_EQ(private_to("// Rows.\n#pragma once\n// private to data/\n"), "");
}

TEST(LayeringCatches, LibrariesOutOfTheirFolder) {
  for (const char* header :
       {"cblas.h", "cuda_runtime.h", "cublas_v2.h", "mpi.h", "yaml-cpp/yaml.h", "spdlog/spdlog.h",
        "fmt/format.h", "CLI/CLI.hpp", "nlohmann/json.hpp", "unicode/utf8.h", "oniguruma.h",
        "zlib.h", "zstd.h", "lzma.h", "bzlib.h", "sentencepiece_processor.h", "png.h", "jpeglib.h",
        "httplib.h"}) {
    EXPECT_EQ(violations("nn", std::string("#include <") + header + ">\n").size(), 1u) << header;
  }
  EXPECT_EQ(violations("core", "#include <cuda_runtime.h>\n#include <cblas.h>\n"), Found{});
  EXPECT_EQ(violations("apps", "#include <yaml-cpp/yaml.h>\n#include <nlohmann/json.hpp>\n"),
            Found{});
  EXPECT_EQ(violations("data", "#include <nlohmann/json.hpp>\n"), Found{});  // one of two folders
  EXPECT_EQ(violations("data", "#include <yaml-cpp/yaml.h>\n").size(), 1u);
  EXPECT_EQ(violations("nn", "cblas_sgemm(1);"), Found{"calls cblas_sgemm"});
}

TEST(LayeringCatches, LibrariesThatPrintOrExit) {
  EXPECT_EQ(violations("data", "std::cerr << 1;").size(), 1u);
  EXPECT_EQ(violations("core", "printf(\"\");").size(), 1u);
  EXPECT_EQ(violations("core", "std::exit(1);").size(), 1u);
  EXPECT_EQ(violations("core", "std::snprintf(b, 3, \"\");  // printf(\n/* exit(1) */"), Found{});
  EXPECT_EQ(violations("apps", "std::cerr << 1; exit(1);"), Found{});
}

}  // namespace
