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
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (piece.type != SentencePieceModel::kNormal) continue;
    uint32_t node = 0;
    for (const char c : piece.text) node = add_edge(node, static_cast<unsigned char>(c));
    nodes_[node] = {piece.score, static_cast<int32_t>(id)};
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
      if (!nodes_[node].is_piece()) continue;
      single = single || end == next;
      arrive(end, nodes_[node].score);
    }
    if (!single) arrive(next, unknown_score_);
    begin = next;
  }
  const Best& end = best.back();
  return end.second > kWorst ? end.first - end.second : std::numeric_limits<double>::infinity();
}

std::vector<PieceLattice::Arc> PieceLattice::arcs_of(std::string_view text) const {
  std::vector<Arc> arcs;
  for (size_t begin = 0; begin < text.size(); next_code_point(text, begin)) {
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      node = follow(node, static_cast<unsigned char>(text[end++]));
      if (node == kNone) break;
      const Node& found = nodes_[node];
      if (found.is_piece()) arcs.push_back({begin, end, found.score, found.id});
    }
  }
  return arcs;
}

namespace {

// log(exp(a) + exp(b))
double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kWorst ? a : a + std::log1p(std::exp(b - a));
}

// The index that a draw of [0, 1) falls on, where log_weights are those of all.
size_t draw_index_of(const std::vector<double>& log_weights, double draw) {
  double all = kWorst;
  for (const double weight : log_weights) all = log_add(all, weight);
  double sum = 0;
  for (size_t i = 0; i + 1 < log_weights.size(); ++i) {
    sum += std::exp(log_weights[i] - all);
    if (draw < sum) return i;
  }
  return log_weights.size() - 1;
}

// Forward filtering, backward sampling: each path in proportion to exp(alpha * score).
template <class Arc>
void sample_any(const std::vector<Arc>& arcs, size_t size, double alpha, RowDraws& draws,
                std::vector<int32_t>& reversed) {
  std::vector<double> before(size + 1, kWorst);  // log of the weights of all paths to a place
  std::vector<std::vector<const Arc*>> ending(size + 1);
  before[0] = 0;
  for (const Arc& arc : arcs) {  // by ascending begin
    if (before[arc.begin] == kWorst) continue;
    before[arc.end] = log_add(before[arc.end], before[arc.begin] + alpha * arc.score);
    ending[arc.end].push_back(&arc);
  }
  std::vector<double> weights;
  for (size_t at = size; at > 0;) {
    const auto& choices = ending[at];
    weights.clear();
    for (const Arc* arc : choices) weights.push_back(before[arc->begin] + alpha * arc->score);
    const Arc* const arc =
        choices.size() == 1 ? choices[0] : choices[draw_index_of(weights, draws.uniform())];
    reversed.push_back(arc->id);
    at = arc->begin;
  }
}

// The same among the best paths.
template <class Arc>
void sample_best(const std::vector<Arc>& arcs, size_t size, const SubwordSampling& how,
                 RowDraws& draws, std::vector<int32_t>& reversed) {
  struct Path {
    double score;
    const Arc* last;
    size_t rank;  // of the path before it
  };
  std::vector<std::vector<Path>> best(size + 1);  // to each place, best first
  std::vector<std::vector<const Arc*>> beginning(size + 1);
  for (const Arc& arc : arcs) beginning[arc.begin].push_back(&arc);
  best[0].push_back({0, nullptr, 0});
  const auto most = static_cast<size_t>(how.nbest);
  for (size_t at = 0; at <= size; ++at) {
    std::stable_sort(best[at].begin(), best[at].end(),
                     [](const Path& a, const Path& b) { return a.score > b.score; });
    if (best[at].size() > most) best[at].resize(most);
    for (const Arc* arc : beginning[at]) {
      for (size_t rank = 0; rank < best[at].size(); ++rank) {
        best[arc->end].push_back({best[at][rank].score + arc->score, arc, rank});
      }
    }
  }
  std::vector<double> weights;
  for (const Path& path : best[size]) weights.push_back(how.alpha * path.score);
  size_t rank = weights.size() == 1 ? 0 : draw_index_of(weights, draws.uniform());
  for (size_t at = size; at > 0;) {
    const Path& path = best[at][rank];
    reversed.push_back(path.last->id);
    rank = path.rank;
    at = path.last->begin;
  }
}

}  // namespace

void PieceLattice::sample(std::string_view text, const SubwordSampling& how, RowDraws& draws,
                          std::vector<int32_t>& sampled) const {
  sampled.clear();
  const std::vector<Arc> arcs = arcs_of(text);
  if (how.nbest > 0) {
    sample_best(arcs, text.size(), how, draws, sampled);
  } else {
    sample_any(arcs, text.size(), how.alpha, draws, sampled);
  }
  std::reverse(sampled.begin(), sampled.end());
}

}  // namespace tapestry::tokenizers
