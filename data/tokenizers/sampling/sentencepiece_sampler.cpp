#include "data/tokenizers/sampling/sentencepiece_sampler.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/piece_lattice.h"
#include "data/tokenizers/sampling/merge_sampler.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry::tokenizers {
namespace {

using PieceIds = std::unordered_map<std::string, int32_t>;

bool is_text(const SentencePieceModel::Piece& piece) {
  return piece.type == SentencePieceModel::kNormal;
}

PieceIds ids_of_texts(const SentencePieceModel& model) {
  PieceIds ids;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (is_text(model.pieces[id])) ids.emplace(model.pieces[id].text, static_cast<int32_t>(id));
  }
  return ids;
}

// The ids of its characters; none if one of them has no piece, so that no merge can make it.
std::vector<int32_t> characters_of(const std::string& text, const PieceIds& ids) {
  std::vector<int32_t> characters;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    next_code_point(text, end);
    const auto found = ids.find(text.substr(begin, end - begin));
    if (found == ids.end()) return {};
    characters.push_back(found->second);
    begin = end;
  }
  return characters;
}

// Every way to put a piece together from two others; the best scores first.
std::vector<bpe::Merge> merges_of(const SentencePieceModel& model, const PieceIds& ids) {
  std::vector<int32_t> order;
  for (const auto& [text, id] : ids) order.push_back(id);
  const auto score = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].score; };
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  });
  std::vector<bpe::Merge> merges;
  for (const int32_t id : order) {
    const std::string& text = model.pieces[static_cast<size_t>(id)].text;
    size_t middle = 0;
    next_code_point(text, middle);
    for (; middle < text.size(); next_code_point(text, middle)) {
      const auto left = ids.find(text.substr(0, middle)), right = ids.find(text.substr(middle));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({{left->second, right->second}, id});
    }
  }
  return merges;
}

/// Cuts the text between two tokens that are no text anew.
class LatticeSampler final : public SubwordSampler {
 public:
  LatticeSampler(const SentencePieceModel& model, const SubwordSampling& how)
      : lattice_(model), how_(how) {
    for (const auto& piece : model.pieces) texts_.push_back(is_text(piece) ? piece.text : "");
  }

  void sample(std::span<const int32_t> ids, RowDraws& draws,
              std::vector<int32_t>& sampled) const override {
    sampled.clear();
    std::string text;
    std::vector<int32_t> path;
    const auto finish_text = [&] {
      if (text.empty()) return;
      lattice_.sample(text, how_, draws, path);
      sampled.insert(sampled.end(), path.begin(), path.end());
      text.clear();
    };
    for (const int32_t id : ids) {
      const std::string& piece = texts_[static_cast<size_t>(id)];
      if (piece.empty()) {
        finish_text();
        sampled.push_back(id);
      } else {
        text += piece;
      }
    }
    finish_text();
  }

 private:
  const PieceLattice lattice_;
  const SubwordSampling how_;
  std::vector<std::string> texts_;  // empty: not one
};

}  // namespace

std::shared_ptr<const SubwordSampler> sampler_of_merges(const SentencePieceModel& model,
                                                        const SubwordSampling& how) {
  expect_dropout(how);
  const PieceIds ids = ids_of_texts(model);
  MergePieces pieces;
  for (const auto& piece : model.pieces) {
    pieces.characters.push_back(is_text(piece) ? characters_of(piece.text, ids)
                                               : std::vector<int32_t>());
    pieces.begins_word.push_back(piece.text.starts_with("\xE2\x96\x81") ? 1 : 0);
  }
  return std::make_shared<MergeSampler>(bpe::Merger(merges_of(model, ids)), std::move(pieces),
                                        how.dropout);
}

std::shared_ptr<const SubwordSampler> sampler_of_lattice(const SentencePieceModel& model,
                                                         const SubwordSampling& how) {
  if (how.dropout > 0 || how.alpha <= 0) {
    fail_option(concat("sampling of unigram models needs an alpha above 0 and no dropout, got ",
                       how.alpha, " and ", how.dropout, '.'));
  }
  return std::make_shared<LatticeSampler>(model, how);
}

}  // namespace tapestry::tokenizers
