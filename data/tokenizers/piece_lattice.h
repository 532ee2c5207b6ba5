// The ways to cut a text into the pieces of a unigram model: how much better the best one is than
// the second, and random ones. Private to data/tokenizers/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizers/sampling/subword_sampler.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace tapestry::tokenizers {

/// The paths of a unigram model (Kudo 2018) through a word: a path costs the scores of its pieces.
class PieceLattice {
 public:
  explicit PieceLattice(const SentencePieceModel& model);

  /// The score of the best path less that of the second best; infinity if there is only one. A
  /// character without a piece counts as one of the score that SentencePiece gives it.
  double margin(std::string_view normalized) const;

  /// Sets `sampled` to a path through `text`, which has one: drawn with probabilities in proportion
  /// to exp(alpha * score), among the `nbest` best paths or all (0).
  void sample(std::string_view text, const SubwordSampling& how, RowDraws& draws,
              std::vector<int32_t>& sampled) const;

  /// The largest absolute score of a piece.
  double largest_score() const { return largest_score_; }

 private:
  static constexpr uint32_t kNone = 0;
  static constexpr int32_t kNoPiece = -1;

  // Transitions of a trie in an open hash table; node 0 is the root, which nothing leads to.
  struct Edge {
    uint64_t key = 0;  // the node and the byte, plus 1; 0: free
    uint32_t to = kNone;
  };
  struct Node {
    float score = 0;
    int32_t id = kNoPiece;
    bool is_piece() const { return id != kNoPiece; }
  };
  // A piece in a text.
  struct Arc {
    size_t begin, end;
    double score;
    int32_t id;
  };

  std::vector<Arc> arcs_of(std::string_view text) const;

  uint32_t follow(uint32_t node, unsigned char byte) const;
  uint32_t add_edge(uint32_t node, unsigned char byte);

  std::vector<Edge> edges_;
  std::vector<Node> nodes_;
  double unknown_score_ = 0;
  double largest_score_ = 0;
};

}  // namespace tapestry::tokenizers
