#include "apps/config/section_serve.h"

#include <algorithm>
#include <cctype>

#include "apps/config/sections.h"
#include "core/base/byte_count.h"
#include "core/base/printable.h"

namespace tapestry {
namespace {

constexpr const char* kSection = "serve";

void bind_weights(ConfigSection& s, std::optional<WeightFormat>& weights, const char* unset,
                  const char* meaning) {
  std::vector<ConfigChoice<std::optional<WeightFormat>>> formats = {{unset, std::nullopt}};
  for (const WeightFormat format : kWeightFormats) formats.push_back({name_of(format), format});
  s.read_choice("weights", weights, formats, meaning);
}

void bind_place(ConfigSection& s, ServedPlace& place) {
  s.require("name", place.name,
            "What requests call the model; one named like de-en translates from German to "
            "English.");
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_.:/").find(c) != std::string_view::npos;
  };
  if (s.has("name") && (place.name.empty() || !std::ranges::all_of(place.name, fits))) {
    s.complain("name", "a model's name has letters, digits and -_.:/, got '", printable(place.name),
               "'.");
  }
  s.require("path", place.path, "A checkpoint or run folder; it starts at the working directory.");
  if (s.has("path") && place.path.empty()) s.complain("path", "the folder of a model is empty.");
  bind_weights(s, place.weights, "same", "serve.weights of this model; same: those of all.");
}

void bind_models(ConfigSection& s, std::vector<ServedPlace>& models) {
  s.section_list("models", models,
                 "The models. The first one that can do what a request asks answers those that "
                 "name none.",
                 bind_place);
  if (models.empty()) {
    s.complain("models", "no model to serve: --model NAME=DIR or the key serve.models names one.");
  }
  for (size_t i = 0; i < models.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      if (models[i].name.empty() || models[i].name != models[before].name) continue;
      s.complain("models", "two models have the name '", printable(models[i].name),
                 "': ", models[before].path, " and ", models[i].path, '.');
    }
  }
}

void bind_limits(ConfigSection& s, ServeOptions& options) {
  s.read("max_body", options.max_body, "Bytes of a request; more get 413.", between(1, 1 << 30));
  s.read("max_queue", options.max_queue,
         "Texts that are answered or wait; a request with more gets 429.", between(1, 1 << 20));
  s.read("max_tokens", options.max_tokens, "Tokens of a continuation; a request for more gets 400.",
         between(1, 1 << 20));
  s.read("max_connections", options.max_connections,
         "Open connections; for a new one the slowest is closed.", between(1, 1 << 16));
  s.read("read_timeout", options.read_timeout,
         "Seconds in which a request must arrive (else 408), and of idle connections.",
         between(0.001, 86400));
  s.read("timeout", options.timeout, "Seconds of an answer; a longer one gets 503.",
         between(0.001, 86400));
  s.read("grace", options.grace, "Seconds that running answers have after SIGTERM or SIGINT.",
         between(0, 86400));
}

void bind_serve(ConfigSection& s, ServeOptions& options) {
  bind_models(s, options.models);
  bind_weights(s, options.weights, "auto",
               "The matrices of the models (on a CPU), in 4, 2, 1 or 0.56 bytes a number; with "
               "int4, tables and classifiers have 1. auto: what training.quantize was, else "
               "float32.");
  bind_device(s, options.device);
  s.read("threads", options.threads, "CPU threads; 0: one for each core.", between(0, 1024));
  s.read("host", options.host, "Address to listen on; 0.0.0.0: all of this machine's.");
  s.read("port", options.port, "Port to listen on; 0: a free one, which is printed.",
         between(0, 65535));
  s.read_input_file("api_key_file", options.api_key_file,
                    "File with a key in each line, one of which each request must have.");
  s.read("memory", options.memory,
         "Bytes of models' weights, as in 4GB: they are loaded when they are asked for, and freed "
         "for others, those first that were not used for longest; without it all are loaded at "
         "once.");
  if (!options.memory.empty() && !byte_count(options.memory)) {
    s.complain("memory", "'serve.memory' must be a size such as 4GB or 1.5 GiB, in ", kByteUnits,
               ", got '", printable(options.memory), "'.");
  }
  s.read("cors", options.cors, "An origin whose pages may ask, as in https://example.org; *: any.");
  s.read("batch_size", options.batch_size,
         "Texts that a thread searches at a time; others join as soon as some are done.",
         between(1, 4096));
  bind_limits(s, options);
}

void bind_file(ConfigSection& s, ServeOptions& options) {
  s.section(kSection,
            "What `tapestry serve` does. It stands alone in a file: tapestry serve FILE. Each key "
            "is also an option, --max-body that of max_body.",
            [&](ConfigSection& inner) { bind_serve(inner, options); });
}

// --model NAME=DIR as entries of a list.
ConfigNode models_of(const std::vector<std::string>& words) {
  ConfigNode list = ConfigNode::list();
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == word.size()) {
      fail(ErrorKind::kConfig, "[serve] expected --model NAME=DIR, got '", printable(word), "'.");
    }
    ConfigNode model = ConfigNode::map();
    model.entries.push_back({"name", {}, ConfigNode::scalar(word.substr(0, at), true)});
    model.entries.push_back({"path", {}, ConfigNode::scalar(word.substr(at + 1), true)});
    relocate(model, location_of_option("--model", word, static_cast<int>(list.items.size())));
    list.items.push_back(std::move(model));
  }
  list.location = list.items.back().location;
  return list;
}

// The section in the root, made where there is none.
ConfigNode& section_in(ConfigNode& root) {
  if (root.find(kSection) == nullptr) {
    root.entries.push_back({kSection, root.location, ConfigNode::map(root.location)});
  }
  ConfigNode& section = root.find(kSection)->value;
  if (section.kind == ConfigNode::Kind::kNull) section = ConfigNode::map(section.location);
  return section;
}

}  // namespace

std::vector<ConfigKey> serve_keys() {
  std::vector<ConfigKey> keys;
  ServeOptions options{.models = {{}}};
  read_config(ConfigNode::map(), [&](ConfigSection& s) { bind_file(s, options); },
              {.require_keys = false, .check_files = false, .keys = &keys});
  return keys;
}

ServeOptions read_serve_options(const ServeArguments& arguments) {
  std::vector<std::string> overrides = arguments.words;
  ConfigNode root = ConfigNode::map({.where = "tapestry serve", .directory = "", .order = 0});
  if (!overrides.empty() && overrides.front().find('=') == std::string::npos) {
    root = parse_config_file(overrides.front());
    overrides.erase(overrides.begin());
  }
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i), problems);
  }
  if (root.kind == ConfigNode::Kind::kMap) {
    ConfigNode& section = section_in(root);
    if (section.kind == ConfigNode::Kind::kMap) {
      apply_options(section, arguments.options);
      if (!arguments.models.empty()) {
        ConfigNode models = models_of(arguments.models);
        std::erase_if(section.entries, [](const ConfigEntry& old) { return old.key == "models"; });
        section.entries.push_back({"models", models.location, std::move(models)});
      }
    }
  }
  ServeOptions options;
  read_config(
      root, [&](ConfigSection& s) { bind_file(s, options); }, {}, std::move(problems));
  return options;
}

}  // namespace tapestry
