// The unigram model (Kudo 2018) of tokenizer.json: the pieces with the largest sum of scores. A
// character that no piece covers costs 10 more than the worst piece.
#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/parts/piece_models.h"

namespace tapestry::tokenizers {
namespace {

constexpr double kUnknownPenalty = 10;

// Finds all pieces at the beginning of a text in one pass: a trie whose transitions are in a hash
// table.
class PieceTrie {
 public:
  void add(std::string_view piece, int32_t id) {
    uint32_t node = 0;
    for (const char byte : piece) {
      const auto [edge, is_new] = edges_.try_emplace(key(node, byte), std::ssize(ids_));
      if (is_new) ids_.push_back(-1);
      node = static_cast<uint32_t>(edge->second);
    }
    ids_[node] = id;
  }

  /// Calls f(length, id), shortest first.
  template <class F>
  void for_each_beginning(std::string_view text, F f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(key(node, text[i]));
      if (edge == edges_.end()) return;
      node = static_cast<uint32_t>(edge->second);
      if (ids_[node] >= 0) f(i + 1, ids_[node]);
    }
  }

 private:
  static uint64_t key(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::unordered_map<uint64_t, int64_t> edges_;
  std::vector<int32_t> ids_ = {-1};  // of the piece that ends at a node
};

class Unigram : public PieceModel {
 public:
  Unigram(const Part& part, bool byte_level) {
    part.allow({"unk_id", "vocab", "byte_fallback", "fuse_unk"});
    if (byte_level) part.refuse("must not stand behind ByteLevel");
    const Part::Json& vocab = part.value("vocab");
    if (!vocab.is_array()) part.refuse("must have a list as vocab");
    double least = std::numeric_limits<double>::infinity();
    for (const Part::Json& row : vocab) {
      if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number()) {
        part.refuse(concat("has the row ", row.dump(), " in vocab"));
      }
      const auto id = static_cast<int32_t>(tokens.size());
      tokens.push_back(row[0].get<std::string>());
      scores_.push_back(row[1].get<double>());
      least = std::min(least, scores_.back());
      if (!tokens.back()->empty()) trie_.add(*tokens.back(), id);
      ids_.insert_or_assign(*tokens.back(), id);
    }
    unknown_score_ = least - kUnknownPenalty;
    fuses_unk_ = part.flag("fuse_unk", true);
    if (part.has("unk_id")) {
      const int64_t id = part.integer("unk_id");
      if (id < 0 || id >= std::ssize(tokens)) part.refuse(concat("has the unk_id ", id));
      unk = static_cast<int32_t>(id);
    }
    if (part.flag("byte_fallback", false)) bytes_ = byte_pieces(ids_);
  }

  void encode(std::string_view piece, std::vector<int32_t>& ids,
              std::vector<ByteRange>* places) const override {
    const std::vector<Step> best = best_path(piece);
    // Collected from the end, runs of unknown characters as one.
    std::vector<std::string_view> parts;
    bool unknown_before = false;
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      const std::string_view text = piece.substr(best[end].begin, end - best[end].begin);
      const bool unknown = fuses_unk_ && best[end].id == kUnknown;
      if (unknown && unknown_before) {
        parts.back() = {text.data(), text.size() + parts.back().size()};
      } else {
        parts.push_back(text);
      }
      unknown_before = unknown;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const size_t first = ids.size();
      append(*part, ids);
      if (!places) continue;
      const auto begin = static_cast<size_t>(part->data() - piece.data());
      places->resize(places->size() + ids.size() - first, {begin, begin + part->size()});
    }
  }

 private:
  static constexpr int32_t kUnknown = -1;
  struct Step {
    double score = 0;
    size_t begin = std::string_view::npos;
    int32_t id = kUnknown;
  };

  std::vector<Step> best_path(std::string_view text) const {
    std::vector<Step> best(text.size() + 1);
    for (size_t at = 0; at < text.size();) {
      size_t next = at;
      next_code_point(text, next);
      const double before = best[at].score;
      const auto consider = [&](size_t end, double score, int32_t id) {
        Step& step = best[end];
        if (step.begin == std::string_view::npos || score > step.score) step = {score, at, id};
      };
      bool covered = false;
      trie_.for_each_beginning(text.substr(at), [&](size_t length, int32_t id) {
        consider(at + length, scores_[static_cast<size_t>(id)] + before, id == unk ? kUnknown : id);
        covered = covered || at + length == next;
      });
      if (!covered) consider(next, unknown_score_ + before, kUnknown);
      at = next;
    }
    return best;
  }

  void append(std::string_view part, std::vector<int32_t>& ids) const {
    const auto found = ids_.find(part);
    if (found != ids_.end()) return ids.push_back(found->second);
    const auto id_of_byte = [this](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (!bytes_.empty() &&
        std::all_of(part.begin(), part.end(), [&](char b) { return id_of_byte(b) >= 0; })) {
      for (const char byte : part) ids.push_back(id_of_byte(byte));
    } else if (unk) {
      ids.push_back(*unk);
    } else {
      fail(ErrorKind::kData, "[tokenizer] '", std::string(part),
           "' has no piece, and the tokenizer no unknown one.");
    }
  }

  PieceTrie trie_;
  TextIds ids_;
  std::vector<double> scores_;
  std::vector<int32_t> bytes_;  // empty: no fallback
  double unknown_score_ = 0;
  bool fuses_unk_ = true;
};

}  // namespace

std::unique_ptr<const PieceModel> make_unigram(const Part& part, bool byte_level) {
  return std::make_unique<Unigram>(part, byte_level);
}

}  // namespace tapestry::tokenizers
