// The file that `tapestry serve` reads. It has one section, `serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/reader.h"
#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// A model that is served.
struct ServedPlace {
  std::string name, path;                    ///< the path of a checkpoint or run folder
  std::optional<WeightFormat> weights = {};  ///< none: those of all models
};

struct ServeOptions {
  std::vector<ServedPlace> models = {};
  std::optional<WeightFormat> weights = {};  ///< none: as WeightChoice
  std::string device = "auto";
  int threads = 0;  ///< 0: all cores
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key_file = {};   ///< absolute; a key in each line, or ""
  std::string memory = {};         ///< byte_count() of models that are loaded on demand, or ""
  std::string cors = {};           ///< an origin whose pages may ask, "*": any, or ""
  int64_t batch_size = 64;         ///< requests that a thread searches at a time
  int64_t max_body = 1 << 20;      ///< bytes
  int64_t max_queue = 256;         ///< texts that are answered or wait
  int64_t max_tokens = 4096;       ///< of an answer
  int64_t max_connections = 4096;  ///< open at a time
  double read_timeout = 10;        ///< seconds in which a request arrives
  double timeout = 120;            ///< seconds of an answer
  double grace = 10;               ///< seconds that answers have after SIGTERM
};

/// What a command line says of a server.
struct ServeArguments {
  /// First the YAML file, if there is one, then serve.key=value.
  std::vector<std::string> words = {};
  std::vector<std::string> models = {};   ///< NAME=DIR, in place of the file's
  std::vector<KeyOverride> options = {};  ///< keys of `serve`
};

/// The section with its keys, as "serve.port".
std::vector<ConfigKey> serve_keys();

/// The file's options, overridden by the words and then by the options. Throws one Error(kConfig)
/// that lists what is wrong, with its place.
ServeOptions read_serve_options(const ServeArguments& arguments);

}  // namespace tapestry
