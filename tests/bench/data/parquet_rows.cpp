// Writes the rows of a Parquet file as lines of JSON:
//   parquet_rows FILE [FIELD ...]
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/parquet/rows.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: parquet_rows FILE [FIELD ...]\n");
    return 2;
  }
  try {
    tapestry::parquet::RowReader rows(argv[1], std::vector<std::string>(argv + 2, argv + argc));
    for (std::string line; rows.next(line);) {
      line += '\n';
      std::fwrite(line.data(), 1, line.size(), stdout);
    }
  } catch (const tapestry::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
