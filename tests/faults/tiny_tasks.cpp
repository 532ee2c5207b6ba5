// The configs and the data of tests/apps/tiny_runs.h as files, for scripts that kill and resume.
//   tiny_tasks FOLDER
#include <cstdio>

#include "tests/apps/tiny_runs.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tiny_tasks FOLDER\n");
    return 2;
  }
  const tapestry::TinyRunFolder made("tasks");
  std::filesystem::copy(made.path(""), argv[1], std::filesystem::copy_options::recursive);
  return 0;
}
