#include "data/tokenizers/parts/decoders.h"

#include <charconv>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/tokenizers/parts/pre_tokenizers.h"
#include "data/tokenizers/parts/text_pattern.h"
#include "data/tokenizers/parts/unicode_text.h"

namespace tapestry::tokenizers {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

Decoder byte_level(const Part& part) {
  part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  return [](std::vector<std::string>& tokens) {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_token(token);
    tokens = {repaired(bytes)};
  };
}

Decoder wordpiece(const Part& part) {
  part.allow({"prefix", "cleanup"});
  const std::string prefix = part.text("prefix", "##");
  const bool cleanup = part.flag("cleanup", true);
  return [prefix, cleanup](std::vector<std::string>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token = ' ' + token;
      }
      if (!cleanup) continue;
      for (const auto& [from, to] : {std::pair{" .", "."},
                                     {" ?", "?"},
                                     {" !", "!"},
                                     {" ,", ","},
                                     {" ' ", "'"},
                                     {" n't", "n't"},
                                     {" 'm", "'m"},
                                     {" do not", " don't"},
                                     {" 's", "'s"},
                                     {" 've", "'ve"},
                                     {" 're", "'re"}}) {
        replace_all(token, from, to);
      }
    }
  };
}

Decoder metaspace(const Part& part) {
  part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = part.text("replacement", "\xE2\x96\x81");
  const bool prefixed =
      part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never") !=
      "never";
  return [mark, prefixed](std::vector<std::string>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], mark, i == 0 && prefixed ? "" : " ");
    }
  };
}

std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

Decoder byte_fallback(const Part& part) {
  part.allow({});
  return [](std::vector<std::string>& tokens) {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (find_invalid_utf8(bytes) == std::string_view::npos) {
        if (!bytes.empty()) result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes.push_back(*byte);
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  };
}

Decoder strip(const Part& part) {
  part.allow({"content", "start", "stop"});
  if (part.text("content").empty()) part.refuse("must have a content to strip");
  return [content = part.text("content"), start = part.integer("start"),
          stop = part.integer("stop")](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start && token.starts_with(content); ++i) {
        token.erase(0, content.size());
      }
      for (int64_t i = 0; i < stop && token.ends_with(content); ++i) {
        token.resize(token.size() - content.size());
      }
    }
  };
}

Decoder replace(const Part& part) {
  part.allow({"pattern", "content"});
  const auto pattern = std::make_shared<const TextPattern>(part.part("pattern"));
  return [pattern, content = part.text("content")](std::vector<std::string>& tokens) {
    std::vector<ByteRange> matches;
    for (std::string& token : tokens) {
      pattern->find_all(token, matches);
      for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
        token.replace(match->first, match->second - match->first, content);
      }
    }
  };
}

Decoder suffix_of_words(const Part& part) {
  part.allow({"suffix"});
  return [suffix = part.text("suffix", "</w>")](std::vector<std::string>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    }
  };
}

Decoder sequence(const Part& part) {
  part.allow({"decoders"});
  std::vector<Decoder> steps;
  for (const Part& one : part.parts("decoders")) steps.push_back(make_decoder(one));
  return [steps](std::vector<std::string>& tokens) {
    for (const Decoder& step : steps) step(tokens);
  };
}

struct Row {
  const char* type;
  Decoder (*make)(const Part& part);
};
constexpr Row kTable[] = {{"Sequence", sequence},
                          {"ByteLevel", byte_level},
                          {"WordPiece", wordpiece},
                          {"Metaspace", metaspace},
                          {"ByteFallback", byte_fallback},
                          {"Fuse",
                           [](const Part& part) -> Decoder {
                             part.allow({});
                             return [](std::vector<std::string>& tokens) {
                               tokens = {joined(tokens)};
                             };
                           }},
                          {"Strip", strip},
                          {"Replace", replace},
                          {"BPEDecoder", suffix_of_words}};

}  // namespace

Decoder make_decoder(const Part& part) {
  const std::string type = part.type();
  for (const Row& row : kTable) {
    if (row.type == type) return row.make(part);
  }
  part.refuse(concat("is of the unknown type ", type));
}

}  // namespace tapestry::tokenizers
