// The mapping between another system's tensors and ours: tables of rows that the same code reads in
// both directions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/interop/architectures/model_facts.h"
#include "core/tensor.h"

namespace tapestry::interop {

/// The change of a tensor of ours besides cutting it into parts. Each has an inverse.
enum class Change {
  kNone,
  kTranspose,    ///< their weight is (in, out)
  kLeadingAxis,  ///< theirs has an axis of size 1 in front
  kTwoRows,      ///< theirs has two rows in front that no token reads
  kPatches,      ///< theirs is a convolution (D, C, P, P), ours (D, P * P * C)
  /// For the first two parts, queries and keys: pairs of a head that are rotated together. Ours lie
  /// as rope_layout says, theirs are halves or neighbours.
  kToHalves,
  kToNeighbours,
  kPlusOne,  ///< theirs is a norm's whole weight, ours what is added to 1
  kByHead,   ///< theirs has queries, keys and values of a head one below the other (as many groups)
};

/// The axis of a tensor that is the residual stream, for systems that order its numbers
/// differently.
enum class Stream { kNone, kReads, kWrites };

/// One row stands for many tensors. In `theirs` `{a,b}` are tensors one below the other in ours; in
/// both names `#` is the number of a layer, `$` encoder and decoder, and a last `*` weight and bias
/// (`@` gamma and beta); `^` in front is the prefix of an architecture.
struct TensorRow {
  const char* theirs;
  const char* ours;
  const char* rows;          ///< letters of ModelFacts::size(): one for each part
  const char* columns = "";  ///< empty: a vector, or a norm
  Stream stream = Stream::kNone;
  Change change = Change::kNone;
  bool ModelFacts::*when = nullptr;  ///< the row counts only then
  bool optional = false;             ///< zeros if ours lack it, as with any bias
  bool but_first = false;            ///< the first layer lacks it
};

/// A row for one tensor of ours.
struct TensorPair {
  std::vector<std::string> theirs;
  std::vector<Shape> their_shapes = {};
  std::string ours;
  Shape our_shape = {};
  std::vector<int64_t> parts = {};  ///< rows of ours that each of theirs is
  bool is_bias = false;
  bool optional = false;  ///< zeros if ours lack it
  Stream stream = Stream::kNone;
  Change change = Change::kNone;
  double factor = 1;  ///< theirs = factor * ours; exporting only
};

/// Facts about a model that the changes need.
struct Layout {
  int64_t heads = 1;
  int64_t groups = 1;                ///< heads of keys and values
  bool neighbours = false;           ///< our pairs lie side by side
  int64_t patch = 1;                 ///< side of a patch
  bool halves_of_sinusoids = false;  ///< their stream has the sines first, then the cosines
};
Layout layout_of(const ModelFacts& facts);

std::vector<TensorPair> expand(std::span<const TensorRow> rows, const ModelFacts& facts,
                               const std::string& prefix = "");

/// A tensor of theirs, read into memory of the given shape.
using ReadTensor = std::function<void(const std::string& name, const Tensor& into)>;

/// True if a row of ours is one of theirs, so that some can be read without the others.
bool keeps_rows(const TensorPair& pair, const Layout& layout);
/// Our tensor from theirs.
Tensor to_ours(const TensorPair& pair, const Layout& layout, DType dtype, const ReadTensor& read);
/// Theirs from ours, part `index`.
Tensor to_theirs(const TensorPair& pair, const Layout& layout, const Tensor& ours, size_t index);

/// Sinusoids as (length, size): the sines of row p first, then the cosines.
Tensor sinusoids_in_halves(int64_t length, int64_t size, DType dtype);

}  // namespace tapestry::interop
