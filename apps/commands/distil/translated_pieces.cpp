#include "apps/commands/distil/translated_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "apps/checkpoint/files.h"
#include "apps/run/sweep/record.h"
#include "core/base/error.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kRecord = "distil.json";
constexpr const char* kPiece = "piece-";
constexpr const char* kLock = ".lock";

Json read_record(const std::string& path) {
  try {
    Json record = Json::parse(read_file(path));
    record.at("distil"), record.at("finished").get<bool>();
    return record;
  } catch (const Json::exception& error) {
    fail(ErrorKind::kData, "[distil] ", path, " is damaged: ", error.what());
  }
}

std::string line_of(const TranslatedSource& one) {
  Json line{{"source", one.source}};
  if (one.weight != 1) line["weight"] = one.weight;
  for (const ScoredText& text : one.translations) {
    line["translations"].push_back({text.text, text.score});
  }
  if (one.translations.empty()) {
    line["left_out"] = static_cast<int>(one.left_out);
    line["refused"] = {one.refused.text, one.refused.score};
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

ScoredText text_of(const Json& pair) {
  return {pair.at(0).get<std::string>(), pair.at(1).get<double>()};
}

TranslatedSource source_of(const std::string& text) {
  const Json line = Json::parse(text);
  TranslatedSource one;
  one.source = line.at("source");
  if (line.contains("weight")) one.weight = line["weight"];
  if (line.contains("left_out")) {
    one.left_out = static_cast<LeftOut>(line["left_out"].get<int>());
    one.refused = text_of(line.at("refused"));
    return one;
  }
  for (const Json& pair : line.at("translations")) one.translations.push_back(text_of(pair));
  return one;
}

// True for a folder in which there is nothing but a lock.
bool is_unused(const std::string& folder) {
  std::error_code error;
  bool unused = fs::is_directory(folder, error);
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    unused &= entry->path().filename() == kLock;
  }
  return unused && !error;
}

void check_distil_folder(const std::string& folder) {
  if (!fs::exists(folder)) return;
  const std::string record = concat(folder, '/', kRecord);
  if (fs::exists(record)) {
    if (!read_record(record).at("finished")) return;
    fail(ErrorKind::kConfig, "[distil] ", folder, " is finished; choose another --output.");
  }
  if (!is_unused(folder)) {
    fail(ErrorKind::kConfig, "[distil] ", folder,
         " exists and is no folder of tapestry distil; choose another --output.");
  }
}

}  // namespace

DistilFolder::DistilFolder(const std::string& path) {
  check_distil_folder(path);
  made_ = !fs::exists(path);
  files_.emplace(path, FolderUser{.who = "distil", .work = "distil", .key = "--output"});
  check_distil_folder(path);  // another process may have been there until now
}

DistilFolder::~DistilFolder() {
  std::error_code ignored;
  const std::string& path = files_->path();
  if (!is_unused(path)) return;
  fs::remove(concat(path, '/', kLock), ignored);
  if (made_) fs::remove(path, ignored);
}

TranslatedPieces::TranslatedPieces(const RunFolder& folder, const Json& identity)
    : folder_(folder), identity_(identity) {
  const std::string path = folder.file(kRecord);
  if (!fs::exists(path)) {
    folder.write(kRecord, Json{{"finished", false}, {"distil", identity}}.dump(1) + '\n');
    return;
  }
  const std::string other = difference(read_record(path).at("distil"), identity);
  if (!other.empty()) {
    fail(ErrorKind::kConfig, "[distil] ", path, " expected what began there, but ", other,
         "; choose another --output.");
  }
  while (fs::exists(folder.file(name_of_piece(pieces_)))) ++pieces_;
}

std::string TranslatedPieces::name_of_piece(int64_t piece) const {
  return fmt::format("{}{:06}.jsonl", kPiece, piece);
}

void TranslatedPieces::add(const std::vector<TranslatedSource>& sources) {
  std::string lines;
  for (const TranslatedSource& one : sources) lines += line_of(one);
  folder_.write(name_of_piece(pieces_), lines);
  internal::flush_folder(folder_.path());
  ++pieces_;
}

void TranslatedPieces::each(const std::function<void(const TranslatedSource&)>& take) const {
  for (int64_t piece = 0; piece < pieces_; ++piece) {
    const std::string path = folder_.file(name_of_piece(piece));
    std::istringstream in(read_file(path));
    for (std::string line; std::getline(in, line);) {
      TranslatedSource one;
      try {
        one = source_of(line);
      } catch (const Json::exception& error) {
        fail(ErrorKind::kData, "[distil] ", path, " is damaged; without it, and those after it, ",
             "the same command translates them again: ", error.what());
      }
      take(one);
    }
  }
}

void TranslatedPieces::finish(const Json& figures) {
  Json record{{"finished", true}, {"distil", identity_}};
  record.update(figures);
  folder_.write(kRecord, record.dump(1) + '\n');
  for (int64_t piece = pieces_; piece-- > 0;) fs::remove(folder_.file(name_of_piece(piece)));
}

}  // namespace tapestry
