#include "data/tokenizers/piece_lattice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "data/files/utf8.h"

namespace tapestry::tokenizers {
namespace {

constexpr double kUnknownPenalty = 10;  // SentencePiece's
constexpr double kWorst = -std::numeric_limits<double>::infinity();

size_t place_of(uint64_t key, size_t places) {
  const uint64_t mixed = key * 0x9E3779B97F4A7C15U;  // the constant of splitmix64
  return (mixed ^ (mixed >> 32)) & (places - 1);
}
uint64_t key_of(uint32_t node, unsigned char byte) { return (uint64_t{node} << 8 | byte) + 1; }

// The scores of the two best paths to a place.
struct Best {
  double first = kWorst, second = kWorst;

  void add(double score) {
    if (score > first) {
      second = first;
      first = score;
    } else {
      second = std::max(second, score);
    }
  }
};

}  // namespace

PieceLattice::PieceLattice(const SentencePieceModel& model) : nodes_(1) {
  size_t bytes = 1;
  double least = 0;
  for (const auto& piece : model.pieces) {
    bytes += piece.text.size();
    if (piece.type != SentencePieceModel::kNormal) continue;
    least = std::min<double>(least, piece.score);
    largest_score_ = std::max<double>(largest_score_, std::abs(piece.score));
  }
  unknown_score_ = least - kUnknownPenalty;
  edges_.resize(std::bit_ceil(2 * bytes));
  for (const auto& piece : model.pieces) {
    if (piece.type != SentencePieceModel::kNormal) continue;
    uint32_t node = 0;
    for (const char c : piece.text) node = add_edge(node, static_cast<unsigned char>(c));
    nodes_[node] = {piece.score, true};
  }
}

uint32_t PieceLattice::follow(uint32_t node, unsigned char byte) const {
  const uint64_t key = key_of(node, byte);
  for (size_t at = place_of(key, edges_.size());; at = (at + 1) & (edges_.size() - 1)) {
    if (edges_[at].key == key) return edges_[at].to;
    if (edges_[at].key == 0) return kNone;
  }
}

uint32_t PieceLattice::add_edge(uint32_t node, unsigned char byte) {
  if (const uint32_t there = follow(node, byte); there != kNone) return there;
  const uint64_t key = key_of(node, byte);
  size_t at = place_of(key, edges_.size());
  while (edges_[at].key != 0) at = (at + 1) & (edges_.size() - 1);
  edges_[at] = {key, static_cast<uint32_t>(nodes_.size())};
  nodes_.emplace_back();
  return edges_[at].to;
}

double PieceLattice::margin(std::string_view normalized) const {
  std::vector<Best> best(normalized.size() + 1);
  best[0].first = 0;
  for (size_t begin = 0; begin < normalized.size();) {
    size_t next = begin;
    next_code_point(normalized, next);
    const Best here = best[begin];
    const auto arrive = [&](size_t end, double score) {
      best[end].add(here.first + score);
      if (here.second > kWorst) best[end].add(here.second + score);
    };
    bool single = false;
    uint32_t node = 0;
    for (size_t end = begin; end < normalized.size();) {
      node = follow(node, static_cast<unsigned char>(normalized[end++]));
      if (node == kNone) break;
      if (!nodes_[node].is_piece) continue;
      single = single || end == next;
      arrive(end, nodes_[node].score);
    }
    if (!single) arrive(next, unknown_score_);
    begin = next;
  }
  const Best& end = best.back();
  return end.second > kWorst ? end.first - end.second : std::numeric_limits<double>::infinity();
}

}  // namespace tapestry::tokenizers
